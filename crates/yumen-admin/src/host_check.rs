//! The check of `Host` on listeners that answer without a key: the protection against DNS rebinding.
//!
//! A page may let its own name resolve to an address of this node. The browser then takes the listener for the page's
//! origin and lets the page read every answer; only `Host` still holds the page's name.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};

use crate::refusal::ApiRefusal;

/// The names that a listener is asked by, beside addresses and `localhost`.
#[derive(Debug, Clone)]
pub struct AllowedHosts {
    names: Arc<[String]>,
    /// The setting of `yumen.yaml` that a refusal names.
    setting: &'static str,
}

impl AllowedHosts {
    /// The names of a setting; `*` allows any `Host`.
    pub fn new(names: &[String], setting: &'static str) -> AllowedHosts {
        AllowedHosts { names: names.into(), setting }
    }

    /// Refuses a `Host` that is another name. A request without `Host` does not come from a browser.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), ApiRefusal> {
        let is_any = self.names.iter().any(|name| name == "*");
        let Some(host) = headers.get(header::HOST).filter(|_| !is_any) else { return Ok(()) };
        let authority = Authority::try_from(host.as_bytes()).ok();
        if authority.as_ref().is_some_and(|authority| self.contains(authority.host())) {
            return Ok(());
        }
        let message = format!(
            "Host \"{}\" is refused, since any page can hold that name: requests without a key are answered under \
             addresses, localhost, and configured names; see {}",
            String::from_utf8_lossy(host.as_bytes()),
            self.setting
        );
        Err(ApiRefusal::new(StatusCode::FORBIDDEN, message))
    }

    fn contains(&self, host: &str) -> bool {
        let name = host.trim_matches(['[', ']']);
        // The root's dot ends an absolute name (RFC 1034, section 3.1).
        let name = name.strip_suffix('.').unwrap_or(name);
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok()
            || self.names.iter().any(|allowed| allowed.trim_end_matches('.').eq_ignore_ascii_case(name))
    }
}

/// The same router; it answers 403 where `Host` is refused.
pub(crate) fn guarded(router: Router, hosts: AllowedHosts) -> Router {
    router.layer(middleware::from_fn_with_state(hosts, refuse_other_hosts))
}

async fn refuse_other_hosts(State(hosts): State<AllowedHosts>, request: Request, next: Next) -> Response {
    match hosts.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}
