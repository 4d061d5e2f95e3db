//! Logouts of the provider: a logout token ends sessions in Redis (OpenID Connect Back-Channel Logout 1.0).

use serde_json::{Value, json};
use yumen_plugin::{Exchange, LocalResponse, Method, Step};

use super::bearer::LOGOUT_EVENT;
use super::checks::names_audience;
use super::provider::OidcProvider;
use super::tokens::{SignatureRules, verify_id_token};
use super::{OpenidConnect, session_failure};
use crate::jose::{ClaimTimes, JoseToken};
use crate::query::{QueryArgument, argument};
use crate::session::{EndedSessions, SessionStore};

/// Largest body of a logout in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Longest time from the issue of a logout token to its use.
const TOKEN_AGE_MAX_S: u64 = 300;

impl OpenidConnect {
    /// Whether a request is a logout of the provider.
    pub(super) fn is_backchannel_logout(&self, ex: &Exchange<'_>) -> bool {
        let path = self.logout.backchannel_logout_path.as_ref();
        path.is_some_and(|path| ex.request.raw_path() == path.as_bytes())
            && ex.request.client_method() == Method::Post
    }

    pub(super) fn backchannel_step<'a>(
        &'a self,
        provider: &'a OidcProvider,
        sessions: &'a SessionStore,
        ex: &'a mut Exchange<'_>,
    ) -> Step<'a> {
        if ex.lacks_body(BODY_BYTES_MAX) {
            return Step::NeedBody { bytes_max: BODY_BYTES_MAX };
        }
        Step::Wait(Box::pin(async move {
            let response = match self.end_sessions(provider, sessions, ex).await {
                Ok(()) => LocalResponse::status(200),
                Err(refusal) => refusal,
            };
            Step::Respond(response.field("Cache-Control", "no-store"))
        }))
    }

    async fn end_sessions(
        &self,
        provider: &OidcProvider,
        sessions: &SessionStore,
        ex: &Exchange<'_>,
    ) -> Result<(), LocalResponse> {
        let body = ex.body.buffered.as_deref().unwrap_or_default();
        let QueryArgument::One(text) = argument(body, b"logout_token") else {
            return Err(refused("the form has no logout_token"));
        };
        let text = String::from_utf8_lossy(&text);
        let token = JoseToken::read(&text).ok_or_else(|| refused("the logout token is malformed"))?;
        let ended = self.ended_by(provider, &token, ex.now.unix_s()).map_err(refused)?;
        // No connection to the token endpoint vouches for this token, so that a signature is needed in any case.
        let rules = SignatureRules {
            slack_s: self.signatures.slack_s,
            allowed: self.signatures.allowed.clone(),
            accept_none: false,
            accept_unsupported: false,
        };
        let (keys, secret) = (provider.keys.as_deref(), self.client.secret.as_deref());
        let verified = verify_id_token(keys, ex.host, &token, &rules, secret, self.timeout_ms).await;
        verified.map_err(|_| refused("the signature of the logout token is not valid"))?;
        // The signature itself may have several forms. A token that was used has done its work.
        let signed = text.rsplit_once('.').map_or(&*text, |(signed, _)| signed);
        let lasts_ms = (TOKEN_AGE_MAX_S + 2 * rules.slack_s).saturating_mul(1000);
        let noted = sessions.use_token(ex.host, signed.as_bytes(), lasts_ms).await;
        let Some(noted) = noted.map_err(session_failure)? else { return Ok(()) };
        let done = sessions.end_all(ex.host, &provider.metadata.issuer, &self.client.id, &ended).await;
        done.map_err(|fault| {
            sessions.retract_use(ex.host, &noted);
            session_failure(fault)
        })
    }

    /// The sessions that a logout token names, if its claims are those of one (§2.6).
    fn ended_by(
        &self,
        provider: &OidcProvider,
        token: &JoseToken<'_>,
        now_s: u64,
    ) -> Result<EndedSessions, &'static str> {
        let claims = &token.claims;
        let text = |name: &str| claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        if text("iss") != Some(&*provider.metadata.issuer) {
            return Err("the issuer of the logout token is another one");
        }
        if !claims.get("aud").is_some_and(|audience| names_audience(audience, &self.client.id)) {
            return Err("the logout token is for another client");
        }
        // An ID token has no such event, and a logout token no nonce: neither counts as the other.
        let has_event = claims.get("events").and_then(|events| events.get(LOGOUT_EVENT)).is_some();
        if !has_event || claims.contains_key("nonce") {
            return Err("the token is no logout token");
        }
        let slack_s = self.signatures.slack_s;
        let is_timely = ClaimTimes::read(claims).is_ok_and(|times| times.check(now_s, slack_s).is_ok());
        let issued_s = claims.get("iat").and_then(Value::as_u64);
        if !is_timely || issued_s.is_none_or(|issued_s| issued_s + TOKEN_AGE_MAX_S + slack_s < now_s) {
            return Err("the logout token has expired, or has no time of issue");
        }
        match (text("sid"), text("sub")) {
            (Some(sid), _) => Ok(EndedSessions::Session(sid.to_owned())),
            (None, Some(subject)) => Ok(EndedSessions::Subject(subject.to_owned())),
            (None, None) => Err("the logout token names neither a session nor a user"),
        }
    }
}

/// 400 with the reason (§2.8).
fn refused(reason: &str) -> LocalResponse {
    LocalResponse::json(400, &json!({ "error": "invalid_request", "error_description": reason }))
}
