//! State that one process exports, and another one restores.

use std::sync::Arc;

use super::*;
use crate::protection::{AttemptFailure, OutlierRules};

const NOW: Now = Now { mono_us: 5_000_000, unix_ms: 1_000 };

#[test]
fn an_endpoint_that_is_down_stays_down_with_its_counts() {
    let before = EndpointHealth::default();
    assert_eq!(before.export(), Value::Null, "a fresh one knows as much");
    before.set(false);
    before.active.successes.store(2, Relaxed);
    before.passive.timeouts.store(7, Relaxed);
    let after = EndpointHealth::default();
    after.take_over(&before.export(), NOW);
    assert!(!after.is_up());
    assert_eq!(after.active.successes.load(Relaxed), 2);
    assert_eq!(after.passive.timeouts.load(Relaxed), 7);
}

#[test]
fn an_average_is_taken_over_unless_there_is_a_newer_one() {
    let before = EndpointState::new();
    assert_eq!(before.export(), Value::Null);
    before.ewma_us.store(1500, Relaxed);
    before.ewma_at_us.store(70, Relaxed);
    let after = EndpointState::new();
    after.take_over(&before.export(), NOW);
    assert_eq!((after.ewma_us.load(Relaxed), after.ewma_at_us.load(Relaxed)), (1500, 70));
    after.ewma_us.store(9, Relaxed);
    after.ewma_at_us.store(80, Relaxed);
    after.take_over(&before.export(), NOW);
    assert_eq!(after.ewma_us.load(Relaxed), 9);
}

#[test]
fn turns_go_on_for_as_many_workers_as_there_are() {
    let check = |exported: Value, workers: usize, expected: &[u32]| {
        let state = RoundRobinState::new(workers, 0);
        state.take_over(&exported, NOW);
        assert_eq!(state.positions().collect::<Vec<_>>(), expected, "{exported}");
    };
    check(json!([4, 5]), 2, &[4, 5]);
    check(json!([4, 5]), 3, &[4, 5, 4]);
    check(json!([4, 5]), 1, &[4]);
    check(json!([]), 1, &[0]);
    check(json!("another version's"), 1, &[0]);
}

#[test]
fn an_endpoint_goes_on_starting_slowly_where_it_was() {
    let before = EndpointStart::default();
    assert_eq!(before.export(), Value::Null, "nobody has looked yet");
    before.0.store(4_000_000, Relaxed);
    let after = EndpointStart::default();
    after.take_over(&before.export(), NOW);
    assert_eq!(after.0.load(Relaxed), 4_000_000);
}

#[test]
fn an_outlier_stays_out_for_the_rest_of_its_time() {
    let rules = OutlierRules {
        consecutive_5xx: 2,
        consecutive_gateway_failures: 0,
        success_rate: None,
        interval_ms: 10_000,
        base_ejection_ms: 30_000,
        max_ejection_ms: 300_000,
        max_ejected_percent: 50,
    };
    let upstream = || (UpstreamLimiter::default(), [0; 2].map(|_| Arc::new(EndpointCounts::default())));
    let ((gate, endpoints), (next_gate, next)) = (upstream(), upstream());
    assert_eq!((gate.export(), endpoints[0].export()), (Value::Null, Value::Null));
    for _ in 0..2 {
        gate.outliers.observe(&rules, &endpoints, 1, AttemptFailure::Server, 1000);
    }
    gate.outliers.observe(&rules, &endpoints, 0, AttemptFailure::Server, 1000);
    next_gate.take_over(&gate.export(), NOW);
    for (next, endpoint) in next.iter().zip(&endpoints) {
        next.take_over(&endpoint.export(), NOW);
    }
    assert_eq!(next[1].ejection.until_ms(), Some(31_000));
    assert_eq!((next[0].ejection.until_ms(), next[1].ejection.total()), (None, 1));
    assert!(!next_gate.outliers.is_due(30_999) && next_gate.outliers.is_due(31_000));
    next_gate.outliers.end_ejections(&next, 31_000);
    assert!(!next[1].ejection.is_ejected());
    // The predecessor counted one failure; with the next one they are two in a row.
    assert!(next_gate.outliers.observe(&rules, &next, 0, AttemptFailure::Server, 31_000).is_some());
    next[1].take_over(&json!("another version's"), NOW);
    assert_eq!(next[1].ejection.total(), 1);
}

#[test]
fn requests_under_way_in_the_process_before_count_until_they_have_ended() {
    let upstream = || {
        let gate = Arc::new(UpstreamLimiter::default());
        let tally = Arc::new(EndpointCounts::at(&gate));
        (gate, tally)
    };
    let ((gate, tally), (next_gate, next)) = (upstream(), upstream());
    gate.requests.store(3, Relaxed);
    tally.requests.store(2, Relaxed);
    next_gate.requests.store(1, Relaxed);
    let (exported, endpoint_export) = (gate.export(), tally.export());
    next_gate.take_over(&exported, NOW);
    next.take_over(&endpoint_export, NOW);
    let counts = || (next_gate.requests.load(Relaxed), next.requests.load(Relaxed));
    assert_eq!(counts(), (4, 2));
    assert_eq!(gate.since(&exported, &gate.export()), Value::Null, "nothing has changed");
    // One request ends, another one reaches the endpoint.
    gate.requests.store(2, Relaxed);
    tally.requests.store(0, Relaxed);
    next_gate.take_over(&gate.since(&exported, &gate.export()), NOW);
    next.take_over(&tally.since(&endpoint_export, &tally.export()), NOW);
    assert_eq!(counts(), (3, 0));
    next_gate.go_on_alone();
    assert_eq!(counts(), (1, 0));
}

#[test]
fn what_is_under_way_hides_nothing_of_outliers() {
    let (gate, tally) = (UpstreamLimiter::default(), EndpointCounts::default());
    gate.outliers.evaluate_at(7);
    gate.requests.store(1, Relaxed);
    let next = UpstreamLimiter::default();
    next.take_over(&gate.export(), NOW);
    assert_eq!(next.outliers.due_ms(), 7);
    next.take_over(&json!({"under_way": 5}), NOW);
    assert_eq!((next.outliers.due_ms(), next.requests.load(Relaxed)), (7, 5));
    tally.take_over(&json!({"under_way": "another version's"}), NOW);
    assert_eq!(tally.requests.load(Relaxed), 0);
}
