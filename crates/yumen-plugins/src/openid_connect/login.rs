//! The start of a login: state, nonce and verifier, the state cookie, the redirect to the provider.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use yumen_plugin::{Exchange, LocalResponse, Method, PluginHost, Step};

use super::client_auth::EndpointCall;
use super::form::FormBody;
use super::provider::OidcProvider;
use super::settings::{UnauthAction, UnauthXhr};
use super::tokens::read_object;
use super::{OpenidConnect, REDIRECT_SUFFIX, unavailable};
use crate::session::{CookiePurpose, LoginCookieAttributes, SessionStore, cookies_of};

/// Longest time from the start of a login to its end.
pub(super) const LOGIN_TIME_S: u64 = 600;
/// Most logins of a browser in progress; the oldest of a script, else of a page, is given up.
const LOGINS_MAX: usize = 5;
/// Longest path and query to return to. A longer one would not fit the state cookie.
const RETURN_PATH_MAX: usize = 2000;
/// Most logins in a row that end without a session in the next request.
const LOST_LOGINS_MAX: u32 = 3;
/// Time from one such login to the next.
const LOST_LOGIN_TIME_S: u64 = 30;

/// A login in progress, sealed in a cookie of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct LoginState {
    #[serde(rename = "s")]
    pub(super) state: String,
    #[serde(rename = "n", skip_serializing_if = "Option::is_none")]
    pub(super) nonce: Option<String>,
    #[serde(rename = "v", skip_serializing_if = "Option::is_none")]
    pub(super) verifier: Option<String>,
    /// Path and query to return to.
    #[serde(rename = "p")]
    pub(super) return_path: String,
    #[serde(rename = "r")]
    pub(super) redirect_uri: String,
    #[serde(rename = "i")]
    pub(super) issuer: String,
    #[serde(rename = "c")]
    pub(super) client_id: String,
    #[serde(rename = "t")]
    pub(super) created_s: u64,
    /// Restarts before this one.
    #[serde(rename = "a")]
    pub(super) attempt: u8,
    /// Whether the provider must not ask the user.
    #[serde(rename = "q")]
    pub(super) is_silent: bool,
    /// Whether a page began it, which the user waits for.
    #[serde(rename = "g", default)]
    pub(super) is_of_page: bool,
}

/// Logins that ended, for finding a browser that keeps no session.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct EndedLogins {
    #[serde(rename = "n")]
    count: u32,
    #[serde(rename = "t")]
    ended_s: u64,
}

/// The reason for a login.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LoginReason {
    /// Path and query to return to.
    pub(super) return_path: String,
    pub(super) attempt: u8,
    pub(super) is_silent: bool,
}

impl LoginReason {
    /// A login for the request itself.
    pub(super) fn of_request(ex: &Exchange<'_>) -> LoginReason {
        let target = ex.request.forwarded_request_uri_for_client();
        LoginReason { return_path: return_path(&target), attempt: 0, is_silent: false }
    }
}

/// The part of a request target that a redirect may lead to: a path of this host.
pub(super) fn return_path(target: &[u8]) -> String {
    let is_plain = target.iter().all(u8::is_ascii_graphic);
    // `//host` and `/\host` are URLs of another host to browsers.
    let is_local = target.first() == Some(&b'/') && !matches!(target.get(1), Some(b'/' | b'\\'));
    if !is_plain || !is_local {
        return "/".to_owned();
    }
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let kept = [target, path].into_iter().find(|one| one.len() <= RETURN_PATH_MAX).unwrap_or(b"/");
    String::from_utf8_lossy(kept).into_owned()
}

/// The name of the state cookie of a login; `None` if `state` cannot be one of ours.
pub(super) fn state_cookie(session_name: &str, state: &str) -> Option<String> {
    let prefix = state.get(..8)?;
    let is_hex = prefix.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_hex.then(|| format!("{session_name}_login_{prefix}"))
}

fn ended_cookie(session_name: &str) -> String {
    format!("{session_name}_logins")
}

/// Attributes of the other cookies. The provider sends the user to the gateway from another site, so they are not
/// `Strict`, and the path of the callback may be outside of that of the session.
fn login_attributes(sessions: &SessionStore) -> LoginCookieAttributes {
    let mut attributes = sessions.attributes().clone();
    attributes.path = "/".to_owned();
    attributes.is_http_only = true;
    if attributes.same_site != "None" {
        attributes.same_site = "Lax";
    }
    attributes
}

