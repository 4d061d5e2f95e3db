//! Builds upstreams: endpoints, checks, balancer, protection.

mod endpoint_tls;
mod proxied;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use yumen_base::Problem;
use yumen_base::local_address::is_local_address;
use yumen_config::resource as config;
use yumen_config::{InvalidSettings, Kind, decode};
use yumen_http::proxy_protocol::ProxyVersion;

use super::context::CompileContext;
use super::names::ObjectName;
use super::tables::{DiscoveryQuery, ExternalInputs, ObjectTexts, UpstreamDependencies, UpstreamSlots};
use super::{Compiler, invalid};
use crate::balance::{Balancer, EndpointStart, PolicyContext, PreviousEndpoints, SlowStart};
use crate::endpoint::{Endpoint, EndpointHealth, EndpointState};
use crate::upstream::{
    ActiveChecks, AttemptTimeouts, EndpointSelection, EndpointTls, HealthChecks, HostRewrite,
    KeepaliveLimits, PassiveChecks, ProbeKind, ProbeMessage, RetryPolicy, TunnelPolicy, Upstream,
    UpstreamProtocol, UpstreamScheme, UpstreamSlotId, UpstreamStreamSettings, UpstreamTls, UpstreamTunnel,
};

pub(super) use endpoint_tls::check_tls;
use endpoint_tls::tls_identity;
pub(super) use proxied::through_proxy;

/// Ten years: longer than any process runs, and safe to add to any point in time.
const MILLIS_MAX: f64 = 10.0 * 365.0 * 86_400_000.0;

/// Seconds in milliseconds, rounded up so that only 0 becomes 0, and at most [`MILLIS_MAX`].
pub(super) fn millis(seconds: f64) -> u64 {
    (seconds * 1000.0).ceil().clamp(0.0, MILLIS_MAX) as u64
}

pub(super) fn timeouts(written: &config::TimeoutSpec) -> AttemptTimeouts {
    AttemptTimeouts {
        // A timeout of zero would fail every attempt; only `total` and `attempt` have a way to mean "none".
        connect_ms: millis(written.connect).max(1),
        send_ms: millis(written.send).max(1),
        read_ms: millis(written.read).max(1),
        total_ms: written.total.map_or(0, |seconds| millis(seconds).max(1)),
        attempt_ms: written.attempt.map_or(0, |seconds| millis(seconds).max(1)),
    }
}

/// The `on_change` of a route or an upstream.
pub(super) fn on_change(written: config::OnChangeSpec) -> TunnelPolicy {
    match written {
        config::OnChangeSpec::Keep => TunnelPolicy::Keep,
        config::OnChangeSpec::Close => TunnelPolicy::EndAfter(0),
        config::OnChangeSpec::Drain(seconds) => TunnelPolicy::EndAfter(millis(seconds)),
    }
}

/// A warning if a part of the traffic gets no PROXY header although `proxy_protocol` is set.
pub(super) fn ignored_proxy_protocol(
    name: &ObjectName,
    path: &str,
    written: Option<&config::UpstreamSpec>,
) -> Option<Problem> {
    let written = written.filter(|one| one.proxy_protocol.is_some())?;
    let is_of_streams = name.kind == Kind::StreamRoutes
        || matches!(written.scheme, config::SchemeSpec::Tcp | config::SchemeSpec::Tls);
    let (message, hint) = if written.scheme == config::SchemeSpec::Udp {
        ("a PROXY header is not sent to UDP endpoints", "take it out, or pass the client on over TCP")
    } else if written.checks.is_some() && !is_of_streams {
        (
            "streams begin with a PROXY header, requests do not, and so neither do the checks of an upstream of both",
            "give it `scheme: tcp` where only stream routes use it",
        )
    } else {
        return None;
    };
    Some(Problem::warning(name.to_string(), path, message).hint(hint))
}

/// A warning about an upstream whose scheme this version does not serve. It has no endpoints, so requests for it get
/// 503; the object is accepted as in APISIX.
pub(super) fn unserved_scheme(
    name: &ObjectName,
    path: &str,
    written: Option<&config::UpstreamSpec>,
) -> Option<Problem> {
    written.filter(|one| one.scheme == config::SchemeSpec::Kafka)?;
    let message = "the scheme kafka is not served in this version: requests for this upstream get 503";
    let hint = "requests need http, https, grpc or grpcs; streams need tcp, tls or udp";
    Some(Problem::warning(name.to_string(), path, message).hint(hint))
}

