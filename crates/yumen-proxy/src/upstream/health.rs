//! The health rule: derives the state of an endpoint from observations, and passive checks from traffic.
//!
//! Active checks, in `probe`, use the same rule. Performs no I/O.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use yumen_base::Counter;
use yumen_http::ResponseHead;
use yumen_plugin::Exchange;
use yumen_snapshot::Upstream;
use yumen_snapshot::protection::{AttemptFailure, EjectionEvent, UpstreamProtection};
use yumen_snapshot::upstream::{ActiveChecks, EndpointHealth, HealthCounts, PassiveChecks};

use crate::fault::{FaultKind, SharedFailure};
use crate::grpc;
use crate::runtime::clock;

/// Counts of state changes since the start of the process: to down, to up.
pub(crate) static CHANGES: [Counter; 2] = [Counter::new(), Counter::new()];

/// One observation of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthObservation {
    /// A response with this status.
    Status(u16),
    /// A response that is not valid HTTP.
    Malformed,
    /// An established connection, where no request is sent.
    Connected,
    /// A failed connection.
    TcpFailure,
    /// A timeout.
    Timeout,
}

/// The settings that active and passive checks share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HealthRule<'c> {
    healthy_statuses: &'c [u16],
    successes: u32,
    unhealthy_statuses: &'c [u16],
    http_failures: u32,
    tcp_failures: u32,
    timeouts: u32,
}

/// Converts either type of checks; both use the same names of settings.
macro_rules! rule_of {
    ($($checks:ty),*) => {$(
        impl<'c> From<&'c $checks> for HealthRule<'c> {
            fn from(checks: &'c $checks) -> HealthRule<'c> {
                HealthRule {
                    healthy_statuses: &checks.healthy_statuses,
                    successes: checks.successes,
                    unhealthy_statuses: &checks.unhealthy_statuses,
                    http_failures: checks.http_failures,
                    tcp_failures: checks.tcp_failures,
                    timeouts: checks.timeouts,
                }
            }
        }
    )*};
}

rule_of!(ActiveChecks, PassiveChecks);

/// The effect of an observation on the counts.
enum ObservationEffect<'n> {
    Success,
    /// A failure, with its count and threshold.
    Failure(&'n AtomicU32, u32),
    Ignored,
}

impl HealthRule<'_> {
    fn meaning<'n>(&self, seen: HealthObservation, counts: &'n HealthCounts) -> ObservationEffect<'n> {
        let http_failure = ObservationEffect::Failure(&counts.http_failures, self.http_failures);
        match seen {
            HealthObservation::Status(status) if self.unhealthy_statuses.contains(&status) => http_failure,
            HealthObservation::Status(status) if self.healthy_statuses.contains(&status) => {
                ObservationEffect::Success
            }
            HealthObservation::Status(_) => ObservationEffect::Ignored,
            HealthObservation::Malformed => http_failure,
            HealthObservation::Connected => ObservationEffect::Success,
            HealthObservation::TcpFailure => {
                ObservationEffect::Failure(&counts.tcp_failures, self.tcp_failures)
            }
            HealthObservation::Timeout => ObservationEffect::Failure(&counts.timeouts, self.timeouts),
        }
    }
}

/// Counts an observation and returns the new state if it has changed.
///
/// A success resets all counts of failures, and a failure resets the count of successes; each kind of failure
/// has its own count. Successes of a healthy endpoint and failures of an unhealthy one are not counted. A
/// threshold of 0 disables failures of its kind.
pub(crate) fn count_observation(
    health: &EndpointHealth,
    counts: &HealthCounts,
    rule: &HealthRule<'_>,
    seen: HealthObservation,
) -> Option<bool> {
    let (up, reached, decisive) = match rule.meaning(seen, counts) {
        ObservationEffect::Ignored | ObservationEffect::Failure(_, 0) => return None,
        ObservationEffect::Success => {
            for count in [&counts.http_failures, &counts.tcp_failures, &counts.timeouts] {
                clear(count);
            }
            let counted = rule.successes != 0 && !health.is_up();
            // Relaxed suffices: no other data depends on the order of these counts.
            let reached = counted && counts.successes.fetch_add(1, Relaxed) + 1 >= rule.successes;
            (true, reached, &counts.successes)
        }
        ObservationEffect::Failure(count, threshold) => {
            clear(&counts.successes);
            (false, health.is_up() && count.fetch_add(1, Relaxed) + 1 >= threshold, count)
        }
    };
    // Another worker may have reached the threshold first. Only one of them reports the change.
    if !reached || !health.set(up) {
        return None;
    }
    for counts in [&health.active, &health.passive] {
        for count in [&counts.successes, &counts.http_failures, &counts.tcp_failures, &counts.timeouts] {
            // The count that reached its threshold stays visible in reports; in this state it does not
            // increase.
            if !std::ptr::eq(count, decisive) {
                clear(count);
            }
        }
    }
    CHANGES[usize::from(up)].add_shared(1);
    Some(up)
}

