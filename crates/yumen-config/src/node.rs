//! The node settings, `yumen.yaml`: settings that no resource can change.
//!
//! Performs no I/O: the caller passes the text and gets settings or problems.

mod discovery;
mod etcd;
mod kubernetes;
mod openid_login;
mod otlp;
mod plugin_attributes;
mod reference;
mod sections;
#[cfg(test)]
mod tests;
mod tls;
mod traffic;
mod upgrade;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use yumen_base::{IpSet, Problem};

use crate::document::TextFault;
use crate::hint::closest;
use crate::resource::Kind;
use crate::schema;

pub use discovery::{
    ConsulDiscovery, ConsulKvDiscovery, ConsulTimeout, DiscoveryConfig, DnsDiscovery, DnsRecord,
    NacosDiscovery, NacosTimeout,
};
pub use etcd::{EtcdConfig, EtcdTlsConfig};
pub use kubernetes::{GatewayModeConfig, IngressConfig, IngressMetricNames, KubernetesConfig, WebhookConfig};
pub use openid_login::{OpenidLoginConfig, OpenidRoleRule};
pub use otlp::{OtlpConfig, OtlpProtocol};
pub use plugin_attributes::{PluginAttributes, SkywalkingAttributes, ZipkinAttributes};
pub use reference::reference;
pub use sections::{
    AccessLogConfig, AccessLogFormat, AdminApiVersion, AdminConfig, AdminKey, AdminRole, AdminTlsConfig,
    ControlConfig, CpuAffinity, CpuMode, DashboardConfig, ListenerConfig, LogConfig, LogEscape, LogLevel,
    NodeLogFormat, NodePlugins, ObserveConfig, SecretText, StatusConfig, StoreConfig, StoreKind,
    StreamListenerConfig, StreamListenerProtocol, WorkerConfig,
};
pub use tls::{AcmeCertificate, AcmeChallenge, AcmeConfig, DownstreamTlsConfig, ExternalAccount, TlsVersion};
pub use traffic::{
    DnsConfig, DotSegments, EncodedSlashes, Http2Config, Http3Config, LimitsConfig, OverloadConfig,
    RealIpConfig, RouterConfig, TimeoutConfig, UpstreamKeepaliveConfig,
};
pub use upgrade::UpgradeConfig;

/// The object of problems of node settings.
const OBJECT: &str = "yumen.yaml";

/// Settings of one node. Every setting has a default; durations are in milliseconds and sizes in bytes unless
/// the name has another unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NodeConfig {
    /// Listeners for HTTP clients. Empty only beside `stream_listen`, or with the store kind `kubernetes`, whose
    /// objects have listeners.
    pub listen: Vec<ListenerConfig>,
    /// Listeners for stream routes: a list of `address`, `protocol` (tcp | tls | tls_passthrough | udp),
    /// `backlog`, `reuse_port` and `proxy_protocol_from`. If any `ssl` object requires client certificates,
    /// `tls` refuses server names that no `ssl` object matches.
    pub stream_listen: Vec<StreamListenerConfig>,
    /// The threads that serve traffic.
    pub workers: WorkerConfig,
    /// The admin listener, which serves the Admin API to operators and their tools.
    pub admin: AdminConfig,
    /// The status listener: health, metrics and other read-only endpoints.
    pub status: StatusConfig,
    /// The control listener: the active configuration, for tools on the same machine.
    pub control: ControlConfig,
    /// The store of resources.
    pub store: StoreConfig,
    /// The node log and the access log.
    pub logs: LogConfig,
    /// Sampling and debugging of single requests.
    pub observe: ObserveConfig,
    /// Limits on requests and connections of clients.
    pub limits: LimitsConfig,
    /// Load shedding.
    pub overload: OverloadConfig,
    /// Timeouts.
    pub timeouts: TimeoutConfig,
    /// Limits of an HTTP/2 connection.
    pub http2: Http2Config,
    /// Limits of an HTTP/3 connection, on listeners with `http3`.
    pub http3: Http3Config,
    /// Idle connections of upstreams without `keepalive_pool`.
    pub upstream_keepalive: UpstreamKeepaliveConfig,
    /// Plugins that resources refer to.
    pub plugins: NodePlugins,
    /// Route matching.
    pub router: RouterConfig,
    /// Resolution of endpoints' host names.
    pub dns: DnsConfig,
    /// Sources of endpoints for upstreams with a `service_name`.
    pub discovery: DiscoveryConfig,
    /// The Kubernetes API server as the source of the configuration.
    pub kubernetes: KubernetesConfig,
    /// TLS with clients.
    pub tls: DownstreamTlsConfig,
    /// Handover to a new binary.
    pub upgrade: UpgradeConfig,
    /// Certificates that are obtained from an ACME server and renewed.
    pub acme: AcmeConfig,
    /// The `Server` field of responses; empty passes the upstream's field.
    pub server_header: String,
    /// Peers that are trusted to describe the original request: addresses and networks such as `10.0.0.0/8`.
    /// The gateway removes `X-Forwarded-Proto`, `-Host`, `-Port` and `Forwarded` of other peers before it
    /// evaluates any rule, and `X-Forwarded-For` too if this list is not empty.
    pub trusted_addresses: Vec<String>,
    /// The client address, derived from a field that a proxy in front of this node sets. Routing and plugins
    /// use the derived address.
    pub real_ip: RealIpConfig,
    /// Whether requests to endpoints also carry the client in `Forwarded` (RFC 7239). If off, the field is
    /// removed.
    pub forwarded_header: bool,
}