fn checks(written: &config::HealthCheckSpec, of: &config::UpstreamSpec, is_of_streams: bool) -> HealthChecks {
    let active = &written.active;
    let path: Box<str> = active.http_path.as_str().into();
    // Probes send the `Host` that requests send.
    let rewritten = || of.upstream_host.as_deref().filter(|_| of.pass_host == config::PassHostMode::Rewrite);
    let host = active.host.as_deref().or_else(rewritten).map(Box::from);
    let fields = active.probe_fields().map(|(name, value)| (Box::from(name), Box::from(value))).collect();
    let grpc = |verify| ProbeKind::Grpc {
        host: host.clone(),
        service: active.grpc_service.as_deref().unwrap_or_default().into(),
        verify,
    };
    let is_grpc = matches!(active.kind, config::CheckType::Grpc | config::CheckType::Grpcs);
    let probe = match active.kind {
        config::CheckType::Grpc => grpc(None),
        config::CheckType::Grpcs => grpc(Some(active.https_verify_certificate)),
        config::CheckType::Tcp => ProbeKind::Tcp,
        config::CheckType::Http => ProbeKind::Http { path, host, fields },
        config::CheckType::Https => {
            ProbeKind::Https { path, host, fields, verify: active.https_verify_certificate }
        }
    };
    let passive = written.passive.as_ref().map(|passive| PassiveChecks {
        healthy_statuses: passive.healthy.http_statuses.as_slice().into(),
        successes: passive.healthy.successes.into(),
        unhealthy_statuses: passive.unhealthy.http_statuses.as_slice().into(),
        http_failures: passive.unhealthy.http_failures.into(),
        tcp_failures: passive.unhealthy.tcp_failures.into(),
        timeouts: passive.unhealthy.timeouts.into(),
    });
    let message =
        ProbeMessage { method: active.http_method.as_str(), body: active.http_req_body.as_str().into() };
    let active = ActiveChecks {
        probe,
        message,
        port: active.port,
        proxy_protocol: proxy_protocol(of).filter(|_| is_of_streams),
        timeout_ms: millis(active.timeout),
        healthy_interval_ms: u64::from(active.healthy.interval) * 1000,
        // The health service of gRPC has two states, which probes report as 200 and 503.
        healthy_statuses: if is_grpc { [200].into() } else { active.healthy.http_statuses.as_slice().into() },
        successes: active.healthy.successes.into(),
        unhealthy_interval_ms: u64::from(active.unhealthy.interval) * 1000,
        unhealthy_statuses: if is_grpc {
            [503].into()
        } else {
            active.unhealthy.http_statuses.as_slice().into()
        },
        http_failures: active.unhealthy.http_failures.into(),
        tcp_failures: active.unhealthy.tcp_failures.into(),
        timeouts: active.unhealthy.timeouts.into(),
    };
    HealthChecks { active, passive }
}

