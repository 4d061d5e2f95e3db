//! Upstreams as users write them, turned into endpoints, checks and a balancer.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use yumen_base::Problem;
use yumen_config::resource as config;
use yumen_config::{Kind, decode};
use yumen_http::proxy_protocol::ProxyVersion;

use super::resolved::HostOwners;
use super::{Compiler, DiscoveryQuery, LoadCertificate, ObjectName, SetOfNames, certificate};
use crate::balance::{Balancer, EndpointStart, PolicyContext, SlowStart};
use crate::snapshot::{TunnelPolicy, UpstreamSlotId};
use crate::upstream::{
    ActiveChecks, AttemptTimeouts, Endpoint, EndpointHealth, EndpointState, HealthChecks, HostRewrite,
    KeepaliveLimits, PassiveChecks, ProbeKind, Upstream, UpstreamScheme, UpstreamTls,
};

/// Ten years are as good as for ever, and can be added to any time.
const MILLIS_MAX: f64 = 10.0 * 365.0 * 86_400_000.0;

/// Seconds as users write them, in milliseconds, never 0 unless written so; at most ten years.
pub(super) fn millis(seconds: f64) -> u64 {
    (seconds * 1000.0).ceil().clamp(0.0, MILLIS_MAX) as u64
}

pub(super) fn timeouts(written: &config::TimeoutSpec) -> AttemptTimeouts {
    AttemptTimeouts {
        connect_ms: millis(written.connect).max(1),
        send_ms: millis(written.send).max(1),
        read_ms: millis(written.read).max(1),
        total_ms: written.total.map_or(0, |seconds| millis(seconds).max(1)),
    }
}

/// What a route or an upstream says of tunnels.
pub(super) fn on_change(written: config::OnChangeSpec) -> TunnelPolicy {
    match written {
        config::OnChangeSpec::Keep => TunnelPolicy::Keep,
        config::OnChangeSpec::Close => TunnelPolicy::EndAfter(0),
        config::OnChangeSpec::Drain(seconds) => TunnelPolicy::EndAfter(millis(seconds)),
    }
}

