//! The node's own configuration, `yumen.yaml`: what cannot change with a resource.
//!
//! Knows neither files nor the environment: text comes in, settings and problems go out.

mod discovery;
mod etcd;
mod reference;
mod sections;
#[cfg(test)]
mod tests;
mod tls;
mod traffic;
mod upgrade;

use std::collections::HashMap;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use yumen_base::{IpSet, Problem};

use crate::hint::closest;
use crate::schema;

pub use discovery::{
    ConsulDiscovery, ConsulKvDiscovery, ConsulTimeout, DiscoveryConfig, DnsDiscovery, DnsRecord,
    NacosDiscovery, NacosTimeout,
};
pub use etcd::{EtcdConfig, EtcdTlsConfig};
pub use reference::reference;
pub use sections::{
    AccessLogConfig, AccessLogFormat, AdminApiVersion, AdminConfig, AdminKey, AdminRole, AdminTlsConfig,
    ControlConfig, CpuAffinity, CpuMode, ListenerConfig, LogConfig, LogEscape, LogLevel, NodeLogFormat,
    NodePlugins, ObserveConfig, SecretText, StatusConfig, StoreConfig, StoreKind, StreamListenerConfig,
    StreamListenerProtocol, WorkerConfig,
};
pub use tls::{AcmeCertificate, AcmeChallenge, AcmeConfig, DownstreamTlsConfig, ExternalAccount, TlsVersion};
pub use traffic::{
    DnsConfig, DotSegments, EncodedSlashes, Http2Config, Http3Config, LimitsConfig, OverloadConfig,
    RealIpConfig, RouterConfig, TimeoutConfig, UpstreamKeepaliveConfig,
};
pub use upgrade::UpgradeConfig;

