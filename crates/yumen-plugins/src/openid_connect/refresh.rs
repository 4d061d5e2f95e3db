//! Renewal of access tokens. Requests of one session share a refresh grant: a rotating refresh token that is sent twice
//! ends the session at the provider.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest;
use yumen_plugin::{Exchange, Method};

use super::OpenidConnect;
use super::client_auth::EndpointCall;
use super::form::FormBody;
use super::provider::OidcProvider;
use super::settings::RenewalSettings;
use super::tokens::{GrantFault, GrantedTokens, access_end_s};
use crate::session::LoginSession;

/// Time for which a result serves requests that still have the old cookie.
const RESULT_KEPT_MS: u64 = 30_000;
/// The same for a failure of the connection.
const FAILURE_KEPT_MS: u64 = 1000;
/// Interval at which waiting requests look for the result.
const POLL_MS: u64 = 5;
/// Most grants that are in flight or kept.
const FLIGHTS_MAX: usize = if cfg!(test) { 4 } else { 10_000 };
/// Interval at which flights that have ended are removed.
const SWEEP_MS: u64 = 1000;
/// Most kept results that one request passes over.
const KEPT_RESULTS_MAX: u32 = 5;

type TokenDigest = [u8; 32];
type GrantResult = Result<GrantedTokens, GrantFault>;

/// Refresh grants in flight, by the digest of the refresh token. All plugins of the process share them: two routes may
/// have the same session.
#[derive(Default)]
pub(super) struct RefreshFlights {
    flights: Mutex<FlightTable>,
}

#[derive(Default)]
struct FlightTable {
    by_token: HashMap<TokenDigest, RefreshFlight, foldhash::fast::RandomState>,
    swept_ms: u64,
}

enum RefreshFlight {
    /// Lost if it has not ended by then.
    Running {
        until_ms: u64,
    },
    Ended {
        result: Arc<GrantResult>,
        until_ms: u64,
    },
}

impl RefreshFlight {
    fn is_live(&self, now_ms: u64) -> bool {
        let (RefreshFlight::Running { until_ms } | RefreshFlight::Ended { until_ms, .. }) = self;
        now_ms <= *until_ms
    }
}

impl FlightTable {
    /// Makes room for one more flight; false if all are in progress. Those are never forgotten: a second grant with the
    /// same token would end the session at the provider.
    fn make_room(&mut self, now_ms: u64) -> bool {
        let is_full = self.by_token.len() >= FLIGHTS_MAX;
        if is_full || now_ms >= self.swept_ms + SWEEP_MS {
            self.by_token.retain(|_, flight| flight.is_live(now_ms));
            self.swept_ms = now_ms;
        }
        if self.by_token.len() < FLIGHTS_MAX {
            return true;
        }
        let ended = self.by_token.iter().filter_map(|(token, flight)| match flight {
            RefreshFlight::Ended { until_ms, .. } => Some((*until_ms, *token)),
            RefreshFlight::Running { .. } => None,
        });
        let first = ended.min();
        first.is_some_and(|(_, token)| self.by_token.remove(&token).is_some())
    }
}

/// The part of a request in a grant.
#[derive(Debug, PartialEq)]
pub(super) enum RefreshTurn {
    /// The request sends the grant.
    Send,
    /// Another request has sent it.
    Wait,
    /// The grant has ended.
    Ended(Arc<GrantResult>),
    /// Too many grants are in flight.
    Full,
}

impl RefreshFlights {
    /// Takes part in the grant of this token. A grant that does not end in `limit_ms` is sent again.
    pub(super) fn join(&self, token: TokenDigest, now_ms: u64, limit_ms: u64) -> RefreshTurn {
        let mut flights = self.lock();
        match flights.by_token.get(&token).filter(|flight| flight.is_live(now_ms)) {
            Some(RefreshFlight::Running { .. }) => return RefreshTurn::Wait,
            Some(RefreshFlight::Ended { result, .. }) => return RefreshTurn::Ended(result.clone()),
            None => {}
        }
        if !flights.by_token.contains_key(&token) && !flights.make_room(now_ms) {
            return RefreshTurn::Full;
        }
        flights.by_token.insert(token, RefreshFlight::Running { until_ms: now_ms + limit_ms });
        RefreshTurn::Send
    }

