//! How observations of an endpoint become its state, and what traffic tells of it: passive checks.
//!
//! Active checks, in `probe`, count by the same rule. Nothing here waits.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use yumen_base::Counter;
use yumen_http::ResponseHead;
use yumen_plugin::Exchange;
use yumen_snapshot::Upstream;
use yumen_snapshot::protection::{AttemptFailure, EjectionEvent, UpstreamProtection};
use yumen_snapshot::upstream::{ActiveChecks, EndpointHealth, HealthCounts, PassiveChecks};

use crate::clock;
use crate::fault::{FaultKind, SharedFailure};
use crate::grpc;

/// Changes of state since the process began: to down and to up.
pub(crate) static CHANGES: [Counter; 2] = [Counter::new(), Counter::new()];

/// One thing seen of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthObservation {
    /// It answered with this status.
    Status(u16),
    /// It answered with something that is not HTTP.
    Malformed,
    /// A connection was established, and that was all that was asked.
    Connected,
    /// A connection failed.
    TcpFailure,
    /// It took too long.
    Timeout,
}

/// What checks of either sort say of observations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HealthRule<'c> {
    healthy_statuses: &'c [u16],
    successes: u32,
    unhealthy_statuses: &'c [u16],
    http_failures: u32,
    tcp_failures: u32,
    timeouts: u32,
}

/// The rule of a type of checks; both types name these settings alike.
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

/// What one observation counts as.
enum ObservationEffect<'n> {
    Success,
    /// A failure of a kind, with its count and threshold.
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

/// Counts an observation; gives the new state where this one changed it.
///
/// A success ends all rows of failures, a failure the row of successes; each kind of failure has a
/// row of its own. Successes of an endpoint that is up and failures of one that is down are not
/// counted. A threshold of 0 is never reached, and failures of its kind mean nothing.
pub(crate) fn judge(
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
            let reached = counted && counts.successes.fetch_add(1, Relaxed) + 1 >= rule.successes;
            (true, reached, &counts.successes)
        }
        ObservationEffect::Failure(count, threshold) => {
            clear(&counts.successes);
            (false, health.is_up() && count.fetch_add(1, Relaxed) + 1 >= threshold, count)
        }
    };
    if !reached || !health.set(up) {
        return None;
    }
    for counts in [&health.active, &health.passive] {
        for count in [&counts.successes, &counts.http_failures, &counts.tcp_failures, &counts.timeouts] {
            // What brought it there is shown; in this state it is not counted on.
            if !std::ptr::eq(count, decisive) {
                clear(count);
            }
        }
    }
    CHANGES[usize::from(up)].add_shared(1);
    Some(up)
}

/// Workers share these words: one that is 0 already, as in health it is, is only read.
fn clear(count: &AtomicU32) {
    if count.load(Relaxed) != 0 {
        count.store(0, Relaxed);
    }
}

/// Counts what an attempt saw, where the upstream has passive checks.
pub(crate) fn observe(upstream: &Upstream, index: usize, seen: HealthObservation) {
    let Some(passive) = upstream.checks.as_ref().and_then(|checks| checks.passive.as_ref()) else { return };
    let endpoint = &upstream.endpoints[index];
    let Some(health) = &endpoint.health else { return };
    if let Some(up) = judge(health, &health.passive, &passive.into(), seen) {
        tracing::info!(endpoint = %endpoint.addr, upstream = %upstream.origin, up, "endpoint health changed by a passive check");
    }
}

/// Judges whether the endpoint fails while others do not, where the upstream wants that.
#[cold]
fn note_outlier(upstream: &Upstream, protection: &UpstreamProtection, index: usize, failure: AttemptFailure) {
    if let Some(EjectionEvent { index, reason, for_ms }) =
        protection.observe(index, failure, clock::now().mono_ms())
    {
        let endpoint = upstream.endpoints[index].addr;
        tracing::warn!(%endpoint, upstream = %upstream.origin, reason, for_ms, "endpoint ejected");
    }
}

/// [`observe`] for an attempt that was answered.
#[inline]
pub(crate) fn observe_answer(upstream: &Upstream, index: usize, ex: &Exchange<'_>, head: &ResponseHead) {
    observe(upstream, index, HealthObservation::Status(head.status));
    if let Some(protection) = &upstream.protection {
        note_outlier(upstream, protection, index, failure_of(ex, head));
    }
}

/// [`observe`] for a stream whose endpoint is there.
pub(crate) fn observe_connected(upstream: &Upstream, index: usize) {
    observe(upstream, index, HealthObservation::Connected);
    if let Some(protection) = &upstream.protection {
        note_outlier(upstream, protection, index, AttemptFailure::None);
    }
}

/// What an answer tells of the endpoint's state; calls tell it in a status of their own.
#[cold]
fn failure_of(ex: &Exchange<'_>, head: &ResponseHead) -> AttemptFailure {
    match grpc::status_of_answer(ex, &head.fields) {
        Some(grpc::UNAVAILABLE) => AttemptFailure::Gateway,
        Some(grpc::INTERNAL | grpc::UNKNOWN) => AttemptFailure::Server,
        _ => AttemptFailure::of_status(head.status),
    }
}

/// [`observe`] for an attempt that failed; what others waited for with it is noted once.
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
        FaultKind::ConnectTimeout | FaultKind::SendTimeout | FaultKind::ReadTimeout => {
            HealthObservation::Timeout
        }
        FaultKind::UpstreamHead(_) | FaultKind::UpstreamBody(_) | FaultKind::UnexpectedUpgrade => {
            HealthObservation::Malformed
        }
        // What a client brings about by the name it asks for says nothing of the endpoint: RequestedName, RequestedTls,
        // RequestedVersion.
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
