//! Who may ask the Admin API: addresses, keys and roles, and which pages may call it.
//!
//! Judges the head of a request; must not know what is asked for.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use yumen_base::IpSet;
use yumen_config::node::{Admin, AdminApiVersion, AdminRole};
use yumen_store::Authorship;

use crate::api::{AdminState, Refusal};
use crate::keys::{self, Holder, KeptKey};

/// Clients choose what they may ask for by this version; it names the API spoken, not the product.
const SPOKEN: HeaderValue = HeaderValue::from_static("APISIX/3.14.0");
const API_KEY: &str = "x-api-key";
const REASON: &str = "x-yumen-reason";
const REASON_BYTES_MAX: usize = 512;

/// The address a connection comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Who may ask what.
#[derive(Debug, Clone)]
pub struct Access {
    allow: IpSet,
    keys: Vec<KeptKey>,
    key_required: bool,
    cors: bool,
}

impl Default for Access {
    fn default() -> Self {
        Access::new(&Admin::default()).expect("the default addresses are addresses")
    }
}

impl Access {
    /// As the node's configuration has it; the store's keys come on top.
    pub fn new(admin: &Admin) -> Result<Access, String> {
        Ok(Access {
            allow: IpSet::parse(admin.allow.iter().map(String::as_str))?,
            keys: keys::configured(&admin.keys),
            key_required: admin.key_required,
            cors: admin.cors,
        })
    }

    /// Whose request this is, or why it is refused.
    fn holder(&self, state: &AdminState, request: &Request) -> Result<Holder, Refusal> {
        if !self.key_required {
            is_same_origin(request.headers())?;
            return Ok(Holder { name: "anonymous".to_owned(), role: AdminRole::Admin });
        }
        let (key, from) = presented_key(request).ok_or_else(|| unauthorized("missing apikey"))?;
        if from == Source::Cookie {
            is_same_origin(request.headers())?;
        }
        let stored = keys::stored(&state.store.state());
        let holder = keys::holder_of(&key, self.keys.iter().chain(&stored));
        let holder = holder.ok_or_else(|| unauthorized("wrong apikey"))?;
        match holder.role {
            AdminRole::Viewer if !matches!(*request.method(), Method::GET | Method::HEAD) => {
                Err(unauthorized("invalid method for role viewer"))
            }
            _ => Ok(holder),
        }
    }
}

fn unauthorized(description: &str) -> Refusal {
    let body = json!({ "error_msg": "failed to check token", "description": description });
    Refusal { status: StatusCode::UNAUTHORIZED, body }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Explicit,
    Cookie,
}

fn presented_key(request: &Request) -> Option<(String, Source)> {
    let header = request.headers().get(API_KEY).and_then(|value| value.to_str().ok());
    if let Some(key) = header {
        return Some((key.to_owned(), Source::Explicit));
    }
    if let Some(key) = crate::crud::Query::of(request.uri()).get("api_key") {
        return Some((key.to_owned(), Source::Explicit));
    }
    let cookies = request.headers().get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == "x_api_key").map(|(_, key)| (key.to_owned(), Source::Cookie))
}

/// A browser sends a cookie, or reaches a port on its own machine, on behalf of any page. Where that
/// is enough to be admitted, only pages of this listener may ask.
fn is_same_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(origin) = text(header::ORIGIN) else {
        return Ok(());
    };
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    match authority.is_some() && authority == text(header::HOST) {
        true => Ok(()),
        false => {
            let message = format!("a page of \"{origin}\" may not ask here without a key of its own");
            Err(Refusal::new(StatusCode::FORBIDDEN, message))
        }
    }
}

/// Admits requests by address, answers preflights, and marks every response.
pub(crate) async fn at_the_door(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    let access = &state.access;
    let peer = request.extensions().get::<Peer>().map(|Peer(address)| *address);
    let is_preflight = request.method() == Method::OPTIONS && access.cors;
    let is_allowed = peer.is_some_and(|address| access.allow.contains(address));
    let mut response = match is_allowed {
        false => {
            let who = peer.map_or("an unknown address".to_owned(), |address| address.to_string());
            let message = format!("{who} may not ask here: it is not in admin.allow");
            Refusal::new(StatusCode::FORBIDDEN, message).into_response()
        }
        _ if is_preflight => StatusCode::OK.into_response(),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    mark(headers, state.api_version);
    if access.cors {
        allow_pages(headers);
    }
    response
}

/// Tells clients what is spoken here.
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

/// Admits holders of keys, and leaves the authorship of what they write in the request's extensions.
pub(crate) async fn with_a_key(
    State(state): State<AdminState>,
    mut request: Request,
    next: Next,
) -> Response {
    match state.access.holder(&state, &request) {
        Ok(holder) => {
            let reason = request.headers().get(REASON).map(|value| value.as_bytes());
            let reason = reason.map(bounded_reason).filter(|reason| !reason.is_empty());
            request.extensions_mut().insert(Authorship { author: holder.name.clone(), reason });
            request.extensions_mut().insert(holder);
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

fn bounded_reason(bytes: &[u8]) -> String {
    let reason = String::from_utf8_lossy(bytes);
    let end = (0..=REASON_BYTES_MAX.min(reason.len())).rev().find(|at| reason.is_char_boundary(*at));
    reason[..end.unwrap_or(0)].to_owned()
}