    /// Ends a grant. Requests that wait see its result; a failure of the connection is kept for a second only.
    pub(super) fn end(&self, token: TokenDigest, result: Arc<GrantResult>, now_ms: u64) {
        let kept_ms = match *result {
            Err(GrantFault::Unavailable(_)) => FAILURE_KEPT_MS,
            _ => RESULT_KEPT_MS,
        };
        self.lock().by_token.insert(token, RefreshFlight::Ended { result, until_ms: now_ms + kept_ms });
    }

    /// Forgets the result of a grant, so that the next request sends it again.
    fn forget(&self, token: TokenDigest, result: &Arc<GrantResult>) {
        let mut flights = self.lock();
        if let Some(RefreshFlight::Ended { result: kept, .. }) = flights.by_token.get(&token)
            && Arc::ptr_eq(kept, result)
        {
            flights.by_token.remove(&token);
        }
    }

    fn lock(&self) -> MutexGuard<'_, FlightTable> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of a renewal.
pub(super) enum RenewalOutcome {
    Renewed(Box<LoginSession>),
    /// The provider has refused: the user must log in again.
    Refused,
    /// The provider is out of reach.
    Unavailable(String),
}

impl OpenidConnect {
    /// Renews the tokens of a session.
    pub(super) async fn renew(
        &self,
        provider: &OidcProvider,
        ex: &Exchange<'_>,
        session: &LoginSession,
    ) -> RenewalOutcome {
        let Some(refresh_token) = &session.refresh_token else { return RenewalOutcome::Refused };
        let granted = match self.current_grant(provider, ex, refresh_token).await {
            Ok(granted) => granted,
            Err(GrantFault::Refused(_)) => return RenewalOutcome::Refused,
            Err(fault) => return RenewalOutcome::Unavailable(fault.to_string()),
        };
        if granted.access_token.is_none() {
            return RenewalOutcome::Refused;
        }
        let mut renewed = session.clone();
        if let Some(text) = &granted.id_token {
            // The nonce is that of the login and need not be repeated (OpenID Connect Core §12.2).
            match self.check_id_token(provider, ex, text, &granted, None).await {
                Ok(subject) if subject == session.subject => renewed.id_token = granted.id_token.clone(),
                // Tokens of another user.
                _ => return RenewalOutcome::Refused,
            }
        }
        renewed.access_expires_s = self.access_end_s(&granted);
        renewed.access_token = granted.access_token;
        renewed.refresh_token = granted.refresh_token;
        RenewalOutcome::Renewed(Box::new(renewed))
    }

    fn access_end_s(&self, granted: &GrantedTokens) -> u64 {
        let RenewalSettings { access_token_expires_in, access_token_expires_leeway, .. } = &self.renewal;
        access_end_s(granted, *access_token_expires_in, *access_token_expires_leeway)
    }

    /// The tokens of a refresh grant whose access token has not ended. A kept result may be older than its access token
    /// lives: its own refresh token is then the newest, or may be used again.
    async fn current_grant(
        &self,
        provider: &OidcProvider,
        ex: &Exchange<'_>,
        refresh_token: &str,
    ) -> GrantResult {
        let now_s = ex.now.unix_s();
        let mut refresh_token = refresh_token.to_owned();
        let mut turns = 0;
        loop {
            let key = self.flight_key(provider, &refresh_token);
            let result = self.grant(provider, ex, &refresh_token, key).await;
            let mut granted = (*result).clone()?;
            turns += 1;
            // Tokens that end at once are as new as they can be.
            let has_ended = granted.granted_s < now_s && self.access_end_s(&granted) <= now_s;
            if !has_ended || turns == KEPT_RESULTS_MAX {
                // Without a new one, the refresh token stays valid (RFC 6749 §6).
                granted.refresh_token.get_or_insert(refresh_token);
                return Ok(granted);
            }
            match granted.refresh_token {
                Some(next) if next != refresh_token => refresh_token = next,
                _ => self.refreshes.forget(key, &result),
            }
        }
    }

    /// The key of a grant: tokens of two providers may have the same text.
    fn flight_key(&self, provider: &OidcProvider, refresh_token: &str) -> TokenDigest {
        let mut key = digest::Context::new(&digest::SHA256);
        for part in [&*provider.metadata.issuer, &*self.client.id, refresh_token] {
            key.update(&part.len().to_be_bytes());
            key.update(part.as_bytes());
        }
        key.finish().as_ref().try_into().unwrap_or_default()
    }

