//! The login of the dashboard at an identity provider: the way to the provider, the callback, and the session that the page
//! opens with the result.
//!
//! The callback opens no session by itself. It leaves a code in the fragment of the page's URL and a value in a cookie, which
//! open one session together, once: other ports of the host receive the cookie, and other sites can link to a fragment.

use std::io;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;

use crate::access::{address_origin, cookies, login_origin};
use crate::api::AdminState;
use crate::completed_logins::COMPLETION_TIME;
use crate::dashboard;
use crate::keys;
use crate::login_guard::{LoginForm, LoginOrigin};
use crate::operator_identity::IdentityRefusal;
use crate::refusal::ApiRefusal;
use crate::reply;
use crate::sessions::SessionOwner;

/// Cookies of a login in progress. Browsers accept the prefix `__Host-` only from the host itself and over TLS.
const LOGIN_COOKIES: [&str; 2] = ["__Host-yumen_login", "yumen_login"];
/// Time at the provider.
const LOGIN_TIME: Duration = Duration::from_secs(600);
/// Header field with the code of the fragment.
const LOGIN_CODE: &str = "x-yumen-login";
const TOKEN_BYTES: usize = 32;

/// The steps of a login, without a key.
pub(crate) fn pages() -> Router<AdminState> {
    Router::new()
        .route("/ui/logins", get(logins))
        .route("/ui/login", get(begin))
        .route("/ui/callback", get(callback))
        .route("/ui/session", post(complete))
}

/// `Set-Cookie` of a login in progress.
fn login_field(value: &str, is_secure: bool, same_site: &str, time: Duration) -> String {
    let [secure, plain] = LOGIN_COOKIES;
    let (name, attribute) = if is_secure { (secure, "; Secure") } else { (plain, "") };
    let max_age_s = time.as_secs();
    format!("{name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite={same_site}{attribute}")
}

/// The values of the cookie of a login.
fn login_cookies(headers: &HeaderMap, is_secure: bool) -> impl Iterator<Item = &str> {
    const VALUES_MAX: usize = 4;
    cookies(headers, LOGIN_COOKIES[usize::from(!is_secure)]).take(VALUES_MAX)
}

fn must_wait(state: &AdminState, origin: Option<LoginOrigin>) -> bool {
    origin.is_some_and(|origin| state.logins.wait_of(origin, None, Instant::now()).is_some())
}

fn no_provider() -> ApiRefusal {
    let message = "no login at an identity provider: admin.dashboard.openid is not set in yumen.yaml";
    ApiRefusal::new(StatusCode::NOT_FOUND, message)
}

/// The page of the login, relative so that a proxy may add a prefix.
fn to_page(fragment: &str, cookie: Option<String>) -> Response {
    let mut response = StatusCode::FOUND.into_response();
    let headers = response.headers_mut();
    let target = HeaderValue::try_from(format!("./#/{fragment}"));
    headers.insert(header::LOCATION, target.expect("a word or hexadecimal text"));
    // The URL of the callback has a code of the provider.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if let Some(cookie) = cookie {
        dashboard::append_cookie(&mut response, &cookie);
    }
    response
}

/// The page after a failure, which is counted and logged.
fn failed(state: &AdminState, origin: Option<LoginOrigin>, refusal: &IdentityRefusal) -> Response {
    if let IdentityRefusal::Unavailable(_) | IdentityRefusal::Foreign = refusal {
        // No attempt of a client, or one that any page can cause and that costs no request to the provider.
        tracing::warn!(reason = %refusal, "dashboard login failed");
    } else if let Some(origin) = origin {
        state.logins.record_failure(origin, LoginForm::Openid, &refusal.to_string(), Instant::now());
    }
    to_page(&format!("login-{}", refusal.word()), None)
}

/// `GET /ui/logins`: the ways to log in, which need no secret.
async fn logins(State(state): State<AdminState>, request: Request) -> Response {
    if let Some(refusal) = dashboard::refused(&state, &request) {
        return refusal.into_response();
    }
    let host = state.identity.as_ref().map(|provider| provider.host());
    reply::json(StatusCode::OK, &json!({ "openid": host.map(|host| json!({ "host": host })) }))
}

