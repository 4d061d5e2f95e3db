//! Which servers are out of reach, for the log: a server's going and coming back is one line each,
//! however many workers notice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use yumen_plugin::outbound::RedisFault;

/// How many links of this process find a server out of reach.
static OUT_OF_REACH: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// A link cannot reach its server any more.
pub(crate) fn begin(server: &str, fault: &RedisFault) {
    let mut known = OUT_OF_REACH.lock().unwrap_or_else(PoisonError::into_inner);
    let links = known.entry(server.to_owned()).or_default();
    *links += 1;
    if *links == 1 {
        tracing::warn!(server, %fault, "redis is out of reach");
    }
}

/// A link reaches its server again, or does not try any more.
pub(crate) fn end(server: &str, is_reached: bool) {
    let mut known = OUT_OF_REACH.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(links) = known.get_mut(server) else { return };
    *links -= 1;
    if *links > 0 {
        return;
    }
    known.remove(server);
    if is_reached {
        tracing::info!(server, "redis is reached again");
    }
}

/// A server answered an error, as it may to every request: one line in a while is enough.
pub(crate) fn refused(why: &str, now_ms: u64) {
    const PAUSE_MS: u64 = 10_000;
    static NEXT_MS: AtomicU64 = AtomicU64::new(0);
    let next_ms = NEXT_MS.load(Relaxed);
    if now_ms >= next_ms && NEXT_MS.compare_exchange(next_ms, now_ms + PAUSE_MS, Relaxed, Relaxed).is_ok() {
        tracing::warn!(why, "redis refuses to count");
    }
}
