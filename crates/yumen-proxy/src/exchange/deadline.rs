//! Deadlines of an exchange and of its attempts.
//!
//! A deadline caps the only timer of the connection, so every wait of the exchange ends with it, and no wait
//! needs a check of its own.

use yumen_plugin::Exchange;

use crate::exchange::connection::DownstreamConnection;
use crate::fault::{Fault, FaultKind};
use crate::runtime::clock;

/// Sets the earliest deadline: of the route (`total_ms`), of the client, or of a plugin. Fails if it has
/// passed, so that no endpoint receives the request.
#[cold]
pub(crate) fn begin(
    conn: &mut DownstreamConnection,
    ex: &mut Exchange<'_>,
    total_ms: u64,
) -> Result<(), Fault> {
    let of_route = (total_ms != 0).then(|| ex.now.mono_ms() + total_ms);
    let of_plugin = (ex.upstream.deadline_ms != 0).then_some(ex.upstream.deadline_ms);
    let all = [of_route, of_plugin, conn.timer.cap_ms()];
    let Some(deadline_ms) = all.into_iter().flatten().min() else { return Ok(()) };
    ex.upstream.deadline_ms = deadline_ms;
    conn.timer.cap(deadline_ms);
    check(conn)
}

/// Caps the timer for one attempt as well, until [`end_attempt`] or the end of the exchange.
#[cold]
pub(crate) fn begin_attempt(conn: &DownstreamConnection, ex: &Exchange<'_>, attempt_ms: u64) {
    let end_ms = clock::now().mono_ms().saturating_add(attempt_ms);
    conn.timer.cap(of_exchange(ex).map_or(end_ms, |deadline_ms| deadline_ms.min(end_ms)));
}

/// Removes the cap of a failed attempt; that of the exchange stays.
#[cold]
pub(crate) fn end_attempt(conn: &DownstreamConnection, ex: &Exchange<'_>) {
    match of_exchange(ex) {
        Some(deadline_ms) => conn.timer.cap(deadline_ms),
        None => conn.timer.uncap(),
    }
}

/// The deadline of the exchange, in milliseconds of the monotonic clock.
fn of_exchange(ex: &Exchange<'_>) -> Option<u64> {
    Some(ex.upstream.deadline_ms).filter(|deadline_ms| *deadline_ms != 0)
}

/// Fails if the deadline has passed.
pub(crate) fn check(conn: &DownstreamConnection) -> Result<(), Fault> {
    if is_over(conn) { Err(Fault { kind: FaultKind::Deadline, unsent: true }) } else { Ok(()) }
}

fn is_over(conn: &DownstreamConnection) -> bool {
    conn.timer.cap_ms().is_some_and(|cap_ms| clock::now().mono_ms() >= cap_ms)
}

/// Whether a pause of this length would pass the deadline of the exchange.
pub(crate) fn is_within(ex: &Exchange<'_>, pause_ms: u64) -> bool {
    of_exchange(ex).is_none_or(|deadline_ms| clock::now().mono_ms() + pause_ms < deadline_ms)
}

/// Replaces a timeout that a deadline cut short. A fault of the exchange's deadline is not attributed to an
/// endpoint; one of the attempt's is.
#[cold]
pub(crate) fn settle(conn: &DownstreamConnection, ex: &Exchange<'_>, fault: Fault) -> Fault {
    let is_of_endpoint =
        matches!(fault.kind, FaultKind::ConnectTimeout | FaultKind::SendTimeout | FaultKind::ReadTimeout);
    let is_wait = is_of_endpoint
        || matches!(
            fault.kind,
            FaultKind::ClientTimeout | FaultKind::ClientStalled | FaultKind::UpstreamQueue
        );
    if !is_wait || !is_over(conn) {
        return fault;
    }
    let is_of_attempt = conn.timer.cap_ms() != of_exchange(ex);
    let kind = match is_of_attempt && is_of_endpoint {
        true => FaultKind::AttemptTimeout,
        // The client has used up the time of the attempt.
        false => FaultKind::Deadline,
    };
    Fault { kind, unsent: fault.unsent }
}

/// Removes the deadline, so that the fault can be sent to the client.
#[cold]
pub(crate) fn end(conn: &mut DownstreamConnection, ex: &Exchange<'_>, fault: Fault) -> Fault {
    let fault = settle(conn, ex, fault);
    conn.timer.uncap();
    fault
}

/// Time left, in milliseconds; at least 1.
pub(crate) fn left_ms(ex: &Exchange<'_>) -> u64 {
    ex.upstream.deadline_ms.saturating_sub(clock::now().mono_ms()).max(1)
}
