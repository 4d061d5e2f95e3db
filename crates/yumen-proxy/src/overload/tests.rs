use super::*;

fn lot(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn a_worker_takes_so_many_exchanges_at_a_time() {
    let spared_paths = vec!["/health".to_owned()];
    let settings = OverloadSettings { exchanges_max: 2, spared_paths, ..OverloadSettings::default() };
    let overload = Overload::new(&settings).unwrap();
    let running: Vec<_> = (0..2).map(|_| overload.admit(b"/", 0).unwrap()).collect();
    assert_eq!(overload.admit(b"/", 0).err(), Some(Kind::Overloaded));
    assert!(overload.admit(b"/healthz", 0).is_ok());
    drop(running);
    assert!(overload.admit(b"/", 0).is_ok());
    assert!(Overload::new(&OverloadSettings::default()).is_none());
}

#[test]
fn nothing_is_taken_on_while_memory_is_short() {
    let full = Arc::new(AtomicBool::new(true));
    let memory_full = Some(full.clone());
    let spared_paths = vec!["/health".to_owned()];
    let settings = OverloadSettings { memory_full, spared_paths, ..OverloadSettings::default() };
    let overload = Overload::new(&settings).unwrap();
    for path in [&b"/"[..], b"/health"] {
        assert_eq!(overload.admit(path, 0).err(), Some(Kind::Overloaded));
    }
    full.store(false, Relaxed);
    assert!(overload.admit(b"/", 0).is_ok());
}

/// Waits in milliseconds with a target of 10, and the share shed then, in percent.
#[track_caller]
fn check(waits: &[u64], percent: std::ops::RangeInclusive<u32>) {
    let mut lag = Lag::default();
    waits.iter().for_each(|wait| lag.note(wait * 1000, 10_000));
    let shed = (0..10_000).filter(|number| lag.sheds(lot(*number))).count() as u32 / 100;
    assert!(percent.contains(&shed), "{waits:?}: {shed} %");
}

#[test]
fn what_waits_for_long_is_shed_and_no_more_than_that() {
    check(&[], 0..=0);
    check(&[9; 50], 0..=0);
    // A wait that comes and goes.
    check(&[200, 1, 200, 200, 200].repeat(10), 0..=0);
    check(&[20; 5], 9..=11);
    check(&[20; 50], 60..=70);
    check(&[20; 5000], 90..=95);
    // And no more once it is over.
    check(&[[20; 5000].as_slice(), &[1; 300]].concat(), 0..=0);
}

/// A worker that serves `capacity` requests per measurement and is offered more: what is left over waits.
#[test]
fn shedding_settles_where_the_worker_can_keep_up() {
    let mut lag = Lag::default();
    let (capacity, offered) = (100u64, 250u64);
    let (mut waiting, mut number, mut waits) = (0u64, 0u64, Vec::new());
    for _ in 0..2000 {
        for _ in 0..offered {
            number += 1;
            waiting += u64::from(!lag.sheds(lot(number)));
        }
        waiting = waiting.saturating_sub(capacity);
        // 20 ms of work is what fits between two measurements.
        let waited_us = waiting * 20_000 / capacity;
        lag.note(waited_us, 10_000);
        waits.push(waited_us);
    }
    let late = &waits[1000..];
    let average_ms = late.iter().sum::<u64>() / late.len() as u64 / 1000;
    assert!(average_ms < 200, "{average_ms} ms");
}
