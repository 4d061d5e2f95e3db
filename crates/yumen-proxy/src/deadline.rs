//! When an exchange must be over: who says so, and what becomes of waits that would go beyond.
//!
//! A deadline caps the connection's one timer, so every wait of the exchange ends with it and none has to
//! know of it.

use yumen_plugin::Exchange;

use crate::clock;
use crate::connection::DownstreamConnection;
use crate::fault::{Fault, FaultKind};

/// Settles on the earliest deadline of those there are: the route's, the client's, a plugin's. A request
/// that is too late already is not worth asking anybody.
#[cold]
pub(crate) fn begin(
    conn: &mut DownstreamConnection,
    ex: &mut Exchange<'_>,
    total_ms: u64,
) -> Result<(), Fault> {
    let of_route = (total_ms != 0).then(|| ex.now.mono_ms() + total_ms);
    let of_plugin = (ex.deadline_ms != 0).then_some(ex.deadline_ms);
    let all = [of_route, of_plugin, conn.timer.cap_ms()];
    let Some(deadline_ms) = all.into_iter().flatten().min() else { return Ok(()) };
    ex.deadline_ms = deadline_ms;
    conn.timer.cap(deadline_ms);
    check(conn)
}

/// Whether there is time left.
pub(crate) fn check(conn: &DownstreamConnection) -> Result<(), Fault> {
    if is_over(conn) { Err(Fault { kind: FaultKind::Deadline, unsent: true }) } else { Ok(()) }
}

fn is_over(conn: &DownstreamConnection) -> bool {
    conn.timer.cap_ms().is_some_and(|cap_ms| clock::now().mono_ms() >= cap_ms)
}

/// A wait that the deadline cut short is its own fault: it says nothing of whoever was waited for.
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

/// Lifts the deadline, so that what is still to be said can be.
#[cold]
pub(crate) fn end(conn: &mut DownstreamConnection, fault: Fault) -> Fault {
    let fault = settle(conn, fault);
    conn.timer.uncap();
    fault
}

/// What is left, in milliseconds; at least one.
pub(crate) fn left_ms(ex: &Exchange<'_>) -> u64 {
    ex.deadline_ms.saturating_sub(clock::now().mono_ms()).max(1)
}
