//! Access to the Admin API: addresses, keys, roles, and origins of pages.
//!
//! Decides by the head of a request, independent of the requested resource.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use serde_json::json;
use yumen_base::IpSet;
use yumen_config::node::{AdminConfig, AdminRole};
use yumen_store::StoreState;

use crate::host_check::AllowedHosts;
use crate::keys::{self, HashedKey, KeyHolder};
use crate::query::QueryArguments;
use crate::refusal::ApiRefusal;

const API_KEY: &str = "x-api-key";

/// The peer address of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdminPeer(pub(crate) IpAddr);

/// Marks requests that come by the socket in the data directory: their clients are the user of the gateway and root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalPeer;

/// The author of changes by that socket.
const LOCAL_AUTHOR: &str = "local";

/// Requests other than GET that only read.
const READ_BY_POST: [&str; 2] = ["/yumen/v1/explain", "/yumen/v1/plan"];

/// Access rules of the Admin API.
#[derive(Debug, Clone)]
pub struct AdminAccess {
    pub(crate) allow: IpSet,
    keys: Vec<HashedKey>,
    key_required: bool,
    pub(crate) cors: bool,
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
        })
    }

    /// The holder of the request's key, or the refusal.
    pub(crate) fn holder(&self, stored: &StoreState, request: &Request) -> Result<KeyHolder, ApiRefusal> {
        // The system has identified the client. A key, if given, is checked: it names another author or role.
        if request.extensions().get::<LocalPeer>().is_some() && presented_key(request).is_none() {
            return Ok(KeyHolder { name: LOCAL_AUTHOR.to_owned(), role: AdminRole::Admin });
        }
        if !self.key_required {
            // Without keys, a browser on this host could pass on requests of any page (DNS rebinding, CSRF).
            AllowedHosts::new(&[], "admin.key_required").check(request.uri(), request.headers())?;
            is_same_origin(request.headers())?;
            // The history of the store names the author of a change, so there must be one.
            return Ok(KeyHolder { name: "anonymous".to_owned(), role: AdminRole::Admin });
        }
        // "missing apikey" and "wrong apikey" are the texts of APISIX.
        let (key, from) = presented_key(request).ok_or_else(|| unauthorized("missing apikey"))?;
        // A browser adds cookies to requests of any page, unlike the other forms of the key.
        if from == KeySource::Cookie {
            is_same_origin(request.headers())?;
        }
        // Read at each request, so that a deleted key is refused at once.
        let stored = keys::stored(stored);
        let holder = keys::holder_of(&key, self.keys.iter().chain(&stored));
        let holder = holder.ok_or_else(|| unauthorized("wrong apikey"))?;
        match holder.role {
            // APISIX refuses a viewer's write with 401, not 403.
            AdminRole::Viewer if !only_reads(request) => Err(unauthorized("invalid method for role viewer")),
            _ => Ok(holder),
        }
    }
}

fn only_reads(request: &Request) -> bool {
    let is_read_by_post =
        || *request.method() == Method::POST && READ_BY_POST.contains(&request.uri().path());
    matches!(*request.method(), Method::GET | Method::HEAD) || is_read_by_post()
}

fn unauthorized(description: &str) -> ApiRefusal {
    let body = json!({ "error_msg": "failed to check token", "description": description });
    ApiRefusal::of(StatusCode::UNAUTHORIZED, body)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeySource {
    Explicit,
    Cookie,
}

fn presented_key(request: &Request) -> Option<(String, KeySource)> {
    let header = request.headers().get(API_KEY).and_then(|value| value.to_str().ok());
    if let Some(key) = header {
        return Some((key.to_owned(), KeySource::Explicit));
    }
    if let Some(key) = QueryArguments::of(request.uri()).get("api_key") {
        return Some((key.to_owned(), KeySource::Explicit));
    }
    let cookies = request.headers().get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == "x_api_key").map(|(_, key)| (key.to_owned(), KeySource::Cookie))
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