impl Default for NodeConfig {
    fn default() -> Self {
        NodeConfig {
            listen: vec![
                ListenerConfig::default(),
                ListenerConfig { address: "127.0.0.1:9443".into(), tls: true, ..ListenerConfig::default() },
            ],
            stream_listen: Vec::new(),
            workers: WorkerConfig::default(),
            admin: AdminConfig::default(),
            status: StatusConfig::default(),
            control: ControlConfig::default(),
            store: StoreConfig::default(),
            logs: LogConfig::default(),
            observe: ObserveConfig::default(),
            limits: LimitsConfig::default(),
            overload: OverloadConfig::default(),
            timeouts: TimeoutConfig::default(),
            http2: Http2Config::default(),
            http3: Http3Config::default(),
            upstream_keepalive: UpstreamKeepaliveConfig::default(),
            plugins: NodePlugins::default(),
            router: RouterConfig::default(),
            dns: DnsConfig::default(),
            discovery: DiscoveryConfig::default(),
            kubernetes: KubernetesConfig::default(),
            tls: DownstreamTlsConfig::default(),
            acme: AcmeConfig::default(),
            upgrade: UpgradeConfig::default(),
            server_header: "yumen".into(),
            trusted_addresses: Vec::new(),
            real_ip: RealIpConfig::default(),
            forwarded_header: false,
        }
    }
}

