//! Settings that admit or refuse requests.

use std::sync::Arc;

use yumen_config::resource::ClientCertMode;

use super::super::nginx_text::NginxText;
use crate::model::ObjectKey;

/// The form of a Secret with names and hashes of passwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HtpasswdForm {
    /// An htpasswd file under the key `auth`.
    #[default]
    File,
    /// A key for each name; its value is the hash.
    Map,
}

/// Authentication by name and password.
#[derive(Debug, Clone, PartialEq)]
pub struct IngressBasicAuth {
    /// The Secret with names and hashes.
    pub secret: ObjectKey,
    /// Its form.
    pub form: HtpasswdForm,
    /// The realm; empty if absent.
    pub realm: Arc<str>,
}

/// The page to which a request without a login is redirected.
#[derive(Debug, Clone, PartialEq)]
pub struct AuthSigninSettings {
    /// URL of the page.
    pub url: NginxText,
    /// The query argument that receives the URL of the request.
    pub redirect_param: Arc<str>,
}

/// How long answers of one status are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthCacheRule {
    /// The statuses; empty means any.
    pub statuses: Vec<u16>,
    /// The time, in seconds.
    pub seconds: u32,
}

/// Kept answers of an auth service.
#[derive(Debug, Clone, PartialEq)]
pub struct AuthAnswerCache {
    /// The key of an answer.
    pub key: NginxText,
    /// Times by status.
    pub rules: Vec<AuthCacheRule>,
}

/// A service that decides about each request, by the rules of ingress-nginx (`auth-url`).
#[derive(Debug, Clone, PartialEq)]
pub struct AuthServiceSettings {
    /// URL of the service.
    pub url: NginxText,
    /// Method of the request to the service; `None` means GET.
    pub method: Option<Arc<str>>,
    /// The page for requests without a login.
    pub signin: Option<AuthSigninSettings>,
    /// Fields of the answer that the upstream receives.
    pub response_headers: Vec<Arc<str>>,
    /// The value of `X-Auth-Request-Redirect`.
    pub request_redirect: Option<NginxText>,
    /// ConfigMap with fields of the request to the service.
    pub set_headers: Option<ObjectKey>,
    /// Whether `Set-Cookie` of the answer is added to error responses too.
    pub always_sets_cookie: bool,
    /// Kept answers.
    pub cache: Option<AuthAnswerCache>,
    /// The most idle connections to the service; `None` means the default of the gateway.
    pub keepalive: Option<u32>,
}

/// Which checks a request must pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AuthSatisfaction {
    /// The lists of addresses and authentication.
    #[default]
    All,
    /// The lists of addresses or authentication.
    Any,
}

/// Authentication.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IngressAuth {
    /// By name and password.
    pub basic: Option<IngressBasicAuth>,
    /// By a service. That of the controller unless the Ingress has one or opts out with `enable-global-auth`.
    pub service: Option<AuthServiceSettings>,
    /// Which checks must pass.
    pub satisfy: AuthSatisfaction,
    /// Reason why every request is answered with 503: a protection that the annotations ask for cannot be built.
    pub denial: Option<Arc<str>>,
}

/// Client certificates of a host.
#[derive(Debug, Clone, PartialEq)]
pub struct IngressClientTls {
    /// Secret with `ca.crt` and `ca.crl`.
    pub secret: ObjectKey,
    /// The effect of a certificate that is absent or not valid; `None` turns verification off.
    pub mode: Option<ClientCertMode>,
    /// The most intermediate certificates.
    pub depth: u8,
    /// URL of the page to which a request without a valid certificate is redirected with 302.
    pub error_page: Option<Arc<str>>,
    /// Regular expression that the subject must match, written as `CN=...`; without it any subject passes.
    pub match_cn: Option<Arc<str>>,
    /// Whether the upstream receives the certificate in `ssl-client-cert`.
    pub passes_certificate: bool,
}

/// Addresses of clients. `deny` is checked first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IngressAccess {
    /// Networks that may send requests; empty means any.
    pub allow: Vec<Arc<str>>,
    /// Networks that may not.
    pub deny: Vec<Arc<str>>,
}

/// The rate at which a response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseRateSettings {
    /// Bytes per second.
    pub bytes_per_second: u64,
    /// Bytes that are sent without a limit before.
    pub after_bytes: u64,
}

/// Limits of a client. All paths of an Ingress share one count.
#[derive(Debug, Clone, PartialEq)]
pub struct IngressLimits {
    /// Requests at once.
    pub connections: Option<u32>,
    /// Requests per second.
    pub per_second: Option<u32>,
    /// Requests per minute.
    pub per_minute: Option<u32>,
    /// Burst of both rates, as a multiple of the rate.
    pub burst_multiplier: u32,
    /// Networks without limits.
    pub exempt: Vec<Arc<str>>,
    /// The rate of responses.
    pub response_rate: Option<ResponseRateSettings>,
}

impl Default for IngressLimits {
    fn default() -> Self {
        IngressLimits {
            connections: None,
            per_second: None,
            per_minute: None,
            burst_multiplier: 5,
            exempt: Vec::new(),
            response_rate: None,
        }
    }
}

/// Cross-origin resource sharing, by the rules of ingress-nginx.
#[derive(Debug, Clone, PartialEq)]
pub struct IngressCors {
    /// `*`, or origins, whose host may begin with `*.` for one label.
    pub origins: Vec<Arc<str>>,
    /// Allowed methods.
    pub methods: Arc<str>,
    /// Allowed fields of requests.
    pub headers: Arc<str>,
    /// Fields of responses that scripts may read; empty if absent.
    pub expose_headers: Arc<str>,
    /// Whether requests may carry credentials.
    pub credentials: bool,
    /// How long clients may keep the answer to a preflight request, in seconds.
    pub max_age_s: u32,
}
