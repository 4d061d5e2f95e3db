//! The dashboard: its files under `/ui/`, and the session that its login opens.
//!
//! The files need no key, since they contain nothing of the gateway. Independent of the endpoints that the pages use.

use std::time::Instant;

use axum::Router;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use yumen_admin_ui::UiAsset;

use crate::access::{SESSION_PATH, header_key, session_field};
use crate::api::AdminState;
use crate::keys::{self, KeyHolder};
use crate::refusal::ApiRefusal;
use crate::reply;
use crate::sessions::{DashboardSession, OpenedSession, SessionOwner};

/// The path of the pages.
pub(crate) const ROOT: &str = "/ui";

/// Scripts, styles and connections of the listener itself and nothing else; no inline script, no frames, and no text
/// that becomes markup (CSP 3, Trusted Types).
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";

/// Fields of all pages and files.
const PAGE_FIELDS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Files, without a key.
pub(crate) fn pages() -> Router<AdminState> {
    Router::new()
        .route("/ui", get(to_index))
        .route("/ui/", get(index))
        .route("/ui/assets/{release}/{*path}", get(file))
}

/// Login, logout and the identity of the client; the caller requires a key or a session.
pub(crate) fn session_router() -> Router<AdminState> {
    Router::new().route(SESSION_PATH, get(show).post(open).delete(close))
}

async fn to_index(State(state): State<AdminState>, request: Request) -> Response {
    match refused(&state, &request) {
        Some(refusal) => refusal.into_response(),
        // Relative, so that a proxy may add a prefix.
        None => (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, "ui/")]).into_response(),
    }
}

async fn index(State(state): State<AdminState>, request: Request) -> Response {
    if let Some(refusal) = refused(&state, &request) {
        return refusal.into_response();
    }
    // Revalidated, so that a page never mixes files of two releases.
    serve(yumen_admin_ui::index(), request.headers(), "no-cache")
}

async fn file(
    State(state): State<AdminState>,
    Path((release, path)): Path<(String, String)>,
    request: Request,
) -> Response {
    if let Some(refusal) = refused(&state, &request) {
        return refusal.into_response();
    }
    match yumen_admin_ui::asset(&path).filter(|_| release == yumen_admin_ui::RELEASE) {
        // The path contains the digest of all files.
        Some(asset) => serve(asset, request.headers(), "public, max-age=31536000, immutable"),
        None => ApiRefusal::new(StatusCode::NOT_FOUND, "this release of the dashboard has no such file")
            .into_response(),
    }
}

/// The refusal of a request for the pages, if the dashboard does not serve it.
pub(crate) fn refused(state: &AdminState, request: &Request) -> Option<ApiRefusal> {
    let dashboard = &state.access.dashboard;
    if !dashboard.is_enabled {
        return Some(is_off());
    }
    dashboard.check_host(request.uri(), request.headers()).err()
}

fn is_off() -> ApiRefusal {
    let message = "the dashboard is off: admin.dashboard.enabled is false in yumen.yaml";
    ApiRefusal::new(StatusCode::NOT_FOUND, message)
}

fn serve(asset: &UiAsset, headers: &HeaderMap, caching: &'static str) -> Response {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_known = text(header::IF_NONE_MATCH).split(',').any(|tag| {
        // Weak comparison (RFC 9110 §13.1.2).
        tag.trim().trim_start_matches("W/") == asset.etag
    });
    let accepts_gzip =
        text(header::ACCEPT_ENCODING).split(',').any(|coding| coding.trim().starts_with("gzip"));
    let mut response = match (is_known, accepts_gzip) {
        (true, _) => StatusCode::NOT_MODIFIED.into_response(),
        (false, true) => ([(header::CONTENT_ENCODING, "gzip")], asset.gzip).into_response(),
        (false, false) => asset.plain().into_response(),
    };
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    fields.insert(header::ETAG, HeaderValue::from_static(asset.etag));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    fields.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    for (name, value) in PAGE_FIELDS {
        fields.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// `GET /yumen/v1/session`: the holder of the request's key or session.
async fn show(
    State(state): State<AdminState>,
    Extension(holder): Extension<KeyHolder>,
    session: Option<Extension<DashboardSession>>,
) -> Response {
    let login = match (&session, state.access.requires_key()) {
        (Some(_), _) => "session",
        (None, true) => "key",
        (None, false) => "none",
    };
    // Without the token, which only the page that logged in may have.
    reply::json(StatusCode::OK, &described(&holder, login, session.as_deref()))
}

/// `POST /yumen/v1/session`: opens a session for the key in `X-API-KEY`.
async fn open(
    State(state): State<AdminState>,
    Extension(holder): Extension<KeyHolder>,
    request: Request,
) -> Result<Response, ApiRefusal> {
    let dashboard = &state.access.dashboard;
    if !dashboard.is_enabled {
        return Err(is_off());
    }
    // A page of another site must not log its visitor in with a key of its own (login CSRF).
    dashboard.check_page(&request)?;
    let headers = request.headers();
    let key = header_key(headers).filter(|_| state.access.requires_key());
    let key = key.ok_or_else(|| ApiRefusal::invalid("a session needs a key in X-API-KEY"))?;
    open_session(&state, headers, SessionOwner::Key(keys::sha256(key)), &holder)
}

/// Opens a session in place of those that the browser has, and returns its cookie and its token.
pub(crate) fn open_session(
    state: &AdminState,
    headers: &HeaderMap,
    owner: SessionOwner,
    holder: &KeyHolder,
) -> Result<Response, ApiRefusal> {
    let dashboard = &state.access.dashboard;
    let failed = |error: std::io::Error| ApiRefusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string());
    // A second login replaces the first.
    dashboard.close_sessions(headers);
    let opened = dashboard.sessions.open(owner, Instant::now()).map_err(failed)?;
    let OpenedSession { id, csrf_token, session } = opened;
    let mut body = described(holder, "session", Some(&session));
    body["csrf_token"] = csrf_token.into();
    let mut response = reply::json(StatusCode::OK, &body);
    // Behind a proxy that terminates TLS, the origin of the page has the scheme of the client's connection.
    let origin = headers.get(header::ORIGIN).map_or(&b""[..], HeaderValue::as_bytes);
    let is_secure = dashboard.is_tls() || origin.starts_with(b"https://");
    let field = session_field(Some(&id), is_secure, session.expires_in.as_secs());
    append_cookie(&mut response, &field);
    Ok(response)
}

/// `DELETE /yumen/v1/session`: logout.
async fn close(State(state): State<AdminState>, headers: HeaderMap) -> Response {
    state.access.dashboard.close_sessions(&headers);
    let mut response = StatusCode::NO_CONTENT.into_response();
    for is_secure in [false, true] {
        append_cookie(&mut response, &session_field(None, is_secure, 0));
    }
    response
}

/// Adds a `Set-Cookie` field.
pub(crate) fn append_cookie(response: &mut Response, field: &str) {
    let value = HeaderValue::from_str(field).expect("hexadecimal text and attributes are a field value");
    response.headers_mut().append(header::SET_COOKIE, value);
}

fn described(holder: &KeyHolder, login: &str, session: Option<&DashboardSession>) -> Value {
    json!({
        "name": holder.name,
        "role": holder.role,
        "login": login,
        "expires_in_s": session.map(|session| session.expires_in.as_secs()),
        "version": env!("CARGO_PKG_VERSION"),
    })
}
