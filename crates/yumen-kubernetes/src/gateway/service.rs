//! The Service of a Gateway, and the ports that the gateway binds for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::addresses;
use super::class::is_own_class;
use super::sections::ListenerSection;
use crate::delta::{ObjectIntent, ObjectPath};
use crate::derived::{ConditionReason, GatewayPort};
use crate::engine::{IndexKey, TrackedView};
use crate::model::{ClusterKind, GatewayObject, ListenerSetObject, ObjectKey, ServiceObject};
use crate::ports::{MANAGED_BY, MANAGER, PortClaim, cut_name, observed_ports, owning_gateway, service_name};
use crate::settings::GatewayMode;

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
    let observed = observed_targets(view, key);
    let mut open = BTreeSet::new();
    let mut ports = Vec::new();
    for (port, is_udp) in needed {
        if let Some(target) = observed.get(&(port, is_udp)) {
            ports.push(GatewayPort { port, is_udp, target: Some(*target), is_observed: true });
            continue;
        }
        let claim = PortClaim { gateway: key.clone(), port, is_udp };
        let target = view.propose_port(&claim, |service| !real_claims(view, service).is_empty());
        open.insert(claim);
        ports.push(GatewayPort { port, is_udp, target, is_observed: false });
    }
    view.retain_proposals(key, &open);
    GatewayPortPlan { ports }
}

/// Target ports of the observed Service that are within the range, without those that another Gateway holds.
fn observed_targets(view: &TrackedView<'_>, gateway: &ObjectKey) -> BTreeMap<(u16, bool), u16> {
    let mut targets = BTreeMap::new();
    for (claim, target) in real_claims(view, &service_key(gateway)) {
        if !view.is_usable_port(target) {
            continue;
        }
        let index = IndexKey::TargetPort { is_udp: claim.is_udp, port: target };
        let mut claims: Vec<(i64, PortClaim)> = Vec::new();
        for service in view.index(index) {
            let created_s = view.get::<ServiceObject>(service).map_or(i64::MAX, |other| other.meta.created_s);
            let of_service = real_claims(view, service).into_iter();
            let same = of_service.filter(|(other, port)| *port == target && other.is_udp == claim.is_udp);
            claims.extend(same.map(|(other, _)| (created_s, other)));
        }
        claims.sort();
        let claims: Vec<PortClaim> = claims.into_iter().map(|(_, claim)| claim).collect();
        if view.hold_port(claim.is_udp, target, &claims).as_ref() == Some(&claim) {
            targets.insert((claim.port, claim.is_udp), target);
        }
    }
    targets
}

/// The ports of a Service that is the one of a Gateway of ours, as far as a listener of the Gateway has them: a user
/// that adds ports to the Service gets none for them.
fn real_claims(view: &TrackedView<'_>, service: &ObjectKey) -> Vec<(PortClaim, u16)> {
    let owned = view.get::<ServiceObject>(service).and_then(|object| Some((object, owning_gateway(object)?)));
    let Some((object, (key, owner))) = owned else { return Vec::new() };
    let gateway = view.get::<GatewayObject>(&key).filter(|gateway| gateway.meta.uid == owner.uid);
    let Some(gateway) = gateway.filter(|gateway| is_own_class(view, &gateway.spec.gateway_class_name)) else {
        return Vec::new();
    };
    let sets = view.index(IndexKey::ListenerSetsOf(key.clone()));
    let sets = sets.filter_map(|set| view.get::<ListenerSetObject>(set));
    let listeners: Vec<(u16, bool)> = (gateway.spec.listeners.iter())
        .chain(sets.flat_map(|set| &set.spec.listeners))
        .map(|listener| (listener.port, &*listener.protocol == "UDP"))
        .collect();
    let wanted = observed_ports(object).filter(|port| listeners.contains(&(port.port, port.is_udp)));
    wanted
        .map(|port| {
            let claim = PortClaim { gateway: key.clone(), port: port.port, is_udp: port.is_udp };
            (claim, port.target)
        })
        .collect()
}

/// Whether the Service of the Gateway exists.
pub(super) fn has_service(view: &TrackedView<'_>, key: &ObjectKey, gateway: &GatewayObject) -> bool {
    view.settings().mode == GatewayMode::Service
        && view
            .get::<ServiceObject>(&service_key(key))
            .is_some_and(|service| is_own_service(service, gateway))
}

/// Whether a Service of the right name is the one that the controller made for the Gateway. Another one is neither read
/// nor changed.
pub(super) fn is_own_service(service: &ServiceObject, gateway: &GatewayObject) -> bool {
    owning_gateway(service)
        .is_some_and(|(key, owner)| key.name == gateway.meta.name && owner.uid == gateway.meta.uid)
}

/// Why the Gateway can have no Service: one of its name belongs to another owner.
pub(super) fn foreign_service(
    view: &TrackedView<'_>,
    key: &ObjectKey,
    gateway: &GatewayObject,
) -> Option<ConditionReason> {
    if view.settings().mode != GatewayMode::Service {
        return None;
    }
    let service = service_key(key);
    let is_foreign =
        view.get::<ServiceObject>(&service).is_some_and(|object| !is_own_service(object, gateway));
    let message = || {
        format!(
            "Service {}/{} exists and does not belong to the Gateway; delete or rename it.",
            service.namespace, service.name
        )
    };
    is_foreign.then(|| ConditionReason::new("AddressNotUsable", message()))
}

/// The Service of a Gateway.
pub(super) fn service_key(gateway: &ObjectKey) -> ObjectKey {
    let name = service_name(&gateway.name);
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
