//! Endpoints of Services, from EndpointSlices to nodes of upstreams.
//!
//! A Service needs no selector and no address of its own: its slices decide. An empty result is the truth, and holds
//! at once.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::engine::{IndexKey, TrackedView};
use crate::model::{EndpointSliceObject, ServiceObject, SliceEndpoint};

/// An endpoint of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndpointNode {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    /// 1, or 0 for an endpoint that terminates beside others: sessions and tunnels may stay on it.
    pub(crate) weight: u32,
}

/// The port of a Service whose endpoints are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndpointQuery<'q> {
    /// Name of the port of the Service; empty for a single port without one.
    pub(crate) port_name: &'q str,
    pub(crate) is_udp: bool,
    /// Zone of the node, for topology hints.
    pub(crate) zone: Option<&'q str>,
    /// Whether the first address of the Service is IPv6; `None` for a headless one.
    pub(crate) is_ipv6: Option<bool>,
}

/// The endpoints of a port of a Service, by address and port.
pub(crate) fn endpoints_of(
    view: &TrackedView<'_>,
    service: &ServiceObject,
    port_name: &str,
    is_udp: bool,
) -> Vec<EndpointNode> {
    let meta = &service.meta;
    let index = IndexKey::SlicesOf { namespace: meta.namespace.clone(), service: meta.name.clone() };
    let slices: Vec<&Arc<EndpointSliceObject>> = view.index(index).filter_map(|key| view.get(key)).collect();
    let first = service.spec.cluster_ips.first().and_then(|ip| ip.parse::<IpAddr>().ok());
    let query = EndpointQuery {
        port_name,
        is_udp,
        zone: view.settings().zone.as_deref(),
        is_ipv6: first.map(|ip| ip.is_ipv6()),
    };
    select_endpoints(&slices, query)
}

/// Nodes as the member `nodes` of an upstream.
pub(crate) fn nodes_value(nodes: &[EndpointNode]) -> Value {
    let node = |node: &EndpointNode| json!({ "host": node.address.to_string(), "port": node.port, "weight": node.weight });
    nodes.iter().map(node).collect()
}

/// State of an endpoint over all slices that have it.
#[derive(Debug, Clone, Default)]
struct SliceEndpointState {
    is_ready: bool,
    /// Serves, and terminates.
    is_draining: bool,
    zones: Option<Vec<Arc<str>>>,
}

/// Applies the rules of KEP-1669: new requests to ready endpoints, to those that terminate and still serve only if
/// none is ready.
fn select_endpoints(slices: &[&Arc<EndpointSliceObject>], query: EndpointQuery<'_>) -> Vec<EndpointNode> {
    let mut states = collect_states(slices, query);
    prefer_family(&mut states, query.is_ipv6);
    if let Some(zone) = query.zone {
        keep_zone(&mut states, zone);
    }
    let any_ready = states.values().any(|state| state.is_ready);
    let node = |((address, port), state): ((IpAddr, u16), SliceEndpointState)| {
        let weight = match (state.is_ready, any_ready) {
            (true, _) | (false, false) => 1,
            (false, true) => 0,
        };
        EndpointNode { address, port, weight }
    };
    states.into_iter().map(node).collect()
}

/// The endpoints that are ready or draining. An endpoint moves between slices in two writes, so one that is in two
/// of them is ready if either has it so (kubernetes/kubernetes#127429).
fn collect_states(
    slices: &[&Arc<EndpointSliceObject>],
    query: EndpointQuery<'_>,
) -> BTreeMap<(IpAddr, u16), SliceEndpointState> {
    let mut states: BTreeMap<(IpAddr, u16), SliceEndpointState> = BTreeMap::new();
    let transport = if query.is_udp { "UDP" } else { "TCP" };
    for slice in slices.iter().filter(|slice| !slice.meta.is_deleting && &*slice.address_type != "FQDN") {
        let ports = slice.ports.iter().filter(|port| {
            *port.name == *query.port_name && port.protocol.as_deref().unwrap_or("TCP") == transport
        });
        for port in ports.filter_map(|port| port.port) {
            for endpoint in &slice.endpoints {
                // The addresses of an endpoint are fungible; consumers use the first.
                let Some(Ok(address)) = endpoint.addresses.first().map(|address| address.parse()) else {
                    continue;
                };
                let state = state_of(endpoint);
                if !state.is_ready && !state.is_draining {
                    continue;
                }
                let known = states.entry((address, port)).or_default();
                known.is_ready |= state.is_ready;
                known.is_draining |= state.is_draining;
                if state.is_ready || known.zones.is_none() {
                    known.zones = state.zones;
                }
            }
        }
    }
    states
}

fn state_of(endpoint: &SliceEndpoint) -> SliceEndpointState {
    let conditions = &endpoint.conditions;
    let is_terminating = conditions.terminating == Some(true);
    // An absent `ready` means unknown, which consumers treat as ready.
    let is_ready = conditions.ready.unwrap_or(true);
    let is_serving = conditions.serving.unwrap_or(is_ready);
    let hints = &endpoint.hints.for_zones;
    SliceEndpointState {
        is_ready,
        is_draining: !is_ready && is_serving && is_terminating,
        zones: (!hints.is_empty()).then(|| hints.iter().map(|hint| hint.name.clone()).collect()),
    }
}

/// Keeps one family of a Service of two: each pod would count twice, and the second family may have no route.
fn prefer_family(states: &mut BTreeMap<(IpAddr, u16), SliceEndpointState>, is_ipv6: Option<bool>) {
    let has = |wanted: bool| {
        states.iter().any(|((address, _), state)| address.is_ipv6() == wanted && state.is_ready)
    };
    let (has_ipv4, has_ipv6) = (has(false), has(true));
    if has_ipv4 && has_ipv6 {
        let wanted = is_ipv6.unwrap_or(false);
        states.retain(|(address, _), _| address.is_ipv6() == wanted);
    }
}

/// Keeps the ready endpoints of the zone if every ready endpoint has hints, and one the zone.
fn keep_zone(states: &mut BTreeMap<(IpAddr, u16), SliceEndpointState>, zone: &str) {
    let ready = || states.values().filter(|state| state.is_ready);
    let has_zone = |state: &SliceEndpointState| {
        state.zones.as_ref().is_some_and(|zones| zones.iter().any(|name| **name == *zone))
    };
    if ready().all(|state| state.zones.is_some()) && ready().any(has_zone) {
        states.retain(|_, state| !state.is_ready || has_zone(state));
    }
}