/// Resets a count. Workers share the counts: storing only non-zero ones keeps the cache line shared.
fn clear(count: &AtomicU32) {
    if count.load(Relaxed) != 0 {
        count.store(0, Relaxed);
    }
}

/// Counts the observation of an attempt, if the upstream has passive checks.
pub(crate) fn observe(upstream: &Upstream, index: usize, seen: HealthObservation) {
    let Some(passive) = upstream.checks.as_ref().and_then(|checks| checks.passive.as_ref()) else { return };
    let endpoint = &upstream.endpoints[index];
    let Some(health) = &endpoint.health else { return };
    if let Some(up) = count_observation(health, &health.passive, &passive.into(), seen) {
        tracing::info!(endpoint = %endpoint.addr, upstream = %upstream.origin, up, "endpoint health changed by a passive check");
    }
}

/// Passes the result of an attempt to outlier detection.
#[cold]
fn note_outlier(upstream: &Upstream, protection: &UpstreamProtection, index: usize, failure: AttemptFailure) {
    if let Some(EjectionEvent { index, reason, for_ms }) =
        protection.observe(index, failure, clock::now().mono_ms())
    {
        let endpoint = upstream.endpoints[index].addr;
        tracing::warn!(%endpoint, upstream = %upstream.origin, reason, for_ms, "endpoint ejected");
    }
}

/// [`observe`] for an attempt with a response.
#[inline]
pub(crate) fn observe_answer(upstream: &Upstream, index: usize, ex: &Exchange<'_>, head: &ResponseHead) {
    observe(upstream, index, HealthObservation::Status(head.status));
    if let Some(protection) = &upstream.protection {
        note_outlier(upstream, protection, index, failure_of(ex, head));
    }
}

/// [`observe`] for a stream whose endpoint is connected.
pub(crate) fn observe_connected(upstream: &Upstream, index: usize) {
    observe(upstream, index, HealthObservation::Connected);
    if let Some(protection) = &upstream.protection {
        note_outlier(upstream, protection, index, AttemptFailure::None);
    }
}

/// The failure that a response implies. gRPC calls report it in their own status.
#[cold]
fn failure_of(ex: &Exchange<'_>, head: &ResponseHead) -> AttemptFailure {
    match grpc::status_of_answer(ex, &head.fields) {
        Some(grpc::UNAVAILABLE) => AttemptFailure::Gateway,
        Some(grpc::INTERNAL | grpc::UNKNOWN) => AttemptFailure::Server,
        _ => AttemptFailure::of_status(head.status),
    }
}

/// [`observe`] for a failed attempt. A failure that several attempts share is counted once.
pub(crate) fn observe_fault(
    upstream: &Upstream,
    index: usize,
    kind: FaultKind,
    shared: Option<&SharedFailure>,
) {
    let seen = match kind {
        FaultKind::Connect
        | FaultKind::UpstreamTls
        | FaultKind::UpstreamVersion
        | FaultKind::UpstreamClosed
        | FaultKind::UpstreamReset => HealthObservation::TcpFailure,
        FaultKind::ConnectTimeout
        | FaultKind::SendTimeout
        | FaultKind::ReadTimeout
        | FaultKind::AttemptTimeout => HealthObservation::Timeout,
        FaultKind::UpstreamHead(_) | FaultKind::UpstreamBody(_) | FaultKind::UnexpectedUpgrade => {
            HealthObservation::Malformed
        }
        // RequestedName, RequestedTls and RequestedVersion depend on the name that the client requested, not
        // on the endpoint.
        _ => return,
    };
    if shared.is_some_and(|failure| !failure.note(upstream)) {
        return;
    }
    observe(upstream, index, seen);
    if let Some(protection) = &upstream.protection {
        note_outlier(upstream, protection, index, AttemptFailure::Gateway);
    }
}

#[cfg(test)]
mod tests;
