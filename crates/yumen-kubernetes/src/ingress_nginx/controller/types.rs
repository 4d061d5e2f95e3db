//! Typed settings of the controller.

use std::sync::Arc;

use serde_json::Value;

use super::super::annotations::AnnotationRisk;
use super::super::settings::{AuthServiceSettings, IngressSettings};
use super::super::snippet::SnippetPlan;
use crate::model::ObjectKey;

/// Which paths of type `Exact` and `Prefix` are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathTypeRule {
    /// Only letters, digits and `._-/`.
    #[default]
    Strict,
    /// Any.
    Lenient,
}

/// Which annotations are taken.
#[derive(Debug, Clone, PartialEq)]
pub struct AnnotationPolicy {
    /// Prefix of the names, without the slash.
    pub prefix: Arc<str>,
    /// The highest risk that is taken.
    pub risk_max: AnnotationRisk,
    /// Whether snippets are taken.
    pub allows_snippets: bool,
    /// Whether annotations may name Secrets and ConfigMaps of other namespaces.
    pub allows_cross_namespace: bool,
    /// Words that no value may contain.
    pub blocked_words: Vec<Arc<str>>,
    /// Names of fields that `custom-headers` may set.
    pub response_headers: Vec<Arc<str>>,
    /// Which paths are taken.
    pub path_types: PathTypeRule,
}

impl Default for AnnotationPolicy {
    fn default() -> Self {
        AnnotationPolicy {
            prefix: "nginx.ingress.kubernetes.io".into(),
            risk_max: AnnotationRisk::High,
            allows_snippets: false,
            allows_cross_namespace: false,
            blocked_words: Vec::new(),
            response_headers: Vec::new(),
            path_types: PathTypeRule::Strict,
        }
    }
}

/// Which forwarding fields of trusted networks are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardedTrust {
    /// None.
    #[default]
    None,
    /// The client's address (`enable-real-ip`).
    Address,
    /// Address, scheme, host and port (`use-forwarded-headers`).
    AllFields,
}

/// The address of the client and the fields that carry it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientAddressSettings {
    /// Which fields are believed.
    pub trust: ForwardedTrust,
    /// Networks whose forwarding fields are believed; empty means none. `0.0.0.0/0` means any.
    pub trusted: Vec<Arc<str>>,
    /// The field with the client's address.
    pub field: Arc<str>,
    /// Whether the field is appended to instead of replaced (`compute-full-forwarded-for`).
    pub appends: bool,
    /// Whether connections begin with a PROXY header (`use-proxy-protocol`).
    pub proxy_protocol: bool,
}

impl Default for ClientAddressSettings {
    fn default() -> Self {
        ClientAddressSettings {
            trust: ForwardedTrust::None,
            trusted: Vec::new(),
            field: "X-Forwarded-For".into(),
            appends: false,
            proxy_protocol: false,
        }
    }
}

/// `Strict-Transport-Security` of responses over https.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HstsSettings {
    /// `max-age`, in seconds.
    pub max_age_s: u64,
    /// `includeSubDomains`.
    pub include_subdomains: bool,
    /// `preload`.
    pub preload: bool,
}

impl Default for HstsSettings {
    fn default() -> Self {
        HstsSettings { max_age_s: 31_536_000, include_subdomains: true, preload: false }
    }
}

/// TLS of all hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct ControllerTls {
    /// Versions by NGINX's names; empty means TLSv1.2 and TLSv1.3.
    pub versions: Vec<Arc<str>>,
    /// Cipher suites by OpenSSL name; empty means the node's.
    pub ciphers: Vec<Arc<str>>,
    /// Whether handshakes without a known server name fail.
    pub rejects_unknown_names: bool,
    /// `Strict-Transport-Security`.
    pub hsts: Option<HstsSettings>,
    /// Secret with the certificate for hosts without one.
    pub default_certificate: Option<ObjectKey>,
}

impl Default for ControllerTls {
    fn default() -> Self {
        ControllerTls {
            versions: Vec::new(),
            ciphers: Vec::new(),
            rejects_unknown_names: false,
            hsts: Some(HstsSettings::default()),
            default_certificate: None,
        }
    }
}

/// Redirects to https.
#[derive(Debug, Clone, PartialEq)]
pub struct RedirectDefaults {
    /// The status.
    pub status: u16,
    /// Prefixes of paths that are not redirected.
    pub exempt: Vec<Arc<str>>,
}

impl Default for RedirectDefaults {
    fn default() -> Self {
        RedirectDefaults { status: 308, exempt: vec!["/.well-known/acme-challenge".into()] }
    }
}

/// Compression of responses.
#[derive(Debug, Clone, PartialEq)]
pub struct CompressionSettings {
    /// The level.
    pub level: u32,
    /// Media types.
    pub types: Vec<Arc<str>>,
    /// The smallest response, in bytes.
    pub bytes_min: u64,
}