impl NodeConfig {
    /// Parses `yumen.yaml`. An empty text yields the defaults; problems have the object `yumen.yaml`.
    pub fn parse(yaml: &str) -> Result<NodeConfig, Vec<Problem>> {
        let mut value: Value = match crate::yaml::bounded(yaml).and_then(serde_yaml_ng::from_str) {
            Ok(Value::Null) => Value::Object(Default::default()),
            Ok(value) => value,
            Err(error) => {
                let fault = TextFault::of_yaml(yaml, &error).into_problem();
                return Err(vec![Problem { object: OBJECT.to_owned(), ..fault }]);
            }
        };
        let schema = schema::of_bounded::<NodeConfig>();
        let mut problems = Vec::new();
        drop_empty_sections(&schema, &mut value);
        remove_unknown_fields(&schema, &mut value, "", &mut problems);
        // Validation modifies the value, but faults refer to the written one.
        let written = value.clone();
        if schema::validate(&schema, &mut value).is_err() {
            let faults = schema::faults(&schema, &written).into_iter();
            problems.extend(
                faults.map(|fault| Problem { allowed: fault.hint, ..problem(&fault.path, fault.message) }),
            );
            return Err(problems);
        }
        let mut config: NodeConfig = match serde_json::from_value(value) {
            Ok(config) => config,
            Err(error) => {
                problems.push(problem("", error.to_string()));
                return Err(problems);
            }
        };
        config.complete_addresses();
        config.check(&mut problems);
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    /// Whether `%2F` matches as a slash if the setting is `auto`: rules of an Ingress guard the paths that ingress-nginx
    /// matches, which decodes them first.
    pub fn serves_ingresses(&self) -> bool {
        self.store.kind == StoreKind::Kubernetes && self.kubernetes.ingress.enabled
    }

    /// Replaces the short forms of addresses, so that all readers see an address and a port.
    fn complete_addresses(&mut self) {
        let listen = self.listen.iter_mut().map(|listen| &mut listen.address);
        let streams = self.stream_listen.iter_mut().map(|listen| &mut listen.address);
        let operators = [&mut self.admin.listen, &mut self.status.listen, &mut self.control.listen];
        let webhook = [&mut self.kubernetes.webhook.listen];
        for written in listen.chain(streams).chain(operators).chain(webhook) {
            if let Some(address) = listen_address(written) {
                *written = address.to_string();
            }
        }
    }

    /// Checks the rules that the schema cannot express, such as the syntax of addresses.
    fn check(&self, problems: &mut Vec<Problem>) {
        self.kubernetes.check(problems);
        self.observe.otlp.check(problems);
        let listeners =
            self.listen.iter().enumerate().map(|(i, l)| (format!("listen[{i}].address"), &l.address));
        let streams = self.stream_listen.iter().enumerate();
        let streams = streams.map(|(i, l)| (format!("stream_listen[{i}].address"), &l.address));
        let operator_listeners = [
            ("admin.listen", &self.admin.listen),
            ("status.listen", &self.status.listen),
            ("control.listen", &self.control.listen),
        ];
        // An empty address disables an operators' listener.
        let operator_listeners = operator_listeners.into_iter().filter(|(_, address)| !address.is_empty());
        for (path, address) in listeners
            .chain(streams)
            .chain(operator_listeners.map(|(path, address)| (path.to_owned(), address)))
        {
            if address.parse::<SocketAddr>().is_err() {
                let found = format!("\"{address}\" is not an address with a port");
                problems.push(
                    problem(&path, found)
                        .hint("such as 127.0.0.1:9080, :9080 for all IPv4 addresses, or [::]:9080"),
                );
            }
        }
        problems.extend(self.listener_problems());
        if self.server_header.chars().any(char::is_control) {
            let found = "contains a control character, which a field value cannot contain";
            problems.push(problem("server_header", found));
        }
        // An empty key disables debug tokens.
        let secret_bytes = self.observe.debug_key.len();
        if (1..ObserveConfig::DEBUG_KEY_BYTES_MIN).contains(&secret_bytes) {
            let found = format!("{secret_bytes} bytes are too few for a secret");
            let hint = format!(
                "at least {}, such as `openssl rand -hex 32` gives",
                ObserveConfig::DEBUG_KEY_BYTES_MIN
            );
            problems.push(problem("observe.debug_key", found).hint(hint));
        }
        for (i, listen) in self.listen.iter().enumerate() {
            let path = format!("listen[{i}].proxy_protocol_from");
            check_networks(&path, &listen.proxy_protocol_from, problems);
            if listen.http3 && !listen.tls {
                let found = "HTTP/3 is always encrypted, and the listener is without TLS";
                problems.push(problem(&format!("listen[{i}].http3"), found).hint("set tls to true"));
            }
        }
        for (i, listen) in self.stream_listen.iter().enumerate() {
            let path = format!("stream_listen[{i}].proxy_protocol_from");
            check_networks(&path, &listen.proxy_protocol_from, problems);
            if listen.protocol == StreamListenerProtocol::Udp && !listen.proxy_protocol_from.is_empty() {
                problems.push(problem(&path, "PROXY headers are supported on connections, not on datagrams"));
            }
        }
        check_networks("trusted_addresses", &self.trusted_addresses, problems);
        check_networks("real_ip.from", &self.real_ip.from, problems);
        check_networks("admin.allow", &self.admin.allow, problems);
        check_host_names("status.hosts", &self.status.hosts, problems);
        check_host_names("control.hosts", &self.control.hosts, problems);
        self.overload.check(problems);
        self.acme.check(problems);
        self.store.etcd.check(problems);
        self.discovery.check(problems);
        problems.extend(self.admin_problems());
    }

    /// The problem of a gateway that would run and serve nothing. Objects of Kubernetes bring listeners with them; the
    /// command line may choose them or add listeners, so that this is checked after it.
    pub fn absence_of_listeners(&self) -> Option<Problem> {
        let is_empty = self.listen.is_empty() && self.stream_listen.is_empty();
        let found = (is_empty && self.store.kind != StoreKind::Kubernetes)
            .then(|| problem("listen", "the list must not be empty"))?;
        let hint =
            "write a listener, such as { address: \":9080\" }, or remove the member for the default ones";
        Some(found.hint(hint))
    }

    /// Problems of listeners that share an address; to be checked again after addresses are overridden.
    ///
    /// With a socket per worker (`SO_REUSEPORT`) the system would accept both and split the connections
    /// between them.
    pub fn listener_problems(&self) -> Vec<Problem> {
        let (mut tcp, mut udp) = (Vec::new(), Vec::new());
        for (i, listen) in self.listen.iter().enumerate() {
            let path = format!("listen[{i}].address");
            // QUIC uses the same port number over UDP.
            if listen.http3 {
                udp.push((path.clone(), &listen.address));
            }
            tcp.push((path, &listen.address));
        }
        for (i, listen) in self.stream_listen.iter().enumerate() {
            let list = if listen.protocol == StreamListenerProtocol::Udp { &mut udp } else { &mut tcp };
            list.push((format!("stream_listen[{i}].address"), &listen.address));
        }
        let operators = [
            ("admin", &self.admin.listen),
            ("status", &self.status.listen),
            ("control", &self.control.listen),
        ];
        tcp.extend(operators.map(|(name, address)| (format!("{name}.listen"), address)));
        let webhook = Some(&self.kubernetes.webhook).filter(|webhook| webhook.enabled);
        tcp.extend(webhook.map(|webhook| ("kubernetes.webhook.listen".to_owned(), &webhook.listen)));
        [tcp, udp].into_iter().flat_map(used_twice).collect()
    }

    /// Problems of the admin listener; to be checked again after its address is overridden. Clients of this
    /// listener write the configuration, so an address beyond the loopback needs TLS and keys.
    pub fn admin_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let AdminConfig { listen, tls, keys, .. } = &self.admin;
        if tls.certificate.is_empty() != tls.key.is_empty() {
            let found = "a certificate and a key belong together: only one of them is set";
            problems.push(problem("admin.tls", found));
        }
        if !tls.client_ca.is_empty() && tls.certificate.is_empty() && tls.key.is_empty() {
            let found = "client certificates need TLS, which has no certificate";
            problems.push(problem("admin.tls.client_ca", found).hint("set certificate and key too"));
        }
        for (i, key) in keys.iter().enumerate() {
            if keys[..i].iter().any(|other| other.name == key.name) {
                let found = format!("the name \"{}\" is used twice", key.name);
                problems.push(problem(&format!("admin.keys[{i}].name"), found));
            }
        }
        problems.extend(self.admin.dashboard.openid.check(&self.admin));
        if let Ok(address) = listen.parse() {
            problems.extend(self.admin_exposure_problems(address));
        }
        problems
    }

