//! Which failures of endpoints, and of clients at a listener, operators are told of: one of a kind now and then, with
//! how many there were.
//!
//! Knows no log: whoever asks writes it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long nothing more is told of failures of the same kind at the same endpoint.
const SUPPRESS_FOR: Duration = Duration::from_secs(10);

/// Endpoints whose failures are told apart; past this the count begins anew.
const TOLD_MAX: usize = 1024;

/// Which failures are counted together, so that none hides another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SuppressionKey {
    /// Of a handshake: the name was none the endpoint has.
    Name,
    /// Of a handshake under a name that was asked for.
    Requested,
    /// Of a handshake under the endpoint's own.
    Own,
    /// It broke off TLS after the handshake.
    Alert,
    /// Of a handshake when it was probed.
    Probe,
    /// Of a handshake with a client, at an address of this node: the name was none that is known.
    UnknownName,
    /// It sent more frames of HTTP/2 than is borne.
    Flood,
}

/// When a failure was last told, and how many were not since.
type SuppressionTable = HashMap<(SocketAddr, SuppressionKey), (Instant, u64)>;

/// Whether a failure is to be told, and how many were not since the last one that was: clients can bring about as many
/// as they like.
#[cold]
pub(crate) fn should_log(endpoint: SocketAddr, which: SuppressionKey) -> Option<u64> {
    static TOLD: Mutex<Option<SuppressionTable>> = Mutex::new(None);
    let now = Instant::now();
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    let told = told.get_or_insert_default();
    let untold = match told.get_mut(&(endpoint, which)) {
        Some((at, untold)) if now.duration_since(*at) < SUPPRESS_FOR => {
            *untold += 1;
            return None;
        }
        Some((_, untold)) => *untold,
        None => 0,
    };
    if told.len() >= TOLD_MAX {
        told.clear();
    }
    told.insert((endpoint, which), (now, 0));
    Some(untold)
}