fn bare_host(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Names among nodes that are not addresses.
fn host_names(nodes: &[config::UpstreamNode]) -> impl Iterator<Item = &str> {
    // Addresses need no resolver.
    nodes.iter().map(|node| bare_host(&node.host)).filter(|host| host.parse::<IpAddr>().is_err())
}

impl Compiler {
    /// Builds the upstream of an object and puts it into its slot. `path` is the place of the upstream in the object. An
    /// error leaves the slot as it was.
    pub(super) fn assign_upstream(
        &mut self,
        owner: &ObjectName,
        written: &config::UpstreamSpec,
        path: &str,
    ) -> Result<UpstreamSlotId, Problem> {
        self.assign_upstream_through(owner, written, path, None)
    }

    /// [`Compiler::assign_upstream`] whose endpoints are proxies, if `tunnel` is set.
    pub(super) fn assign_upstream_through(
        &mut self,
        owner: &ObjectName,
        written: &config::UpstreamSpec,
        path: &str,
        tunnel: Option<Arc<UpstreamTunnel>>,
    ) -> Result<UpstreamSlotId, Problem> {
        let builder = self.upstream_builder();
        let built = builder
            .build_through(owner, written, tunnel)
            .map_err(|error| invalid(owner, if path.is_empty() { error } else { error.under(path) }))?;
        let dependencies = builder.dependencies(written);
        // Registered only after a successful build: the upstream in force still needs the inputs of its own text.
        self.set_dependencies(owner, dependencies);
        // Bounds are in the limiter, not in the snapshot, so that queued requests follow the newest ones.
        self.apply_bounds(&built);
        Ok(self.upstreams.assign(owner, built))
    }

    /// Removes the upstream of an object.
    pub(super) fn remove_upstream(&mut self, owner: &ObjectName) {
        self.set_dependencies(owner, UpstreamDependencies::default());
        self.upstreams.remove(owner);
    }

    fn set_dependencies(&mut self, owner: &ObjectName, dependencies: UpstreamDependencies) {
        let certificate = dependencies.certificate.clone();
        let previous = self.inputs.set_dependencies(owner, dependencies);
        let ssl = |id| ObjectName::new(Kind::Ssls, id);
        self.references.remove_all(previous.map(ssl), owner);
        self.references.add_all(certificate.map(ssl), owner);
    }

    /// Builds an upstream again from the text of its object, after an object or input that it refers to changed.
    pub(super) fn rebuild_upstream(&mut self, owner: &ObjectName) -> Result<(), Problem> {
        // An upstream inside plugin settings has no object of its own whose text could be read.
        if let Some(written) = self.bindings.inline(owner).cloned() {
            return self.assign_upstream_through(owner, &written.spec, "", written.tunnel).map(drop);
        }
        // The text in force and not the newest: a broken text must not take its upstream into force.
        let Some(json) = self.texts.in_force(owner) else { return Ok(()) };
        let (upstream, path) = match owner.kind {
            Kind::Upstreams => (decode::<config::UpstreamSpec>(json).ok(), ""),
            Kind::Services => {
                (decode::<config::ServiceSpec>(json).ok().and_then(|one| one.upstream), "upstream")
            }
            Kind::StreamRoutes => {
                (decode::<config::StreamRouteSpec>(json).ok().and_then(|one| one.upstream), "upstream")
            }
            _ => (decode::<config::RouteSpec>(json).ok().and_then(|one| one.upstream), "upstream"),
        };
        match upstream {
            Some(upstream) => self.assign_upstream(owner, &upstream, path).map(drop),
            None => Ok(()),
        }
    }

    pub(super) fn upstream_builder(&self) -> UpstreamBuilder<'_> {
        let Compiler { context, inputs, texts, upstreams, .. } = self;
        UpstreamBuilder { context, inputs, texts, slots: upstreams }
    }
}

/// Builds upstreams from their text, the inputs from outside, and the certificates in force.
#[derive(Clone, Copy)]
pub(super) struct UpstreamBuilder<'c> {
    pub(super) context: &'c CompileContext,
    inputs: &'c ExternalInputs,
    texts: &'c ObjectTexts,
    pub(super) slots: &'c UpstreamSlots,
}

