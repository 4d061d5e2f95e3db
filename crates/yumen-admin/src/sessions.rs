//! Sessions of the dashboard: a random cookie that stands for a key, in memory.
//!
//! A session holds the digest of its key, so that it ends when the key is revoked, or the user of an identity provider.
//! Independent of requests.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;

use crate::keys::{self, KeyHolder};

/// Time without a request after which a session ends.
const IDLE_MAX: Duration = Duration::from_secs(2 * 3600);
/// Time since the login after which a session ends.
const AGE_MAX: Duration = Duration::from_secs(12 * 3600);
/// Sessions at once; a further login ends the session that was idle longest.
const SESSIONS_MAX: usize = 256;
/// Sessions of one key or user at once, so that the logins of one holder never end the sessions of all others.
const SESSIONS_OF_OWNER_MAX: usize = 16;
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

/// The owner of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionOwner {
    /// Digest of the key that opened it.
    Key(String),
    /// A user of the identity provider, whose role lasts as long as the session.
    User(KeyHolder),
}

struct StoredSession {
    owner: SessionOwner,
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
    pub(crate) owner: SessionOwner,
    /// Time until a new login is needed.
    pub(crate) expires_in: Duration,
}

/// Why a cookie and a token open nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionMismatch {
    /// No such session, or it is over.
    Over,
    /// The session has another token.
    Token,
}

/// A new session, its cookie and its token.
pub(crate) struct OpenedSession {
    /// The value of the cookie.
    pub(crate) id: String,
    /// The value of the header field that every request must carry.
    pub(crate) csrf_token: String,
    pub(crate) session: DashboardSession,
}

impl SessionTable {
    /// Opens a session.
    pub(crate) fn open(&self, owner: SessionOwner, now: Instant) -> io::Result<OpenedSession> {
        let (id, csrf_token) = (keys::random_hex::<TOKEN_BYTES>()?, keys::random_hex::<TOKEN_BYTES>()?);
        let mut table = self.lock();
        table.retain(|_, session| !session.is_over(now));
        let is_own = |session: &StoredSession| session.owner == owner;
        if table.values().filter(|session| is_own(session)).count() >= SESSIONS_OF_OWNER_MAX {
            end_idlest(&mut table, is_own);
        } else if table.len() >= SESSIONS_MAX {
            end_idlest(&mut table, |_| true);
        }
        let session = DashboardSession { owner: owner.clone(), expires_in: AGE_MAX };
        let stored = StoredSession { owner, csrf_token: csrf_token.clone(), begun: now, used: now };
        table.insert(keys::sha256(&id), stored);
        Ok(OpenedSession { id, csrf_token, session })
    }

    /// The session of a cookie and a token, and counts as its use.
    pub(crate) fn find(
        &self,
        id: &str,
        csrf_token: &[u8],
        now: Instant,
    ) -> Result<DashboardSession, SessionMismatch> {
        let digest = keys::sha256(id);
        let mut table = self.lock();
        let session = table.get_mut(&digest).ok_or(SessionMismatch::Over)?;
        if session.is_over(now) {
            table.remove(&digest);
            return Err(SessionMismatch::Over);
        }
        verify_slices_are_equal(csrf_token, session.csrf_token.as_bytes())
            .map_err(|_| SessionMismatch::Token)?;
        session.used = now;
        Ok(DashboardSession {
            owner: session.owner.clone(),
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

/// Ends the session that was idle longest, of those that `is_eligible` names.
fn end_idlest(table: &mut HashMap<String, StoredSession>, is_eligible: impl Fn(&StoredSession) -> bool) {
    let eligible = table.iter().filter(|(_, session)| is_eligible(session));
    let idlest = eligible.min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone());
    idlest.and_then(|id| table.remove(&id));
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_secs(1);

    fn key(digest: &str) -> SessionOwner {
        SessionOwner::Key(digest.to_owned())
    }

    fn is_open(table: &SessionTable, opened: &OpenedSession, now: Instant) -> bool {
        table.find(&opened.id, opened.csrf_token.as_bytes(), now).is_ok()
    }

    #[test]
    fn session_ends_by_logout_by_idleness_and_by_age() {
        let (table, begun) = (SessionTable::default(), Instant::now());
        let open = |digest: &str| table.open(key(digest), begun).unwrap();
        let (closed, idle, busy) = (open("a"), open("b"), open("c"));
        table.close(&closed.id);
        assert!(!is_open(&table, &closed, begun) && table.find("", b"", begun).is_err());
        for hours in 1..=12 {
            let now = begun + Duration::from_secs(3600 * hours);
            let found = table.find(&busy.id, busy.csrf_token.as_bytes(), now).ok();
            assert_eq!(found.unwrap().owner, key("c"));
        }
        let end = begun + AGE_MAX;
        assert!(!is_open(&table, &idle, end) && !is_open(&table, &busy, end + STEP));
    }

    #[test]
    fn cookie_without_its_token_opens_nothing_and_does_not_count_as_use() {
        let (table, begun) = (SessionTable::default(), Instant::now());
        let (one, other) = (table.open(key("a"), begun).unwrap(), table.open(key("a"), begun).unwrap());
        let late = begun + IDLE_MAX;
        for token in ["", "0000", other.csrf_token.as_str(), one.id.as_str()] {
            let found = table.find(&one.id, token.as_bytes(), late).err();
            assert_eq!(found, Some(SessionMismatch::Token), "{token}");
        }
        assert!(!is_open(&table, &one, late + STEP));
    }

    #[test]
    fn table_replaces_the_session_that_was_idle_longest() {
        let (table, begun) = (SessionTable::default(), Instant::now());
        let open = |at: u32| table.open(key(&at.to_string()), begun + STEP * at).unwrap();
        let (first, second) = (open(0), open(0));
        assert!(is_open(&table, &first, begun + STEP));
        for at in 2..=SESSIONS_MAX as u32 {
            open(at);
        }
        let now = begun + STEP * SESSIONS_MAX as u32;
        assert!(is_open(&table, &first, now) && !is_open(&table, &second, now));
        assert_eq!(table.lock().len(), SESSIONS_MAX);
    }

    #[test]
    fn logins_with_one_key_end_sessions_of_that_key_alone() {
        let (table, begun) = (SessionTable::default(), Instant::now());
        let open = |digest: &str, at: u32| table.open(key(digest), begun + STEP * at).unwrap();
        let (other, first) = (open("other", 0), open("own", 1));
        for at in 2..=SESSIONS_MAX as u32 {
            open("own", at);
        }
        let now = begun + STEP * SESSIONS_MAX as u32;
        assert!(is_open(&table, &other, now) && !is_open(&table, &first, now));
        assert_eq!(table.lock().len(), SESSIONS_OF_OWNER_MAX + 1);
    }
}
