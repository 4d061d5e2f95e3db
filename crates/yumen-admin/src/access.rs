//! Access to the Admin API: addresses, keys, sessions of the dashboard, roles, and origins of pages.
//!
//! Decides by the head of a request, independent of the requested resource.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use serde_json::json;
use yumen_base::IpSet;
use yumen_config::node::{AdminConfig, AdminRole};
use yumen_store::StoreState;

use crate::completed_logins::CompletedLogins;
use crate::host_check::AllowedHosts;
use crate::keys::{self, HashedKey, KeyHolder};
use crate::login_guard::{LoginForm, LoginGuard, LoginOrigin};
use crate::query::QueryArguments;
use crate::refusal::ApiRefusal;
use crate::sessions::{DashboardSession, SessionMismatch, SessionOwner, SessionTable};

const API_KEY: &str = "x-api-key";
/// Cookie with a key, as in APISIX.
const KEY_COOKIE: &str = "x_api_key";

/// The peer address of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdminPeer(pub(crate) IpAddr);

/// Marks requests that come by the socket in the data directory: their clients are the user of the gateway and root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalPeer;

/// The author of changes by that socket.
const LOCAL_AUTHOR: &str = "local";

/// Requests other than GET that only read.
const READ_BY_POST: [&str; 3] = ["/yumen/v1/convert", "/yumen/v1/explain", "/yumen/v1/plan"];
/// Login and logout, which change nothing but the client's own session.
pub(crate) const SESSION_PATH: &str = "/yumen/v1/session";
/// Cookies of a session. Browsers accept the prefix `__Host-` only from the host itself and over TLS.
const SESSION_COOKIES: [&str; 2] = ["__Host-yumen_session", "yumen_session"];
/// Values of these cookies that a request may have: other ports and paths of the host can add their own.
const SESSION_COOKIES_MAX: usize = 8;
/// Header field with the token of the session, which pages of other origins cannot read.
const CSRF_TOKEN: &str = "x-yumen-csrf";

/// Access rules of the Admin API.
#[derive(Debug, Clone)]
pub struct AdminAccess {
    pub(crate) allow: IpSet,
    keys: Vec<HashedKey>,
    key_required: bool,
    pub(crate) cors: bool,
    pub(crate) dashboard: DashboardAccess,
}

/// Access rules of the dashboard.
#[derive(Debug, Clone)]
pub(crate) struct DashboardAccess {
    pub(crate) is_enabled: bool,
    /// `None` with TLS: a browser verifies the name by the certificate.
    hosts: Option<AllowedHosts>,
    pub(crate) sessions: Arc<SessionTable>,
    pub(crate) completed: Arc<CompletedLogins>,
}

impl DashboardAccess {
    fn new(admin: &AdminConfig) -> DashboardAccess {
        let dashboard = &admin.dashboard;
        DashboardAccess {
            is_enabled: dashboard.enabled,
            hosts: (!admin.tls.is_on()).then(|| AllowedHosts::new(&dashboard.hosts, "admin.dashboard.hosts")),
            sessions: Arc::default(),
            completed: Arc::default(),
        }
    }

    /// Whether the listener itself terminates TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.hosts.is_none()
    }

    /// Refuses host names that other sites can hold.
    pub(crate) fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiRefusal> {
        self.hosts.as_ref().map_or(Ok(()), |hosts| hosts.check(uri, headers))
    }

    /// Refuses requests that a browser sends for another page than the dashboard.
    pub(crate) fn check_page(&self, request: &Request) -> Result<(), ApiRefusal> {
        self.check_host(request.uri(), request.headers())?;
        is_own_page(request)
    }

    /// The values of the session's cookies in a request.
    pub(crate) fn session_cookies(&self, headers: &HeaderMap) -> Vec<String> {
        // Over TLS a browser accepts the other name from pages without TLS too, which an attacker on the network can forge.
        let names = if self.is_tls() { &SESSION_COOKIES[..1] } else { &SESSION_COOKIES[..] };
        let values = names.iter().flat_map(|name| cookies(headers, name));
        values.take(SESSION_COOKIES_MAX).map(str::to_owned).collect()
    }

    /// Ends the sessions of all cookies in a request.
    pub(crate) fn close_sessions(&self, headers: &HeaderMap) {
        self.session_cookies(headers).iter().for_each(|id| self.sessions.close(id));
    }

    /// The session of a request, whose page and token are valid.
    fn session(&self, request: &Request) -> Result<DashboardSession, ApiRefusal> {
        let ids = self.session_cookies(request.headers());
        if ids.is_empty() {
            // The text of APISIX, for clients without any credentials.
            return Err(unauthorized("missing apikey"));
        }
        self.check_page(request)?;
        // Reads need the token too. A browser sends cookies to all ports of a host, so every upstream on it has the cookie.
        let token = request.headers().get(CSRF_TOKEN).map_or(&b""[..], HeaderValue::as_bytes);
        let now = Instant::now();
        let mut refusal = unauthorized("the session has ended");
        for id in ids {
            match self.sessions.find(&id, token, now) {
                Ok(session) => return Ok(session),
                Err(SessionMismatch::Token) => {
                    refusal = forbidden("the token in X-Yumen-Csrf is not that of the session");
                }
                Err(SessionMismatch::Over) => {}
            }
        }
        Err(refusal)
    }
}

