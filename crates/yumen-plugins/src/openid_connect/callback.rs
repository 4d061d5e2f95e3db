//! The end of a login: the response of the provider, the exchange of the code, the session.

use serde_json::Value;
use yumen_plugin::{Exchange, LocalResponse, Method, Step};

use super::client_auth::EndpointCall;
use super::form::FormBody;
use super::login::{LOGIN_TIME_S, LoginReason, LoginState};
use super::provider::OidcProvider;
use super::tokens::{
    GrantFault, GrantedTokens, IdTokenRules, access_end_s, read_object, unverified_claims, verify_id_token,
};
use super::{OpenidConnect, session_failure, unavailable};
use crate::auth::same_secret;
use crate::jose::JoseToken;
use crate::query::pairs;
use crate::session::{LoginSession, SessionSave, SessionStore};

/// Restarts of a login after temporary errors.
const RESTARTS_MAX: u8 = 3;

/// The parameters of an authorization response (RFC 6749 §4.1.2).
#[derive(Debug, Default, PartialEq)]
pub(super) struct CallbackParameters {
    pub(super) state: Option<String>,
    pub(super) code: Option<String>,
    pub(super) issuer: Option<String>,
    pub(super) client_id: Option<String>,
    pub(super) error: Option<String>,
}

impl CallbackParameters {
    /// Reads the query; `None` if a parameter occurs twice (RFC 6749 §3.1).
    pub(super) fn read(query: &[u8]) -> Option<CallbackParameters> {
        let mut read = CallbackParameters::default();
        for (name, value) in pairs(query) {
            let place = match name.as_ref() {
                b"state" => &mut read.state,
                b"code" => &mut read.code,
                b"iss" => &mut read.issuer,
                b"client_id" => &mut read.client_id,
                b"error" => &mut read.error,
                _ => continue,
            };
            if place.replace(String::from_utf8_lossy(&value).into_owned()).is_some() {
                return None;
            }
        }
        Some(read)
    }

    /// Checks that the response belongs to the login and comes from its provider.
    pub(super) fn check(
        &self,
        login: &LoginState,
        provider: &OidcProvider,
        now_s: u64,
    ) -> Result<(), &'static str> {
        let state = self.state.as_deref().unwrap_or_default();
        if !same_secret(state.as_bytes(), login.state.as_bytes()) {
            return Err("state from argument does not match the one of the login");
        }
        if now_s > login.created_s.saturating_add(LOGIN_TIME_S) {
            return Err("the login has taken too long");
        }
        // The cookie may be that of another plugin with the same secret.
        if login.issuer != provider.metadata.issuer {
            return Err("the login was started with another identity provider");
        }
        // RFC 9207 §2.4: the response of a provider must not end a login at another one.
        let requires_issuer = provider.metadata.authorization_response_iss_parameter_supported;
        match &self.issuer {
            Some(issuer) if *issuer != login.issuer => return Err("iss from argument is another issuer"),
            None if requires_issuer => return Err("the response names no issuer"),
            _ => {}
        }
        match &self.client_id {
            Some(client_id) if *client_id != login.client_id => {
                Err("client_id from argument is another client")
            }
            _ => Ok(()),
        }
    }
}

impl OpenidConnect {
    fn grant_failure(&self, ex: &Exchange<'_>, fault: &GrantFault) -> LocalResponse {
        match fault {
            GrantFault::Unavailable(_) => {
                ex.host.report_undecided(super::NAME, &self.owner, "the token endpoint is not available");
                unavailable(&fault.to_string())
            }
            GrantFault::Refused(_) => LocalResponse::message(500, &fault.to_string()),
        }
    }

