//! Requests with a session: its checks, its renewal, and the fields for the upstream.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use yumen_plugin::{Exchange, ExternalUser, LocalResponse, ResponseHead, ResponseHeadPhase, Step};

use super::checks::ClaimCheckRefusal;
use super::login::LoginReason;
use super::provider::OidcProvider;
use super::refresh::RenewalOutcome;
use super::tokens::unverified_claims;
use super::{ID_TOKEN, OpenidConnect, RAW_ID_TOKEN, REFRESH_TOKEN, USERINFO, session_failure, unavailable};
use crate::cookie_privacy::forbid_sharing;
use crate::session::{
    CookieRequest, LoginSession, OpenedLogin, PreparedIdentity, SealFault, SessionFault, SessionLookup,
    SessionSave, SessionStore,
};

/// Age of a session that `force_reauthorize` accepts: the user has just come back.
const FRESH_LOGIN_S: u64 = 10;

/// Cookies for the response to a request that passes, left for the response head phase.
struct SessionCookies {
    /// The address of the plugin: a chain may have two of them.
    owner: usize,
    lines: Vec<String>,
}

impl OpenidConnect {
    /// The step for a request that has no bearer token.
    pub(super) fn session_step<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        // `build` requires sessions unless every request needs a bearer token.
        let Some(sessions) = &self.sessions else { return Step::Respond(LocalResponse::status(401)) };
        let Some(provider) = self.provider.as_deref() else {
            return Step::Respond(unavailable(
                "the discovery document of the identity provider is not available",
            ));
        };
        let path = ex.request.raw_path();
        if self.is_callback(path) {
            return Step::Wait(Box::pin(self.callback(provider, sessions, ex)));
        }
        if path == self.logout.logout_path.as_bytes() {
            return Step::Wait(Box::pin(self.logout(provider, sessions, ex)));
        }
        if self.is_backchannel_logout(ex) {
            return self.backchannel_step(provider, sessions, ex);
        }
        let lookup = sessions.find(ex);
        if let SessionLookup::Found(opened) = &lookup {
            let now_s = ex.now.unix_s();
            if self.need_of(provider, &opened.session, now_s) == SessionNeed::Nothing
                && !sessions.is_renewal_due(opened, now_s)
            {
                return self.authorize(opened, ex);
            }
        }
        Step::Wait(Box::pin(self.continue_session(provider, sessions, ex, lookup)))
    }

    /// The session of this provider and client; `Err` if the store fails.
    pub(super) async fn load_session(
        &self,
        provider: &OidcProvider,
        sessions: &SessionStore,
        ex: &Exchange<'_>,
        lookup: SessionLookup,
    ) -> Result<Option<Arc<OpenedLogin>>, LocalResponse> {
        let opened = match lookup {
            SessionLookup::Absent => None,
            SessionLookup::Found(opened) => Some(opened),
            SessionLookup::Invalid(fault) => {
                if fault == SealFault::UnknownKey {
                    ex.host.report_undecided(super::NAME, &self.owner, "session sealed with another secret");
                }
                None
            }
            SessionLookup::Stored(id) => {
                sessions.load(ex.host, id, ex.now.unix_s()).await.map_err(session_failure)?
            }
        };
        Ok(opened.filter(|opened| self.is_own(provider, &opened.session)))
    }

    /// Whether a session belongs to this provider and client: plugins may share a secret and a cookie name.
    fn is_own(&self, provider: &OidcProvider, session: &LoginSession) -> bool {
        session.issuer == provider.metadata.issuer && session.client_id == self.client.id
    }

    /// The need of a session before it authorizes a request.
    pub(super) fn need_of(&self, provider: &OidcProvider, session: &LoginSession, now_s: u64) -> SessionNeed {
        let age_s = now_s.saturating_sub(session.authenticated_s);
        if !self.is_own(provider, session) || (self.renewal.force_reauthorize && age_s > FRESH_LOGIN_S) {
            return SessionNeed::Login;
        }
        let is_stale = session.access_token.is_none() || now_s >= session.access_expires_s;
        if self.renewal.renew_access_token_on_expiry && is_stale {
            return SessionNeed::Tokens;
        }
        match self.renewal.refresh_session_interval {
            Some(interval_s) if age_s > interval_s => SessionNeed::SilentLogin,
            _ => SessionNeed::Nothing,
        }
    }

    async fn continue_session<'a>(
        &'a self,
        provider: &'a OidcProvider,
        sessions: &'a SessionStore,
        ex: &'a mut Exchange<'_>,
        lookup: SessionLookup,
    ) -> Step<'a> {
        let opened = match self.load_session(provider, sessions, ex, lookup).await {
            Ok(Some(opened)) => opened,
            Ok(None) => return self.unauthenticated(provider, sessions, ex).await,
            Err(response) => return Step::Respond(response),
        };
        let now_s = ex.now.unix_s();
        match self.need_of(provider, &opened.session, now_s) {
            SessionNeed::Login => return self.unauthenticated(provider, sessions, ex).await,
            SessionNeed::SilentLogin => {
                let reason = LoginReason { is_silent: true, ..LoginReason::of_request(ex) };
                return Step::Respond(self.start_login(provider, sessions, ex, reason).await);
            }
            SessionNeed::Nothing if !sessions.is_renewal_due(&opened, now_s) => {
                return self.authorize(&opened, ex);
            }
            SessionNeed::Nothing => {}
            SessionNeed::Tokens => return self.renew_session(provider, sessions, ex, opened).await,
        }
        let reason = SessionSave::Use(&opened);
        match sessions.save(ex.host, self.cookie_request(ex), &opened.session, reason).await {
            Ok(lines) => self.leave_cookies(ex, lines),
            Err(SessionFault::Ended) => return self.unauthenticated(provider, sessions, ex).await,
            // The session itself is still valid: the next request saves it.
            Err(_) => {}
        }
        self.authorize(&opened, ex)
    }

    /// Renews the tokens of a session, saves it, and lets the request pass.
    pub(super) async fn renew_and_save<'a>(
        &'a self,
        provider: &'a OidcProvider,
        sessions: &'a SessionStore,
        ex: &mut Exchange<'_>,
        opened: &OpenedLogin,
    ) -> Step<'a> {
        let session = match self.renew(provider, ex, &opened.session).await {
            RenewalOutcome::Renewed(session) => session,
            RenewalOutcome::Refused => return self.unauthenticated(provider, sessions, ex).await,
            RenewalOutcome::Unavailable(reason) => {
                ex.host.report_undecided(super::NAME, &self.owner, "the token endpoint is not available");
                return Step::Respond(unavailable(&reason));
            }
        };
        let reason = SessionSave::Tokens(opened);
        match sessions.save(ex.host, self.cookie_request(ex), &session, reason).await {
            Ok(lines) => self.leave_cookies(ex, lines),
            Err(SessionFault::Ended) => return self.unauthenticated(provider, sessions, ex).await,
            // A rotated refresh token would be lost.
            Err(fault) => return Step::Respond(session_failure(fault)),
        }
        match self.prepare(&session) {
            Ok(identity) => {
                identity.apply(ex);
                Step::Continue
            }
            Err(refusal) => Step::Respond(refusal),
        }
    }

    fn leave_cookies(&self, ex: &mut Exchange<'_>, lines: Vec<String>) {
        ex.leave(SessionCookies { owner: self.address(), lines });
    }

    /// Lets a request with a session pass, if its claims suffice.
    pub(super) fn authorize<'a>(&self, opened: &OpenedLogin, ex: &mut Exchange<'_>) -> Step<'a> {
        match opened.prepared.get_or_init(|| self.prepare(&opened.session)) {
            Ok(identity) => {
                identity.apply(ex);
                Step::Continue
            }
            Err(refusal) => Step::Respond(refusal.clone()),
        }
    }

    /// Checks the claims of a session, and writes its fields for the upstream.
    fn prepare(&self, session: &LoginSession) -> Result<PreparedIdentity, LocalResponse> {
        let claims_of = |token: &Option<String>| token.as_deref().and_then(unverified_claims);
        let (access_claims, id_claims) = (claims_of(&session.access_token), claims_of(&session.id_token));
        let document = json!({
            "user": session.user,
            "access_token": session.access_token,
            "id_token": id_claims,
        });
        let checked = self.checks.check_session(&document, access_claims.as_ref(), id_claims.as_ref());
        checked.map_err(|refusal| match refusal {
            ClaimCheckRefusal::Forbidden(body) => ClaimCheckRefusal::forbidden(&body),
            ClaimCheckRefusal::Schema(_) => LocalResponse::status(401),
        })?;
        let mut fields = Vec::new();
        if let Some(token) = &session.access_token {
            self.add_access_token(token, &mut fields);
        }
        let base64 = |value: &Value| STANDARD.encode(value.to_string()).into_bytes();
        let id_claims = id_claims.map(Value::Object);
        if let Some(claims) = id_claims.as_ref().filter(|_| self.fields.id_token.set_id_token_header) {
            fields.push((ID_TOKEN, base64(claims)));
        }
        if let Some(token) =
            session.id_token.as_ref().filter(|_| self.fields.id_token.set_raw_id_token_header)
        {
            fields.push((RAW_ID_TOKEN, token.clone().into_bytes()));
        }
        if let Some(user) = session.user.as_ref().filter(|_| self.fields.set_userinfo_header) {
            fields.push((USERINFO, base64(user)));
        }
        if let Some(token) = session.refresh_token.as_ref().filter(|_| self.fields.set_refresh_token_header) {
            fields.push((REFRESH_TOKEN, token.clone().into_bytes()));
        }
        let claims = session.user.clone().or(id_claims).unwrap_or(Value::Object(Map::new()));
        let user = ExternalUser { id: session.subject.as_str().into(), claims: Arc::new(claims) };
        Ok(PreparedIdentity::new(&fields, user))
    }

    /// Adds the cookies that were left for the response.
    pub(super) fn add_cookies(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        let owner = self.address();
        let Some(cookies) = ex.notes_mut::<SessionCookies>().find(|one| one.owner == owner) else { return };
        let lines = std::mem::take(&mut cookies.lines);
        if !lines.is_empty() {
            forbid_sharing(head);
        }
        lines.iter().for_each(|line| head.fields.add("Set-Cookie", line.as_bytes()));
    }

    /// The request as far as cookies depend on it.
    pub(super) fn cookie_request<'e>(&self, ex: &'e Exchange<'_>) -> CookieRequest<'e> {
        CookieRequest { head: &ex.request, is_https: self.is_https(ex), now_s: ex.now.unix_s() }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
}

/// The need of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionNeed {
    Nothing,
    /// A new access token.
    Tokens,
    /// A login without interaction.
    SilentLogin,
    /// A login.
    Login,
}
