//! Services of Ingresses: ports, upstreams, and the member `backends` of routes.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::locations::{HostLocation, LocationTarget};
use crate::derived::{ParsedIngress, UpstreamFlavor, UpstreamKey, UpstreamSource};
use crate::engine::TrackedView;
use crate::ingress_nginx::{
    CanaryHeaderRule, CanaryStickiness, ControllerSettings, IngressCanary, IngressUpstreamProtocol,
};
use crate::model::{
    ClusterKind, IngressServicePort, ObjectKey, PortNumberOrName, ServiceObject, ServicePortSpec,
};

/// The status without a Service, as ingress-nginx answers for an upstream without endpoints.
const NO_SERVICE: u16 = 503;

/// The backends of a route.
#[derive(Debug, Default)]
pub(super) struct LocationBackends {
    /// The member `backends`.
    pub(super) value: Vec<Value>,
    pub(super) upstreams: Vec<UpstreamKey>,
    /// The Service of the location, if it exists.
    pub(super) service: Option<Arc<str>>,
    /// Services that do not exist, with the Ingress that names each.
    pub(super) missing: Vec<(ObjectKey, String)>,
}

/// Resolves the Services of a location. `None`: the default backend of the controller, which is a fixed response.
pub(super) fn backends_of(
    view: &TrackedView<'_>,
    defaults: &ControllerSettings,
    location: &HostLocation<'_>,
) -> Option<LocationBackends> {
    let mut backends = LocationBackends::default();
    let primary = match (&location.target, location.owner) {
        (LocationTarget::Unserved, _) => return Some(backends),
        (LocationTarget::Service(service), Some(owner)) => {
            service_upstream(view, owner, &service.name, &service.port)
        }
        _ => default_upstream(view, defaults)?,
    };
    let Some((canary, service)) = location.canary else {
        backends.add(primary, Map::from_iter([("weight".to_owned(), 1.into())]));
        return Some(backends);
    };
    let Some(rules) = &canary.settings.canary else { return Some(backends) };
    let weight = rules.weight.min(rules.weight_total);
    let share = |weight: u32| Map::from_iter([("weight".to_owned(), weight.into())]);
    backends.add(primary, share(rules.weight_total - weight));
    match service_upstream(view, canary, &service.name, &service.port) {
        // A canary without a Service gets no requests.
        Err(missing) => {
            backends.missing.push(missing);
            backends.value.iter_mut().for_each(|one| one["weight"] = 1.into());
        }
        Ok(upstream) => {
            let mut members = share(weight);
            members.insert("canary".to_owned(), canary_value(rules, location, canary));
            backends.add(Ok(upstream), members);
        }
    }
    Some(backends)
}

impl LocationBackends {
    fn add(&mut self, found: Result<UpstreamKey, (ObjectKey, String)>, mut members: Map<String, Value>) {
        match found {
            Ok(key) => {
                members.insert("upstream_id".to_owned(), key.to_string().into());
                self.service.get_or_insert_with(|| key.service.clone());
                self.upstreams.push(key);
            }
            Err(missing) => {
                members.insert("status".to_owned(), NO_SERVICE.into());
                self.missing.push(missing);
            }
        }
        self.value.push(members.into());
    }
}

fn canary_value(rules: &IngressCanary, location: &HostLocation<'_>, canary: &ParsedIngress) -> Value {
    let mut members = Map::new();
    if let Some((name, rule)) = &rules.header {
        let mut header = json!({ "name": &**name });
        match rule {
            CanaryHeaderRule::Words => {}
            CanaryHeaderRule::Value(value) => header["value"] = (&**value).into(),
            CanaryHeaderRule::Pattern(pattern) => header["pattern"] = (&**pattern).into(),
        }
        members.insert("header".to_owned(), header);
    }
    if let Some(cookie) = &rules.cookie {
        members.insert("cookie".to_owned(), (&**cookie).into());
    }
    // The settings of sessions are those of the primary Ingress, beside this one.
    let session = location.owner.and_then(|owner| owner.settings.upstream.session.as_ref());
    let of_canary = canary.settings.upstream.session.as_ref().map(|session| session.canary);
    let stickiness = session.map(|session| session.canary);
    let is_legacy =
        stickiness == Some(CanaryStickiness::Legacy) || of_canary == Some(CanaryStickiness::Legacy);
    if session.is_some() && is_legacy {
        members.insert("ignores_session".to_owned(), true.into());
    }
    members.into()
}