    /// The result of the refresh grant, sent by this request or by another one.
    async fn grant(
        &self,
        provider: &OidcProvider,
        ex: &Exchange<'_>,
        refresh_token: &str,
        key: TokenDigest,
    ) -> Arc<GrantResult> {
        // The call has a time limit of its own; the rest is for a worker that is late.
        let limit_ms = self.timeout_ms + 1000;
        let started_ms = ex.host.clock().mono_ms();
        loop {
            let now_ms = ex.host.clock().mono_ms();
            match self.refreshes.join(key, now_ms, limit_ms) {
                RefreshTurn::Ended(result) => return result,
                RefreshTurn::Full => {
                    let reason = "too many refresh grants are in flight".to_owned();
                    return Arc::new(Err(GrantFault::Unavailable(reason)));
                }
                RefreshTurn::Wait if now_ms > started_ms + 2 * limit_ms => {
                    return Arc::new(Err(GrantFault::Unavailable("no answer in time".to_owned())));
                }
                RefreshTurn::Wait => {}
                RefreshTurn::Send => {
                    if let Some(result) = self.send_grant(provider, ex, refresh_token, key).await {
                        return result;
                    }
                }
            }
            ex.host.sleep(Duration::from_millis(POLL_MS)).await;
        }
    }

    /// Sends the grant in a task of its own, which a client that leaves does not end; `None` if the result is to come.
    async fn send_grant(
        &self,
        provider: &OidcProvider,
        ex: &Exchange<'_>,
        refresh_token: &str,
        key: TokenDigest,
    ) -> Option<Arc<GrantResult>> {
        let Some(endpoint) = provider.token.as_ref() else {
            let missing = "the identity provider has no token endpoint".to_owned();
            return Some(Arc::new(Err(GrantFault::Unavailable(missing))));
        };
        let mut form = FormBody::default();
        form.set("grant_type", "refresh_token");
        // Without `scope`: a scope of the login that was not granted would end the session (RFC 6749 §6).
        form.set("refresh_token", refresh_token);
        let mut spec = endpoint.target.request(Method::Post);
        spec.may_repeat = false;
        let now_s = ex.now.unix_s();
        let mut call = EndpointCall { host: ex.host, endpoint: &endpoint.url, now_s, spec: &mut spec };
        self.client.authenticate(self.token_method, &mut call, &mut form);
        form.write(&mut spec);
        let response = endpoint.target.send(ex.host, spec);
        let flights = self.refreshes.clone();
        match ex.host.outbound() {
            Some(outbound) => {
                let background = outbound.clone();
                outbound.spawn(Box::pin(async move {
                    let result = Arc::new(GrantedTokens::read(response.await, now_s));
                    flights.end(key, result, background.now().mono_ms());
                }));
                None
            }
            None => {
                let result = Arc::new(GrantedTokens::read(response.await, now_s));
                flights.end(key, result.clone(), ex.host.clock().mono_ms());
                Some(result)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Arc<GrantResult> {
        Arc::new(Err(GrantFault::Refused("invalid_grant".to_owned())))
    }

    #[test]
    fn flights_in_progress_are_never_forgotten() {
        let flights = RefreshFlights::default();
        let join = |number: u8, now_ms| flights.join([number; 32], now_ms, 1000);
        assert_eq!([1, 2, 3].map(|number| join(number, 0)), [(); 3].map(|()| RefreshTurn::Send));
        flights.end([2; 32], refused(), 1);
        flights.end([3; 32], refused(), 2);
        assert_eq!(join(4, 3), RefreshTurn::Send);
        // The table is full: the flight that ended first leaves.
        assert_eq!(join(5, 4), RefreshTurn::Send);
        assert_eq!((join(1, 5), join(3, 5)), (RefreshTurn::Wait, RefreshTurn::Ended(refused())));
        assert_eq!(join(6, 6), RefreshTurn::Send);
        assert_eq!([1, 4, 5, 6].map(|number| join(number, 7)), [(); 4].map(|()| RefreshTurn::Wait));
        assert_eq!(join(7, 7), RefreshTurn::Full);
        // A flight that is lost makes room.
        assert_eq!(join(7, 1001), RefreshTurn::Send);
    }
}