    /// Problems of an admin listener at `address`; also to be checked with the address of the bound socket,
    /// which a service manager may have chosen.
    pub fn admin_exposure_problems(&self, address: SocketAddr) -> Vec<Problem> {
        let mut problems = Vec::new();
        if address.ip().is_loopback() {
            return problems;
        }
        if !self.admin.key_required {
            let found = format!("\"{address}\" is reachable from other machines, so keys are required");
            let hint = "listen on 127.0.0.1, or set admin.key_required to true";
            problems.push(problem("admin.key_required", found).hint(hint));
        }
        if !self.admin.tls.is_on() {
            let found = format!("\"{address}\" is reachable from other machines, so TLS is required");
            problems
                .push(problem("admin.tls", found).hint("listen on 127.0.0.1, or set certificate and key"));
        }
        problems
    }
}

/// The address of a listener: `127.0.0.1:9080`, `[::]:9080`, or `:9080` for all IPv4 addresses. A machine may have no
/// IPv6, so the short form does not include its addresses.
pub fn listen_address(written: &str) -> Option<SocketAddr> {
    match written.strip_prefix(':') {
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port.parse().ok()?))
        }
        _ => written.parse().ok(),
    }
}

/// Problems of listeners that share an address. Port 0 is exempt: each bind gets a port of its own.
fn used_twice(listeners: Vec<(String, &String)>) -> Vec<Problem> {
    let mut first: HashMap<SocketAddr, String> = HashMap::new();
    let mut problems = Vec::new();
    for (path, written) in listeners {
        let Ok(address) = written.parse::<SocketAddr>() else { continue };
        match first.get(&address) {
            _ if address.port() == 0 => {}
            Some(other) => {
                problems.push(problem(&path, format!("the address {address} is already used by {other}")))
            }
            None => drop(first.insert(address, path)),
        }
    }
    problems
}