/// Refuses requests that a browser sends for a page of another origin.
fn is_own_page(request: &Request) -> Result<(), ApiRefusal> {
    is_same_origin(request.headers())?;
    // A browser adds this field (Fetch Metadata); `none` is an address that the user entered.
    match request.headers().get("sec-fetch-site").map(HeaderValue::as_bytes) {
        None | Some(b"same-origin") => Ok(()),
        Some(b"none") if matches!(*request.method(), Method::GET | Method::HEAD) => Ok(()),
        Some(_) => Err(forbidden("a page of another site is not allowed to use a cookie of this listener")),
    }
}

fn forbidden(message: &str) -> ApiRefusal {
    ApiRefusal::new(StatusCode::FORBIDDEN, message)
}

/// `Set-Cookie` of a session; without an id, its removal.
pub(crate) fn session_field(id: Option<&str>, is_secure: bool, max_age_s: u64) -> String {
    let [secure, plain] = SESSION_COOKIES;
    let (name, attribute) = if is_secure { (secure, "; Secure") } else { (plain, "") };
    // No Domain: the cookie stays with the host. The path covers the API too.
    format!(
        "{name}={}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{attribute}",
        id.unwrap_or_default()
    )
}

/// An admitted client.
pub(crate) struct AdmittedClient {
    pub(crate) holder: KeyHolder,
    /// The session, if it stands for the key.
    pub(crate) session: Option<DashboardSession>,
}

impl From<KeyHolder> for AdmittedClient {
    fn from(holder: KeyHolder) -> AdmittedClient {
        AdmittedClient { holder, session: None }
    }
}

impl Default for AdminAccess {
    fn default() -> Self {
        AdminAccess::new(&AdminConfig::default()).expect("the default addresses are addresses")
    }
}

impl AdminAccess {
    /// The rules of the node settings. Keys in the store are added at each request.
    pub fn new(admin: &AdminConfig) -> Result<AdminAccess, String> {
        Ok(AdminAccess {
            allow: IpSet::parse(admin.allow.iter().map(String::as_str))?,
            keys: keys::configured(&admin.keys),
            key_required: admin.key_required,
            cors: admin.cors,
            dashboard: DashboardAccess::new(admin),
        })
    }

    /// Whether requests need a key.
    pub(crate) fn requires_key(&self) -> bool {
        self.key_required
    }

    /// The holder of the request's key or session, or the refusal.
    pub(crate) fn admit(
        &self,
        stored: &StoreState,
        guard: &LoginGuard,
        request: &Request,
    ) -> Result<AdmittedClient, ApiRefusal> {
        // The system has identified the client. A key, if given, is checked: it names another author or role.
        if request.extensions().get::<LocalPeer>().is_some() && !presents_key(request) {
            return Ok(KeyHolder { name: LOCAL_AUTHOR.to_owned(), role: AdminRole::Admin }.into());
        }
        if !self.key_required {
            // Without keys, a browser on this host could pass on requests of any page (DNS rebinding, CSRF).
            AllowedHosts::new(&[], "admin.key_required").check(request.uri(), request.headers())?;
            is_same_origin(request.headers())?;
            // The history of the store names the author of a change, so there must be one.
            return Ok(KeyHolder { name: "anonymous".to_owned(), role: AdminRole::Admin }.into());
        }
        // Read at each request, so that a deleted key is refused at once, and its sessions with it.
        let stored = keys::stored(stored);
        let all = self.keys.iter().chain(&stored);
        let origin = login_origin(request);
        let of_key = |key: &str| checked_key(guard, origin, &keys::sha256(key), all.clone());
        let session = || self.dashboard.session(request);
        let (holder, session) = match explicit_key(request).map_or_else(|| Err(session()), Ok) {
            Ok(key) => (of_key(&key)?, None),
            Err(Ok(session)) => {
                let holder = match &session.owner {
                    SessionOwner::Key(digest) => keys::holder_of_digest(digest, all.clone()),
                    SessionOwner::User(holder) => Some(holder.clone()),
                };
                (holder.ok_or_else(|| unauthorized("the key of the session was revoked"))?, Some(session))
            }
            Err(Err(refusal)) => {
                let key = cookies(request.headers(), KEY_COOKIE).next().ok_or(refusal)?;
                // A browser adds cookies to requests of any page, unlike the other forms of the key. No token is
                // required, since tools of APISIX send none; browsers name the page in these fields.
                is_own_page(request)?;
                (of_key(key)?, None)
            }
        };
        match holder.role {
            AdminRole::Viewer if !only_reads(request) => Err(not_for_viewers(request)),
            _ => Ok(AdmittedClient { holder, session }),
        }
    }
}

