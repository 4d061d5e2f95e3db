//! The Service of a Gateway, and the ports that the gateway binds for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::addresses;
use super::sections::ListenerSection;
use crate::delta::{ObjectIntent, ObjectPath};
use crate::derived::GatewayPort;
use crate::engine::{IndexKey, TrackedView};
use crate::model::{ClusterKind, GatewayObject, ObjectKey, ServiceObject};
use crate::ports::{MANAGED_BY, MANAGER, PortClaim, observed_ports};
use crate::settings::GatewayMode;

/// Length of a label value and of the name of a Service.
const LABEL_MAX: usize = 63;

/// The ports of a Gateway, in ascending order.
#[derive(Debug, Default)]
pub(super) struct GatewayPortPlan {
    pub(super) ports: Vec<GatewayPort>,
}

impl GatewayPortPlan {
    pub(super) fn find(&self, port: u16, is_udp: bool) -> Option<&GatewayPort> {
        self.ports.iter().find(|entry| entry.port == port && entry.is_udp == is_udp)
    }
}

/// The ports of all sections that can be served some day. A section that is not served for now keeps its port: a
/// certificate that comes and goes must not change the Service, and its removal would lose the address.
pub(super) fn allocate_ports(
    view: &TrackedView<'_>,
    key: &ObjectKey,
    gateway: &GatewayObject,
    sections: &[ListenerSection<'_>],
) -> GatewayPortPlan {
    let held = sections.iter().filter(|section| section.holds_port());
    let needed: BTreeSet<(u16, bool)> =
        held.map(|section| (section.spec.port, section.protocol.is_udp())).collect();
    if view.settings().mode != GatewayMode::Service {
        let port =
            |(port, is_udp): (u16, bool)| GatewayPort { port, is_udp, target: Some(port), is_observed: true };
        return GatewayPortPlan { ports: needed.into_iter().map(port).collect() };
    }
    let observed = observed_targets(view, &service_key(key), gateway);
    let mut open = BTreeSet::new();
    let mut ports = Vec::new();
    for (port, is_udp) in needed {
        if let Some(target) = observed.get(&(port, is_udp)) {
            ports.push(GatewayPort { port, is_udp, target: Some(*target), is_observed: true });
            continue;
        }
        let claim = PortClaim { gateway: key.clone(), port, is_udp };
        let target = view.propose_port(&claim);
        open.insert(claim);
        ports.push(GatewayPort { port, is_udp, target, is_observed: false });
    }
    view.retain_proposals(key, &open);
    GatewayPortPlan { ports }
}

/// Target ports of the observed Service, without those that an older Service has too.
fn observed_targets(
    view: &TrackedView<'_>,
    service: &ObjectKey,
    gateway: &GatewayObject,
) -> BTreeMap<(u16, bool), u16> {
    let Some(object) = view.get::<ServiceObject>(service).filter(|object| is_own_service(object, gateway))
    else {
        return BTreeMap::new();
    };
    let own_rank = (object.meta.created_s, service);
    let is_first = |target: u16, is_udp: bool| {
        let mut owners = view.index(IndexKey::TargetPort { is_udp, port: target });
        owners.all(|owner| {
            let created_s = view.get::<ServiceObject>(owner).map_or(i64::MAX, |other| other.meta.created_s);
            (created_s, owner) >= own_rank
        })
    };
    let first = observed_ports(object).filter(|observed| is_first(observed.target, observed.is_udp));
    first.map(|observed| ((observed.port, observed.is_udp), observed.target)).collect()
}

/// Whether the Service of the Gateway exists.
pub(super) fn has_service(view: &TrackedView<'_>, key: &ObjectKey, gateway: &GatewayObject) -> bool {
    view.settings().mode == GatewayMode::Service
        && view
            .get::<ServiceObject>(&service_key(key))
            .is_some_and(|service| is_own_service(service, gateway))
}

/// Whether a Service is the one that the controller makes for the Gateway. A foreign Service of the name is not
/// touched by server-side apply without force, and never read.
pub(super) fn is_own_service(service: &ServiceObject, gateway: &GatewayObject) -> bool {
    let label = service.meta.labels.get("gateway.networking.k8s.io/gateway-name");
    service.meta.labels.get(MANAGED_BY).is_some_and(|manager| &**manager == MANAGER)
        && label.is_some_and(|name| **name == *cut_name(&gateway.meta.name))
}

/// The Service of a Gateway.
pub(super) fn service_key(gateway: &ObjectKey) -> ObjectKey {
    // The name of a Gateway may have dots, that of a Service may not.
    let plain: String = gateway.name.chars().map(|c| if c == '.' { '-' } else { c }).collect();
    let name = format!("yumen-{plain}");
    let is_exact = plain == *gateway.name && name.len() <= LABEL_MAX;
    let name = if is_exact { name } else { with_hash(&name, &gateway.name) };
    ObjectKey { kind: ClusterKind::Service, namespace: gateway.namespace.clone(), name: name.into() }
}

/// The Service, unless no listener is valid: a Service must have a port.
pub(super) fn service_object(
    view: &TrackedView<'_>,
    key: &ObjectKey,
    gateway: &GatewayObject,
    ports: &[GatewayPort],
) -> Option<(ObjectPath, ObjectIntent)> {
    let port = |port: &GatewayPort| {
        let target = port.target?;
        Some(json!({
            "name": port.name(),
            "port": port.port,
            "targetPort": target,
            "protocol": port.transport(),
        }))
    };
    let ports: Vec<Value> = ports.iter().filter_map(port).collect();
    if ports.is_empty() {
        return None;
    }
    let service = service_key(key);
    let kind = &view.settings().service_type;
    let mut spec = json!({ "type": kind, "ports": ports });
    if let Some(address) = addresses::requested(gateway).next().filter(|_| &**kind == "LoadBalancer") {
        spec["loadBalancerIP"] = address.into();
    }
    let value = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(&service, key, gateway, Map::new()),
        "spec": spec,
    });
    Some((ObjectPath { key: service }, ObjectIntent::Apply(value)))
}

