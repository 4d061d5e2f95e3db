//! Ports that all Gateways share in mode `Merged`: one listener per port, whose protocol the oldest Gateway decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::class::is_own_class;
use super::resources::{any_address, listener_value};
use super::sections::ListenerSection;
use super::unit::{listener_sets, refusal_by_members};
use crate::derived::{ConditionReason, SharedPort, SharedPortTable, SharedPortUse};
use crate::engine::{DerivedOutput, TrackedView, UnitOutput};
use crate::model::{ClusterKind, GatewayListenerSpec, GatewayObject, ObjectKey};
use crate::resources::TranslatedKind;
use crate::settings::GatewayMode;

pub(crate) fn translate_shared_ports(view: &TrackedView<'_>) -> UnitOutput {
    let mut output = UnitOutput::default();
    if view.settings().mode != GatewayMode::Merged {
        return output;
    }
    let mut gateways: Vec<&Arc<GatewayObject>> = view.list_all(ClusterKind::Gateway);
    gateways.retain(|gateway| is_own_class(view, &gateway.spec.gateway_class_name));
    // The list is in order of namespace and name already; the sort is stable.
    gateways.sort_by_key(|gateway| gateway.meta.created_s);
    let mut table = SharedPortTable { ports: BTreeMap::new() };
    for gateway in gateways {
        let key = ObjectKey {
            kind: ClusterKind::Gateway,
            namespace: gateway.meta.namespace.clone(),
            name: gateway.meta.name.clone(),
        };
        // A Gateway that is not accepted serves nothing, so it must not take a port from another.
        if refusal_by_members(view, gateway).is_some() {
            continue;
        }
        claim(&mut table, &key, &gateway.spec.listeners);
        let admitted = listener_sets(view, &key, gateway).into_iter().filter(|set| set.refusal.is_none());
        admitted.for_each(|set| claim(&mut table, &key, &set.object.spec.listeners));
    }
    for (port, used) in &table.ports {
        let address = any_address(view.settings(), port.port);
        let value = listener_value(&address, used.protocol, port.port, &used.gateway);
        output.add_resource(TranslatedKind::Listeners, shared_listener_id(*port), &value);
    }
    output.derived = Some(DerivedOutput::SharedPorts(Arc::new(table)));
    output
}

/// Refuses the sections whose port another Gateway uses for another protocol.
pub(super) fn mark_foreign_ports(
    view: &TrackedView<'_>,
    gateway: &ObjectKey,
    sections: &mut [ListenerSection<'_>],
) {
    let Some(table) = view.shared_ports() else { return };
    for section in sections.iter_mut().filter(|section| section.is_valid()) {
        let port = SharedPort { port: section.spec.port, is_udp: section.protocol.is_udp() };
        let Some(used) = table.ports.get(&port) else { continue };
        if used.gateway != *gateway && Some(used.protocol) != section.protocol.listener_protocol() {
            let message = format!("{} uses port {} for protocol {}.", used.gateway, port.port, used.protocol);
            section.refusal = Some(ConditionReason::new("PortUnavailable", message));
        }
    }
}

/// Id of the `listeners` resource of a shared port. It has no namespace, as no object of a user has.
pub(super) fn shared_listener_id(port: SharedPort) -> Arc<str> {
    let transport = if port.is_udp { "udp" } else { "tcp" };
    format!("shared!listener!{}.{transport}", port.port).into()
}

fn claim(table: &mut SharedPortTable, gateway: &ObjectKey, listeners: &[GatewayListenerSpec]) {
    for spec in listeners {
        let section = ListenerSection::new(gateway, spec);
        let Some(protocol) = section.protocol.listener_protocol().filter(|_| section.is_valid()) else {
            continue;
        };
        let port = SharedPort { port: spec.port, is_udp: section.protocol.is_udp() };
        table.ports.entry(port).or_insert_with(|| SharedPortUse { protocol, gateway: gateway.clone() });
    }
}
