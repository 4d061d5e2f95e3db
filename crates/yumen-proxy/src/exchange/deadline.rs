//! Deadline of an exchange.
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

/// Fails if the deadline has passed.
pub(crate) fn check(conn: &DownstreamConnection) -> Result<(), Fault> {
    if is_over(conn) { Err(Fault { kind: FaultKind::Deadline, unsent: true }) } else { Ok(()) }
}

fn is_over(conn: &DownstreamConnection) -> bool {
    conn.timer.cap_ms().is_some_and(|cap_ms| clock::now().mono_ms() >= cap_ms)
}

/// Replaces a timeout that the deadline cut short by a deadline fault, which is not attributed to an
/// endpoint.
#[cold]
pub(crate) fn settle(conn: &DownstreamConnection, fault: Fault) -> Fault {
    let is_wait = matches!(
        fault.kind,
        FaultKind::ClientTimeout
            | FaultKind::ConnectTimeout
            | FaultKind::SendTimeout
            | FaultKind::ReadTimeout
            | FaultKind::ClientStalled
            | FaultKind::UpstreamQueue
    );
    if is_wait && is_over(conn) { Fault { kind: FaultKind::Deadline, unsent: fault.unsent } } else { fault }
}

/// Removes the deadline, so that the fault can be sent to the client.
#[cold]
pub(crate) fn end(conn: &mut DownstreamConnection, fault: Fault) -> Fault {
    let fault = settle(conn, fault);
    conn.timer.uncap();
    fault
}

/// Time left, in milliseconds; at least 1.
pub(crate) fn left_ms(ex: &Exchange<'_>) -> u64 {
    ex.upstream.deadline_ms.saturating_sub(clock::now().mono_ms()).max(1)
}
