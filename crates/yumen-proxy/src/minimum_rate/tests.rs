use super::*;

/// A client's progress as (milliseconds, bytes in all), `None` for a time at which somebody else is waited
/// for, against what comes of each: the milliseconds left.
#[track_caller]
fn check(steps: &[(u64, Option<i64>)], expected: &[Option<u64>]) {
    let rate = MinimumRate { bytes_per_s: 100, window_ms: 2000 };
    let mut pace = RateWindow::default();
    let mut found = Vec::new();
    for (now_ms, bytes) in steps {
        match bytes {
            Some(bytes) => found.push(pace.judge(rate, *bytes, 1000 + now_ms)),
            None => pace.rest(),
        }
    }
    assert_eq!(found, expected, "{steps:?}");
}

#[test]
fn a_client_must_keep_up_the_rate_over_each_window() {
    check(&[(0, Some(0)), (500, Some(0)), (2000, Some(200))], &[Some(2000), Some(1500), Some(2000)]);
    check(&[(0, Some(0)), (2000, Some(199))], &[Some(2000), None]);
    check(&[(0, Some(50)), (2000, Some(249))], &[Some(2000), None]);
    // What a socket holds of the answer before may be more than it was given of this one.
    check(&[(0, Some(-500)), (2000, Some(-300))], &[Some(2000), Some(2000)]);
    check(&[(0, Some(300)), (2000, Some(100))], &[Some(2000), None]);
    // What was sent in one window does not count in the next.
    check(&[(0, Some(0)), (2000, Some(9000)), (4000, Some(9100))], &[Some(2000), Some(2000), None]);
    // A fresh window after somebody else was waited for.
    check(&[(0, Some(0)), (1900, None), (2100, Some(0))], &[Some(2000), Some(2000)]);
    // Late to be asked: the rate over the window is enough.
    check(&[(0, Some(0)), (9000, Some(200))], &[Some(2000), Some(2000)]);
}
