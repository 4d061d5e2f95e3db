//! Node settings: `yumen.yaml`, overridden by the command line, converted to the settings of the data plane.

mod args;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use yumen_base::{IpSet, Problem};
use yumen_config::node::{
    self, DotSegments, EncodedSlashes, ListenerConfig, StoreKind, StreamListenerConfig,
};
use yumen_config::{NodeConfig, document};
use yumen_plugin::DirectoryAccess;
use yumen_proxy::debug::DebugKey;
use yumen_proxy::settings::{
    DotSegmentPolicy, DownstreamTimeouts, EncodedSlashPolicy, ForwardingSettings, Http2Settings,
    Http3Settings, ListenSocketOptions, ObservationSettings, PathPolicy, RealIpFinder, SESSION_KEY_BYTES,
    SessionKeys, StreamSettings, WorkerLimits,
};
use yumen_proxy::{
    ListenerProtocol, ListenerSettings, MinimumRate, OverloadSettings, StreamProtocol, WorkerSettings,
};

use crate::diagnostics::{ConfigProblems, ExitStatus, SourceText, has_colors, render};
pub(crate) use args::{GatewayRunArgs, NodeFile, listen_address};

/// Node settings from `yumen.yaml` and the command line.
pub(crate) fn load(args: &GatewayRunArgs) -> anyhow::Result<NodeConfig> {
    let mut node = read(args.config.as_deref())?;
    if let Some(file) = &args.file {
        node.store.kind = StoreKind::File;
        node.store.file = file.display().to_string();
    }
    if args.kubernetes {
        node.store.kind = StoreKind::Kubernetes;
    }
    if let Some(kubeconfig) = &args.kubeconfig {
        node.kubernetes.kubeconfig = kubeconfig.display().to_string();
    }
    node.kubernetes.ingress.take_over |= args.take_over;
    if let Some(dir) = &args.data_dir {
        node.store.data_dir = dir.display().to_string();
    }
    if let Some(count) = args.workers {
        node.workers.count = count;
    }
    replace_listeners(&mut node.listen, &args.listen, false);
    replace_listeners(&mut node.listen, &args.listen_tls, true);
    if let Some(admin) = args.admin {
        node.admin.listen = admin.to_string();
    }
    if let Some(status) = args.status {
        node.status.listen = status.to_string();
    }
    // After the command line has been applied, which may open an address.
    refuse_unusable(&node)?;
    Ok(node)
}

/// Fails if the gateway cannot listen with these settings.
pub(crate) fn refuse_unusable(node: &NodeConfig) -> anyhow::Result<()> {
    refuse_admin(&node.admin_problems())?;
    if let Some(problem) = node.listener_problems().first() {
        bail!("two listeners cannot have one address: {problem}");
    }
    if let Some(problem) = node.absence_of_listeners() {
        bail!("there is nothing to listen on: give --listen or --listen-tls\n{problem}");
    }
    Ok(())
}

/// Node settings from `yumen.yaml`; the defaults without a path.
pub(crate) fn read(path: Option<&Path>) -> anyhow::Result<NodeConfig> {
    let Some(path) = path else { return Ok(NodeConfig::default()) };
    let source = SourceText::read(path)?;
    NodeConfig::parse(&source.text).map_err(|mut problems| {
        document::locate_members(&source.name, &source.text, &mut problems);
        anyhow::Error::new(source.refuse(&problems))
    })
}

/// Fails on the problems of the admin listener, if any.
pub(crate) fn refuse_admin(problems: &[Problem]) -> anyhow::Result<()> {
    match problems.is_empty() {
        true => Ok(()),
        false => {
            let rendered = render(problems, None, has_colors(&std::io::stderr()));
            bail!(ConfigProblems { status: ExitStatus::Problems, problems: problems.to_vec(), rendered })
        }
    }
}

fn replace_listeners(listen: &mut Vec<ListenerConfig>, addresses: &[SocketAddr], tls: bool) {
    if addresses.is_empty() {
        return;
    }
    // The command line replaces the listeners of its kind and keeps the others.
    listen.retain(|listen| listen.tls != tls);
    let added = addresses.iter().map(|address| ListenerConfig {
        address: address.to_string(),
        tls,
        ..ListenerConfig::default()
    });
    listen.extend(added);
}

/// Number of workers; 0 in the settings means one per allowed CPU.
pub(crate) fn workers(node: &NodeConfig, allowed_cpus: usize) -> usize {
    match node.workers.count {
        0 => allowed_cpus.max(1),
        count => count as usize,
    }
}

