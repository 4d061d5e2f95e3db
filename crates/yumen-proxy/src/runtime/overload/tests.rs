use super::*;

fn lot(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn a_worker_takes_so_many_exchanges_at_a_time() {
    let spared_paths = vec!["/health".to_owned()];
    let settings = OverloadSettings { exchanges_max: 2, spared_paths, ..OverloadSettings::default() };
    let overload = OverloadGuard::new(&settings).unwrap();
    let running: Vec<_> = (0..2).map(|_| overload.admit(b"/", 0).unwrap()).collect();
    assert_eq!(overload.admit(b"/", 0).err(), Some(FaultKind::Overloaded));
    assert!(overload.admit(b"/healthz", 0).is_ok());
    drop(running);
    assert!(overload.admit(b"/", 0).is_ok());
    assert!(OverloadGuard::new(&OverloadSettings::default()).is_none());
}

#[test]
fn nothing_is_taken_on_while_memory_is_short() {
    let full = Arc::new(AtomicBool::new(true));
    let memory_full = Some(full.clone());
    let spared_paths = vec!["/health".to_owned()];
    let settings = OverloadSettings { memory_full, spared_paths, ..OverloadSettings::default() };
    let overload = OverloadGuard::new(&settings).unwrap();
    for path in [&b"/"[..], b"/health"] {
        assert_eq!(overload.admit(path, 0).err(), Some(FaultKind::Overloaded));
    }
    full.store(false, Relaxed);
    assert!(overload.admit(b"/", 0).is_ok());
}

/// Returns the interval between two measurements with this delay, in milliseconds: a worker with delayed
/// events also measures late.
fn sample_interval(waited_ms: u64) -> u64 {
    SAMPLE_MS + 2 * waited_ms
}

/// Applies delays in milliseconds with a target of 10 ms. Returns the state and the elapsed time.
fn lag_after(waits: &[u64]) -> (EventLag, u64) {
    let (mut lag, mut now_ms) = (EventLag::since(1_000_000), 1000);
    for waited_ms in waits {
        now_ms += sample_interval(*waited_ms);
        lag.note(now_ms * 1000, waited_ms * 1000, 10_000);
    }
    (lag, now_ms - 1000)
}

/// Checks the share of shed requests after these delays, in percent.
#[track_caller]
fn check(waits: &[u64], percent: std::ops::RangeInclusive<u32>) {
    let (lag, _) = lag_after(waits);
    let shed = (0..10_000).filter(|number| lag.sheds(lot(*number))).count() as u32 / 100;
    assert!(percent.contains(&shed), "{waits:?}: {shed} %");
}

#[test]
fn sustained_event_lag_sheds_load() {
    check(&[], 0..=0);
    check(&[9; 50], 0..=0);
    // Short bursts of any delay.
    check(&[200, 1].repeat(20), 0..=0);
    check(&[20, 1].repeat(50), 0..=0);
    check(&[3000, 1], 0..=0);
    check(&[20; 5000], 90..=95);
    // The share returns to 0 after the overload.
    check(&[[20; 5000].as_slice(), &[9; 400]].concat(), 0..=0);
}

#[test]
fn a_tenth_more_is_shed_each_tenth_of_a_second_however_long_the_waits_are() {
    for waited_ms in [11, 20, 50, 100, 300, 1000] {
        // The first measurement alone changes nothing.
        let looks = 1 + 3000_u64.div_ceil(sample_interval(waited_ms));
        let (lag, took_ms) = lag_after(&vec![waited_ms; looks as usize]);
        let tenths = (took_ms - sample_interval(waited_ms)) / 100;
        let expected = 1.0 - 0.9_f64.powi(tenths as i32);
        let shed = f64::from(lag.shed) / 1024.0;
        assert!((shed - expected.min(0.95)).abs() < 0.03, "{waited_ms} ms: {shed} instead of {expected}");
    }
}

#[test]
fn shedding_ends_within_three_seconds_once_nothing_waits() {
    let (mut lag, _) = lag_after(&[20; 5000]);
    let start_us = lag.measured_us;
    for look in 1..=3000 / SAMPLE_MS {
        lag.note(start_us + look * SAMPLE_MS * 1000, 100, 10_000);
    }
    assert_eq!(lag.shed, 0);
}

/// Simulates a worker with more load than it can serve. Each turn serves the requests that arrived in the
/// previous turn, so its length is the time to serve them.
fn overloaded(factor: f64, seconds: u64) -> Vec<(u64, u64, f64)> {
    const REFUSING: f64 = 0.1;
    let (mut lag, mut now_us, mut turn_us) = (EventLag::since(0), 0_u64, 1000_u64);
    let (mut look_at_us, mut before_us, mut turns) = (SAMPLE_MS * 1000, None, Vec::new());
    while now_us < seconds * 1_000_000 {
        let shed = f64::from(lag.shed) / 1024.0;
        let offered_us = turn_us as f64 * factor;
        let served_us = offered_us * (1.0 - shed);
        turn_us = ((served_us + offered_us * shed * REFUSING) as u64).clamp(1000, 10_000_000);
        now_us += turn_us;
        turns.push((now_us, turn_us, served_us));
        match before_us.take() {
            Some(since_us) => {
                lag.note(now_us, now_us - since_us, 10_000);
                look_at_us = now_us + SAMPLE_MS * 1000;
            }
            None if now_us >= look_at_us => before_us = Some(now_us),
            None => {}
        }
    }
    turns
}

#[test]
fn shedding_settles_where_the_worker_can_keep_up() {
    for factor in [1.2, 1.5, 2.0, 2.5, 3.0] {
        let turns = overloaded(factor, 60);
        let late = turns.iter().filter(|(now_us, ..)| *now_us > 20_000_000);
        let (mut spent_us, mut served_us, mut weighed) = (0, 0.0, 0.0);
        for (_, turn_us, served) in late {
            spent_us += turn_us;
            served_us += served;
            weighed += (turn_us * turn_us) as f64;
        }
        let (wait_ms, share) = (weighed / spent_us as f64 / 1000.0, served_us / spent_us as f64);
        assert!(wait_ms < 80.0 && share > 0.7, "{factor}: {wait_ms} ms, {share} of what it can");
    }
}
