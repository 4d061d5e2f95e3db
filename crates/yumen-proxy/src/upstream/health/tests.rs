use std::sync::atomic::Ordering::Relaxed;

use yumen_snapshot::upstream::{EndpointHealth, PassiveChecks};

use super::{HealthObservation, count_observation};

fn checks(successes: u32, http_failures: u32, tcp_failures: u32, timeouts: u32) -> PassiveChecks {
    PassiveChecks {
        healthy_statuses: [200, 302].into(),
        successes,
        unhealthy_statuses: [500, 503].into(),
        http_failures,
        tcp_failures,
        timeouts,
    }
}

/// Feeds observations, one letter each, to a fresh endpoint and writes down its state after each,
/// as `+` or `-`: `o` is 200, `x` 500, `?` 418, `m` malformed, `c` connected, `t` a failed
/// connection, `z` a timeout.
fn check(checks: &PassiveChecks, observations: &str, expected: &str) {
    let health = EndpointHealth::default();
    let states: String = observations
        .chars()
        .map(|letter| {
            let seen = match letter {
                'o' => HealthObservation::Status(200),
                'x' => HealthObservation::Status(500),
                '?' => HealthObservation::Status(418),
                'm' => HealthObservation::Malformed,
                'c' => HealthObservation::Connected,
                't' => HealthObservation::TcpFailure,
                _ => HealthObservation::Timeout,
            };
            let before = health.is_up();
            let news = count_observation(&health, &health.passive, &checks.into(), seen);
            assert_eq!(news, (health.is_up() != before).then_some(health.is_up()), "{observations}");
            if health.is_up() { '+' } else { '-' }
        })
        .collect();
    assert_eq!(states, expected, "{observations}");
}

#[test]
fn failures_in_a_row_bring_an_endpoint_down_and_successes_in_a_row_back() {
    let checks = checks(2, 3, 2, 2);
    for (observations, expected) in [
        ("xxx", "++-"),
        ("xxoxxx", "+++++-"),
        ("xx?x", "+++-"),
        ("xmx", "++-"),
        ("tt", "+-"),
        ("tot", "+++"),
        ("zz", "+-"),
        ("xxxoo", "++--+"),
        ("xxxoxoo", "++----+"),
        ("xxxo?o", "++---+"),
        ("ttcc", "+--+"),
        // Each state starts with new counts.
        ("xxxooxxx", "++--+++-"),
        ("xxttooxx", "+++--+++"),
    ] {
        check(&checks, observations, expected);
    }
}

#[test]
fn kinds_of_failure_are_counted_apart() {
    let checks = checks(1, 2, 2, 2);
    for (observations, expected) in [("xtz", "+++"), ("xtzx", "+++-"), ("xtzt", "+++-"), ("xtozt", "+++++")] {
        check(&checks, observations, expected);
    }
}

#[test]
fn a_threshold_of_zero_is_never_reached() {
    check(&checks(1, 0, 1, 1), "xxxxxx", "++++++");
    check(&checks(1, 1, 0, 1), "tttttt", "++++++");
    check(&checks(1, 1, 1, 0), "zzzzzz", "++++++");
    check(&checks(0, 1, 1, 1), "xooooo", "------");
    // An ignored status does not reset counts.
    check(&checks(2, 0, 1, 1), "toxo", "---+");
    // Successes reset counts of failures even if they cannot restore the endpoint.
    check(&checks(0, 2, 1, 1), "xoxox", "+++++");
}

#[test]
fn a_change_of_state_ends_the_rows_of_both_sorts_of_checks_but_the_one_that_reached_it() {
    let health = EndpointHealth::default();
    let checks = checks(2, 2, 2, 2);
    count_observation(&health, &health.active, &(&checks).into(), HealthObservation::Status(500));
    assert_eq!(health.active.http_failures.load(Relaxed), 1);
    count_observation(&health, &health.passive, &(&checks).into(), HealthObservation::TcpFailure);
    assert_eq!(
        count_observation(&health, &health.passive, &(&checks).into(), HealthObservation::TcpFailure),
        Some(false)
    );
    assert_eq!(health.active.http_failures.load(Relaxed), 0);
    assert_eq!(health.passive.tcp_failures.load(Relaxed), 2);
    for successes in [1, 2] {
        count_observation(&health, &health.active, &(&checks).into(), HealthObservation::Status(200));
        assert_eq!(health.active.successes.load(Relaxed), successes);
    }
    assert!(health.is_up());
    assert_eq!(health.passive.tcp_failures.load(Relaxed), 0);
}

#[test]
fn traffic_that_succeeds_does_not_end_the_failures_a_checker_sees() {
    let health = EndpointHealth::default();
    let checks = checks(2, 2, 2, 2);
    count_observation(&health, &health.active, &(&checks).into(), HealthObservation::Status(503));
    count_observation(&health, &health.passive, &(&checks).into(), HealthObservation::Status(200));
    assert_eq!(
        count_observation(&health, &health.active, &(&checks).into(), HealthObservation::Status(503)),
        Some(false)
    );
}
