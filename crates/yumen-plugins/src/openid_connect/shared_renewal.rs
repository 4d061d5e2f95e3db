//! Renewal of sessions in Redis: one request of all nodes renews the tokens of a session, the others wait for it.
//!
//! The grants of one node are shared in `refresh.rs` already; a session in a cookie needs no more than that.

use std::sync::Arc;
use std::time::Duration;

use yumen_plugin::{Exchange, Step};

use super::provider::OidcProvider;
use super::user::SessionNeed;
use super::{OpenidConnect, session_failure, unavailable};
use crate::session::{OpenedLogin, RenewalLock, RenewalTurn, SessionFault, SessionStore};

/// Interval at which waiting requests look for the renewed session.
const POLL_MS: u64 = 50;
/// Time of a lock beyond the time limits of the grant and of a newer key set: for a worker that is late, and for saving
/// the session.
const LOCK_MARGIN_MS: u64 = 2000;

/// The part of a request in a renewal.
enum RenewalPart {
    /// The request renews the session, by itself if it has no lock.
    Renew(Arc<OpenedLogin>, Option<RenewalLock>),
    /// Another request has renewed it.
    Renewed(Arc<OpenedLogin>),
    /// The session has ended.
    Ended,
    /// Another request has not renewed it in time.
    Late,
    /// Redis is out of reach.
    Unavailable,
}

impl OpenidConnect {
    /// The step for a session whose tokens must be renewed.
    pub(super) async fn renew_session<'a>(
        &'a self,
        provider: &'a OidcProvider,
        sessions: &'a SessionStore,
        ex: &mut Exchange<'_>,
        opened: Arc<OpenedLogin>,
    ) -> Step<'a> {
        let (opened, lock) = match self.renewal_part(provider, sessions, ex, opened).await {
            RenewalPart::Renew(opened, lock) => (opened, lock),
            RenewalPart::Renewed(opened) => return self.authorize(&opened, ex),
            RenewalPart::Ended => return self.unauthenticated(provider, sessions, ex).await,
            RenewalPart::Late => {
                return Step::Respond(unavailable("another request renews the session"));
            }
            RenewalPart::Unavailable => {
                return Step::Respond(session_failure(SessionFault::StorageUnavailable));
            }
        };
        let step = self.renew_and_save(provider, sessions, ex, &opened).await;
        if let Some(lock) = lock {
            sessions.unlock_renewal(ex.host, &lock);
        }
        step
    }

    async fn renewal_part(
        &self,
        provider: &OidcProvider,
        sessions: &SessionStore,
        ex: &Exchange<'_>,
        mut opened: Arc<OpenedLogin>,
    ) -> RenewalPart {
        let lasts_ms = 2 * self.timeout_ms + LOCK_MARGIN_MS;
        // The lock of a request that has left ends in this time, and another request may take one after it.
        let until_ms = ex.host.clock().mono_ms() + 2 * lasts_ms;
        let now_s = ex.now.unix_s();
        loop {
            let lock = match sessions.lock_renewal(ex.host, &opened, lasts_ms).await {
                RenewalTurn::Local => return RenewalPart::Renew(opened, None),
                // A new refresh token could not be saved, and the old one is used up with the grant.
                RenewalTurn::Unavailable => return RenewalPart::Unavailable,
                RenewalTurn::Locked(lock) => Some(lock),
                RenewalTurn::Busy => {
                    ex.host.sleep(Duration::from_millis(POLL_MS)).await;
                    None
                }
            };
            // Another request may have renewed the session before the lock was taken.
            match sessions.reload(ex.host, &opened, now_s).await {
                Ok(Some(newest)) => opened = newest,
                Ok(None) => {
                    self.release(sessions, ex, lock);
                    return RenewalPart::Ended;
                }
                Err(_) => {
                    self.release(sessions, ex, lock);
                    return RenewalPart::Unavailable;
                }
            }
            if self.need_of(provider, &opened.session, now_s) != SessionNeed::Tokens {
                self.release(sessions, ex, lock);
                return RenewalPart::Renewed(opened);
            }
            if lock.is_some() {
                return RenewalPart::Renew(opened, lock);
            }
            if ex.host.clock().mono_ms() >= until_ms {
                return RenewalPart::Late;
            }
        }
    }

    fn release(&self, sessions: &SessionStore, ex: &Exchange<'_>, lock: Option<RenewalLock>) {
        if let Some(lock) = lock {
            sessions.unlock_renewal(ex.host, &lock);
        }
    }
}
