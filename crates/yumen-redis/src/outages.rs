//! What of Redis is out of reach, for the log: its going, each new reason and its coming back are one line
//! each, however many workers notice.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use yumen_plugin::background::{RedisFault, RedisLogin, RedisTarget, RedisTls};

/// What a connection is made with. Where one cannot be made, another to the same server may be: with
/// another password, another database, without TLS.
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

/// Writes a line about it. Settings that are not made use of are left out, and so is the password.
macro_rules! line {
    ($level:ident, $whom:expr, $message:literal $(, $why:expr)?) => {{
        let RedisConnectKey { server, login, database, tls } = $whom;
        let user = Some(login.username.as_str()).filter(|user| !user.is_empty());
        let database = Some(*database).filter(|database| *database > 0);
        let tls = tls.is_some().then_some(true);
        tracing::$level!(server, user, database, tls, $(fault = %$why,)? $message);
    }};
}

/// What cannot be reached.
struct RedisOutage {
    whom: RedisConnectKey,
    /// How many links of this process find it so.
    links: usize,
    /// The reasons that were told.
    told: Vec<String>,
}

impl RedisOutage {
    /// Whether nothing has been told of this reason yet, and it should be.
    fn is_news(&mut self, fault: &RedisFault) -> bool {
        // A server that is asked and one that is connected to may be late alike.
        let why = match fault {
            RedisFault::Connect(why) => why.clone(),
            other => other.to_string(),
        };
        let is_news = self.told.len() < REASONS_MAX && !self.told.contains(&why);
        if is_news {
            self.told.push(why);
        }
        is_news
    }
}

/// So many reasons of one outage are told.
const REASONS_MAX: usize = 4;

static OUTAGES: Mutex<Vec<RedisOutage>> = Mutex::new(Vec::new());

/// A link cannot reach its server any more.
pub(crate) fn begin(whom: &RedisConnectKey, fault: &RedisFault) {
    let mut known = OUTAGES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(outage) = known.iter_mut().find(|one| one.whom == *whom) {
        outage.links += 1;
        drop(known);
        return go_on(whom, fault);
    }
    let mut outage = RedisOutage { whom: whom.clone(), links: 1, told: Vec::new() };
    if outage.is_news(fault) {
        line!(warn, whom, "redis is out of reach", fault);
    }
    known.push(outage);
}

/// A link still cannot reach its server, maybe for another reason.
pub(crate) fn go_on(whom: &RedisConnectKey, fault: &RedisFault) {
    let mut known = OUTAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let outage = known.iter_mut().find(|one| one.whom == *whom);
    if outage.is_some_and(|outage| outage.is_news(fault)) {
        line!(warn, whom, "redis is still out of reach", fault);
    }
}

/// A link reaches its server again, or does not try any more.
pub(crate) fn end(whom: &RedisConnectKey, is_reached: bool) {
    let mut known = OUTAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(at) = known.iter().position(|one| one.whom == *whom) else { return };
    known[at].links -= 1;
    if known[at].links > 0 {
        return;
    }
    known.swap_remove(at);
    if is_reached {
        line!(info, whom, "redis is reached again");
    }
}

/// A server answered an error, as it may to every request: one line in a while is enough.
pub(crate) fn refused(target: &RedisTarget, why: &str, now_ms: u64) {
    const PAUSE_MS: u64 = 10_000;
    static NEXT_MS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
    let whom = RedisConnectKey::new(target.place.to_string(), target);
    let mut digest = DefaultHasher::new();
    format!("{whom:?}").hash(&mut digest);
    // Two in one place take turns, which is as good.
    let next = &NEXT_MS[digest.finish() as usize % NEXT_MS.len()];
    let next_ms = next.load(Relaxed);
    if now_ms >= next_ms && next.compare_exchange(next_ms, now_ms + PAUSE_MS, Relaxed, Relaxed).is_ok() {
        line!(warn, &whom, "redis refuses to count", why);
    }
}

#[cfg(test)]
mod tests;
