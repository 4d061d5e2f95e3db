//! Sessions of the dashboard: a random cookie that stands for a key, in memory.
//!
//! A session holds the digest of its key, so that it ends when the key is revoked. Independent of requests.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::keys;

/// Time without a request after which a session ends.
const IDLE_MAX: Duration = Duration::from_secs(2 * 3600);
/// Time since the login after which a session ends.
const AGE_MAX: Duration = Duration::from_secs(12 * 3600);
/// Sessions at once; a further login ends the session that was idle longest.
const SESSIONS_MAX: usize = 256;
/// 256 bits: guessing is out of the question.
const TOKEN_BYTES: usize = 32;

/// All sessions of a listener, by the digest of their cookie: the table holds nothing that a client could present.
#[derive(Default)]
pub(crate) struct SessionTable(Mutex<HashMap<String, StoredSession>>);

/// Omits digests and tokens.
impl fmt::Debug for SessionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionTable")
    }
}

struct StoredSession {
    key_sha256: String,
    csrf_token: String,
    begun: Instant,
    used: Instant,
}

impl StoredSession {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.used) > IDLE_MAX || now.duration_since(self.begun) > AGE_MAX
    }
}

/// A session as a request sees it.
#[derive(Clone)]
pub(crate) struct DashboardSession {
    /// Digest of the key that opened it.
    pub(crate) key_sha256: String,
    /// The value of the header field that writes must carry.
    pub(crate) csrf_token: String,
    /// Time until a new login is needed.
    pub(crate) expires_in: Duration,
}

/// A new session and its cookie.
pub(crate) struct OpenedSession {
    /// The value of the cookie.
    pub(crate) id: String,
    pub(crate) session: DashboardSession,
}

impl SessionTable {
    /// Opens a session for the holder of a key.
    pub(crate) fn open(&self, key_sha256: String, now: Instant) -> io::Result<OpenedSession> {
        let (id, csrf_token) = (keys::random_hex::<TOKEN_BYTES>()?, keys::random_hex::<TOKEN_BYTES>()?);
        let mut table = self.lock();
        table.retain(|_, session| !session.is_over(now));
        if table.len() >= SESSIONS_MAX {
            let oldest = table.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone());
            oldest.and_then(|id| table.remove(&id));
        }
        let session = DashboardSession {
            key_sha256: key_sha256.clone(),
            csrf_token: csrf_token.clone(),
            expires_in: AGE_MAX,
        };
        table.insert(keys::sha256(&id), StoredSession { key_sha256, csrf_token, begun: now, used: now });
        Ok(OpenedSession { id, session })
    }

    /// The session of a cookie, and counts as its use.
    pub(crate) fn find(&self, id: &str, now: Instant) -> Option<DashboardSession> {
        let digest = keys::sha256(id);
        let mut table = self.lock();
        let session = table.get_mut(&digest)?;
        if session.is_over(now) {
            table.remove(&digest);
            return None;
        }
        session.used = now;
        Some(DashboardSession {
            key_sha256: session.key_sha256.clone(),
            csrf_token: session.csrf_token.clone(),
            expires_in: AGE_MAX.saturating_sub(now.duration_since(session.begun)),
        })
    }

    /// Ends a session.
    pub(crate) fn close(&self, id: &str) {
        self.lock().remove(&keys::sha256(id));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, StoredSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_secs(1);

    #[test]
    fn session_ends_by_logout_by_idleness_and_by_age() {
        let (table, begun) = (SessionTable::default(), Instant::now());
        let open = |key: &str| table.open(key.to_owned(), begun).unwrap().id;
        let (closed, idle, busy) = (open("a"), open("b"), open("c"));
        table.close(&closed);
        assert!(table.find(&closed, begun).is_none() && table.find("", begun).is_none());
        for hours in 1..=12 {
            let now = begun + Duration::from_secs(3600 * hours);
            assert_eq!(table.find(&busy, now).unwrap().key_sha256, "c");
        }
        let end = begun + AGE_MAX;
        assert!(table.find(&idle, end).is_none() && table.find(&busy, end + STEP).is_none());
    }

    #[test]
    fn table_replaces_the_session_that_was_idle_longest() {
        let (table, begun) = (SessionTable::default(), Instant::now());
        let open = |at: u32| table.open(String::new(), begun + STEP * at).unwrap().id;
        let (first, second) = (open(0), open(0));
        assert!(table.find(&first, begun + STEP).is_some());
        for at in 2..=SESSIONS_MAX as u32 {
            open(at);
        }
        let now = begun + STEP * SESSIONS_MAX as u32;
        assert!(table.find(&first, now).is_some() && table.find(&second, now).is_none());
        assert_eq!(table.lock().len(), SESSIONS_MAX);
    }
}