pub(super) fn hex_of_random(host: &dyn PluginHost) -> String {
    use std::fmt::Write as _;
    let mut bytes = [0; 16];
    host.fill_random(&mut bytes);
    bytes.iter().fold(String::with_capacity(32), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The challenge of a verifier (RFC 7636 §4.2).
pub(super) fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()))
}

impl OpenidConnect {
    /// The answer to a request without a session.
    pub(super) async fn unauthenticated<'a>(
        &'a self,
        provider: &OidcProvider,
        sessions: &SessionStore,
        ex: &mut Exchange<'_>,
    ) -> Step<'a> {
        match self.login.unauth_action {
            UnauthAction::Pass => {
                self.pass_without_user(ex);
                Step::Continue
            }
            UnauthAction::Deny => Step::Respond(LocalResponse::status(401)),
            UnauthAction::Auth if self.login.unauth_xhr == UnauthXhr::Refuse && !shows_page(ex) => {
                Step::Respond(LocalResponse::status(401))
            }
            UnauthAction::Auth if self.loses_sessions(sessions, ex) => {
                let message = "logins end without a session that lasts: check cookie_domain, cookie_path, \
                               cookie_secure and cookie_same_site of the session, and the lifetime of access tokens";
                Step::Respond(LocalResponse::message(500, message))
            }
            UnauthAction::Auth => {
                let reason = LoginReason::of_request(ex);
                Step::Respond(self.start_login(provider, sessions, ex, reason).await)
            }
        }
    }

    /// Starts a login and redirects to the provider.
    pub(super) async fn start_login(
        &self,
        provider: &OidcProvider,
        sessions: &SessionStore,
        ex: &Exchange<'_>,
        reason: LoginReason,
    ) -> LocalResponse {
        let Some(endpoint) = &provider.metadata.authorization_endpoint else {
            return unavailable("the identity provider has no authorization endpoint");
        };
        let state = self.login_state(provider, ex, reason);
        let mut parameters = self.authorization_parameters(&state);
        if let Some(pushed) = self.pushes.as_ref() {
            let Some(push) = &provider.pushed else {
                return unavailable(
                    "the identity provider has no endpoint for pushed authorization requests",
                );
            };
            let mut spec = push.target.request(Method::Post);
            let now_s = ex.now.unix_s();
            let mut call = EndpointCall { host: ex.host, endpoint: &push.url, now_s, spec: &mut spec };
            self.client.authenticate(*pushed, &mut call, &mut parameters);
            parameters.write(&mut spec);
            let reply = read_object(push.target.send(ex.host, spec).await);
            let request_uri = match &reply {
                Ok(object) => object.get("request_uri").and_then(Value::as_str),
                Err(fault) => return unavailable(&fault.to_string()),
            };
            let Some(request_uri) = request_uri else {
                return unavailable("the response to the pushed authorization request has no request_uri");
            };
            parameters = FormBody::default();
            parameters.set("client_id", &self.client.id);
            parameters.set("request_uri", request_uri);
        }
        let mut response = LocalResponse::status(302)
            .field("Location", parameters.url(endpoint))
            .field("Cache-Control", "no-cache, no-store, max-age=0");
        match self.state_cookies(sessions, ex, &state) {
            Some(cookies) => {
                cookies.iter().for_each(|cookie| response.fields_mut().add("Set-Cookie", cookie.as_bytes()));
                response
            }
            None => LocalResponse::message(500, "the login state could not be sealed"),
        }
    }

    fn login_state(&self, provider: &OidcProvider, ex: &Exchange<'_>, reason: LoginReason) -> LoginState {
        let verifier = || {
            let mut bytes = [0; 32];
            ex.host.fill_random(&mut bytes);
            URL_SAFE_NO_PAD.encode(bytes)
        };
        LoginState {
            state: hex_of_random(ex.host),
            nonce: self.login.use_nonce.then(|| hex_of_random(ex.host)),
            verifier: self.login.use_pkce.then(verifier),
            return_path: reason.return_path,
            redirect_uri: self.redirect_uri(ex),
            issuer: provider.metadata.issuer.clone(),
            client_id: self.client.id.clone(),
            created_s: ex.now.unix_s(),
            attempt: reason.attempt,
            is_silent: reason.is_silent,
            is_of_page: shows_page(ex),
        }
    }

    /// The parameters of an authorization request (OpenID Connect Core §3.1.2.1).
    fn authorization_parameters(&self, state: &LoginState) -> FormBody {
        let mut form = FormBody::default();
        form.set("client_id", &self.client.id);
        form.set("response_type", "code");
        form.set("scope", &self.login.scope);
        if state.is_silent {
            form.set("prompt", "none");
        }
        for (name, value) in self.login.authorization_params.iter().flatten() {
            // A silent login asks for nothing.
            if name != "prompt" || !state.is_silent {
                form.set(name, value.as_str().unwrap_or(&value.to_string()));
            }
        }
        // Behind the settings, which must not replace these.
        form.set("client_id", &self.client.id);
        form.set("response_type", "code");
        form.set("redirect_uri", &state.redirect_uri);
        form.set("state", &state.state);
        if let Some(nonce) = &state.nonce {
            form.set("nonce", nonce);
        }
        if let Some(verifier) = &state.verifier {
            form.set("code_challenge_method", "S256");
            form.set("code_challenge", &challenge(verifier));
        }
        form
    }

    /// The state cookie, and removals of the oldest ones beyond the limit.
    fn state_cookies(
        &self,
        sessions: &SessionStore,
        ex: &Exchange<'_>,
        state: &LoginState,
    ) -> Option<Vec<String>> {
        let name = state_cookie(sessions.name(), &state.state)?;
        let text = serde_json::to_vec(state).ok()?;
        let mut salt = [0; 16];
        ex.host.fill_random(&mut salt);
        let value = sessions.keys().seal(CookiePurpose::LoginState, &name, &text, salt)?;
        let (attributes, is_https) = (login_attributes(sessions), self.is_https(ex));
        let mut lines = vec![attributes.line(&name, &value, Some(LOGIN_TIME_S), is_https)];
        let prefix = format!("{}_login_", sessions.name());
        let mut others: Vec<(bool, u64, &str)> = Vec::new();
        for (name, value) in cookies_of(&ex.request) {
            let Some(name) = std::str::from_utf8(name).ok().filter(|name| name.starts_with(&prefix)) else {
                continue;
            };
            // Those that do not open are the oldest. Logins of scripts give way to those of pages: the scripts of an
            // open page must not end the login of its user.
            let opened = open_state(sessions, name, value);
            let (is_of_page, created_s) =
                opened.map_or((false, 0), |state| (state.is_of_page, state.created_s));
            others.push((is_of_page, created_s, name));
        }
        others.sort_unstable();
        let surplus = (others.len() + 1).saturating_sub(LOGINS_MAX);
        lines.extend(others[..surplus].iter().map(|(.., name)| attributes.line(name, "", Some(0), is_https)));
        Some(lines)
    }

    /// The login in progress with this state, and the line that removes its cookie.
    pub(super) fn take_state(
        &self,
        sessions: &SessionStore,
        ex: &Exchange<'_>,
        state: &str,
    ) -> Option<(LoginState, String)> {
        let name = state_cookie(sessions.name(), state)?;
        let value = ex.request.cookie(name.as_bytes())?;
        let login = open_state(sessions, &name, value)?;
        let removal = login_attributes(sessions).line(&name, "", Some(0), self.is_https(ex));
        Some((login, removal))
    }

    /// The cookie that counts logins which ended a moment ago.
    pub(super) fn ended_login_cookie(&self, sessions: &SessionStore, ex: &Exchange<'_>) -> Option<String> {
        let name = ended_cookie(sessions.name());
        let now_s = ex.now.unix_s();
        let attributes = login_attributes(sessions);
        let count = ended_logins(sessions, ex).map_or(0, |logins| logins.count);
        let text = serde_json::to_vec(&EndedLogins { count: count + 1, ended_s: now_s }).ok()?;
        let mut salt = [0; 16];
        ex.host.fill_random(&mut salt);
        let value = sessions.keys().seal(CookiePurpose::LoginState, &name, &text, salt)?;
        Some(attributes.line(&name, &value, Some(LOST_LOGIN_TIME_S), self.is_https(ex)))
    }

    /// The line that removes this cookie.
    pub(super) fn ended_login_removal(&self, sessions: &SessionStore, ex: &Exchange<'_>) -> Option<String> {
        let name = ended_cookie(sessions.name());
        ex.request.cookie(name.as_bytes())?;
        Some(login_attributes(sessions).line(&name, "", Some(0), self.is_https(ex)))
    }

    /// Whether logins end again and again without a session in the next request: a redirect loop.
    fn loses_sessions(&self, sessions: &SessionStore, ex: &Exchange<'_>) -> bool {
        // A login for each page is no loop.
        !self.renewal.force_reauthorize
            && ended_logins(sessions, ex).is_some_and(|logins| logins.count >= LOST_LOGINS_MAX)
    }

    /// The URL to which the provider sends the user back.
    pub(super) fn redirect_uri(&self, ex: &Exchange<'_>) -> String {
        match self.login.redirect_uri.as_deref() {
            Some(url) if !url.starts_with('/') => url.to_owned(),
            Some(path) => self.own_url(ex, path),
            None => {
                let path = String::from_utf8_lossy(ex.request.raw_path()).into_owned();
                match path.ends_with(REDIRECT_SUFFIX) {
                    true => self.own_url(ex, &path),
                    false => self.own_url(ex, &format!("{}{REDIRECT_SUFFIX}", path.trim_end_matches('/'))),
                }
            }
        }
    }

    /// Whether a request is a response of the provider.
    pub(super) fn is_callback(&self, path: &[u8]) -> bool {
        match self.login.redirect_uri.as_deref() {
            None => path.ends_with(REDIRECT_SUFFIX.as_bytes()),
            Some(url) => path == path_of(url).as_bytes(),
        }
    }

    /// A URL of the gateway as the client reaches it.
    pub(super) fn own_url(&self, ex: &Exchange<'_>, path: &str) -> String {
        // Untrusted clients cannot send these fields: the gateway removes them.
        let forwarded = ex.request.fields.get("X-Forwarded-Host");
        let host = forwarded.and_then(|list| list.split(|byte| *byte == b',').next());
        let host = host.map(<[u8]>::trim_ascii).filter(|host| !host.is_empty());
        let host = String::from_utf8_lossy(host.unwrap_or(ex.request.authority())).into_owned();
        let scheme = if self.is_https(ex) { "https" } else { "http" };
        format!("{scheme}://{host}{path}")
    }

    /// Whether the client uses https, perhaps to a trusted proxy.
    pub(super) fn is_https(&self, ex: &Exchange<'_>) -> bool {
        let forwarded = ex.request.fields.get("X-Forwarded-Proto");
        let scheme =
            forwarded.and_then(|list| list.split(|byte| *byte == b',').next()).map(<[u8]>::trim_ascii);
        scheme.unwrap_or(ex.client.scheme().as_bytes()).eq_ignore_ascii_case(b"https")
    }
}

