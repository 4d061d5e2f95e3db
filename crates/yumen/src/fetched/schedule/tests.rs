use super::FetchSchedule;

/// A lot that changes no pause.
const EVEN: f64 = 0.5;

#[test]
fn a_value_is_fetched_at_once_and_then_at_its_interval() {
    let mut schedule = FetchSchedule::new(300, 1_000);
    assert_eq!(schedule.pause_ms(1_000), 0);
    for (max_age_s, lot, expected) in [
        (None, EVEN, 300_000),
        (None, 0.0, 270_000),
        (None, 1.0, 330_000),
        (Some(120), EVEN, 120_000),
        (Some(5), EVEN, 60_000),
        (Some(3600), EVEN, 300_000),
    ] {
        schedule.succeeded(1_000, max_age_s, lot);
        assert_eq!(schedule.pause_ms(1_000), expected, "{max_age_s:?} {lot}");
    }
}

#[test]
fn the_pause_after_failures_doubles_up_to_a_minute() {
    let mut schedule = FetchSchedule::new(300, 0);
    for expected in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
        schedule.failed(0, EVEN);
        assert_eq!(schedule.pause_ms(0), expected);
    }
    schedule.succeeded(0, None, EVEN);
    schedule.failed(0, EVEN);
    assert_eq!(schedule.pause_ms(0), 1_000, "a success ends the back-off");
}

#[test]
fn a_short_interval_bounds_the_pause_after_failures() {
    let mut schedule = FetchSchedule::new(2, 0);
    for expected in [1_000, 2_000, 2_000] {
        schedule.failed(0, EVEN);
        assert_eq!(schedule.pause_ms(0), expected);
    }
}

#[test]
fn requests_advance_a_fetch_once_in_ten_seconds() {
    let mut schedule = FetchSchedule::new(300, 0);
    schedule.succeeded(0, None, EVEN);
    schedule.ask(5_000);
    assert_eq!(schedule.pause_ms(5_000), 0);
    schedule.succeeded(5_000, None, EVEN);
    schedule.ask(6_000);
    assert_eq!(schedule.pause_ms(6_000), 9_000, "the second waits for the end of the pause");
    schedule.ask(7_000);
    assert_eq!(schedule.pause_ms(7_000), 8_000, "a third changes nothing");
}

#[test]
fn an_inherited_value_continues_its_interval() {
    let mut schedule = FetchSchedule::new(300, 100_000);
    schedule.resume(40_000, EVEN);
    assert_eq!(schedule.pause_ms(100_000), 240_000);
    assert_eq!(schedule.pause_ms(500_000), 0, "one that is overdue is fetched at once");
}

#[test]
fn a_clock_that_is_set_back_delays_a_fetch_by_a_bound() {
    let mut schedule = FetchSchedule::new(300, 1_000_000_000);
    schedule.succeeded(1_000_000_000, None, EVEN);
    assert_eq!(schedule.pause_ms(0), 600_000);
}
