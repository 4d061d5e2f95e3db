//! Sessions of logged-in users, shared by all workers of the node.
//!
//! Requests take the lock of a shard for reading; the write lock is taken at login and logout.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Time without a request after which a session ends.
const LIFETIME_MS: u64 = 3_600_000;
const SHARDS: usize = 64;
/// Most sessions of a shard; 262 144 in all.
const SHARD_SESSIONS_MAX: usize = if cfg!(test) { 4 } else { 4096 };

/// The identifier of a session: a keyed digest of its ticket, so that a ticket in an access log opens no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CasSessionId([u8; 32]);

impl CasSessionId {
    pub(super) fn of_ticket(secret: &str, idp_uri: &str, ticket: &str) -> CasSessionId {
        let key = hmac::Key::new(hmac::HMAC_SHA256, format!("cas session {secret}").as_bytes());
        let digest = hmac::sign(&key, format!("{idp_uri}\0{ticket}").as_bytes());
        let mut id = [0; 32];
        id.copy_from_slice(digest.as_ref());
        CasSessionId(id)
    }

    pub(super) fn from_cookie(value: &[u8]) -> Option<CasSessionId> {
        URL_SAFE_NO_PAD.decode(value).ok()?.try_into().ok().map(CasSessionId)
    }

    pub(super) fn cookie(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }
}

struct CasSession {
    user: Box<str>,
    /// Monotonic end in milliseconds; each request moves it.
    until_ms: AtomicU64,
}

type SessionShard = HashMap<[u8; 32], CasSession, foldhash::fast::RandomState>;

/// The sessions of one CAS server.
pub(super) struct CasSessions {
    shards: Box<[RwLock<SessionShard>]>,
}

impl Default for CasSessions {
    fn default() -> Self {
        CasSessions { shards: (0..SHARDS).map(|_| RwLock::default()).collect() }
    }
}

impl CasSessions {
    fn shard(&self, id: &CasSessionId) -> &RwLock<SessionShard> {
        &self.shards[usize::from(id.0[0]) % SHARDS]
    }

    /// The user of a session, whose lifetime begins anew.
    pub(super) fn user(&self, id: &CasSessionId, now_ms: u64) -> Option<Box<str>> {
        let shard = self.shard(id).read().unwrap_or_else(PoisonError::into_inner);
        let session = shard.get(&id.0).filter(|session| now_ms < session.until_ms.load(Relaxed))?;
        session.until_ms.store(now_ms + LIFETIME_MS, Relaxed);
        Some(session.user.clone())
    }

    /// Adds a session. A full shard loses ended sessions, else the one that ends first.
    pub(super) fn insert(&self, id: &CasSessionId, user: &str, now_ms: u64) {
        let mut shard = self.shard(id).write().unwrap_or_else(PoisonError::into_inner);
        if shard.len() >= SHARD_SESSIONS_MAX {
            shard.retain(|_, session| now_ms < session.until_ms.load(Relaxed));
        }
        if shard.len() >= SHARD_SESSIONS_MAX {
            let first = shard.iter().min_by_key(|(_, session)| session.until_ms.load(Relaxed));
            if let Some(first) = first.map(|(id, _)| *id) {
                shard.remove(&first);
            }
        }
        shard.insert(id.0, CasSession { user: user.into(), until_ms: AtomicU64::new(now_ms + LIFETIME_MS) });
    }

    pub(super) fn remove(&self, id: &CasSessionId) {
        self.shard(id).write().unwrap_or_else(PoisonError::into_inner).remove(&id.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> CasSessionId {
        // One shard.
        let mut id = [0; 32];
        id[1] = number;
        CasSessionId(id)
    }

    #[test]
    fn session_ends_an_hour_after_its_last_request() {
        let sessions = CasSessions::default();
        sessions.insert(&id(1), "ann", 0);
        assert_eq!(sessions.user(&id(1), LIFETIME_MS - 1).as_deref(), Some("ann"));
        assert_eq!(sessions.user(&id(1), 2 * LIFETIME_MS - 2).as_deref(), Some("ann"));
        assert_eq!(sessions.user(&id(1), 3 * LIFETIME_MS), None);
        sessions.insert(&id(2), "bob", 0);
        sessions.remove(&id(2));
        assert_eq!(sessions.user(&id(2), 1), None);
    }

    #[test]
    fn number_of_sessions_is_bounded() {
        let sessions = CasSessions::default();
        for number in 0..10 {
            sessions.insert(&id(number), "ann", u64::from(number));
        }
        let left: Vec<u8> = (0..10).filter(|number| sessions.user(&id(*number), 20).is_some()).collect();
        assert_eq!(left, [6, 7, 8, 9]);
    }
}