    /// The answer to a request to the redirect URI.
    pub(super) async fn callback<'a>(
        &'a self,
        provider: &'a OidcProvider,
        sessions: &'a SessionStore,
        ex: &'a mut Exchange<'_>,
    ) -> Step<'a> {
        let response = self.end_login(provider, sessions, ex).await;
        Step::Respond(response.unwrap_or_else(|refusal| refusal))
    }

    async fn end_login(
        &self,
        provider: &OidcProvider,
        sessions: &SessionStore,
        ex: &Exchange<'_>,
    ) -> Result<LocalResponse, LocalResponse> {
        let failed = |message: &str| LocalResponse::message(500, message);
        let parameters = CallbackParameters::read(ex.request.query().unwrap_or_default())
            .ok_or_else(|| LocalResponse::message(400, "a parameter occurs twice"))?;
        let state = parameters.state.as_deref().unwrap_or_default();
        let (login, removal) = self
            .take_state(sessions, ex, state)
            .ok_or_else(|| failed("request to the redirect_uri path but there's no session state found"))?;
        let now_s = ex.now.unix_s();
        parameters.check(&login, provider, now_s).map_err(failed)?;
        if login.client_id != self.client.id {
            return Err(failed("the login was started for another client"));
        }
        if let Some(error) = &parameters.error {
            return self.after_error(provider, sessions, ex, &login, error).await;
        }
        let code = parameters.code.as_deref().ok_or_else(|| failed("the response has no code"))?;
        let session = self.exchange_code(provider, ex, &login, code).await?;
        let request = self.cookie_request(ex);
        let cookies = sessions.save(ex.host, request, &session, SessionSave::Login).await;
        let cookies = cookies.map_err(session_failure)?;
        let mut response = self.return_to(sessions, &login.return_path);
        let lines = cookies.into_iter().chain([removal]).chain(self.ended_login_cookie(sessions, ex));
        lines.for_each(|line| response.fields_mut().add("Set-Cookie", line.as_bytes()));
        Ok(response)
    }

    /// Leads to the page that the user had requested.
    fn return_to(&self, sessions: &SessionStore, path: &str) -> LocalResponse {
        const UNCACHED: (&str, &str) = ("Cache-Control", "no-cache, no-store, max-age=0");
        if sessions.attributes().same_site != "Strict" {
            return LocalResponse::status(302).field("Location", path).field(UNCACHED.0, UNCACHED.1);
        }
        // Browsers do not send a strict cookie after a redirect that began at another site; they do after a page.
        let escaped =
            path.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;");
        let page = format!(
            "<!DOCTYPE html><html><head><meta http-equiv=\"refresh\" content=\"0;url={escaped}\"></head>\
             <body><a href=\"{escaped}\">Continue</a></body></html>"
        );
        LocalResponse::status(200)
            .field("Content-Type", "text/html; charset=utf-8")
            .field(UNCACHED.0, UNCACHED.1)
            .body(page)
    }

    /// The answer to an error of the provider.
    async fn after_error(
        &self,
        provider: &OidcProvider,
        sessions: &SessionStore,
        ex: &Exchange<'_>,
        login: &LoginState,
        error: &str,
    ) -> Result<LocalResponse, LocalResponse> {
        // A silent login that needs the user is repeated with the user (OpenID Connect Core §3.1.2.6).
        let needs_user = login.is_silent
            && matches!(
                error,
                "login_required" | "interaction_required" | "consent_required" | "account_selection_required"
            );
        let is_temporary = error == "temporarily_unavailable" && ex.request.method() == Method::Get;
        if (needs_user || is_temporary) && login.attempt < RESTARTS_MAX {
            let reason = LoginReason {
                return_path: login.return_path.clone(),
                attempt: login.attempt + 1,
                is_silent: false,
            };
            return Ok(self.start_login(provider, sessions, ex, reason).await);
        }
        // The text of the provider passed through the browser: only a code is repeated.
        let is_code = error.len() <= 100
            && error.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        let error = if is_code { error } else { "unknown error" };
        Err(LocalResponse::message(500, &format!("the identity provider refused the login: {error}")))
    }

    /// Exchanges a code for tokens and checks them.
    async fn exchange_code(
        &self,
        provider: &OidcProvider,
        ex: &Exchange<'_>,
        login: &LoginState,
        code: &str,
    ) -> Result<LoginSession, LocalResponse> {
        let endpoint = provider
            .token
            .as_ref()
            .ok_or_else(|| unavailable("the identity provider has no token endpoint"))?;
        let mut form = FormBody::default();
        form.set("grant_type", "authorization_code");
        form.set("code", code);
        form.set("redirect_uri", &login.redirect_uri);
        form.set("state", &login.state);
        if let Some(verifier) = &login.verifier {
            form.set("code_verifier", verifier);
        }
        let mut spec = endpoint.target.request(Method::Post);
        // A code that is sent twice is revoked with its tokens (RFC 6749 §4.1.2).
        spec.may_repeat = false;
        let now_s = ex.now.unix_s();
        let mut call = EndpointCall { host: ex.host, endpoint: &endpoint.url, now_s, spec: &mut spec };
        self.client.authenticate(self.token_method, &mut call, &mut form);
        form.write(&mut spec);
        let granted = GrantedTokens::read(endpoint.target.send(ex.host, spec).await, now_s)
            .map_err(|fault| self.grant_failure(ex, &fault))?;
        let id_token = granted.id_token.as_deref().ok_or_else(|| {
            LocalResponse::message(500, "the response of the token endpoint has no ID token")
        })?;
        let subject = self.check_id_token(provider, ex, id_token, &granted, login.nonce.as_deref()).await;
        let subject = subject.map_err(|reason| LocalResponse::message(500, &reason))?;
        if granted.access_token.is_none() {
            return Err(LocalResponse::message(
                500,
                "the response of the token endpoint has no access token",
            ));
        }
        let user = match granted.access_token.as_deref() {
            Some(token) if self.fields.set_userinfo_header => {
                self.userinfo(provider, ex, token, &subject).await
            }
            _ => None,
        };
        let sid =
            unverified_claims(id_token).and_then(|claims| claims.get("sid")?.as_str().map(str::to_owned));
        Ok(LoginSession {
            issuer: provider.metadata.issuer.clone(),
            client_id: self.client.id.clone(),
            subject,
            sid,
            access_expires_s: access_end_s(
                &granted,
                self.renewal.access_token_expires_in,
                self.renewal.access_token_expires_leeway,
            ),
            access_token: granted.access_token,
            refresh_token: granted.refresh_token,
            id_token: granted.id_token,
            user,
            authenticated_s: now_s,
        })
    }

    /// Checks an ID token of the token endpoint and returns its subject.
    pub(super) async fn check_id_token(
        &self,
        provider: &OidcProvider,
        ex: &Exchange<'_>,
        text: &str,
        granted: &GrantedTokens,
        nonce: Option<&str>,
    ) -> Result<String, String> {
        let token = JoseToken::read(text).ok_or("the ID token is malformed")?;
        let rules = IdTokenRules {
            issuer: &provider.metadata.issuer,
            client_id: &self.client.id,
            nonce,
            access_token: granted.access_token.as_deref(),
            slack_s: self.signatures.slack_s,
            now_s: ex.now.unix_s(),
        };
        rules.check(&token)?;
        let keys = provider.keys.as_deref();
        let secret = self.client.secret.as_deref();
        verify_id_token(keys, ex.host, &token, &self.signatures, secret, self.timeout_ms).await?;
        Ok(token.claims.get("sub").and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    /// The claims of the userinfo endpoint. Without them the user is logged in all the same, as in APISIX.
    async fn userinfo(
        &self,
        provider: &OidcProvider,
        ex: &Exchange<'_>,
        access_token: &str,
        subject: &str,
    ) -> Option<Value> {
        let endpoint = provider.userinfo.as_ref()?;
        let mut spec = endpoint.target.request(Method::Get);
        spec.fields.set("Authorization", format!("Bearer {access_token}").as_bytes());
        spec.fields.set("Accept", b"application/json");
        let claims = read_object(endpoint.target.send(ex.host, spec).await).ok()?;
        // Claims of another user must not be taken for those of this one (OpenID Connect Core §5.3.2).
        (claims.get("sub").and_then(Value::as_str) == Some(subject)).then_some(Value::Object(claims))
    }
}