/// `GET /ui/login`: the way to the provider.
async fn begin(State(state): State<AdminState>, request: Request) -> Result<Response, ApiRefusal> {
    dashboard::refused(&state, &request).map_or(Ok(()), Err)?;
    let provider = state.identity.clone().ok_or_else(no_provider)?;
    let origin = login_origin(&request);
    if must_wait(&state, origin) {
        return Ok(to_page("login-limited", None));
    }
    let seed = keys::random_hex::<TOKEN_BYTES>().map_err(unavailable)?;
    match provider.login_url(&seed).await {
        Ok(url) => {
            let location = HeaderValue::try_from(url).map_err(|_| {
                ApiRefusal::new(StatusCode::BAD_GATEWAY, "the provider's URL is no field value")
            })?;
            // Lax: the provider sends the browser back from another site.
            let cookie = login_field(&seed, provider.is_over_tls(), "Lax", LOGIN_TIME);
            let mut response = (StatusCode::FOUND, [(header::LOCATION, location)]).into_response();
            dashboard::append_cookie(&mut response, &cookie);
            Ok(response)
        }
        Err(refusal) => Ok(failed(&state, origin, &refusal)),
    }
}

/// `GET /ui/callback`: the way back from the provider.
async fn callback(State(state): State<AdminState>, request: Request) -> Result<Response, ApiRefusal> {
    dashboard::refused(&state, &request).map_or(Ok(()), Err)?;
    let provider = state.identity.clone().ok_or_else(no_provider)?;
    // The way back begins at the provider, another site, so the site of the request separates no attackers here.
    let (origin, is_secure) = (address_origin(&request), provider.is_over_tls());
    let query = request.uri().query().unwrap_or_default();
    if login_cookies(request.headers(), is_secure).next().is_none() {
        // Nothing to check: any page can lead a browser here, which is no attempt of its user.
        return Ok(to_page("login-expired", None));
    }
    // Each attempt costs a request to the provider.
    if must_wait(&state, origin) {
        return Ok(to_page("login-limited", None));
    }
    let mut identified = Err(IdentityRefusal::Foreign);
    for seed in login_cookies(request.headers(), is_secure) {
        identified = provider.identify(seed, query).await;
        // The cookie of another login.
        if identified != Err(IdentityRefusal::Foreign) {
            break;
        }
    }
    match identified {
        Ok(holder) => {
            tracing::info!(name = holder.name, role = ?holder.role, "dashboard login");
            let logins = &state.access.dashboard.completed;
            let (code, value) = logins.add(holder, Instant::now()).map_err(unavailable)?;
            // Strict: only the page itself sends it.
            let cookie = login_field(&value, is_secure, "Strict", COMPLETION_TIME);
            Ok(to_page(&format!("login/{code}"), Some(cookie)))
        }
        Err(refusal) => Ok(failed(&state, origin, &refusal)),
    }
}

/// `POST /ui/session`: opens the session of a login at the provider, by its code and its cookie.
async fn complete(State(state): State<AdminState>, request: Request) -> Result<Response, ApiRefusal> {
    dashboard::refused(&state, &request).map_or(Ok(()), Err)?;
    let provider = state.identity.clone().ok_or_else(no_provider)?;
    let access = &state.access.dashboard;
    access.check_page(&request)?;
    let headers = request.headers();
    let is_secure = provider.is_over_tls();
    let code = headers.get(LOGIN_CODE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let found = access.completed.take(code, login_cookies(headers, is_secure), Instant::now());
    let Some(holder) = found else {
        if let Some(origin) = login_origin(&request) {
            state.logins.record_failure(origin, LoginForm::Openid, "no such login", Instant::now());
        }
        let message = "the login has ended or is that of another browser: log in again";
        return Err(ApiRefusal::new(StatusCode::UNAUTHORIZED, message));
    };
    let mut response = dashboard::open_session(&state, headers, SessionOwner::User(holder.clone()), &holder)?;
    dashboard::append_cookie(&mut response, &login_field("", is_secure, "Strict", Duration::ZERO));
    Ok(response)
}

fn unavailable(error: io::Error) -> ApiRefusal {
    ApiRefusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}
