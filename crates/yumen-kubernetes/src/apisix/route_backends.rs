//! Backends of ApisixRoutes: Services and external upstreams with weights.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::derived::{UpstreamFlavor, UpstreamKey, UpstreamSource};
use crate::engine::TrackedView;
use crate::model::{
    ApisixBackend, ApisixHttpRule, ClusterKind, ObjectKey, PortNumberOrName, ServiceObject, ServicePortSpec,
};
use crate::overrides::upstream_of;
use crate::upstreams::AppProtocol;

/// The weight of a backend that has none.
const WEIGHT: i64 = 100;
const WEIGHT_MAX: i64 = 1_000_000;
/// The status without any backend, as APISIX answers for an upstream without nodes.
const NO_BACKEND: u16 = 503;

/// The backends of one rule.
#[derive(Debug, Default)]
pub(super) struct RuleBackends {
    /// Weights with upstreams.
    pub(super) shares: Vec<(i64, UpstreamKey)>,
    /// Backends that do not exist. The others take their share, as in APISIX.
    pub(super) missing: Vec<String>,
    /// Whether a port of a backend speaks WebSocket.
    pub(super) speaks_web_socket: bool,
}

impl RuleBackends {
    /// The member `backends`.
    pub(super) fn value(&self) -> Value {
        if self.shares.iter().all(|(weight, _)| *weight == 0) {
            return json!([{ "weight": 1, "status": NO_BACKEND }]);
        }
        let share =
            |(weight, key): &(i64, UpstreamKey)| json!({ "weight": weight, "upstream_id": key.to_string() });
        self.shares.iter().map(share).collect()
    }

    fn add(&mut self, weight: Option<i64>, found: Result<UpstreamKey, String>) {
        match found {
            Ok(key) => self.shares.push((weight.unwrap_or(WEIGHT).clamp(0, WEIGHT_MAX), key)),
            Err(message) => self.missing.push(message),
        }
    }
}

/// Resolves the backends of an HTTP rule.
pub(super) fn http_backends(
    view: &TrackedView<'_>,
    route: &ObjectKey,
    rule: &ApisixHttpRule,
) -> RuleBackends {
    let mut backends = RuleBackends::default();
    for backend in &rule.backends {
        let found = service_port(view, &route.namespace, backend, false);
        if let Ok(port) = &found {
            let is_web_socket =
                matches!(AppProtocol::of(port), AppProtocol::WebSocket | AppProtocol::WebSocketTls);
            backends.speaks_web_socket |= is_web_socket;
        }
        let key = found.map(|port| port_key(&route.namespace, backend, port, UpstreamFlavor::Http));
        backends.add(backend.weight, key);
    }
    for reference in &rule.upstreams {
        let object = upstream_of(view, &route.namespace, &reference.name);
        let key = UpstreamKey {
            namespace: route.namespace.clone(),
            service: reference.name.clone(),
            port: 0,
            flavor: UpstreamFlavor::Http,
            source: UpstreamSource::External,
            gateway: None,
        };
        let missing = || format!("ApisixUpstream {}/{} does not exist", route.namespace, reference.name);
        backends.add(reference.weight, object.map(|_| key).ok_or_else(missing));
    }
    backends
}

/// Resolves the backend of a stream rule.
pub(super) fn stream_backend(
    view: &TrackedView<'_>,
    route: &ObjectKey,
    backend: &ApisixBackend,
    is_udp: bool,
) -> Result<UpstreamKey, String> {
    let port = service_port(view, &route.namespace, backend, is_udp)?;
    let flavor = if is_udp { UpstreamFlavor::Udp } else { UpstreamFlavor::Tcp };
    Ok(port_key(&route.namespace, backend, port, flavor))
}

fn port_key(
    namespace: &Arc<str>,
    backend: &ApisixBackend,
    port: &ServicePortSpec,
    flavor: UpstreamFlavor,
) -> UpstreamKey {
    let by_address = backend.resolve_granularity.as_deref() == Some("service");
    UpstreamKey {
        namespace: namespace.clone(),
        service: backend.service_name.clone(),
        port: port.port,
        flavor,
        source: if by_address { UpstreamSource::ApisixAddress } else { UpstreamSource::Apisix },
        gateway: None,
    }
}

/// The port of a Service by number or name.
fn service_port<'t>(
    view: &TrackedView<'t>,
    namespace: &Arc<str>,
    backend: &ApisixBackend,
    is_udp: bool,
) -> Result<&'t ServicePortSpec, String> {
    let key = ObjectKey {
        kind: ClusterKind::Service,
        namespace: namespace.clone(),
        name: backend.service_name.clone(),
    };
    let service = view.get::<ServiceObject>(&key).ok_or_else(|| format!("{key} does not exist"))?;
    let by_address = backend.resolve_granularity.as_deref() == Some("service");
    let has_address = service.spec.cluster_ips.first().is_some_and(|address| &**address != "None");
    if by_address && !has_address && &*service.spec.kind != "ExternalName" {
        return Err(format!("{key} has no address of its own, which resolveGranularity service needs"));
    }
    let wanted = if is_udp { "UDP" } else { "TCP" };
    let fits = |port: &&ServicePortSpec| {
        let is_named = match &backend.service_port {
            Some(PortNumberOrName::Number(number)) => port.port == *number,
            Some(PortNumberOrName::Name(name)) => port.name == *name || name.parse() == Ok(port.port),
            None => false,
        };
        is_named && port.protocol.as_deref().unwrap_or("TCP") == wanted
    };
    service.spec.ports.iter().find(fits).ok_or_else(|| format!("{key} has no such {wanted} port"))
}