impl UpstreamBuilder<'_> {
    /// Builds the upstream of an object. Nothing is in force until it is placed.
    pub(super) fn build(
        &self,
        owner: &ObjectName,
        written: &config::UpstreamSpec,
    ) -> Result<Upstream, InvalidSettings> {
        self.build_through(owner, written, None)
    }

    /// [`UpstreamBuilder::build`] whose endpoints are proxies, if `tunnel` is set.
    pub(super) fn build_through(
        &self,
        owner: &ObjectName,
        written: &config::UpstreamSpec,
        tunnel: Option<Arc<UpstreamTunnel>>,
    ) -> Result<Upstream, InvalidSettings> {
        let scheme = scheme(written);
        let tls = self.tls(written.tls.as_ref())?;
        let origin: Arc<str> = owner.to_string().into();
        // Only streams begin with a PROXY header. An HTTP endpoint of the same upstream would reject a probe with one.
        let is_of_streams =
            owner.kind == Kind::StreamRoutes || matches!(scheme, UpstreamScheme::Tcp | UpstreamScheme::Tls);
        let checks =
            written.checks.as_ref().map(|of_checks| Arc::new(checks(of_checks, written, is_of_streams)));
        let previous = self.slots.upstream_of(owner);
        let mut naming = CarryNaming::new(scheme, &tls, checks.as_deref(), previous);
        naming.separate(tunnel.as_deref());
        let ResolvedEndpoints { mut endpoints, unresolved } = self.endpoints(written, &naming, previous);
        let protection = self.protection(written, &origin, &mut endpoints);
        let mut balancer = self.balancer(written, &origin, &endpoints);
        let slow_start = self.slow_start(written, &origin, &endpoints, previous);
        if slow_start.is_some() {
            // A balancer that picks without the pool cannot respect the growing share.
            balancer.require_pool();
        }
        let retry = RetryPolicy {
            // The default of APISIX: every other endpoint is tried once.
            retries_max: written.retries.unwrap_or((endpoints.len() as u32).saturating_sub(1)),
            timeout_ms: millis(written.retry_timeout.unwrap_or(0.0)),
            grpc_statuses: written.grpc_retry_statuses.as_deref().unwrap_or_default().into(),
        };
        let streams = UpstreamStreamSettings {
            idle_ms: written.timeout.as_ref().map(timeouts).map(|all| all.send_ms.max(all.read_ms)),
            proxy_protocol: proxy_protocol(written),
        };
        let defaults = &self.context.env.defaults;
        Ok(Upstream {
            origin,
            // Assigned when the upstream is placed.
            slot: UpstreamSlotId(u32::MAX),
            protocol: UpstreamProtocol { scheme, http2: is_http2(written), tunnel },
            endpoints,
            unresolved,
            selection: EndpointSelection { balancer, slow_start },
            pass_host: pass_host(written),
            timeouts: written.timeout.as_ref().map_or(defaults.timeouts, timeouts),
            retry,
            keepalive: written.keepalive_pool.map_or(defaults.keepalive, keepalive),
            tls: EndpointTls { settings: tls, client: OnceLock::new() },
            streams,
            checks,
            protection,
            on_change: written.on_change.map(on_change).unwrap_or_default(),
        })
    }

    fn balancer(&self, written: &config::UpstreamSpec, origin: &str, endpoints: &[Endpoint]) -> Balancer {
        let CompileContext { env, carry, no_turns, .. } = self.context;
        let workers = env.workers;
        Balancer::build(&PolicyContext { written, origin, endpoints, workers, carry, no_turns })
    }

    fn slow_start(
        &self,
        written: &config::UpstreamSpec,
        origin: &str,
        endpoints: &[Endpoint],
        previous: Option<&Upstream>,
    ) -> Option<Box<SlowStart>> {
        let window_ms = written.slow_start_ms?;
        let start_of = |endpoint: &Endpoint| {
            // Address and host identify an endpoint; its index changes with the configuration.
            let name = format!("slow start {origin} {} {}", endpoint.addr, endpoint.host);
            self.context.carry.get_or_create_portable(&name, EndpointStart::default)
        };
        let previous = previous.map(|upstream| PreviousEndpoints {
            endpoints: &upstream.endpoints,
            slow_start: upstream.selection.slow_start.as_deref(),
        });
        Some(Box::new(SlowStart::new(window_ms, endpoints, previous, start_of)))
    }

    /// The nodes of an upstream, as written or as discovered.
    fn nodes<'u>(&'u self, written: &'u config::UpstreamSpec) -> &'u [config::UpstreamNode] {
        match &written.nodes {
            Some(nodes) => &nodes.0,
            None => {
                DiscoveryQuery::of(written).map_or(&[], |service| self.inputs.services().nodes_of(&service))
            }
        }
    }

    /// The inputs that an upstream requires beside its text.
    fn dependencies(&self, written: &config::UpstreamSpec) -> UpstreamDependencies {
        UpstreamDependencies {
            hosts: host_names(self.nodes(written)).map(Box::from).collect(),
            excluding_local: self
                .nodes(written)
                .iter()
                .filter(|node| node.excludes_local)
                .map(|node| bare_host(&node.host).into())
                .collect(),
            service: DiscoveryQuery::of(written),
            certificate: written.tls.as_ref().and_then(|tls| Some(tls.client_cert_id.as_ref()?.0.clone())),
        }
    }

    /// The endpoints of an upstream, as far as their addresses are known.
    fn endpoints(
        &self,
        written: &config::UpstreamSpec,
        naming: &CarryNaming<'_>,
        previous: Option<&Upstream>,
    ) -> ResolvedEndpoints {
        // See `unserved_scheme`: no broker understands requests over HTTP.
        if written.scheme == config::SchemeSpec::Kafka {
            return ResolvedEndpoints { endpoints: Box::default(), unresolved: Box::default() };
        }
        let nodes = self.nodes(written);
        let hosts = host_names(nodes).filter(|host| self.inputs.hosts().addresses_of(host).is_none());
        let service =
            DiscoveryQuery::of(written).and_then(|service| self.inputs.services().label_if_unknown(&service));
        let unresolved: Box<[Box<str>]> = hosts.map(Box::from).chain(service).collect();
        let found: Box<[Endpoint]> = nodes.iter().flat_map(|node| self.endpoints_of(node, naming)).collect();
        let endpoints = match previous.filter(|_| found.is_empty() && !unresolved.is_empty()) {
            // Requests go to the previous endpoints until the first address of the new ones is known.
            Some(previous) => {
                previous.endpoints.iter().map(|one| self.endpoint(one.into(), naming)).collect()
            }
            None => found,
        };
        ResolvedEndpoints { endpoints, unresolved }
    }

    fn endpoints_of(&self, node: &config::UpstreamNode, naming: &CarryNaming<'_>) -> Vec<Endpoint> {
        let host = bare_host(&node.host);
        let mut addresses: Vec<IpAddr> = match host.parse() {
            Ok(address) => vec![address],
            Err(_) => self.inputs.hosts().addresses_of(host).unwrap_or_default().to_vec(),
        };
        if node.excludes_local {
            addresses.retain(|address| !is_local_address(*address));
        }
        // Discovery may return no port, and TCP and UDP have no default one.
        let port = if node.port == 0 { naming.default_port } else { node.port };
        // An endpoint without a port cannot be connected to; other nodes of the upstream still serve.
        if port == 0 {
            return Vec::new();
        }
        // The default port is omitted, as in the normal form of a URI (RFC 9110 §4.2.3).
        let authority = match naming.default_port == port {
            true => node.host.clone(),
            false => format!("{}:{port}", node.host),
        };
        let located = |address| EndpointAddress {
            addr: SocketAddr::new(address, port),
            authority: &authority,
            host,
            weight: node.weight,
            priority: node.priority,
        };
        addresses.into_iter().map(|address| self.endpoint(located(address), naming)).collect()
    }

    fn endpoint(&self, address: EndpointAddress<'_>, naming: &CarryNaming<'_>) -> Endpoint {
        let EndpointAddress { addr, authority, host, weight, priority } = address;
        let carry = &self.context.carry;
        let state = format!("endpoint {} {addr} {host} {}", naming.scheme, naming.tls);
        let health = naming.checks.as_ref().map(|checks| {
            // New checks start from the previous verdict: a change of an interval must not revive a dead endpoint.
            let is_up = || !naming.down.contains(&(addr, host));
            // The settings of the checks are part of the name, since counts under other thresholds have another meaning.
            let name = format!("health {addr} {host} {checks}");
            carry.get_or_create_portable(&name, || EndpointHealth::new(is_up()))
        });
        Endpoint {
            addr,
            authority: authority.into(),
            host: host.into(),
            weight,
            priority,
            state: carry.get_or_create_portable(&state, EndpointState::new),
            health,
            outlier: None,
        }
    }
}