/// The upstream of a Service that an Ingress names.
pub(super) fn service_upstream(
    view: &TrackedView<'_>,
    owner: &ParsedIngress,
    service: &Arc<str>,
    port: &IngressServicePort,
) -> Result<UpstreamKey, (ObjectKey, String)> {
    let settings = &owner.settings.upstream;
    let flavor = match settings.protocol {
        IngressUpstreamProtocol::Http | IngressUpstreamProtocol::AutoHttp => UpstreamFlavor::Http,
        IngressUpstreamProtocol::Https => UpstreamFlavor::Https,
        IngressUpstreamProtocol::Grpc => UpstreamFlavor::Grpc,
        IngressUpstreamProtocol::Grpcs => UpstreamFlavor::Grpcs,
    };
    let is_tls = matches!(flavor, UpstreamFlavor::Https | UpstreamFlavor::Grpcs);
    let number = port_number(view, &owner.key.namespace, service, port, false)
        .map_err(|message| (owner.key.clone(), message))?;
    Ok(UpstreamKey {
        namespace: owner.key.namespace.clone(),
        service: service.clone(),
        port: number,
        flavor,
        source: UpstreamSource::Ingress,
        // Settings of TLS are those of the Ingress, so its upstream is not shared.
        gateway: (is_tls && settings.tls.is_some()).then(|| owner.key.clone()),
    })
}

/// The first port of a Service, for default backends.
pub(super) fn first_port(service: &ServiceObject) -> IngressServicePort {
    let number = service.spec.ports.first().map(|port| port.port);
    IngressServicePort { number, name: None }
}

/// The default backend of the controller; `None` if there is none, or its Service does not exist.
fn default_upstream(
    view: &TrackedView<'_>,
    defaults: &ControllerSettings,
) -> Option<Result<UpstreamKey, (ObjectKey, String)>> {
    let key = defaults.flags.default_backend.as_ref()?;
    let service = view.get::<ServiceObject>(key)?;
    let port = service.spec.ports.first()?.port;
    Some(Ok(plain_upstream(&key.namespace, &key.name, port)))
}

/// The upstream of a Service over HTTP without the settings of an Ingress of its own.
pub(super) fn plain_upstream(namespace: &Arc<str>, service: &Arc<str>, port: u16) -> UpstreamKey {
    UpstreamKey {
        namespace: namespace.clone(),
        service: service.clone(),
        port,
        flavor: UpstreamFlavor::Http,
        source: UpstreamSource::Ingress,
        gateway: None,
    }
}

/// The number of a port of a Service, by number, name, or target port.
pub(super) fn port_number(
    view: &TrackedView<'_>,
    namespace: &Arc<str>,
    service: &Arc<str>,
    port: &IngressServicePort,
    is_udp: bool,
) -> Result<u16, String> {
    let key = ObjectKey { kind: ClusterKind::Service, namespace: namespace.clone(), name: service.clone() };
    let object = view.get::<ServiceObject>(&key).ok_or_else(|| format!("{key} does not exist"))?;
    let wanted = if is_udp { "UDP" } else { "TCP" };
    let of_transport = |port: &&ServicePortSpec| port.protocol.as_deref().unwrap_or("TCP") == wanted;
    let mut ports = object.spec.ports.iter().filter(of_transport);
    let found = match (port.number, &port.name) {
        (Some(number), _) => ports
            .clone()
            .find(|one| one.port == number)
            .or_else(|| ports.find(|one| one.target_port == Some(PortNumberOrName::Number(number)))),
        (None, Some(name)) => {
            ports.clone().find(|one| one.name == *name || name.parse() == Ok(one.port)).or_else(|| {
                ports.find(
                    |one| matches!(&one.target_port, Some(PortNumberOrName::Name(target)) if target == name),
                )
            })
        }
        (None, None) => None,
    };
    // An ExternalName needs no ports.
    let is_external = &*object.spec.kind == "ExternalName";
    let number = found.map(|port| port.port).or(port.number.filter(|_| is_external));
    number.ok_or_else(|| {
        let name = port.name.as_deref().map(ToOwned::to_owned);
        let name = port.number.map(|number| number.to_string()).or(name).unwrap_or_default();
        format!("{key} has no {wanted} port {name:?}")
    })
}
