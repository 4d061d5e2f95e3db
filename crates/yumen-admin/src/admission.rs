//! Middleware of the admin listener: admission of requests, fields of responses.
//!
//! `access` decides on keys. Independent of the requested resource.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use yumen_config::node::AdminApiVersion;
use yumen_store::Authorship;

use crate::access::{AdminPeer, AdmittedClient, LocalPeer, SESSION_PATH};
use crate::api::AdminState;
use crate::dashboard;
use crate::refusal::ApiRefusal;

/// Clients choose features by this version; it identifies the API, not the product.
const SPOKEN: HeaderValue = HeaderValue::from_static("APISIX/3.14.0");
const REASON: &str = "x-yumen-reason";
const REASON_BYTES_MAX: usize = 512;

/// Admits requests by address, responds to preflights, and marks every response.
pub(crate) async fn admit(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    let access = &state.access;
    let is_page = {
        let path = request.uri().path();
        path.starts_with(dashboard::ROOT) || path == SESSION_PATH
    };
    let peer = request.extensions().get::<AdminPeer>().map(|AdminPeer(address)| *address);
    let is_preflight = request.method() == Method::OPTIONS && access.cors;
    // Without a known address the request is refused.
    let is_local = request.extensions().get::<LocalPeer>().is_some();
    let is_allowed = is_local || peer.is_some_and(|address| access.allow.contains(address));
    let mut response = match is_allowed {
        false => {
            let client = peer.map_or("an unknown address".to_owned(), |address| address.to_string());
            let message = format!("{client} is not allowed: not in admin.allow");
            ApiRefusal::new(StatusCode::FORBIDDEN, message).into_response()
        }
        // A preflight carries no key, so it gets its response before keys are checked.
        _ if is_preflight => StatusCode::OK.into_response(),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    // Refusals too: clients read the version from any response.
    mark(headers, state.api_version);
    // Responses differ by key and revision; pages of the dashboard bring a rule of their own.
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    if access.cors && !is_page {
        allow_pages(headers);
    }
    response
}

/// Sets the fields with the API and its version.
pub(crate) fn mark(headers: &mut HeaderMap, version: AdminApiVersion) {
    headers.insert(header::SERVER, SPOKEN);
    let version = match version {
        AdminApiVersion::V3 => "v3",
        AdminApiVersion::Default => "v2",
    };
    headers.insert("x-api-version", HeaderValue::from_static(version));
}

fn allow_pages(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "*"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "*"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "*"),
        (header::ACCESS_CONTROL_MAX_AGE, "3600"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Admits requests with a valid key, and puts the authorship of their writes into the request's extensions.
pub(crate) async fn require_key(
    State(state): State<AdminState>,
    mut request: Request,
    next: Next,
) -> Response {
    match state.access.admit(&state.store.state(), &state.logins, &request) {
        Ok(AdmittedClient { holder, session }) => {
            // For the history; bytes beyond ASCII are accepted and replaced if they are not UTF-8.
            let reason = request.headers().get(REASON).map(|value| value.as_bytes());
            let reason = reason.map(bounded_reason).filter(|reason| !reason.is_empty());
            request.extensions_mut().insert(Authorship { author: holder.name.clone(), reason });
            request.extensions_mut().insert(holder);
            if let Some(session) = session {
                request.extensions_mut().insert(session);
            }
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

fn bounded_reason(bytes: &[u8]) -> String {
    let reason = String::from_utf8_lossy(bytes);
    // A cut within a character would panic.
    let end = (0..=REASON_BYTES_MAX.min(reason.len())).rev().find(|at| reason.is_char_boundary(*at));
    reason[..end.unwrap_or(0)].to_owned()
}