/// The endpoints of an upstream, and the inputs that are missing for the rest.
struct ResolvedEndpoints {
    endpoints: Box<[Endpoint]>,
    /// Host names without addresses, and the service if no nodes of it are known.
    unresolved: Box<[Box<str>]>,
}

/// The address of an endpoint, and its share in the upstream.
struct EndpointAddress<'p> {
    addr: SocketAddr,
    authority: &'p str,
    host: &'p str,
    weight: u32,
    priority: i32,
}

impl<'p> From<&'p Endpoint> for EndpointAddress<'p> {
    fn from(of: &'p Endpoint) -> EndpointAddress<'p> {
        EndpointAddress {
            addr: of.addr,
            authority: &of.authority,
            host: &of.host,
            weight: of.weight,
            priority: of.priority,
        }
    }
}

/// Parts of the names of carried state, beside the endpoint itself. State is shared by endpoints of the same name.
struct CarryNaming<'b> {
    scheme: &'static str,
    default_port: u16,
    tls: String,
    checks: Option<String>,
    /// Endpoints that are down by the previous checks. New checks begin with that state.
    down: HashSet<(SocketAddr, &'b str)>,
}

impl<'b> CarryNaming<'b> {
    fn new(
        scheme: UpstreamScheme,
        tls: &UpstreamTls,
        checks: Option<&HealthChecks>,
        previous: Option<&'b Upstream>,
    ) -> CarryNaming<'b> {
        let default_port = match scheme {
            UpstreamScheme::Tcp | UpstreamScheme::Tls | UpstreamScheme::Udp => 0,
            _ if scheme.is_tls() => 443,
            _ => 80,
        };
        // Probes over TLS use the certificates of the upstream, so results under other certificates are not comparable.
        let probe_tls = |checks: &HealthChecks| match checks.active.probe {
            ProbeKind::Https { .. } | ProbeKind::Grpc { verify: Some(_), .. } => {
                format!("{:032x}", tls_identity(tls))
            }
            ProbeKind::Http { .. } | ProbeKind::Tcp | ProbeKind::Grpc { verify: None, .. } => String::new(),
        };
        let checks = checks.map(|checks| format!("{checks:?} {}", probe_tls(checks)));
        // Without TLS the settings do not matter, and equal endpoints share their state.
        let tls = if scheme.is_tls() { format!("{:032x}", tls_identity(tls)) } else { String::new() };
        let is_down = |endpoint: &&Endpoint| endpoint.health.as_ref().is_some_and(|health| !health.is_up());
        // Without checks, health is not looked at.
        let down = previous.filter(|_| checks.is_some()).into_iter().flat_map(|upstream| &upstream.endpoints);
        let down = down.filter(is_down).map(|endpoint| (endpoint.addr, &*endpoint.host)).collect();
        CarryNaming { scheme: scheme.name(), default_port, tls, checks, down }
    }

    /// Gives endpoints behind a tunnel a state of their own: their pooled connections lead to one server, with the
    /// rights of one authorization.
    fn separate(&mut self, tunnel: Option<&UpstreamTunnel>) {
        if let Some(tunnel) = tunnel {
            let mut hasher = DefaultHasher::new();
            tunnel.hash(&mut hasher);
            self.tls.push_str(&format!(" through {:016x}", hasher.finish()));
        }
    }
}

