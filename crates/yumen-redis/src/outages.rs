//! What of Redis is out of reach, for the log: its going and coming back is one line each, however many
//! workers notice.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use yumen_plugin::outbound::{RedisFault, RedisLogin, RedisTarget, RedisTls};

/// What a connection is made with. Where one cannot be made, another to the same server may be: with
/// another password, another database, without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Whom {
    server: String,
    login: RedisLogin,
    database: u64,
    tls: Option<RedisTls>,
}

impl Whom {
    pub(crate) fn new(server: String, target: &RedisTarget) -> Whom {
        Whom { server, login: target.login.clone(), database: target.database, tls: target.tls }
    }
}

/// Writes a line about it. Settings that are not made use of are left out, and so is the password.
macro_rules! line {
    ($level:ident, $whom:expr, $message:literal $(, $why:expr)?) => {{
        let Whom { server, login, database, tls } = $whom;
        let user = Some(login.username.as_str()).filter(|user| !user.is_empty());
        let database = Some(*database).filter(|database| *database > 0);
        let tls = tls.is_some().then_some(true);
        tracing::$level!(server, user, database, tls, $(fault = %$why,)? $message);
    }};
}

/// What some links of this process find out of reach, and how many of them.
static OUT_OF_REACH: Mutex<Vec<(Whom, usize)>> = Mutex::new(Vec::new());

/// A link cannot reach its server any more.
pub(crate) fn begin(whom: &Whom, fault: &RedisFault) {
    let mut known = OUT_OF_REACH.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, links)) = known.iter_mut().find(|(one, _)| one == whom) {
        *links += 1;
        return;
    }
    known.push((whom.clone(), 1));
    line!(warn, whom, "redis is out of reach", fault);
}

/// A link reaches its server again, or does not try any more.
pub(crate) fn end(whom: &Whom, is_reached: bool) {
    let mut known = OUT_OF_REACH.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(at) = known.iter().position(|(one, _)| one == whom) else { return };
    known[at].1 -= 1;
    if known[at].1 > 0 {
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
    let whom = Whom::new(target.place.to_string(), target);
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
