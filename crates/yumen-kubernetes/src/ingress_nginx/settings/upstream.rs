//! Settings of requests to services and of their responses.

use std::sync::Arc;

use super::super::nginx_text::NginxText;
use crate::model::ObjectKey;

/// The protocol of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IngressUpstreamProtocol {
    /// HTTP/1.1.
    #[default]
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// That of the client's connection.
    AutoHttp,
    /// gRPC.
    Grpc,
    /// gRPC over TLS.
    Grpcs,
}

/// A case in which a request goes to a further endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextUpstreamCondition {
    /// A failed connection, or one that closed without a response.
    Error,
    /// A timeout.
    Timeout,
    /// A response that is not HTTP.
    InvalidHeader,
    /// A response with this status.
    Status(u16),
    /// Requests with methods that are not idempotent are sent again too.
    NonIdempotent,
}

/// Further attempts.
#[derive(Debug, Clone, PartialEq)]
pub struct NextUpstreamRule {
    /// The cases; empty turns further attempts off.
    pub conditions: Vec<NextUpstreamCondition>,
    /// The most attempts in all; 0 means one for each endpoint.
    pub tries: u32,
    /// The time in which attempts may begin, in seconds; 0 means any.
    pub timeout_s: u32,
}

impl Default for NextUpstreamRule {
    fn default() -> Self {
        let conditions = vec![NextUpstreamCondition::Error, NextUpstreamCondition::Timeout];
        NextUpstreamRule { conditions, tries: 3, timeout_s: 0 }
    }
}

/// A replacement in fields of a response.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldReplacement {
    /// The text to replace; begins with `~` for a pattern, `~*` for one that ignores case.
    pub from: Arc<str>,
    /// Its replacement.
    pub to: NginxText,
}

/// Timeouts, retries, bodies, and edits of responses.
#[derive(Debug, Clone, PartialEq)]
pub struct IngressProxy {
    /// Time to connect, in seconds.
    pub connect_timeout_s: u32,
    /// Time between two writes, in seconds.
    pub send_timeout_s: u32,
    /// Time between two reads, in seconds.
    pub read_timeout_s: u32,
    /// Further attempts.
    pub next_upstream: NextUpstreamRule,
    /// The largest body of a request, in bytes; 0 means any.
    pub body_bytes_max: u64,
    /// Replacements in the `Domain` of cookies.
    pub cookie_domains: Vec<FieldReplacement>,
    /// Replacements in the `Path` of cookies.
    pub cookie_paths: Vec<FieldReplacement>,
    /// The replacement in `Location` and `Refresh`.
    pub location: Option<FieldReplacement>,
    /// Whether requests to the service are of HTTP/1.0.
    pub http_1_0: bool,
}

impl Default for IngressProxy {
    fn default() -> Self {
        IngressProxy {
            connect_timeout_s: 5,
            send_timeout_s: 60,
            read_timeout_s: 60,
            next_upstream: NextUpstreamRule::default(),
            body_bytes_max: 1024 * 1024,
            cookie_domains: Vec::new(),
            cookie_paths: Vec::new(),
            location: None,
            http_1_0: false,
        }
    }
}

/// The order in which endpoints are picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpstreamBalance {
    /// In turn.
    #[default]
    RoundRobin,
    /// By moving averages of the time to respond.
    Ewma,
}

/// Consistent hashing.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamHashKey {
    /// The key.
    pub key: NginxText,
    /// The number of endpoints that share one key; `None` means one.
    pub subset: Option<u32>,
}

/// TLS towards a service.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamTlsChoice {
    /// Secret with `ca.crt`, `tls.crt` and `tls.key`.
    pub secret: Option<ObjectKey>,
    /// Whether the certificate of the service is verified.
    pub verify: bool,
    /// The most intermediate certificates.
    pub depth: u8,
    /// The name to verify and to send.
    pub name: Option<Arc<str>>,
    /// TLS versions as NGINX names them.
    pub protocols: Vec<Arc<str>>,
    /// Cipher suites by OpenSSL name.
    pub ciphers: Vec<Arc<str>>,
}

impl Default for UpstreamTlsChoice {
    fn default() -> Self {
        UpstreamTlsChoice {
            secret: None,
            verify: false,
            depth: 1,
            name: None,
            protocols: Vec::new(),
            ciphers: Vec::new(),
        }
    }
}

/// The services of an Ingress. The first Ingress that names a service decides about `hash`, `balance` and `session`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IngressUpstream {
    /// The protocol.
    pub protocol: IngressUpstreamProtocol,
    /// The host that the service receives; `None` means the client's.
    pub host: Option<NginxText>,
    /// Whether the service is reached by its own address instead of its endpoints.
    pub uses_service_address: bool,
    /// The order of endpoints.
    pub balance: UpstreamBalance,
    /// Consistent hashing, in place of `balance`.
    pub hash: Option<UpstreamHashKey>,
    /// Session persistence, in place of both.
    pub session: Option<IngressSession>,
    /// TLS; `None` without annotations.
    pub tls: Option<UpstreamTlsChoice>,
}

/// `SameSite` of a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SameSiteRule {
    /// `None`.
    None,
    /// `None`, but no attribute for user agents that reject it.
    ConditionalNone,
    /// `Lax`.
    Lax,
    /// `Strict`.
    Strict,
}

/// The effect of new endpoints on sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionSpread {
    /// New endpoints take over a share of the sessions.
    #[default]
    Balanced,
    /// Sessions stay while their endpoint is there.
    Persistent,
}

/// Whether a client that is bound to a service stays there, whatever the rules of a canary are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CanaryStickiness {
    /// It stays.
    #[default]
    Sticky,
    /// The rules decide for each request.
    Legacy,
}

/// Session persistence by cookie.
#[derive(Debug, Clone, PartialEq)]
pub struct IngressSession {
    /// Name of the cookie.
    pub name: Arc<str>,
    /// `Path`; `None` means the path of the location.
    pub path: Option<Arc<str>>,
    /// `Domain`.
    pub domain: Option<Arc<str>>,
    /// `Max-Age`, in seconds.
    pub max_age_s: Option<i64>,
    /// `Expires`, in seconds from now.
    pub expires_s: Option<i64>,
    /// `SameSite`.
    pub same_site: Option<SameSiteRule>,
    /// `Secure`; `None` means on https only.
    pub secure: Option<bool>,
    /// Whether a failed endpoint leads to a new cookie.
    pub changes_on_failure: bool,
    /// The effect of new endpoints.
    pub spread: SessionSpread,
    /// Whether bound clients ignore the rules of canaries.
    pub canary: CanaryStickiness,
}
