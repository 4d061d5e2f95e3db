//! The `Host` check of listeners without keys: the protection against DNS rebinding.
//!
//! A page can let its own name resolve to an address of this node. The browser then treats the listener as
//! the page's origin and lets the page read every response; only `Host` still has the page's name.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};

use crate::refusal::ApiRefusal;

/// The allowed names of a listener, besides addresses and `localhost`.
#[derive(Debug, Clone)]
pub struct AllowedHosts {
    names: Arc<[String]>,
    /// The setting of `yumen.yaml`, for refusals.
    setting: &'static str,
}

impl AllowedHosts {
    /// The names of a setting; `*` allows any `Host`.
    pub fn new(names: &[String], setting: &'static str) -> AllowedHosts {
        AllowedHosts { names: names.into(), setting }
    }

    /// Refuses another name in `Host` or in the authority of an absolute target, and a request with two
    /// `Host` fields (RFC 9112 §3.2). A request without `Host` is allowed, since it does not come from a
    /// browser.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiRefusal> {
        if self.names.iter().any(|name| name == "*") {
            return Ok(());
        }
        let mut hosts = headers.get_all(header::HOST).iter().map(HeaderValue::as_bytes);
        let (field, is_doubled) = (hosts.next(), hosts.next().is_some());
        // An absolute target overrides Host (RFC 9112 §3.2.2), so both are checked.
        let target = uri.authority().map(|authority| authority.as_str().as_bytes());
        let is_allowed = |host: &&[u8]| host_of(host).is_some_and(|host| self.contains(host));
        let refused = target.filter(|host| !is_allowed(host));
        let refused = refused.or(field.filter(|host| is_doubled || !is_allowed(host)));
        let Some(host) = refused else { return Ok(()) };
        let message = format!(
            "Host \"{}\" is refused, since any page can hold that name: requests without a key are answered under \
             addresses, localhost, and configured names; see {}",
            String::from_utf8_lossy(host),
            self.setting
        );
        Err(ApiRefusal::new(StatusCode::FORBIDDEN, message))
    }

    fn contains(&self, host: &str) -> bool {
        let name = host;
        // The root's dot ends an absolute name (RFC 1034, section 3.1).
        let name = name.strip_suffix('.').unwrap_or(name);
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok()
            || self.names.iter().any(|allowed| allowed.trim_end_matches('.').eq_ignore_ascii_case(name))
    }
}

/// The host of an authority without user information: a name, an IPv4 address, or an IPv6 address without its
/// brackets (RFC 3986 §3.2). `None` for any other text.
fn host_of(authority: &[u8]) -> Option<&str> {
    let authority = std::str::from_utf8(authority).ok()?;
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            // Brackets enclose IPv6 addresses only; a name in them could pass as another host.
            host.parse::<Ipv6Addr>().ok()?;
            match port {
                "" => (host, ""),
                _ => (host, port.strip_prefix(':')?),
            }
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    // An empty port is valid (RFC 3986 §3.2.3).
    let is_port =
        port.is_empty() || (port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok());
    is_port.then_some(host)
}

/// Adds the check to a router; a refused `Host` gets 403.
pub(crate) fn guarded(router: Router, hosts: AllowedHosts) -> Router {
    router.layer(middleware::from_fn_with_state(hosts, refuse_other_hosts))
}

async fn refuse_other_hosts(State(hosts): State<AllowedHosts>, request: Request, next: Next) -> Response {
    match hosts.check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}
