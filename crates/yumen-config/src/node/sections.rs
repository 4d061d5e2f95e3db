//! Settings of listeners, workers, the store and logs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EtcdConfig, OpenidLoginConfig, OtlpConfig, PluginAttributes};

/// A listener for HTTP clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListenerConfig {
    /// Address and port; `:9080` is all IPv4 addresses, `[::]:9080` accepts IPv4 too if the system allows it.
    pub address: String,
    /// Whether clients connect with TLS.
    pub tls: bool,
    /// Whether clients may use HTTP/3 too, over UDP on the same port; needs `tls`. Responses over TCP
    /// advertise it in `Alt-Svc`.
    pub http3: bool,
    /// Connections that may wait to be accepted; the system may lower the number.
    #[schemars(range(min = 1))]
    pub backlog: u32,
    /// Whether a worker accepts a connection only once the client has sent data, or after about seven
    /// seconds.
    pub defer_accept: bool,
    /// Whether each worker has its own socket and the system distributes connections; otherwise workers share
    /// one.
    pub reuse_port: bool,
    /// Peers that begin every connection with a PROXY header, version 1 or 2, which carries the client
    /// address: addresses and networks, such as those of a load balancer in front. No header is read from
    /// other peers.
    pub proxy_protocol_from: Vec<String>,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        ListenerConfig {
            address: "127.0.0.1:9080".into(),
            tls: false,
            http3: false,
            backlog: 65535,
            defer_accept: true,
            reuse_port: true,
            proxy_protocol_from: Vec::new(),
        }
    }
}

/// A listener for stream routes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StreamListenerConfig {
    /// Address and port.
    pub address: String,
    /// `tcp` forwards bytes, `tls` terminates TLS, `tls_passthrough` forwards TLS by its server name, `udp`
    /// forwards datagrams. If any `ssl` object requires client certificates, `tls` refuses server names that
    /// no `ssl` object matches.
    pub protocol: StreamListenerProtocol,
    /// Connections that may wait to be accepted; the system may lower the number.
    #[schemars(range(min = 1))]
    pub backlog: u32,
    /// Whether each worker has its own socket; always so for `udp`.
    pub reuse_port: bool,
    /// As in `listen`; not allowed for `udp`.
    pub proxy_protocol_from: Vec<String>,
}

impl Default for StreamListenerConfig {
    fn default() -> Self {
        StreamListenerConfig {
            address: "127.0.0.1:9100".into(),
            protocol: StreamListenerProtocol::Tcp,
            backlog: 65535,
            reuse_port: true,
            proxy_protocol_from: Vec::new(),
        }
    }
}

/// Protocol of a stream listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamListenerProtocol {
    /// Bytes, forwarded unchanged.
    Tcp,
    /// TLS, terminated by the gateway.
    Tls,
    /// TLS, forwarded without termination.
    TlsPassthrough,
    /// Datagrams.
    Udp,
}

/// The threads that serve traffic.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerConfig {
    /// Number of workers; 0 means one per CPU.
    #[schemars(range(max = WorkerConfig::COUNT_MAX))]
    pub count: u32,
    /// CPU of each worker: `none` leaves it to the system, `auto` gives worker i the i-th CPU, a list of CPU
    /// numbers gives worker i the i-th of them.
    pub cpu_affinity: CpuAffinity,
    /// Nice value of the workers; a value below 0 needs a privilege.
    #[schemars(range(min = -20, max = 19))]
    pub nice: i8,
}

impl WorkerConfig {
    /// Largest value of `count`.
    pub const COUNT_MAX: u32 = 1024;
}

/// CPU of each worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CpuAffinity {
    /// By rule.
    Mode(CpuMode),
    /// By number: worker i gets the i-th, starting over at the end.
    Cpus(#[schemars(length(min = 1))] Vec<u32>),
}

impl Default for CpuAffinity {
    fn default() -> Self {
        CpuAffinity::Mode(CpuMode::None)
    }
}

/// A rule for pinning workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CpuMode {
    /// Worker i gets the i-th CPU that the process may use.
    Auto,
    /// The system chooses.
    None,
}

/// The admin listener, which serves the Admin API to operators and their tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdminConfig {
    /// Address and port; empty disables the listener. An address that other hosts can reach needs `tls` and a
    /// key.
    pub listen: String,
    /// Addresses and networks that may connect. Others get 403.
    pub allow: Vec<String>,
    /// Whether requests need a key.
    pub key_required: bool,
    /// Keys in addition to those in the store: each a `name`, a `key`, and a `role`: `admin` or `viewer`.
    pub keys: Vec<AdminKey>,
    /// Whether pages of other origins may call the API (CORS).
    pub cors: bool,
    /// Certificate of the listener; without it the listener serves plain HTTP.
    pub tls: AdminTlsConfig,
    /// Form of responses: `v3`, or `default` for tools that need the older one.
    pub api_version: AdminApiVersion,
    /// The dashboard, pages for browsers under `/ui/` of this listener.
    pub dashboard: DashboardConfig,
}