/// The origin of a request for the limit of failed logins; `None` on the socket.
pub(crate) fn login_origin(request: &Request) -> Option<LoginOrigin> {
    let AdminPeer(address) = request.extensions().get::<AdminPeer>()?;
    Some(LoginOrigin::new(*address, is_own_page(request).is_err()))
}

/// The origin of a login by its address alone.
pub(crate) fn address_origin(request: &Request) -> Option<LoginOrigin> {
    let AdminPeer(address) = request.extensions().get::<AdminPeer>()?;
    Some(LoginOrigin::new(*address, false))
}

/// The holder of a key, unless its address has to wait.
fn checked_key<'a>(
    guard: &LoginGuard,
    origin: Option<LoginOrigin>,
    key_sha256: &str,
    all: impl Iterator<Item = &'a HashedKey>,
) -> Result<KeyHolder, ApiRefusal> {
    let now = Instant::now();
    if let Some(wait) = origin.and_then(|origin| guard.wait_of(origin, Some(key_sha256), now)) {
        return Err(ApiRefusal::too_many_logins(wait));
    }
    let holder = keys::holder_of_digest(key_sha256, all);
    match (&holder, origin) {
        (Some(_), Some(origin)) => guard.record_success(origin, key_sha256, now),
        (None, Some(origin)) => guard.record_failure(origin, LoginForm::Key, "wrong key", now),
        (_, None) => {}
    }
    // "missing apikey" and "wrong apikey" are the texts of APISIX.
    holder.ok_or_else(|| unauthorized("wrong apikey"))
}

fn not_for_viewers(request: &Request) -> ApiRefusal {
    let message = "invalid method for role viewer";
    match request.uri().path().starts_with("/yumen/") {
        true => forbidden(message),
        // As in APISIX, although the key is valid.
        false => unauthorized(message),
    }
}

fn only_reads(request: &Request) -> bool {
    let is_read_by_post =
        || *request.method() == Method::POST && READ_BY_POST.contains(&request.uri().path());
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD) || is_read_by_post();
    is_read || request.uri().path() == SESSION_PATH
}

fn unauthorized(description: &str) -> ApiRefusal {
    let body = json!({ "error_msg": "failed to check token", "description": description });
    ApiRefusal::of(StatusCode::UNAUTHORIZED, body)
}

/// The key that no browser adds by itself.
fn explicit_key(request: &Request) -> Option<String> {
    let in_query = || QueryArguments::of(request.uri()).get("api_key").map(str::to_owned);
    header_key(request.headers()).map(str::to_owned).or_else(in_query)
}

/// Whether a request has a key in any form.
fn presents_key(request: &Request) -> bool {
    explicit_key(request).is_some() || cookies(request.headers(), KEY_COOKIE).next().is_some()
}

/// The key in the header field.
pub(crate) fn header_key(headers: &HeaderMap) -> Option<&str> {
    headers.get(API_KEY).and_then(|value| value.to_str().ok())
}

/// All values of a cookie: a browser sends one for each path and domain that has set it.
pub(crate) fn cookies<'r>(headers: &'r HeaderMap, name: &str) -> impl Iterator<Item = &'r str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(move |(other, _)| *other == name).map(|(_, value)| value)
}

/// Refuses pages of other origins. A browser sends cookies, and connects to ports of its own host, on behalf
/// of any page, so neither may be enough to admit a request.
fn is_same_origin(headers: &HeaderMap) -> Result<(), ApiRefusal> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // Tools send no Origin; a browser sends it with every request that changes something.
    let Some(origin) = text(header::ORIGIN) else {
        return Ok(());
    };
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    match authority.is_some() && authority == text(header::HOST) {
        true => Ok(()),
        false => {
            let message = format!("a page of \"{origin}\" is not allowed without an admin key");
            Err(ApiRefusal::new(StatusCode::FORBIDDEN, message))
        }
    }
}
