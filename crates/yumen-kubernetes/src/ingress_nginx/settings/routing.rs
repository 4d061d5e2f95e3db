//! Settings that select or answer requests: redirects, rewrites, names of hosts, canaries, mirrors, errors.

use std::sync::Arc;

use yumen_config::resource::ClientCertMode;

use super::super::nginx_text::NginxText;
use super::super::snippet::SnippetPlan;
use super::access::IngressClientTls;
use crate::model::ObjectKey;

/// When a request over http is redirected to https.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SslRedirectRule {
    /// Never.
    Off,
    /// If the Ingress has TLS (`ssl-redirect`).
    #[default]
    WithTls,
    /// Always (`force-ssl-redirect`).
    Always,
}

/// The form of the locations of redirects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LocationForm {
    /// Scheme and host.
    #[default]
    Absolute,
    /// Scheme, host and port of the listener (`use-port-in-redirects`).
    WithPort,
    /// The path alone (`relative-redirects`).
    Relative,
}

/// A redirect of every request to one place.
#[derive(Debug, Clone, PartialEq)]
pub struct FixedRedirect {
    /// The location.
    pub location: Arc<str>,
    /// The status, 300 to 308.
    pub status: u16,
}

/// Redirects. Their order is that of the members.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IngressRedirects {
    /// The redirect to https. Its status and the exempt paths are those of the controller.
    pub ssl: SslRedirectRule,
    /// Whether the redirect to https keeps the slash at the end of the path (`preserve-trailing-slash`).
    pub keeps_trailing_slash: bool,
    /// Whether `www.HOST` and `HOST` redirect to the one that has rules (`from-to-www-redirect`).
    pub from_to_www: bool,
    /// `temporal-redirect`, else `permanent-redirect`.
    pub fixed: Option<FixedRedirect>,
    /// The place to which `/` redirects with 302 (`app-root`).
    pub app_root: Option<Arc<str>>,
    /// The form of locations.
    pub form: LocationForm,
}

/// The target of `rewrite-target`.
#[derive(Debug, Clone, PartialEq)]
pub enum IngressRewriteTarget {
    /// A path, with `$1` to `$9` for the groups of the path's pattern.
    Path(Arc<str>),
    /// A redirect with 302 to a URL, with groups.
    Redirect(Arc<str>),
}

/// Paths.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IngressRewrite {
    /// Whether the paths of the host are regular expressions (`use-regex`). A `target` that differs from a path of the
    /// Ingress has the same effect.
    pub use_regex: bool,
    /// The replacement of the path.
    pub target: Option<IngressRewriteTarget>,
    /// The value of `X-Forwarded-Prefix`, sent only with `target`.
    pub forwarded_prefix: Option<Arc<str>>,
}

/// Names and TLS of the hosts of an Ingress. The first Ingress of a host decides.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IngressServer {
    /// Further host names, exact or `*.` and a name.
    pub aliases: Vec<Arc<str>>,
    /// Whether the service of `/` ends TLS.
    pub ssl_passthrough: bool,
    /// Cipher suites in order of preference; `None` means the node's.
    pub ciphers: Option<Vec<Arc<str>>>,
    /// Client certificates.
    pub client: Option<IngressClientTls>,
    /// Whether the host answers 403 to everything, since client certificates cannot be verified.
    pub is_denied: bool,
}

impl IngressClientTls {
    /// Rules that verify certificates by `secret`, with the defaults of ingress-nginx.
    pub fn new(secret: ObjectKey) -> IngressClientTls {
        IngressClientTls {
            secret,
            mode: Some(ClientCertMode::Require),
            depth: 1,
            error_page: None,
            match_cn: None,
            passes_certificate: false,
        }
    }
}

/// The header that selects a canary.
#[derive(Debug, Clone, PartialEq)]
pub enum CanaryHeaderRule {
    /// `always` selects the canary, `never` the primary service; other values fall on to the next rule.
    Words,
    /// This value selects the canary.
    Value(Arc<str>),
    /// A value that matches this pattern selects the canary.
    Pattern(Arc<str>),
}

/// Rules that select the services of a canary, in the order of the members.
#[derive(Debug, Clone, PartialEq)]
pub struct IngressCanary {
    /// Name and rule of a header.
    pub header: Option<(Arc<str>, CanaryHeaderRule)>,
    /// Name of a cookie with the value `always` or `never`.
    pub cookie: Option<Arc<str>>,
    /// The canary's share of `weight_total`.
    pub weight: u32,
    /// The whole, at least 100.
    pub weight_total: u32,
}

/// A copy of each request.
#[derive(Debug, Clone, PartialEq)]
pub struct IngressMirror {
    /// URL of the service that receives the copy, without the path that NGINX's variable `$request_uri` adds.
    pub target: NginxText,
    /// The host of the copy; that of `target` by default.
    pub host: Option<NginxText>,
    /// Whether the copy has the body.
    pub has_body: bool,
}

/// Fields of requests and responses.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IngressHeaders {
    /// ConfigMap with fields of responses (`custom-headers`).
    pub custom: Option<ObjectKey>,
}

/// Responses with errors.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IngressErrors {
    /// Statuses that the default backend answers instead (`custom-http-errors`). Empty if
    /// `disable-proxy-intercept-errors` is set.
    pub statuses: Vec<u16>,
    /// Service of the same namespace for these and for services without endpoints (`default-backend`).
    pub backend: Option<Arc<str>>,
}

/// Access log and traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngressLogging {
    /// Whether exchanges are in the access log.
    pub access: bool,
}

impl Default for IngressLogging {
    fn default() -> Self {
        IngressLogging { access: true }
    }
}

/// A server snippet, which holds for all paths of a host, also for those of other Ingresses.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerSnippet {
    /// Its effects.
    Translated(Arc<SnippetPlan>),
    /// A refused snippet that protects: every request of the host is answered with 403.
    Denying,
}

/// Translated snippets. A refused one is absent and has a problem, except for a server snippet that protects.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IngressSnippets {
    /// `configuration-snippet`: for each path of the Ingress.
    pub location: Option<Arc<SnippetPlan>>,
    /// `server-snippet`: for the hosts of the Ingress, if it is their first.
    pub server: Option<ServerSnippet>,
    /// `auth-snippet`: for the request to the auth service.
    pub auth: Option<Arc<SnippetPlan>>,
}