impl Default for AdminConfig {
    fn default() -> Self {
        AdminConfig {
            listen: "127.0.0.1:9180".into(),
            allow: vec!["127.0.0.0/8".into(), "::1".into()],
            key_required: true,
            keys: Vec::new(),
            cors: true,
            tls: AdminTlsConfig::default(),
            api_version: AdminApiVersion::V3,
            dashboard: DashboardConfig::default(),
        }
    }
}

/// Pages of the admin listener for browsers, and their sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DashboardConfig {
    /// Whether the dashboard is served.
    pub enabled: bool,
    /// Host names in `Host` under which a listener without TLS serves the dashboard, besides addresses and
    /// `localhost`: for a proxy in front of the listener. Other names get 403, since a page of any site could use
    /// them (DNS rebinding). `*` allows all names.
    pub hosts: Vec<String>,
    /// Login at an identity provider by OpenID Connect, besides the login with a key; off while `issuer` is empty.
    pub openid: OpenidLoginConfig,
}

impl Default for DashboardConfig {
    fn default() -> Self {
        DashboardConfig { enabled: true, hosts: Vec::new(), openid: OpenidLoginConfig::default() }
    }
}

/// A key of the Admin API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminKey {
    /// Holder of the key: the author in the history.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// The key itself, at least 16 characters.
    #[schemars(length(min = 16, max = 256))]
    pub key: SecretText,
    /// Permissions of the key.
    #[serde(default)]
    pub role: AdminRole,
}

/// A text that must not appear in logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct SecretText(pub String);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Permissions of a key of the Admin API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdminRole {
    /// Read and write.
    #[default]
    Admin,
    /// Read only.
    Viewer,
}

/// The certificate of the admin listener.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdminTlsConfig {
    /// PEM file of the certificate chain.
    pub certificate: String,
    /// PEM file of the private key.
    pub key: String,
    /// PEM file of the authorities of client certificates. If set, clients without a certificate of one of them
    /// are refused in the handshake; the key of the Admin API is needed besides.
    pub client_ca: String,
}

impl AdminTlsConfig {
    /// Whether the listener uses TLS.
    pub fn is_on(&self) -> bool {
        [&self.certificate, &self.key, &self.client_ca].iter().any(|file| !file.is_empty())
    }
}

/// Form of the Admin API's responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdminApiVersion {
    /// Plain objects.
    #[default]
    V3,
    /// Objects wrapped in `action` and `node`.
    Default,
}

/// The status listener: health, metrics and other read-only endpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StatusConfig {
    /// Address and port; empty disables the listener.
    pub listen: String,
    /// Host names of the listener, as in `Host` without the port. Addresses and `localhost` need no entry;
    /// other names get 403, since a page of any site could use them (DNS rebinding). `*` allows all names.
    pub hosts: Vec<String>,
}

impl Default for StatusConfig {
    fn default() -> Self {
        StatusConfig { listen: "127.0.0.1:9091".into(), hosts: Vec::new() }
    }
}

/// A listener of its own for the Control API, which the status listener serves too.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ControlConfig {
    /// Address and port, such as `127.0.0.1:9090` where APISIX tools expect it; empty disables the listener.
    /// Every client that can connect can read the configuration, without secrets and without a key.
    pub listen: String,
    /// Host names of the listener, as in `status.hosts`.
    pub hosts: Vec<String>,
}

/// The store of resources.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// `embedded` stores resources in `data_dir`, where the Admin API changes them; a new store contains an
    /// example route. `file` reads them from `file`, which is watched. `etcd` shares them with other nodes;
    /// `data_dir` has a copy of the last state.
    pub kind: StoreKind,
    /// The document of the kind `file`, YAML or JSON.
    pub file: String,
    /// The directory of the node's own files.
    #[schemars(length(min = 1))]
    pub data_dir: String,
    /// Keys that encrypt data written to disk, each 32 random bytes in base64: the first encrypts, all
    /// decrypt. Empty means the file `keyring` in `data_dir`, created on the first start.
    pub keyring: Vec<SecretText>,
    /// Revisions in the history of the embedded store, which can be read and restored; the newest is always
    /// kept. With `etcd`, those that this node observed.
    #[schemars(range(min = 1))]
    pub revisions_max: u32,
    /// Bytes of these revisions, in memory with `etcd` and `file`; the oldest are dropped first.
    #[schemars(range(min = 1))]
    pub history_bytes_max: u64,
    /// Maximum age of these revisions, in seconds; 0 keeps revisions of any age.
    pub revisions_age_max_s: u64,
    /// The cluster of the kind `etcd`.
    pub etcd: EtcdConfig,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            kind: StoreKind::Embedded,
            file: "apisix.yaml".into(),
            data_dir: "data".into(),
            keyring: Vec::new(),
            revisions_max: 1000,
            history_bytes_max: 64 << 20,
            revisions_age_max_s: 0,
            etcd: EtcdConfig::default(),
        }
    }
}

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Embedded in the node.
    Embedded,
    /// A document on disk.
    File,
    /// An etcd cluster.
    Etcd,
    /// The API server of a Kubernetes cluster.
    Kubernetes,
}

