//! What one process tells, another goes on with.

use super::*;

const NOW: Now = Now { mono_us: 5_000_000, unix_ms: 1_000 };

#[test]
fn an_endpoint_that_is_down_stays_down_with_its_counts() {
    let before = Health::default();
    assert_eq!(before.tell(), Value::Null, "a fresh one knows as much");
    before.set(false);
    before.active.successes.store(2, Relaxed);
    before.passive.timeouts.store(7, Relaxed);
    let after = Health::default();
    after.take_over(&before.tell(), NOW);
    assert!(!after.is_up());
    assert_eq!(after.active.successes.load(Relaxed), 2);
    assert_eq!(after.passive.timeouts.load(Relaxed), 7);
}

#[test]
fn an_average_is_taken_over_unless_there_is_a_newer_one() {
    let before = EndpointState::new();
    assert_eq!(before.tell(), Value::Null);
    before.ewma_us.store(1500, Relaxed);
    before.ewma_at_us.store(70, Relaxed);
    let after = EndpointState::new();
    after.take_over(&before.tell(), NOW);
    assert_eq!((after.ewma_us.load(Relaxed), after.ewma_at_us.load(Relaxed)), (1500, 70));
    after.ewma_us.store(9, Relaxed);
    after.ewma_at_us.store(80, Relaxed);
    after.take_over(&before.tell(), NOW);
    assert_eq!(after.ewma_us.load(Relaxed), 9);
}

#[test]
fn turns_go_on_for_as_many_workers_as_there_are() {
    let check = |told: Value, workers: usize, expected: &[u32]| {
        let state = UpstreamState::new(workers, 0);
        state.take_over(&told, NOW);
        assert_eq!(state.turns_taken().collect::<Vec<_>>(), expected, "{told}");
    };
    check(json!([4, 5]), 2, &[4, 5]);
    check(json!([4, 5]), 3, &[4, 5, 4]);
    check(json!([4, 5]), 1, &[4]);
    check(json!([]), 1, &[0]);
    check(json!("another version's"), 1, &[0]);
}