/// What an upstream asks for and endpoints of datagrams do not get.
pub(super) fn untold(
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

fn checks(written: &config::HealthCheckSpec, of: &config::UpstreamSpec, is_of_streams: bool) -> HealthChecks {
    let active = &written.active;
    let path: Box<str> = active.http_path.as_str().into();
    // What endpoints are called by requests they are called by probes.
    let rewritten = || of.upstream_host.as_deref().filter(|_| of.pass_host == config::PassHostMode::Rewrite);
    let host = active.host.as_deref().or_else(rewritten).map(Box::from);
    let field = |line: &String| {
        let (name, value) = line.split_once(':')?;
        Some((Box::from(name.trim()), Box::from(value.trim())))
    };
    let fields = active.req_headers.iter().flatten().filter_map(field).collect();
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
    let active = ActiveChecks {
        probe,
        port: active.port,
        proxy_protocol: proxy_protocol(of).filter(|_| is_of_streams),
        timeout_ms: millis(active.timeout),
        healthy_interval_ms: u64::from(active.healthy.interval) * 1000,
        // A health service has no status of HTTP: it serves or it does not.
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

/// A number for TLS settings in the names of carried state; keys and certificates are not kept in names.
fn tls_identity(tls: &UpstreamTls) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, tls.verify, &tls.ca_pem, &tls.client).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

fn bare_host(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Names among nodes that are not addresses.
fn host_names(nodes: &[config::UpstreamNode]) -> impl Iterator<Item = &str> {
    nodes.iter().map(|node| bare_host(&node.host)).filter(|host| host.parse::<IpAddr>().is_err())
}

/// What an upstream depends on beside its text.
#[derive(Debug, Default)]
pub(super) struct UpstreamDependencies {
    pub(super) hosts: Vec<Box<str>>,
    pub(super) service: Option<DiscoveryQuery>,
    certificate: Option<Arc<str>>,
}

impl UpstreamDependencies {
    fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.service.is_none() && self.certificate.is_none()
    }
}

impl Compiler {
    /// Builds the upstream of an object into its slot. An error leaves the slot as it was.
    pub(super) fn place_upstream(
        &mut self,
        owner: &ObjectName,
        written: &config::UpstreamSpec,
        path: &str,
    ) -> Result<UpstreamSlotId, Problem> {
        let mut built = self.build_upstream(owner, written).map_err(|(at, message)| {
            let dot = if path.is_empty() { "" } else { "." };
            Problem::error(owner.to_string(), format!("{path}{dot}{at}"), message)
        })?;
        let links = UpstreamDependencies {
            hosts: host_names(self.nodes_of(written)).map(Box::from).collect(),
            service: DiscoveryQuery::of(written),
            certificate: written.tls.as_ref().and_then(|tls| Some(tls.client_cert_id.as_ref()?.0.clone())),
        };
        self.link_upstream(owner, links);
        let slot = *self.slots.entry(owner.clone()).or_insert_with(|| match self.free_slots.pop() {
            Some(free) => free,
            None => {
                self.upstreams.push_back(None);
                self.upstreams.len() as u32 - 1
            }
        });
        built.slot = UpstreamSlotId(slot);
        self.apply_bounds(&built);
        self.put_in_slot(slot, Some(Arc::new(built)));
        Ok(UpstreamSlotId(slot))
    }

    /// Empties the slot of an object that has no upstream any more.
    pub(super) fn remove_upstream(&mut self, owner: &ObjectName) {
        self.link_upstream(owner, UpstreamDependencies::default());
        if let Some(slot) = self.slots.remove(owner) {
            self.put_in_slot(slot, None);
            if self.bindings.may_reuse(slot) {
                self.free_slots.push(slot);
            }
        }
    }

    /// Puts an upstream in force, or none; endpoints that no upstream names any more have departed.
    fn put_in_slot(&mut self, slot: u32, upstream: Option<Arc<Upstream>>) {
        let endpoints = |of: &Option<Arc<Upstream>>, each: &dyn Fn(&EndpointState)| {
            let all = of.iter().flat_map(|upstream| upstream.endpoints.iter());
            all.for_each(|endpoint| each(&endpoint.state));
        };
        endpoints(&upstream, &EndpointState::named);
        let before = self.upstreams.set(slot as usize, upstream);
        endpoints(&before, &EndpointState::released);
    }

    /// Notes what an upstream depends on now. What it depended on before too stays wanted, with what is known
    /// of it.
    fn link_upstream(&mut self, owner: &ObjectName, links: UpstreamDependencies) {
        let wanted_before = (self.hosts.len(), self.discovered.len());
        let number = self.wants + 1;
        for host in &links.hosts {
            let new = || HostOwners { owners: SetOfNames::new(), number };
            self.hosts.entry(host.clone()).or_insert_with(new).owners.insert(owner.clone());
        }
        if let Some(service) = &links.service {
            self.discovered.add_owner(service.clone(), owner, number);
        }
        self.wants += u64::from(wanted_before != (self.hosts.len(), self.discovered.len()));
        let before = self.upstream_links.remove(owner).unwrap_or_default();
        for host in before.hosts.into_iter().filter(|host| !links.hosts.contains(host)) {
            if let Some(wanted) = self.hosts.get_mut(&host) {
                wanted.owners.remove(owner);
                if wanted.owners.is_empty() {
                    self.released.push(host);
                }
            }
        }
        if let Some(service) = before.service.filter(|service| links.service.as_ref() != Some(service)) {
            self.discovered.release(&service, owner);
        }
        if let Some(id) = before.certificate {
            self.dependents.remove(ObjectName::new(Kind::Ssls, id), owner);
        }
        if let Some(id) = &links.certificate {
            self.dependents.add(ObjectName::new(Kind::Ssls, id.clone()), owner);
        }
        if !links.is_empty() {
            self.upstream_links.insert(owner.clone(), links);
        }
    }

    /// The nodes of an upstream: as written, or as discovered.
    fn nodes_of<'u>(&'u self, written: &'u config::UpstreamSpec) -> &'u [config::UpstreamNode] {
        match &written.nodes {
            Some(nodes) => &nodes.0,
            None => DiscoveryQuery::of(written).map_or(&[], |service| self.discovered.nodes(&service)),
        }
    }

    /// Builds an upstream again from the text of its object, after what it refers to has changed.
    pub(super) fn rebuild_upstream(&mut self, owner: &ObjectName) -> Result<(), Problem> {
        if let Some(written) = self.bindings.inline(owner).cloned() {
            return self.place_upstream(owner, &written, "").map(drop);
        }
        let Some(json) = self.good_text(owner) else { return Ok(()) };
        let (upstream, path) = match owner.kind {
            Kind::Upstreams => (decode::<config::UpstreamSpec>(&json).ok(), ""),
            Kind::Services => {
                (decode::<config::ServiceSpec>(&json).ok().and_then(|one| one.upstream), "upstream")
            }
            Kind::StreamRoutes => {
                (decode::<config::StreamRouteSpec>(&json).ok().and_then(|one| one.upstream), "upstream")
            }
            _ => (decode::<config::RouteSpec>(&json).ok().and_then(|one| one.upstream), "upstream"),
        };
        match upstream {
            Some(upstream) => self.place_upstream(owner, &upstream, path).map(drop),
            None => Ok(()),
        }
    }

    pub(super) fn build_upstream(
        &self,
        owner: &ObjectName,
        written: &config::UpstreamSpec,
    ) -> Result<Upstream, (String, String)> {
        let refuse = |path: &str, message: String| Err((path.to_owned(), message));
        let scheme = match written.scheme {
            config::SchemeSpec::Http => UpstreamScheme::Http,
            config::SchemeSpec::Https => UpstreamScheme::Https,
            config::SchemeSpec::Grpc => UpstreamScheme::Grpc,
            config::SchemeSpec::Grpcs => UpstreamScheme::Grpcs,
            config::SchemeSpec::Tcp => UpstreamScheme::Tcp,
            config::SchemeSpec::Tls => UpstreamScheme::Tls,
            config::SchemeSpec::Udp => UpstreamScheme::Udp,
            other => return refuse("scheme", format!("scheme {other:?} is not supported in this version")),
        };
        let tls = self.upstream_tls(written.tls.as_ref())?;
        let origin: Arc<str> = owner.to_string().into();
        // Requests to the same endpoints are told nothing of the client: who takes them would not understand a header.
        let is_of_streams =
            owner.kind == Kind::StreamRoutes || matches!(scheme, UpstreamScheme::Tcp | UpstreamScheme::Tls);
        let checks =
            written.checks.as_ref().map(|of_checks| Arc::new(checks(of_checks, written, is_of_streams)));
        let before = self.slots.get(owner).and_then(|slot| self.upstreams.get(*slot as usize)?.as_deref());
        let named = CarryNaming::new(scheme, &tls, checks.as_deref(), before);
        let (mut endpoints, unresolved) = self.places(written, &named, before);
        let protection = self.protection(written, &origin, &mut endpoints);
        let mut balancer = self.balancer(written, &origin, &endpoints);
        let since = |endpoint: &Endpoint| {
            let name = format!("slow start {origin} {} {}", endpoint.addr, endpoint.host);
            self.carry.get_or_create_portable(&name, EndpointStart::default)
        };
        let slow_start =
            written.slow_start_ms.map(|ms| Box::new(SlowStart::new(ms, &endpoints, before, since)));
        if slow_start.is_some() {
            balancer.require_pool();
        }
        Ok(Upstream {
            protection,
            balancer,
            slow_start,
            on_change: written.on_change.map(on_change).unwrap_or_default(),
            origin,
            // Known once it is placed.
            slot: UpstreamSlotId(u32::MAX),
            scheme,
            http2: written.http_version == Some(config::UpstreamHttpVersion::V2)
                || matches!(scheme, UpstreamScheme::Grpc | UpstreamScheme::Grpcs),
            grpc_retry_statuses: written.grpc_retry_statuses.as_deref().unwrap_or_default().into(),
            pass_host: pass_host(written),
            unresolved,
            retries: written.retries.unwrap_or((endpoints.len() as u32).saturating_sub(1)),
            endpoints,
            retry_timeout_ms: millis(written.retry_timeout.unwrap_or(0.0)),
            timeouts: written.timeout.as_ref().map_or(self.env.defaults.timeouts, timeouts),
            stream_idle_ms: written.timeout.as_ref().map(timeouts).map(|all| all.send_ms.max(all.read_ms)),
            proxy_protocol: proxy_protocol(written),
            keepalive: written.keepalive_pool.map_or(self.env.defaults.keepalive, keepalive),
            tls,
            checks,
            tls_cache: std::sync::OnceLock::new(),
        })
    }

    fn balancer(&self, written: &config::UpstreamSpec, origin: &str, endpoints: &[Endpoint]) -> Balancer {
        let (workers, carry, no_turns) = (self.env.workers, &*self.carry, &self.no_turns);
        Balancer::build(&PolicyContext { written, origin, endpoints, workers, carry, no_turns })
    }

    fn upstream_tls(
        &self,
        written: Option<&config::UpstreamTlsSpec>,
    ) -> Result<Arc<UpstreamTls>, (String, String)> {
        let Some(written) = written else { return Ok(self.plain_tls.clone()) };
        let mut client = written
            .client_cert
            .as_deref()
            .zip(written.client_key.as_deref())
            .map(|(cert, key)| (Box::from(cert), Box::from(key)));
        if let Some(id) = &written.client_cert_id {
            let name = ObjectName::new(Kind::Ssls, id.0.clone());
            let ssl = self.good_text(&name).and_then(|json| decode::<config::SslSpec>(&json).ok());
            let Some(ssl) = ssl else {
                return Err(("tls.client_cert_id".into(), format!("ssl object {id} does not exist")));
            };
            if ssl.kind != config::SslType::Client {
                return Err(("tls.client_cert_id".into(), "wrong ssl type".into()));
            }
            let (cert, key) = certificate::resolved((&ssl.cert, &ssl.key), &self.env.variables)
                .map_err(|flaw| ("tls.client_cert_id".to_owned(), flaw.to_string()))?;
            client = Some((cert.into(), key.into()));
        }
        check_tls(&self.env.load_certificate, written)?;
        let tls =
            UpstreamTls { verify: written.verify, ca_pem: written.ca.as_deref().map(Box::from), client };
        if tls == *self.plain_tls {
            return Ok(self.plain_tls.clone());
        }
        Ok(self.carry.keep(&format!("upstream tls {:032x}", tls_identity(&tls)), || tls))
    }

    /// The endpoints of an upstream, and what has no address yet.
    fn places(
        &self,
        written: &config::UpstreamSpec,
        named: &CarryNaming<'_>,
        before: Option<&Upstream>,
    ) -> (Box<[Endpoint]>, Box<[Box<str>]>) {
        let nodes = self.nodes_of(written);
        let unresolved: Box<[Box<str>]> = host_names(nodes)
            .filter(|host| !self.resolved.contains_key(*host))
            .map(Box::from)
            .chain(DiscoveryQuery::of(written).and_then(|service| self.discovered.unknown(&service)))
            .collect();
        let found: Box<[Endpoint]> = nodes.iter().flat_map(|node| self.endpoints_of(node, named)).collect();
        match before.filter(|_| found.is_empty() && !unresolved.is_empty()) {
            // Until it is known where the new ones are, requests go on to those of before.
            Some(before) => {
                let endpoint = |one: &Endpoint| self.endpoint(one.into(), named);
                (before.endpoints.iter().map(endpoint).collect(), unresolved)
            }
            None => (found, unresolved),
        }
    }

    fn endpoints_of(&self, node: &config::UpstreamNode, named: &CarryNaming<'_>) -> Vec<Endpoint> {
        let host = bare_host(&node.host);
        let addresses: Vec<IpAddr> = match host.parse() {
            Ok(address) => vec![address],
            Err(_) => self.resolved.get(host).map(|all| all.to_vec()).unwrap_or_default(),
        };
        // Discovery may know no port; where nothing is usual either, there is nowhere to connect to.
        let port = if node.port == 0 { named.default_port } else { node.port };
        if port == 0 {
            return Vec::new();
        }
        let authority = match named.default_port == port {
            true => node.host.clone(),
            false => format!("{}:{port}", node.host),
        };
        let place = |address| EndpointAddress {
            addr: SocketAddr::new(address, port),
            authority: &authority,
            host,
            weight: node.weight,
            priority: node.priority,
        };
        addresses.into_iter().map(|address| self.endpoint(place(address), named)).collect()
    }

    fn endpoint(&self, place: EndpointAddress<'_>, named: &CarryNaming<'_>) -> Endpoint {
        let EndpointAddress { addr, authority, host, weight, priority } = place;
        let state = format!("endpoint {} {addr} {host} {}", named.scheme, named.tls);
        let health =
            named.checks.as_ref().map(|checks| format!("health {addr} {host} {checks}")).map(|name| {
                let is_up = || !named.down.contains(&(addr, host));
                self.carry.get_or_create_portable(&name, || EndpointHealth::new(is_up()))
            });
        Endpoint {
            addr,
            authority: authority.into(),
            host: host.into(),
            weight,
            priority,
            state: self.carry.get_or_create_portable(&state, EndpointState::new),
            health,
            outlier: None,
        }
    }
}

/// Where an endpoint is, and its part in the upstream.
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

/// What the names of carried state are made of, beside the endpoint itself.
struct CarryNaming<'b> {
    scheme: &'static str,
    default_port: u16,
    tls: String,
    checks: Option<String>,
    /// Endpoints that are down by the checks of before: other checks begin where those were.
    down: HashSet<(SocketAddr, &'b str)>,
}

impl<'b> CarryNaming<'b> {
    fn new(
        scheme: UpstreamScheme,
        tls: &UpstreamTls,
        checks: Option<&HealthChecks>,
        before: Option<&'b Upstream>,
    ) -> CarryNaming<'b> {
        let default_port = match scheme {
            // Nothing is left out where nothing is usual.
            UpstreamScheme::Tcp | UpstreamScheme::Tls | UpstreamScheme::Udp => 0,
            _ if scheme.is_tls() => 443,
            _ => 80,
        };
        // Probes over TLS trust what the upstream trusts: under other certificates it is another question.
        let probe_tls = |checks: &HealthChecks| match checks.active.probe {
            ProbeKind::Https { .. } | ProbeKind::Grpc { verify: Some(_), .. } => {
                format!("{:032x}", tls_identity(tls))
            }
            ProbeKind::Http { .. } | ProbeKind::Tcp | ProbeKind::Grpc { verify: None, .. } => String::new(),
        };
        let checks = checks.map(|checks| format!("{checks:?} {}", probe_tls(checks)));
        let tls = if scheme.is_tls() { format!("{:032x}", tls_identity(tls)) } else { String::new() };
        let is_down = |endpoint: &&Endpoint| endpoint.health.as_ref().is_some_and(|health| !health.is_up());
        let down = before.filter(|_| checks.is_some()).into_iter().flat_map(|before| &before.endpoints);
        let down = down.filter(is_down).map(|endpoint| (endpoint.addr, &*endpoint.host)).collect();
        CarryNaming { scheme: scheme.name(), default_port, tls, checks, down }
    }
}

/// What connections to its endpoints begin with; datagrams do not.
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
        // 0 is for ever.
        idle_timeout_ms: if pool.idle_timeout == 0.0 { u64::MAX } else { millis(pool.idle_timeout) },
        requests: pool.requests.into(),
    }
}

fn pass_host(written: &config::UpstreamSpec) -> HostRewrite {
    match written.pass_host {
        config::PassHostMode::Pass => HostRewrite::Pass,
        config::PassHostMode::Node => HostRewrite::Node,
        config::PassHostMode::Rewrite => {
            HostRewrite::Rewrite(written.upstream_host.as_deref().unwrap_or_default().into())
        }
    }
}

#[cfg(test)]
mod tests;

/// What only the first request would tell otherwise: the path in the upstream, and what is wrong there.
pub(super) fn check_tls(
    door: &LoadCertificate,
    written: &config::UpstreamTlsSpec,
) -> Result<(), (String, String)> {
    if let (Some(cert), Some(key)) = (&written.client_cert, &written.client_key) {
        door.pair(cert, key).map_err(|flaw| {
            let field = if flaw.is_of_key() { "tls.client_key" } else { "tls.client_cert" };
            (field.to_owned(), flaw.to_string())
        })?;
    }
    match &written.ca {
        Some(ca) => door.authorities(ca).map_err(|message| ("tls.ca".to_owned(), message)),
        None => Ok(()),
    }
}