/// The node log and the access log.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// The lowest level that is logged. A release build logs no more at `trace` than at `debug`.
    pub level: LogLevel,
    /// Format of the node log.
    pub format: NodeLogFormat,
    /// One line per request.
    pub access: AccessLogConfig,
}

/// Sampling and debugging of single requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ObserveConfig {
    /// Requests per second that each worker samples, for `yumen top` and the costs of plugins: all below this
    /// rate, and at most one in 16 above. 0 disables sampling.
    #[schemars(range(max = 10000))]
    pub samples_per_second: u32,
    /// Sampled requests that each worker keeps: method, host, path without query, client, consumer, route and
    /// status. They stay in memory; 0 keeps none.
    #[schemars(range(max = 65536))]
    pub recent_requests: u32,
    /// Whether the status listener lists these requests under `/yumen/v1/recent`. Every client that can read
    /// metrics can then read them.
    pub list_recent_requests: bool,
    /// Secret that signs debug tokens: the response to a request with a valid token in `X-Yumen-Debug`
    /// describes in `X-Yumen-Explain` how the request was served. Empty disables it.
    pub debug_key: String,
    /// Export of the node's metrics and logs by OTLP.
    pub otlp: OtlpConfig,
}

impl ObserveConfig {
    pub(super) const DEBUG_KEY_BYTES_MIN: usize = 16;
}

impl Default for ObserveConfig {
    fn default() -> Self {
        ObserveConfig {
            samples_per_second: 500,
            recent_requests: 2048,
            list_recent_requests: false,
            debug_key: String::new(),
            otlp: OtlpConfig::default(),
        }
    }
}

/// Severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// All details.
    Trace,
    /// Diagnostics.
    Debug,
    /// Regular events.
    #[default]
    Info,
    /// Unexpected events.
    Warn,
    /// Failures.
    Error,
}

/// Format of the node log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeLogFormat {
    /// Readable text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Plugins that resources refer to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NodePlugins {
    /// Plugins that the node runs without. Requests that a missing plugin guards get 503; a plugin listed
    /// here is left out with a warning instead, and **requests pass without it**. Custom plugins may be
    /// listed too.
    pub allow_missing: Vec<String>,
    /// Settings of plugins that belong to the node; `plugin_attr` of APISIX.
    pub attr: PluginAttributes,
}

/// One line per request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessLogConfig {
    /// Whether the access log is written.
    pub enabled: bool,
    /// The file; `-` is standard output.
    #[schemars(length(min = 1))]
    pub path: String,
    /// Format of a line.
    pub format: AccessLogFormat,
    /// Custom format in place of `format`: text with variables, as in NGINX's `log_format`. Empty means
    /// `format`.
    pub line: String,
    /// Escaping of values in `line`: `default` as in NGINX, for programs that split lines; `json` for values
    /// in quotes; or `none`.
    pub escape: LogEscape,
    /// Lines that may wait for the disk; further lines are dropped and counted. A line longer than 1 KiB
    /// takes the space of several.
    #[schemars(range(min = 1))]
    pub queue_lines: u32,
}

impl Default for AccessLogConfig {
    fn default() -> Self {
        AccessLogConfig {
            enabled: false,
            path: "-".into(),
            format: AccessLogFormat::Json,
            line: String::new(),
            escape: LogEscape::Default,
            queue_lines: 65536,
        }
    }
}

/// Format of a line of the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogFormat {
    /// One JSON object per line.
    Json,
    /// The combined format of web servers.
    Combined,
}

/// Escaping of values in a custom line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogEscape {
    /// Quotes, backslashes and bytes that are not printable as `\\xHH`; `-` for a missing value.
    #[default]
    Default,
    /// As in JSON strings; empty for a missing value.
    Json,
    /// None, except for line breaks.
    None,
}