/// HTTP listeners, in the configured order.
pub(crate) fn listeners(node: &NodeConfig) -> anyhow::Result<Vec<ListenerSettings>> {
    let read = |listen: &ListenerConfig| {
        Ok(ListenerSettings {
            address: address(&listen.address)?,
            protocol: match listen.tls {
                true => ListenerProtocol::Https { http3: listen.http3 },
                false => ListenerProtocol::Http,
            },
            proxy_from: networks("listen.proxy_protocol_from", &listen.proxy_protocol_from)?,
            socket: ListenSocketOptions {
                // The kernel caps the value at `somaxconn`.
                backlog: i32::try_from(listen.backlog).unwrap_or(i32::MAX),
                reuse_port: listen.reuse_port,
                defer_accept: listen.defer_accept,
            },
        })
    };
    node.listen.iter().map(read).collect()
}

/// Stream listeners, in the configured order.
pub(crate) fn stream_listeners(node: &NodeConfig) -> anyhow::Result<Vec<ListenerSettings>> {
    let read = |listen: &StreamListenerConfig| {
        Ok(ListenerSettings {
            address: address(&listen.address)?,
            protocol: ListenerProtocol::Stream(match listen.protocol {
                node::StreamListenerProtocol::Tcp => StreamProtocol::Tcp,
                node::StreamListenerProtocol::Tls => StreamProtocol::Tls,
                node::StreamListenerProtocol::TlsPassthrough => StreamProtocol::TlsPassthrough,
                node::StreamListenerProtocol::Udp => StreamProtocol::Udp,
            }),
            proxy_from: networks("stream_listen.proxy_protocol_from", &listen.proxy_protocol_from)?,
            socket: ListenSocketOptions {
                backlog: i32::try_from(listen.backlog).unwrap_or(i32::MAX),
                reuse_port: listen.reuse_port,
                // In some protocols the server sends first, so accept must not wait for data of the client.
                defer_accept: false,
            },
        })
    };
    node.stream_listen.iter().map(read).collect()
}

fn networks(path: &str, written: &[String]) -> anyhow::Result<IpSet> {
    IpSet::parse(written.iter().map(String::as_str)).map_err(|error| anyhow::anyhow!("{path}: {error}"))
}

/// Parses `host:port`, and resolves the host.
pub(crate) fn address(text: &str) -> anyhow::Result<SocketAddr> {
    let mut found = text.to_socket_addrs().with_context(|| format!("`{text}` is not an address and port"))?;
    found.next().with_context(|| format!("`{text}` has no address"))
}

/// Settings of the workers.
pub(crate) fn settings(node: &NodeConfig) -> anyhow::Result<WorkerSettings> {
    let (limits, timeouts) = (&node.limits, &node.timeouts);
    let rate = |bytes_per_s| MinimumRate { bytes_per_s, window_ms: limits.rate_window_ms };
    Ok(WorkerSettings {
        limits: WorkerLimits {
            request_head: yumen_proxy::settings::HeadLimits {
                // One policy for routing and forwarding (decision 51).
                paths: path_policy(node),
                ..head_limits(limits.head_bytes, limits)
            },
            response_head: response_head(limits),
            body_bytes_max: limits.body_bytes,
            backlog_bytes_max: limits.backlog_bytes_per_worker as usize,
            connections_max: limits.connections_per_worker as usize,
            body_rate: rate(limits.body_bytes_per_s),
            response_rate: rate(limits.answer_bytes_per_s),
        },
        timeouts: DownstreamTimeouts {
            handshake_ms: node.tls.handshake_ms,
            head_ms: timeouts.head_ms,
            body_ms: timeouts.body_ms,
            idle_ms: timeouts.idle_ms,
            half_closed_ms: timeouts.half_closed_ms,
            send_ms: timeouts.send_ms,
        },
        streams: StreamSettings {
            idle_ms: timeouts.stream_idle_ms,
            half_closed_ms: timeouts.stream_half_closed_ms,
            udp_idle_ms: timeouts.udp_idle_ms,
            udp_sessions_max: limits.udp_sessions_per_worker as usize,
        },
        forwarding: ForwardingSettings {
            server_line: server_line(&node.server_header),
            trusted: networks("trusted_addresses", &node.trusted_addresses)?,
            real_ip: real_ip(&node.real_ip)?,
            forwarded_field: node.forwarded_header,
            trace_requests: node.router.trace_requests,
        },
        observation: observation(&node.observe),
        http2: Http2Settings {
            enabled: node.http2.enabled,
            streams_max: node.http2.streams,
            stream_window_bytes: node.http2.stream_window_bytes,
            connection_window_bytes: node.http2.connection_window_bytes,
            upstream_window_bytes: node.http2.upstream_window_bytes,
            patience: node.http2.control_frames,
        },
        http3: Http3Settings {
            early_data: node.http3.early_data,
            streams_max: node.http3.streams,
            stream_window_bytes: node.http3.stream_window_bytes,
            connection_window_bytes: node.http3.connection_window_bytes,
        },
        overload: OverloadSettings {
            exchanges_max: node.overload.exchanges_per_worker,
            lag_ms: node.overload.lag_ms,
            spared_paths: node.overload.spared_paths.clone(),
            memory_full: None,
        },
        session_keys: Arc::new(SessionKeys::new(&session_keys(&node.store)?)),
        directories: DirectoryAccess::default(),
    })
}