/// Settings of one node. Every one has a default; durations are in milliseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NodeConfig {
    /// Where clients connect.
    #[schemars(length(min = 1))]
    pub listen: Vec<ListenerConfig>,
    /// Where clients of stream routes connect: a list of `address`, `protocol` (tcp | tls | tls_passthrough |
    /// udp), `backlog`, `reuse_port` and `proxy_protocol_from`. Once an `ssl` object asks clients for certificates, `tls`
    /// refuses names that no `ssl` object is for.
    pub stream_listen: Vec<StreamListenerConfig>,
    /// The threads that serve traffic.
    pub workers: WorkerConfig,
    /// The admin listener: the Admin API, for operators and their tools.
    pub admin: AdminConfig,
    /// Health, metrics and other things to read.
    pub status: StatusConfig,
    /// What is in force, for tools on the same machine.
    pub control: ControlConfig,
    /// Where resources live.
    pub store: StoreConfig,
    /// What is written about the node and its traffic.
    pub logs: LogConfig,
    /// What is remembered and told of single requests.
    pub observe: ObserveConfig,
    /// How much one client may ask for.
    pub limits: LimitsConfig,
    /// When the node takes no more.
    pub overload: OverloadConfig,
    /// How long to wait.
    pub timeouts: TimeoutConfig,
    /// What one connection of HTTP/2 may ask for.
    pub http2: Http2Config,
    /// What one connection of HTTP/3 may ask for, on listeners with `http3`.
    pub http3: Http3Config,
    /// Idle connections to upstreams that set no `keepalive_pool`.
    pub upstream_keepalive: UpstreamKeepaliveConfig,
    /// Plugins that resources name.
    pub plugins: NodePlugins,
    /// How routes are matched.
    pub router: RouterConfig,
    /// Names of endpoints.
    pub dns: DnsConfig,
    /// Where upstreams with a `service_name` get their endpoints.
    pub discovery: DiscoveryConfig,
    /// TLS towards clients.
    pub tls: DownstreamTlsConfig,
    /// How a new binary takes over.
    pub upgrade: UpgradeConfig,
    /// Certificates fetched from an ACME server, and renewed.
    pub acme: AcmeConfig,
    /// What answers say in their `Server` field; empty passes the upstream's.
    pub server_header: String,
    /// Peers that are believed where they say how a request came to them: addresses and networks such as
    /// `10.0.0.0/8`. From others `X-Forwarded-Proto`, `-Host`, `-Port` and `Forwarded` are taken away before any
    /// rule sees them, and `X-Forwarded-For` too once somebody is trusted.
    pub trusted_addresses: Vec<String>,
    /// The client's own address, where a proxy before this node tells it. What the address decides or
    /// counts, routing and plugins, goes by it.
    pub real_ip: RealIpConfig,
    /// Whether endpoints are told who asked in `Forwarded` (RFC 7239) too. Off, the field is taken away.
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
    /// Reads `yumen.yaml`. An empty text gives the defaults; problems are of the object `yumen.yaml`.
    pub fn parse(yaml: &str) -> Result<NodeConfig, Vec<Problem>> {
        let mut value: Value = match serde_yaml_ng::from_str(yaml) {
            Ok(Value::Null) => Value::Object(Default::default()),
            Ok(value) => value,
            Err(error) => return Err(vec![problem("", error.to_string())]),
        };
        let schema = schema::of_bounded::<NodeConfig>();
        let mut problems = Vec::new();
        drop_empty_sections(&schema, &mut value);
        remove_unknown_fields(&schema, &mut value, "", &mut problems);
        let written = value.clone();
        if schema::validate(&schema, &mut value).is_err() {
            let faults = schema::faults(&schema, &written).into_iter();
            problems.extend(faults.map(|fault| problem(&fault.path, fault.message)));
            return Err(problems);
        }
        let config: NodeConfig = match serde_json::from_value(value) {
            Ok(config) => config,
            Err(error) => {
                problems.push(problem("", error.to_string()));
                return Err(problems);
            }
        };
        config.check(&mut problems);
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    /// Checks that the schema cannot express, such as the syntax of addresses.
    fn check(&self, problems: &mut Vec<Problem>) {
        let listeners =
            self.listen.iter().enumerate().map(|(i, l)| (format!("listen[{i}].address"), &l.address));
        let streams = self.stream_listen.iter().enumerate();
        let streams = streams.map(|(i, l)| (format!("stream_listen[{i}].address"), &l.address));
        let operator_listeners = [
            ("admin.listen", &self.admin.listen),
            ("status.listen", &self.status.listen),
            ("control.listen", &self.control.listen),
        ];
        let operator_listeners = operator_listeners.into_iter().filter(|(_, address)| !address.is_empty());
        for (path, address) in listeners
            .chain(streams)
            .chain(operator_listeners.map(|(path, address)| (path.to_owned(), address)))
        {
            if address.parse::<SocketAddr>().is_err() {
                let found = format!("\"{address}\" is not an address with a port");
                problems.push(problem(&path, found).hint("such as 0.0.0.0:9080 or [::]:9080"));
            }
        }
        problems.extend(self.listener_problems());
        if self.server_header.chars().any(char::is_control) {
            let found = "contains a control character, which a field value cannot contain";
            problems.push(problem("server_header", found));
        }
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
                problems.push(problem(&path, "PROXY headers are read of connections, not of datagrams"));
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

    /// Which listeners ask for an address that another one has; to be asked again where addresses are overridden.
    ///
    /// Where workers have sockets of their own the system would let both have it, and give each half of the
    /// connections.
    pub fn listener_problems(&self) -> Vec<Problem> {
        let (mut tcp, mut udp) = (Vec::new(), Vec::new());
        for (i, listen) in self.listen.iter().enumerate() {
            let path = format!("listen[{i}].address");
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
        [tcp, udp].into_iter().flat_map(used_twice).collect()
    }

    /// What is wrong with the admin listener. Whoever reaches it writes the configuration, so an address
    /// beyond the loopback needs TLS and keys; to be asked again where the address is overridden.
    pub fn admin_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let AdminConfig { listen, tls, keys, .. } = &self.admin;
        if tls.certificate.is_empty() != tls.key.is_empty() {
            let found = "a certificate and a key belong together: only one of them is set";
            problems.push(problem("admin.tls", found));
        }
        for (i, key) in keys.iter().enumerate() {
            if keys[..i].iter().any(|other| other.name == key.name) {
                let found = format!("the name \"{}\" is used twice", key.name);
                problems.push(problem(&format!("admin.keys[{i}].name"), found));
            }
        }
        if let Ok(address) = listen.parse() {
            problems.extend(self.admin_exposure_problems(address));
        }
        problems
    }

    /// What is wrong with an admin listener at this address; to be asked of the address a socket really has, which
    /// a service manager may have bound elsewhere.
    pub fn admin_exposure_problems(&self, address: SocketAddr) -> Vec<Problem> {
        let mut problems = Vec::new();
        if address.ip().is_loopback() {
            return problems;
        }
        if !self.admin.key_required {
            let found = format!("\"{address}\" can be reached by others, so keys cannot be switched off");
            let hint = "listen on 127.0.0.1, or set admin.key_required to true";
            problems.push(problem("admin.key_required", found).hint(hint));
        }
        if !self.admin.tls.is_on() {
            let found =
                format!("\"{address}\" can be reached by others, so keys must not cross it in the clear");
            problems
                .push(problem("admin.tls", found).hint("listen on 127.0.0.1, or set certificate and key"));
        }
        problems
    }
}

/// Port 0 is another port each time.
fn used_twice(listeners: Vec<(String, &String)>) -> Vec<Problem> {
    let mut first: HashMap<SocketAddr, String> = HashMap::new();
    let mut problems = Vec::new();
    for (path, written) in listeners {
        let Ok(address) = written.parse::<SocketAddr>() else { continue };
        match first.get(&address) {
            _ if address.port() == 0 => {}
            Some(other) => {
                problems.push(problem(&path, format!("{other} has the address {address} already")))
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

/// `Host` may hold underscores, as names in Docker Compose do.
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
    Problem::error("yumen.yaml", path, message)
}

/// A section whose lines are all commented out is written `section:`, which YAML reads as null.
fn drop_empty_sections(schema: &Value, value: &mut Value) {
    let (Some(properties), Some(members)) = (schema["properties"].as_object(), value.as_object_mut()) else {
        return;
    };
    members.retain(|name, member| !(member.is_null() && properties.contains_key(name)));
    for (name, member) in members {
        drop_empty_sections(&properties.get(name).cloned().unwrap_or_default(), member);
    }
}

/// Takes out all unknown fields, so that each is told and none hides another fault.
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
