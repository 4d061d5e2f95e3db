//! Doors, threads, store and logs of a node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EtcdConfig;

/// One listening socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListenerConfig {
    /// Address and port; `[::]:9080` takes IPv4 too where the system allows it.
    pub address: String,
    /// Whether clients speak TLS.
    pub tls: bool,
    /// Whether clients may speak HTTP/3 too, over UDP on the same port; needs `tls`. Answers over TCP tell them
    /// so in `Alt-Svc`.
    pub http3: bool,
    /// How many connections may wait to be accepted; the system clamps it.
    #[schemars(range(min = 1))]
    pub backlog: u32,
    /// Whether a worker hears of a connection only when the client has sent something, or after some
    /// seven seconds.
    pub defer_accept: bool,
    /// Whether each worker has a socket of its own and the system spreads connections; otherwise they share
    /// one.
    pub reuse_port: bool,
    /// Peers that begin every connection with a PROXY header, version 1 or 2, which says who the client is:
    /// addresses and networks, such as those of a load balancer in front. From all others no header is
    /// read.
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

/// One socket for streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StreamListenerConfig {
    /// Address and port.
    pub address: String,
    /// `tcp` passes bytes, `tls` ends TLS here, `tls_passthrough` looks for the server name and passes TLS
    /// on, `udp` passes datagrams. Where an `ssl` object asks clients for certificates, `tls` refuses names that no
    /// `ssl` object is for.
    pub protocol: StreamListenerProtocol,
    /// How many connections may wait to be accepted; the system clamps it.
    #[schemars(range(min = 1))]
    pub backlog: u32,
    /// Whether each worker has a socket of its own; always so for `udp`.
    pub reuse_port: bool,
    /// As in `listen`; not for `udp`.
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

/// What a socket for streams carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamListenerProtocol {
    /// Bytes.
    Tcp,
    /// Bytes inside TLS, which ends here.
    Tls,
    /// TLS that goes on as it came.
    TlsPassthrough,
    /// Datagrams.
    Udp,
}

/// The threads that serve traffic.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerConfig {
    /// How many; 0 means one per CPU.
    #[schemars(range(max = WorkerConfig::COUNT_MAX))]
    pub count: u32,
    /// Which CPU each runs on: `none` leaves it to the system, `auto` gives worker i the i-th CPU, a list
    /// of CPU numbers gives worker i the i-th of them.
    pub cpu_affinity: CpuAffinity,
    /// Their nice value; below 0 needs a privilege.
    #[schemars(range(min = -20, max = 19))]
    pub nice: i8,
}

impl WorkerConfig {
    /// So many at most.
    pub const COUNT_MAX: u32 = 1024;
}

/// Which CPU each worker runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CpuAffinity {
    /// By rule.
    Mode(CpuMode),
    /// By number; worker i has the i-th, starting over at the end.
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
    /// The i-th CPU the process may use.
    Auto,
    /// Wherever the system puts it.
    None,
}

/// The admin listener: the Admin API, for operators and their tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdminConfig {
    /// Address and port; empty switches it off. An address others can reach needs `tls` and a key.
    pub listen: String,
    /// Who may connect: addresses and networks. Everybody else is answered 403.
    pub allow: Vec<String>,
    /// Whether requests must carry a key.
    pub key_required: bool,
    /// Keys beside those the store holds: each a `name`, a `key`, and a `role`: `admin` or `viewer`.
    pub keys: Vec<AdminKey>,
    /// Whether pages of other origins may call the API.
    pub cors: bool,
    /// The certificate the listener shows; without it the listener speaks plain HTTP.
    pub tls: AdminTlsConfig,
    /// Shape of answers: `v3`, or `default` for tools that know the older one.
    pub api_version: AdminApiVersion,
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
        }
    }
}

/// A key of the Admin API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminKey {
    /// Who holds it: the author in the history.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// The key itself, at least 16 characters.
    #[schemars(length(min = 16, max = 256))]
    pub key: SecretText,
    /// What it may do.
    #[serde(default)]
    pub role: AdminRole,
}

/// A text that must not show in logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct SecretText(pub String);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

/// What a key of the Admin API may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdminRole {
    /// Everything.
    #[default]
    Admin,
    /// Read.
    Viewer,
}

/// The certificate of the admin listener.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdminTlsConfig {
    /// The file of the chain, PEM.
    pub certificate: String,
    /// The file of its key, PEM.
    pub key: String,
}

impl AdminTlsConfig {
    /// Whether the listener speaks TLS.
    pub fn is_on(&self) -> bool {
        !self.certificate.is_empty() || !self.key.is_empty()
    }
}

/// Shape of the Admin API's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdminApiVersion {
    /// The objects themselves.
    #[default]
    V3,
    /// Wrapped in `action` and `node`.
    Default,
}

