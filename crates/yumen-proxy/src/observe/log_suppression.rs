//! Suppression of repeated log lines about failures of endpoints and clients: one line per kind and time,
//! with the number of suppressed ones.
//!
//! This file must not know the log: the caller writes the line.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which further failures of one kind at one address are suppressed.
const SUPPRESS_FOR: Duration = Duration::from_secs(10);

/// Number of address and kind pairs that are tracked; when full, the table is cleared.
const ENTRIES_MAX: usize = 1024;

/// Kinds of failures that are counted separately, so that none hides another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SuppressionKey {
    /// TLS handshake: the certificate of the endpoint does not match the name.
    Name,
    /// TLS handshake with a server name that the client requested.
    Requested,
    /// TLS handshake with the endpoint's own name.
    Own,
    /// TLS alert of the endpoint after the handshake.
    Alert,
    /// TLS handshake of a probe.
    Probe,
    /// TLS handshake of a client with an unknown server name, at an address of this node.
    UnknownName,
    /// More HTTP/2 control frames than permitted.
    Flood,
    /// A plugin that could not decide about a request.
    Undecided(&'static str),
}

/// Time of the last logged failure, and the number of suppressed ones since.
type SuppressionTable = HashMap<(SocketAddr, SuppressionKey), (Instant, u64)>;

/// Returns the number of suppressed lines if the failure is to be logged, otherwise `None`. Clients can cause
/// any number of failures, so callers must not log without this check.
#[cold]
pub(crate) fn should_log(endpoint: SocketAddr, which: SuppressionKey) -> Option<u64> {
    static LOGGED: Mutex<Option<SuppressionTable>> = Mutex::new(None);
    let now = Instant::now();
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    let logged = logged.get_or_insert_default();
    let suppressed = match logged.get_mut(&(endpoint, which)) {
        Some((at, suppressed)) if now.duration_since(*at) < SUPPRESS_FOR => {
            *suppressed += 1;
            return None;
        }
        Some((_, suppressed)) => *suppressed,
        None => 0,
    };
    if logged.len() >= ENTRIES_MAX {
        logged.clear();
    }
    logged.insert((endpoint, which), (now, 0));
    Some(suppressed)
}
