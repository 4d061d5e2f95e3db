use super::*;

/// Compares the results of `check`, in milliseconds left, for a progress as (milliseconds, total bytes).
/// `None` is a time at which the gateway waits for another party.
#[track_caller]
fn check(steps: &[(u64, Option<i64>)], expected: &[Option<u64>]) {
    let rate = MinimumRate { bytes_per_s: 100, window_ms: 2000 };
    let mut pace = RateWindow::default();
    let mut found = Vec::new();
    for (now_ms, bytes) in steps {
        match bytes {
            Some(bytes) => found.push(pace.check(rate, *bytes, 1000 + now_ms)),
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
    // The socket may buffer more bytes of the previous response than it took of this one.
    check(&[(0, Some(-500)), (2000, Some(-300))], &[Some(2000), Some(2000)]);
    check(&[(0, Some(300)), (2000, Some(100))], &[Some(2000), None]);
    // Bytes of one window do not count in the next.
    check(&[(0, Some(0)), (2000, Some(9000)), (4000, Some(9100))], &[Some(2000), Some(2000), None]);
    // A fresh window begins after the wait for another party.
    check(&[(0, Some(0)), (1900, None), (2100, Some(0))], &[Some(2000), Some(2000)]);
    // A late call judges the bytes since the start of the window.
    check(&[(0, Some(0)), (9000, Some(200))], &[Some(2000), Some(2000)]);
}