/// Fields of all requests and responses.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ControllerHeaders {
    /// ConfigMap with fields that all responses get (`add-headers`).
    pub add: Option<ObjectKey>,
    /// ConfigMap with fields that all upstreams get (`proxy-set-headers`).
    pub set_upstream: Option<ObjectKey>,
    /// Fields of upstreams that no client gets.
    pub hidden: Vec<Arc<str>>,
    /// Whether the field `Server` of upstreams is kept.
    pub keeps_server: bool,
    /// Whether upstreams get the requested URI in `X-Original-Uri`.
    pub adds_original_uri: bool,
}

/// Clients that all hosts answer with 403.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BlockedClients {
    /// The key that protects all hosts and cannot be followed: every client is refused.
    pub all: Option<Arc<str>>,
    /// Networks.
    pub networks: Vec<Arc<str>>,
    /// User agents; one that begins with `~` is a pattern, `~*` one that ignores case.
    pub user_agents: Vec<Arc<str>>,
    /// Referers, likewise.
    pub referers: Vec<Arc<str>>,
}

/// The access log.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LogLineSettings {
    /// The line in the notation of `logs.access.line`; `None` means the line of ingress-nginx.
    pub line: Option<Arc<str>>,
    /// Whether values are escaped for JSON.
    pub escapes_json: bool,
    /// Whether there is no access log.
    pub is_off: bool,
    /// Paths whose exchanges are left out.
    pub skipped_paths: Vec<Arc<str>>,
}

/// A setting that a node has in `yumen.yaml`, not in resources.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSetting {
    /// Key of the ConfigMap, or flag.
    pub key: Arc<str>,
    /// Dotted path in `yumen.yaml`.
    pub path: &'static str,
    /// The value.
    pub value: Value,
}

/// Flags of the process that choose objects.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ControllerFlags {
    /// `--ingress-class`.
    pub ingress_class: Option<Arc<str>>,
    /// `--controller-class`.
    pub controller_class: Option<Arc<str>>,
    /// Switches by name that are set to true, such as `watch-ingress-without-class`.
    pub switches: Vec<&'static str>,
    /// `--watch-namespace`.
    pub watch_namespace: Option<Arc<str>>,
    /// `--watch-namespace-selector`.
    pub watch_selector: Option<Arc<str>>,
    /// `--default-backend-service`.
    pub default_backend: Option<ObjectKey>,
    /// `--configmap`.
    pub config_map: Option<ObjectKey>,
    /// `--tcp-services-configmap`.
    pub tcp_services: Option<ObjectKey>,
    /// `--udp-services-configmap`.
    pub udp_services: Option<ObjectKey>,
    /// `--publish-service`.
    pub publish_service: Option<ObjectKey>,
    /// `--publish-status-address`.
    pub publish_addresses: Vec<Arc<str>>,
    /// The admission webhook.
    pub webhook: WebhookFlags,
}

/// Flags of the admission webhook.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WebhookFlags {
    /// `--validating-webhook`: the address; without it the flags serve no webhook.
    pub listen: Option<Arc<str>>,
    /// `--validating-webhook-certificate`: a PEM file.
    pub certificate: Option<Arc<str>>,
    /// `--validating-webhook-key`: a PEM file.
    pub key: Option<Arc<str>>,
}

impl ControllerFlags {
    /// Whether a switch is set.
    pub fn is_set(&self, switch: &str) -> bool {
        self.switches.contains(&switch)
    }
}

/// All settings of the controller: ConfigMap and flags.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ControllerSettings {
    /// Which annotations are taken.
    pub policy: AnnotationPolicy,
    /// Settings of Ingresses without annotations.
    pub defaults: IngressSettings,
    /// The address of the client.
    pub client: ClientAddressSettings,
    /// TLS.
    pub tls: ControllerTls,
    /// Redirects to https.
    pub redirects: RedirectDefaults,
    /// gzip.
    pub gzip: Option<CompressionSettings>,
    /// Brotli.
    pub brotli: Option<CompressionSettings>,
    /// Fields.
    pub headers: ControllerHeaders,
    /// Refused clients.
    pub blocked: BlockedClients,
    /// The service that decides about the requests of all Ingresses, beside the paths that are exempt from it.
    pub auth: Option<(AuthServiceSettings, Vec<Arc<str>>)>,
    /// The access log.
    pub log: LogLineSettings,
    /// Statuses of refused requests: of a rate, of connections.
    pub limit_statuses: Option<(u16, u16)>,
    /// `location-snippet` and `server-snippet`.
    pub snippets: (Option<Arc<SnippetPlan>>, Option<Arc<SnippetPlan>>),
    /// Settings that belong into `yumen.yaml`.
    pub node: Vec<NodeSetting>,
    /// Flags.
    pub flags: ControllerFlags,
}

/// A key or flag that is not followed as written.
#[derive(Debug, Clone, PartialEq)]
pub struct ControllerProblem {
    /// The key, or the flag with its dashes.
    pub key: Arc<str>,
    /// Whether something that protects is missing, or the value is invalid.
    pub is_error: bool,
    /// The finding.
    pub message: String,
    /// Another way to the same effect.
    pub way_over: Option<String>,
}