/// Metadata of an object that the controller makes for a Gateway.
pub(super) fn metadata(
    object: &ObjectKey,
    key: &ObjectKey,
    gateway: &GatewayObject,
    further_labels: Map<String, Value>,
) -> Value {
    let infrastructure = &gateway.spec.infrastructure;
    let text = |(name, value): (&Arc<str>, &Arc<str>)| (name.to_string(), Value::from(&**value));
    let mut labels: Map<String, Value> = infrastructure.labels.iter().map(text).collect();
    labels.insert("gateway.networking.k8s.io/gateway-name".to_owned(), cut_name(&key.name).into());
    let class = cut_name(&gateway.spec.gateway_class_name);
    labels.insert("gateway.networking.k8s.io/gateway-class-name".to_owned(), class.into());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.into());
    labels.extend(further_labels);
    let annotations: Map<String, Value> = infrastructure.annotations.iter().map(text).collect();
    let api = ClusterKind::Gateway.api();
    json!({
        "name": object.name,
        "namespace": object.namespace,
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [{
            "apiVersion": format!("{}/v1", api.group),
            "kind": api.name,
            "name": key.name,
            "uid": gateway.meta.uid,
            "controller": true,
        }],
    })
}

/// A name as the value of a label: cut, with a hash of the whole.
pub(super) fn cut_name(name: &str) -> String {
    if name.len() <= LABEL_MAX { name.to_owned() } else { with_hash(name, name) }
}

fn with_hash(text: &str, hashed: &str) -> String {
    // FNV-1a, 32 bits: the same in every version, as the name of an object must be.
    let hash =
        hashed.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let mut end = text.len().min(LABEL_MAX - 9);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash:08x}", text[..end].trim_end_matches(['-', '.']))
}