fn scheme(written: &config::UpstreamSpec) -> UpstreamScheme {
    match written.scheme {
        config::SchemeSpec::Http => UpstreamScheme::Http,
        config::SchemeSpec::Https => UpstreamScheme::Https,
        config::SchemeSpec::Grpc => UpstreamScheme::Grpc,
        config::SchemeSpec::Grpcs => UpstreamScheme::Grpcs,
        config::SchemeSpec::Tls => UpstreamScheme::Tls,
        config::SchemeSpec::Udp => UpstreamScheme::Udp,
        // An upstream of Kafka has no endpoints here, so its scheme does not matter.
        config::SchemeSpec::Tcp | config::SchemeSpec::Kafka => UpstreamScheme::Tcp,
    }
}

/// Whether requests go over HTTP/2. gRPC always does.
fn is_http2(written: &config::UpstreamSpec) -> bool {
    written.http_version == Some(config::UpstreamHttpVersion::V2)
        || matches!(written.scheme, config::SchemeSpec::Grpc | config::SchemeSpec::Grpcs)
}

/// The PROXY header of stream connections to endpoints. Datagrams have none.
fn proxy_protocol(written: &config::UpstreamSpec) -> Option<ProxyVersion> {
    written.proxy_protocol.filter(|_| written.scheme != config::SchemeSpec::Udp).map(
        |version| match version {
            config::ProxyProtocolSpec::V1 => ProxyVersion::V1,
            config::ProxyProtocolSpec::V2 => ProxyVersion::V2,
        },
    )
}

fn keepalive(pool: config::KeepalivePool) -> KeepaliveLimits {
    KeepaliveLimits {
        size: pool.size,
        // 0 disables the timeout.
        idle_timeout_ms: if pool.idle_timeout == 0.0 { u64::MAX } else { millis(pool.idle_timeout) },
        requests: pool.requests.into(),
    }
}

fn pass_host(written: &config::UpstreamSpec) -> HostRewrite {
    match written.pass_host {
        config::PassHostMode::Pass => HostRewrite::Pass,
        config::PassHostMode::Node => HostRewrite::Node,
        config::PassHostMode::Rewrite => {
            // The schema requires `upstream_host` in this mode.
            HostRewrite::Rewrite(written.upstream_host.as_deref().unwrap_or_default().into())
        }
    }
}

#[cfg(test)]
mod tests;
