//! Logins at the identity provider between the callback and the request of the page that opens the session.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;

use crate::keys::{self, KeyHolder};

/// Time from the callback to the request of the page.
pub(crate) const COMPLETION_TIME: Duration = Duration::from_secs(60);
/// Logins between callback and page at once; a further one replaces the oldest.
const COMPLETIONS_MAX: usize = 64;
const TOKEN_BYTES: usize = 32;

/// Logins whose page has not opened its session yet, by the digest of their code.
#[derive(Default)]
pub(crate) struct CompletedLogins(Mutex<HashMap<String, CompletedLogin>>);

struct CompletedLogin {
    cookie_sha256: String,
    holder: KeyHolder,
    completed: Instant,
}

/// Omits digests.
impl std::fmt::Debug for CompletedLogins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CompletedLogins")
    }
}

impl CompletedLogins {
    /// Adds a login; returns its code and the value of its cookie.
    pub(crate) fn add(&self, holder: KeyHolder, now: Instant) -> io::Result<(String, String)> {
        let (code, cookie) = (keys::random_hex::<TOKEN_BYTES>()?, keys::random_hex::<TOKEN_BYTES>()?);
        let mut logins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logins.retain(|_, login| now.duration_since(login.completed) <= COMPLETION_TIME);
        if logins.len() >= COMPLETIONS_MAX {
            let oldest = logins.iter().min_by_key(|(_, login)| login.completed).map(|(id, _)| id.clone());
            oldest.and_then(|id| logins.remove(&id));
        }
        let login = CompletedLogin { cookie_sha256: keys::sha256(&cookie), holder, completed: now };
        logins.insert(keys::sha256(&code), login);
        Ok((code, cookie))
    }

    /// The user of a code and a cookie, once.
    pub(crate) fn take<'c>(
        &self,
        code: &str,
        mut cookies: impl Iterator<Item = &'c str>,
        now: Instant,
    ) -> Option<KeyHolder> {
        let mut logins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Removed by a wrong cookie too: a code that was seen elsewhere is no longer a secret.
        let login = logins.remove(&keys::sha256(code))?;
        let is_own = |cookie: &str| {
            let digest = keys::sha256(cookie);
            verify_slices_are_equal(digest.as_bytes(), login.cookie_sha256.as_bytes()).is_ok()
        };
        let is_in_time = now.duration_since(login.completed) <= COMPLETION_TIME;
        (is_in_time && cookies.any(is_own)).then_some(login.holder)
    }
}

#[cfg(test)]
mod tests {
    use yumen_config::node::AdminRole;

    use super::*;

    fn holder(name: &str) -> KeyHolder {
        KeyHolder { name: name.to_owned(), role: AdminRole::Viewer }
    }

    #[test]
    fn completed_login_opens_one_session_with_its_code_and_its_cookie() {
        let (logins, now) = (CompletedLogins::default(), Instant::now());
        let (code, cookie) = logins.add(holder("a"), now).unwrap();
        let (other_code, other_cookie) = logins.add(holder("b"), now).unwrap();
        let take = |code: &str, cookie: &str, at| logins.take(code, [cookie].into_iter(), at);
        assert_eq!(take("", &cookie, now), None);
        assert_eq!(take(&code, &cookie, now), Some(holder("a")));
        assert_eq!(take(&code, &cookie, now), None);
        // The code of another browser ends with the attempt.
        assert_eq!(take(&other_code, &cookie, now), None);
        assert_eq!(take(&other_code, &other_cookie, now), None);
        let (late, cookie) = logins.add(holder("c"), now).unwrap();
        assert_eq!(take(&late, &cookie, now + COMPLETION_TIME + Duration::from_secs(1)), None);
    }

    #[test]
    fn oldest_completed_login_gives_way() {
        let (logins, now) = (CompletedLogins::default(), Instant::now());
        let added: Vec<(String, String)> = (0..=COMPLETIONS_MAX as u32)
            .map(|at| logins.add(holder("a"), now + Duration::from_millis(1) * at).unwrap())
            .collect();
        let found = |at: usize| logins.take(&added[at].0, [added[at].1.as_str()].into_iter(), now);
        assert_eq!((found(0), found(1)), (None, Some(holder("a"))));
    }
}
