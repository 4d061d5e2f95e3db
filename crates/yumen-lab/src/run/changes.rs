//! Changes of the endpoints under load.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::gateway::StartedGateway;
use super::upstreams::LabUpstreams;
use crate::record::ChangeMark;
use crate::scenario::EndpointChanges;

/// Time for which a removed endpoint keeps running, as a pod does.
const GRACE: Duration = Duration::from_secs(1);
/// Time after which a change without effect in traffic counts as not observed.
const SEEN_LIMIT: Duration = Duration::from_secs(5);

/// Applies the changes until `ended` is set, then restores the first count. Marks are relative to `begun`.
pub(super) fn apply(
    changes: &EndpointChanges,
    gateway: &StartedGateway,
    upstreams: &mut LabUpstreams,
    begun: Instant,
    ended: &AtomicBool,
) -> Vec<ChangeMark> {
    let mut marks = Vec::new();
    let first = changes.endpoints.first().copied().unwrap_or(1);
    let mut due = begun;
    'rounds: loop {
        for (index, stay_ms) in changes.stay_ms.iter().enumerate() {
            // From the planned moment, so that the duration of a change does not shift the later ones.
            due += Duration::from_millis(*stay_ms);
            if !sleep_until(due, ended) {
                break 'rounds;
            }
            let count = changes.endpoints[(index + 1) % changes.endpoints.len()];
            marks.push(one(changes, count, gateway, upstreams, begun, ended));
            // A slow gateway must not receive two changes at once.
            due = due.max(Instant::now());
        }
    }
    // The next turn starts with the endpoints that its settings name.
    let back = one(changes, first, gateway, upstreams, begun, ended);
    if let (Some(error), Some(last)) = (back.error, marks.last_mut()) {
        // The restoring is no change of the scenario, so its error goes to the last mark.
        last.error.get_or_insert(error);
    }
    marks
}

fn one(
    changes: &EndpointChanges,
    count: usize,
    gateway: &StartedGateway,
    upstreams: &mut LabUpstreams,
    begun: Instant,
    ended: &AtomicBool,
) -> ChangeMark {
    let before = upstreams.count();
    // New endpoints must be listening before the gateway receives their addresses.
    let mut error = upstreams.grow(count).err();
    let start = Instant::now();
    let outcome = if changes.announce { gateway.change(&upstreams.addresses(count)) } else { Ok(()) };
    // Before the look for the effect: this is the time at the interface alone.
    let took = start.elapsed();
    // The first error is the cause.
    error = error.or(outcome.err());
    // Only a new endpoint has no earlier connections, so only its first connection shows the change.
    let looked_for = changes.announce && before < count && error.is_none();
    let effective = if looked_for { seen(upstreams, before..count, start, ended) } else { None };
    if changes.stop && count < before {
        // Stopped only after the change, with the grace period of a pod.
        let _ = sleep_until(Instant::now() + GRACE, ended);
        upstreams.shrink(count);
    }
    let suffix = if changes.announce { "" } else { ", unannounced" };
    ChangeMark {
        at_ms: (start - begun).as_millis() as u64,
        what: format!("{count} endpoints{suffix}"),
        took_ms: took.as_secs_f64() * 1000.0,
        effective_ms: effective.map(|effective| effective.as_secs_f64() * 1000.0),
        error: error.map(|error| format!("{error:#}")),
    }
}

/// Time of the first connection to one of the endpoints, according to the endpoints' counters.
fn seen(
    upstreams: &LabUpstreams,
    new_ones: Range<usize>,
    start: Instant,
    ended: &AtomicBool,
) -> Option<Duration> {
    while start.elapsed() < SEEN_LIMIT && !ended.load(Ordering::Acquire) {
        if new_ones.clone().any(|index| upstreams.accepted_at(index).is_some_and(|count| count > 0)) {
            return Some(start.elapsed());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

/// Sleeps until `due`; returns `false` if `ended` is set first.
fn sleep_until(due: Instant, ended: &AtomicBool) -> bool {
    loop {
        if ended.load(Ordering::Acquire) {
            return false;
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        // In short pieces, to notice `ended` soon.
        std::thread::sleep(left.min(Duration::from_millis(5)));
    }
}
