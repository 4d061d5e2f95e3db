//! Endpoints of Services, from EndpointSlices to nodes of upstreams.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::engine::{IndexKey, TrackedView};
use crate::model::{EndpointSliceObject, ServiceObject};

/// An endpoint of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndpointNode {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    pub(crate) weight: u32,
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
    let mut nodes = Vec::new();
    for slice in slices {
        for port in &slice.ports {
            let Some(number) = port.port else { continue };
            if &*port.name != port_name || (port.protocol.as_deref() == Some("UDP")) != is_udp {
                continue;
            }
            for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.conditions.ready != Some(false))
            {
                let addresses = endpoint.addresses.iter().filter_map(|address| address.parse().ok());
                nodes.extend(addresses.map(|address| EndpointNode { address, port: number, weight: 1 }));
            }
        }
    }
    nodes.sort();
    nodes.dedup();
    nodes
}

/// Nodes as the member `nodes` of an upstream.
pub(crate) fn nodes_value(nodes: &[EndpointNode]) -> Value {
    let node = |node: &EndpointNode| json!({ "host": node.address.to_string(), "port": node.port, "weight": node.weight });
    nodes.iter().map(node).collect()
}