/// The keys of sessions: derived from the keyring, so that nodes with one keyring share sessions and a restart keeps
/// them; random without a keyring.
fn session_keys(store: &node::StoreConfig) -> anyhow::Result<Vec<[u8; SESSION_KEY_BYTES]>> {
    let keys = yumen_store::derive_keys(Path::new(&store.data_dir), &store.keyring, "yumen session");
    if !keys.is_empty() {
        return Ok(keys);
    }
    let mut key = [0; SESSION_KEY_BYTES];
    getrandom::fill(&mut key).map_err(|error| anyhow::anyhow!("the system gives no randomness: {error}"))?;
    Ok(vec![key])
}

fn observation(observe: &node::ObserveConfig) -> ObservationSettings {
    let key = Some(&observe.debug_key).filter(|secret| !secret.is_empty());
    ObservationSettings {
        samples_per_second: observe.samples_per_second,
        recent_requests: observe.recent_requests as usize,
        debug_key: key.map(|secret| DebugKey::new(secret.as_bytes())),
    }
}

/// Alt-Svc field line that advertises HTTP/3 on a listener bound to this port (RFC 7838 §3).
pub(crate) fn alt_svc_line(settings: &node::Http3Config, bound_port: u16) -> Option<Vec<u8>> {
    let port = if settings.advertised_port == 0 { bound_port } else { settings.advertised_port };
    let age_s = settings.alt_svc_max_age_s;
    (age_s > 0).then(|| format!("Alt-Svc: h3=\":{port}\"; ma={age_s}\r\n").into_bytes())
}

fn real_ip(settings: &yumen_config::node::RealIpConfig) -> anyhow::Result<Option<RealIpFinder>> {
    if settings.from.is_empty() {
        return Ok(None);
    }
    let from = IpSet::parse(settings.from.iter().map(String::as_str))
        .map_err(|error| anyhow::anyhow!("real_ip.from: {error}"))?;
    Ok(Some(RealIpFinder::new(&settings.source, Some(from), settings.recursive)))
}

fn server_line(value: &str) -> Vec<u8> {
    let mut line = Vec::new();
    if !value.is_empty() {
        yumen_proxy::settings::write_line(&mut line, b"Server", value.as_bytes());
    }
    line
}

/// Response limits. A lower `limits.fields` protects against clients and does not apply to endpoints.
fn response_head(limits: &yumen_config::node::LimitsConfig) -> yumen_proxy::settings::HeadLimits {
    let usual = yumen_config::node::LimitsConfig::default().fields.max(limits.fields);
    yumen_proxy::settings::HeadLimits {
        fields_max: usual as usize,
        ..head_limits(limits.response_head_bytes, limits)
    }
}

fn head_limits(
    head_bytes: u32,
    limits: &yumen_config::node::LimitsConfig,
) -> yumen_proxy::settings::HeadLimits {
    yumen_proxy::settings::HeadLimits {
        head_bytes_max: (head_bytes as usize).min(yumen_proxy::settings::HEAD_BYTES_MAX),
        target_bytes_max: limits.target_bytes as usize,
        fields_max: limits.fields as usize,
        paths: PathPolicy::default(),
    }
}

/// Normalization rules of request paths.
pub(crate) fn path_policy(node: &NodeConfig) -> PathPolicy {
    PathPolicy {
        dot_segments: match node.router.dot_segments {
            DotSegments::Resolve => DotSegmentPolicy::Resolve,
            DotSegments::Refuse => DotSegmentPolicy::Refuse,
            DotSegments::AsReceived => DotSegmentPolicy::AsReceived,
        },
        encoded_slashes: match node.router.encoded_slashes {
            EncodedSlashes::Auto if node.serves_ingresses() => EncodedSlashPolicy::Separate,
            EncodedSlashes::Auto | EncodedSlashes::Keep => EncodedSlashPolicy::Keep,
            EncodedSlashes::Separate => EncodedSlashPolicy::Separate,
            EncodedSlashes::Refuse => EncodedSlashPolicy::Refuse,
        },
    }
}
