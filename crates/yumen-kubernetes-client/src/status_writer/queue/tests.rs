//! Order and pace of status writes.

use std::sync::Arc;

use super::{IN_FLIGHT_MAX, StatusOutcome, StatusQueue, StatusStep};
use crate::error::ApiError;
use crate::object::ObjectAddress;
use crate::status_writer::StatusWrite;

fn at(name: &str) -> ObjectAddress {
    ObjectAddress {
        group: "g".into(),
        version: "v1".into(),
        plural: "things".into(),
        namespace: None,
        name: name.into(),
    }
}

fn draft(priority: u8, status: &str) -> StatusWrite {
    StatusWrite { priority, resource_version: Some("1".into()), status: status.into() }
}

/// The writes that begin at a moment, as `name=status`.
fn begin(queue: &mut StatusQueue, now_ms: u64) -> Vec<String> {
    let mut begun = Vec::new();
    while let StatusStep::Write(at, draft) = queue.next(now_ms) {
        begun.push(format!("{}={}", at.name, draft.status));
    }
    begun
}

fn finish(queue: &mut StatusQueue, name: &str, outcome: StatusOutcome, now_ms: u64) {
    queue.finish(&Arc::new(at(name)), outcome, now_ms);
}

#[test]
fn the_first_write_begins_at_once_and_the_newest_draft_wins() {
    let mut queue = StatusQueue::default();
    queue.submit(at("a"), draft(1, "1"), 0);
    assert_eq!(begin(&mut queue, 0), ["a=1"]);
    queue.submit(at("a"), draft(1, "2"), 10);
    queue.submit(at("a"), draft(1, "3"), 20);
    assert_eq!(begin(&mut queue, 20), [""; 0]);
    finish(&mut queue, "a", StatusOutcome::Done, 30);
    assert_eq!(queue.next(30), StatusStep::Wait { until_ms: Some(500) });
    assert_eq!(begin(&mut queue, 499), [""; 0]);
    assert_eq!(begin(&mut queue, 500), ["a=3"]);
    finish(&mut queue, "a", StatusOutcome::Done, 510);
    assert_eq!(begin(&mut queue, 2000), [""; 0]);
    // Nothing is kept of an object without drafts.
    assert!(queue.objects.is_empty() && queue.paused.is_empty() && queue.ready.is_empty());
}

#[test]
fn a_thousand_changes_a_second_are_two_writes_a_second() {
    let mut queue = StatusQueue::default();
    let mut writes = 0;
    for now_ms in 0..10_000 {
        queue.submit(at("a"), draft(1, &now_ms.to_string()), now_ms);
        for _ in begin(&mut queue, now_ms) {
            writes += 1;
            finish(&mut queue, "a", StatusOutcome::Done, now_ms);
        }
    }
    assert_eq!(writes, 20);
}

#[test]
fn lower_priorities_come_first_then_the_order_of_arrival() {
    let mut queue = StatusQueue::default();
    for (name, priority) in [("r1", 5), ("r2", 5), ("g1", 1), ("r3", 5), ("g2", 1)] {
        queue.submit(at(name), draft(priority, "x"), 0);
    }
    // A newer draft changes the priority and keeps the place.
    queue.submit(at("r2"), draft(5, "y"), 0);
    queue.submit(at("r3"), draft(1, "z"), 0);
    assert_eq!(begin(&mut queue, 0), ["g1=x", "r3=z", "g2=x", "r1=x", "r2=y"]);
}

#[test]
fn writes_in_flight_are_bounded() {
    let mut queue = StatusQueue::default();
    for number in 0..40 {
        queue.submit(at(&format!("o{number:02}")), draft(1, "x"), 0);
    }
    assert_eq!(begin(&mut queue, 0).len(), IN_FLIGHT_MAX);
    assert_eq!(queue.pending(), 40);
    finish(&mut queue, "o03", StatusOutcome::Done, 1);
    finish(&mut queue, "o04", StatusOutcome::Missing, 1);
    assert_eq!(begin(&mut queue, 1), ["o16=x", "o17=x"]);
    assert_eq!(queue.pending(), 38);
}

#[test]
fn failures_pause_and_keep_the_newest_draft() {
    let mut queue = StatusQueue::default();
    let throttled = |after_ms| ApiError::Throttled { after_ms, message: String::new() };
    queue.submit(at("a"), draft(1, "1"), 0);
    begin(&mut queue, 0);
    finish(&mut queue, "a", StatusOutcome::Failed(draft(1, "1"), throttled(7000)), 100);
    assert_eq!(begin(&mut queue, 7099), [""; 0]);
    assert_eq!(begin(&mut queue, 7100), ["a=1"]);
    queue.submit(at("a"), draft(1, "2"), 7150);
    finish(&mut queue, "a", StatusOutcome::Failed(draft(1, "1"), ApiError::Denied(String::new())), 7200);
    assert_eq!(begin(&mut queue, 37_199), [""; 0]);
    assert_eq!(begin(&mut queue, 37_200), ["a=2"]);
}

#[test]
fn failures_of_one_object_pause_longer_and_longer() {
    let mut queue = StatusQueue::default();
    queue.submit(at("a"), draft(1, "1"), 0);
    let mut now_ms = 0;
    let mut pauses = Vec::new();
    for _ in 0..8 {
        assert_eq!(begin(&mut queue, now_ms), ["a=1"]);
        let failure = StatusOutcome::Failed(draft(1, "1"), ApiError::Unreachable(String::new()));
        finish(&mut queue, "a", failure, now_ms);
        let StatusStep::Wait { until_ms: Some(until_ms) } = queue.next(now_ms) else { panic!("no pause") };
        pauses.push(until_ms - now_ms);
        now_ms = until_ms;
    }
    assert_eq!(pauses, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
}

#[test]
fn a_cleared_queue_ignores_the_ends_of_old_writes() {
    let mut queue = StatusQueue::default();
    queue.submit(at("a"), draft(1, "1"), 0);
    begin(&mut queue, 0);
    queue.clear();
    finish(&mut queue, "a", StatusOutcome::Done, 10);
    assert_eq!((queue.pending(), queue.in_flight), (0, 0));
    queue.submit(at("a"), draft(1, "2"), 20);
    assert_eq!(begin(&mut queue, 20), ["a=2"]);
}