/// Health, metrics and other things to read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StatusConfig {
    /// Address and port; empty switches it off.
    pub listen: String,
    /// Names under which it is asked, as `Host` has them without the port. Addresses and `localhost` need no entry; any
    /// other name is answered 403, since a page could hold it (DNS rebinding). `*` allows all names.
    pub hosts: Vec<String>,
}

impl Default for StatusConfig {
    fn default() -> Self {
        StatusConfig { listen: "127.0.0.1:9091".into(), hosts: Vec::new() }
    }
}

/// The Control API on a listener of its own; the status listener has it as well.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ControlConfig {
    /// Address and port, such as `127.0.0.1:9090` where tools of APISIX look for it; empty has none.
    /// Whoever reaches it reads what is configured, without secrets and without a key.
    pub listen: String,
    /// Names under which it is asked, as `status.hosts` has them.
    pub hosts: Vec<String>,
}

/// Where resources live.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// `embedded` keeps them in `data_dir`, where the Admin API changes them; a new one says hello.
    /// `file` reads them from `file`, which is watched. `etcd` shares them with other nodes; what was read
    /// last is kept in `data_dir`.
    pub kind: StoreKind,
    /// The document of the kind `file`, YAML or JSON.
    pub file: String,
    /// The directory of the node's own files.
    #[schemars(length(min = 1))]
    pub data_dir: String,
    /// Keys that seal what is written to disk, each 32 random bytes in base64: the first seals, all open.
    /// Empty means the file `keyring` in `data_dir`, made on the first start.
    pub keyring: Vec<SecretText>,
    /// How many revisions the embedded store keeps to look and go back to; the newest always is. With
    /// `etcd`, how many of those a node saw.
    #[schemars(range(min = 1))]
    pub revisions_max: u32,
    /// How many bytes of them, in memory with `etcd` and `file`; older ones are forgotten first.
    #[schemars(range(min = 1))]
    pub history_bytes_max: u64,
    /// None older than this; 0 keeps them whatever their age.
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
    /// In the node itself.
    Embedded,
    /// A document on disk.
    File,
    /// In a cluster of etcd.
    Etcd,
}

/// What is written about the node and its traffic.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// The least that is written. A release says no more with `trace` than with `debug`.
    pub level: LogLevel,
    /// How the node's own log is written.
    pub format: NodeLogFormat,
    /// One line per request.
    pub access: AccessLogConfig,
}

/// What is remembered and told of single requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ObserveConfig {
    /// How many requests a second each worker looks at closely, for `yumen top` and the costs of plugins; all
    /// while there are fewer, and at most one in 16 where there are more. 0 looks at none.
    #[schemars(range(max = 10000))]
    pub samples_per_second: u32,
    /// How many sampled requests each worker remembers: method, host, path without query, client, consumer,
    /// route and status. They stay in memory; 0 remembers none.
    #[schemars(range(max = 65536))]
    pub recent_requests: u32,
    /// Whether the status listener lists them under `/yumen/v1/recent`. Whoever may read metrics can then
    /// read who asked for what.
    pub list_recent_requests: bool,
    /// The secret that signs tokens: a request with a valid one in `X-Yumen-Debug` is told in
    /// `X-Yumen-Explain` how it was served. Empty switches it off.
    pub debug_key: String,
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
        }
    }
}

/// How much a message matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// For finding faults.
    Debug,
    /// What happens.
    #[default]
    Info,
    /// What should not happen.
    Warn,
    /// What failed.
    Error,
}

/// How the node's own log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeLogFormat {
    /// For people.
    #[default]
    Text,
    /// One object per line.
    Json,
}

/// Plugins that resources name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NodePlugins {
    /// Plugins that the node runs without. Requests that a missing plugin guards are answered 503; a plugin named here is
    /// left out with a warning instead, and **requests pass without it**. Plugins of your own may be named too.
    pub allow_missing: Vec<String>,
}

/// One line per request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessLogConfig {
    /// Whether it is written.
    pub enabled: bool,
    /// The file; `-` is standard output.
    #[schemars(length(min = 1))]
    pub path: String,
    /// How a line looks.
    pub format: AccessLogFormat,
    /// A line of one's own, instead of `format`: text with variables in it, as NGINX's `log_format` has
    /// them. Empty means `format`.
    pub line: String,
    /// How values in such a line are escaped: `default` as NGINX does, for programs that split lines;
    /// `json` for texts in quotes; or not at all.
    pub escape: LogEscape,
    /// How many lines may wait for the disk; beyond that they are dropped and counted. A line of more than
    /// 1 KiB takes the room of several.
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

/// How a line of the access log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogFormat {
    /// One object per line.
    Json,
    /// The combined format of web servers.
    Combined,
}

/// How values in a line of one's own are escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogEscape {
    /// Quotes, backslashes and what is not printable as `\\xHH`; `-` where there is no value.
    #[default]
    Default,
    /// As texts of JSON; nothing where there is no value.
    Json,
    /// Not at all, but for ends of lines.
    None,
}