fn check_networks(path: &str, networks: &[String], problems: &mut Vec<Problem>) {
    for (i, network) in networks.iter().enumerate() {
        if IpSet::parse([network.as_str()]).is_err() {
            let found = format!("\"{network}\" is neither an address nor a network");
            problems.push(problem(&format!("{path}[{i}]"), found).hint("such as 10.0.0.0/8"));
        }
    }
}

/// A `Host` may contain underscores, as names in Docker Compose do.
fn check_host_names(path: &str, names: &[String], problems: &mut Vec<Problem>) {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    for (i, name) in names.iter().enumerate() {
        if name != "*" && (name.is_empty() || !name.bytes().all(is_allowed)) {
            let found = format!("\"{name}\" is not a host name");
            let hint = "a name without a port, such as gateway.internal, or * for all names";
            problems.push(problem(&format!("{path}[{i}]"), found).hint(hint));
        }
    }
}

fn problem(path: &str, message: impl Into<String>) -> Problem {
    Problem::error(OBJECT, path, message)
}

/// Removes empty sections: YAML reads `section:` as null if all lines of the section are commented out.
fn drop_empty_sections(schema: &Value, value: &mut Value) {
    let (Some(properties), Some(members)) = (schema["properties"].as_object(), value.as_object_mut()) else {
        return;
    };
    members.retain(|name, member| !(member.is_null() && properties.contains_key(name)));
    for (name, member) in members {
        drop_empty_sections(&properties.get(name).cloned().unwrap_or_default(), member);
    }
}

/// Removes unknown fields and reports each, so that none hides another problem.
fn remove_unknown_fields(schema: &Value, value: &mut Value, path: &str, problems: &mut Vec<Problem>) {
    if let (Some(items), Some(schema)) = (value.as_array_mut(), schema.get("items")) {
        for (i, item) in items.iter_mut().enumerate() {
            remove_unknown_fields(schema, item, &format!("{path}[{i}]"), problems);
        }
    }
    let (Some(properties), Some(members)) = (schema["properties"].as_object(), value.as_object_mut()) else {
        return;
    };
    let path_of = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    members.retain(|name, _| {
        if properties.contains_key(name) {
            return true;
        }
        let unknown = problem(&path_of(name), format!("unknown field \"{name}\""));
        if path.is_empty() && Kind::from_name(name).is_some() {
            problems.push(
                unknown.hint("the file has resources: give it by --file, and node settings by --config"),
            );
            return false;
        }
        problems.push(match closest(name, properties.keys().map(String::as_str)) {
            Some(known) => unknown.hint(format!("did you mean \"{known}\"?")),
            None => {
                let known: Vec<&str> = properties.keys().map(String::as_str).collect();
                unknown.hint(format!("known here: {}", known.join(", ")))
            }
        });
        false
    });
    for (name, member) in members.iter_mut() {
        remove_unknown_fields(&properties[name], member, &path_of(name), problems);
    }
}
