//! Typed settings of one Ingress: its annotations over the defaults of the controller.

mod access;
mod routing;
mod upstream;

pub use access::{
    AuthAnswerCache, AuthCacheRule, AuthSatisfaction, AuthServiceSettings, AuthSigninSettings, HtpasswdForm,
    IngressAccess, IngressAuth, IngressBasicAuth, IngressClientTls, IngressCors, IngressLimits,
    ResponseRateSettings,
};
pub use routing::{
    CanaryHeaderRule, FixedRedirect, IngressCanary, IngressErrors, IngressHeaders, IngressLogging,
    IngressMirror, IngressRedirects, IngressRewrite, IngressRewriteTarget, IngressServer, IngressSnippets,
    LocationForm, ServerSnippet, SslRedirectRule,
};
pub use upstream::{
    CanaryStickiness, FieldReplacement, IngressProxy, IngressSession, IngressUpstream,
    IngressUpstreamProtocol, NextUpstreamCondition, NextUpstreamRule, SameSiteRule, SessionSpread,
    UpstreamBalance, UpstreamHashKey, UpstreamTlsChoice,
};

/// The settings of all paths of one Ingress. Members without an annotation have the defaults of the controller.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IngressSettings {
    /// Redirects.
    pub redirects: IngressRedirects,
    /// Paths: regular expressions and their replacement.
    pub rewrite: IngressRewrite,
    /// Names and TLS of the hosts.
    pub server: IngressServer,
    /// Authentication.
    pub auth: IngressAuth,
    /// Addresses of clients.
    pub access: IngressAccess,
    /// Limits per client, and of the response rate.
    pub limits: IngressLimits,
    /// The rules of a canary; `None` for an Ingress of its own.
    pub canary: Option<IngressCanary>,
    /// Cross-origin resource sharing.
    pub cors: Option<IngressCors>,
    /// Timeouts, retries, bodies, and edits of responses.
    pub proxy: IngressProxy,
    /// Protocol, balancing, TLS and sessions of the services.
    pub upstream: IngressUpstream,
    /// Fields of requests and responses.
    pub headers: IngressHeaders,
    /// A copy of each request.
    pub mirror: Option<IngressMirror>,
    /// Responses with errors.
    pub errors: IngressErrors,
    /// Access log and traces.
    pub log: IngressLogging,
    /// Translated snippets.
    pub snippets: IngressSnippets,
}