/// The path of a URL or of an absolute path.
pub(super) fn path_of(url: &str) -> &str {
    let rest = match url.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |slash| &rest[slash..]),
        None => url,
    };
    rest.split(['?', '#']).next().unwrap_or_default()
}

fn open_state(sessions: &SessionStore, name: &str, value: &[u8]) -> Option<LoginState> {
    let (text, _) = sessions.keys().open(CookiePurpose::LoginState, name, value).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The logins that ended a moment ago.
fn ended_logins(sessions: &SessionStore, ex: &Exchange<'_>) -> Option<EndedLogins> {
    let name = ended_cookie(sessions.name());
    let value = ex.request.cookie(name.as_bytes())?;
    let (text, _) = sessions.keys().open(CookiePurpose::LoginState, &name, value).ok()?;
    let logins: EndedLogins = serde_json::from_slice(&text).ok()?;
    (ex.now.unix_s() < logins.ended_s.saturating_add(LOST_LOGIN_TIME_S)).then_some(logins)
}

/// Whether a response is shown as a page: a script cannot follow a redirect to another site.
fn shows_page(ex: &Exchange<'_>) -> bool {
    let field = |name: &str| ex.request.fields.get(name);
    match (field("Sec-Fetch-Mode"), field("X-Requested-With"), field("Accept")) {
        (Some(mode), _, _) => mode == b"navigate",
        (None, Some(with), _) if with.eq_ignore_ascii_case(b"XMLHttpRequest") => false,
        (None, _, Some(accept)) => accept.windows(9).any(|part| part.eq_ignore_ascii_case(b"text/html")),
        (None, _, None) => true,
    }
}
