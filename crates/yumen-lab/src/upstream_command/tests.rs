use super::*;

#[test]
fn latencies_and_stalls_are_read_as_written() {
    let ms = 1_000_000;
    assert_eq!(latency("2ms").unwrap(), LatencyShape::Fixed(2 * ms));
    assert_eq!(latency("250us-5ms").unwrap(), LatencyShape::Uniform(ms / 4, 5 * ms));
    let once = StallSchedule { first_ms: 5000, for_ms: 200, every_ms: 0 };
    assert_eq!(stalls("5s+200ms").unwrap(), once);
    assert_eq!(stalls("5s+200ms/10s").unwrap(), StallSchedule { every_ms: 10_000, ..once });
    for wrong in ["5ms-2ms", "fast", "-"] {
        assert!(latency(wrong).is_err(), "{wrong}");
    }
    for wrong in ["5s", "5s+1s/500ms", "5s+x", "5s+1s/0"] {
        assert!(stalls(wrong).is_err(), "{wrong}");
    }
}
