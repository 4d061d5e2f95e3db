//! Outages of Redis in the log: one line for the start, for each new reason and for the end of an outage,
//! over all workers.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use yumen_plugin::background::{RedisFault, RedisLogin, RedisTarget, RedisTls};

/// The identity of a connection. With another password, another database or without TLS, a connection to the
/// same server may succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RedisConnectKey {
    server: String,
    login: RedisLogin,
    database: u64,
    tls: Option<RedisTls>,
}

impl RedisConnectKey {
    pub(crate) fn new(server: String, target: &RedisTarget) -> RedisConnectKey {
        RedisConnectKey { server, login: target.login.clone(), database: target.database, tls: target.tls }
    }
}

/// Logs an outage. Unused settings are omitted, and so is the password.
macro_rules! line {
    ($level:ident, $key:expr, $message:literal $(, $why:expr)?) => {{
        let RedisConnectKey { server, login, database, tls } = $key;
        let user = Some(login.username.as_str()).filter(|user| !user.is_empty());
        let database = Some(*database).filter(|database| *database > 0);
        let tls = tls.is_some().then_some(true);
        tracing::$level!(server, user, database, tls, $(fault = %$why,)? $message);
    }};
}

/// An outage in progress.
struct RedisOutage {
    key: RedisConnectKey,
    /// The number of connections of the process that are affected.
    links: usize,
    /// The reasons logged so far.
    reported: Vec<String>,
}

impl RedisOutage {
    /// Whether the reason is new and within the limit.
    fn is_news(&mut self, fault: &RedisFault) -> bool {
        // A timeout while connecting and one of a command have the same text.
        let why = match fault {
            RedisFault::Connect(why) => why.clone(),
            other => other.to_string(),
        };
        // A server that fails in ever new words must not fill the log.
        let is_news = self.reported.len() < REASONS_MAX && !self.reported.contains(&why);
        if is_news {
            self.reported.push(why);
        }
        is_news
    }
}

/// The most reasons that are logged per outage.
const REASONS_MAX: usize = 4;

static OUTAGES: Mutex<Vec<RedisOutage>> = Mutex::new(Vec::new());

/// Records that a connection cannot reach its server.
pub(crate) fn begin(key: &RedisConnectKey, fault: &RedisFault) {
    let mut known = OUTAGES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(outage) = known.iter_mut().find(|one| one.key == *key) {
        outage.links += 1;
        drop(known);
        // The lock is released first, since `go_on` takes it.
        return go_on(key, fault);
    }
    let mut outage = RedisOutage { key: key.clone(), links: 1, reported: Vec::new() };
    if outage.is_news(fault) {
        line!(warn, key, "redis is out of reach", fault);
    }
    known.push(outage);
}

/// Records another failed attempt, possibly for a new reason.
pub(crate) fn go_on(key: &RedisConnectKey, fault: &RedisFault) {
    let mut known = OUTAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let outage = known.iter_mut().find(|one| one.key == *key);
    if outage.is_some_and(|outage| outage.is_news(fault)) {
        line!(warn, key, "redis is still out of reach", fault);
    }
}

/// Records that a connection reaches its server again, or has stopped trying.
pub(crate) fn end(key: &RedisConnectKey, is_reached: bool) {
    let mut known = OUTAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(at) = known.iter().position(|one| one.key == *key) else { return };
    // The outage ends with its last connection: one worker may reach the server before the others.
    known[at].links -= 1;
    if known[at].links > 0 {
        return;
    }
    known.swap_remove(at);
    if is_reached {
        line!(info, key, "redis is reached again");
    }
}

/// Logs an error reply, at most once per 10 s and target, as every command may receive one.
pub(crate) fn refused(target: &RedisTarget, why: &str, now_ms: u64) {
    const PAUSE_MS: u64 = 10_000;
    static NEXT_MS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
    let key = RedisConnectKey::new(target.topology.to_string(), target);
    let mut digest = DefaultHasher::new();
    format!("{key:?}").hash(&mut digest);
    // Targets that share a slot also share its interval.
    let next = &NEXT_MS[digest.finish() as usize % NEXT_MS.len()];
    let next_ms = next.load(Relaxed);
    // The worker that moves the time writes the line.
    if now_ms >= next_ms && next.compare_exchange(next_ms, now_ms + PAUSE_MS, Relaxed, Relaxed).is_ok() {
        line!(warn, &key, "redis refuses to count", why);
    }
}

#[cfg(test)]
mod tests;
