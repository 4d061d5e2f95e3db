//! EndpointSlices of the Service of a Gateway: the gateway's own pods that are ready.

use serde_json::{Map, Value, json};

use super::service::{metadata, service_key};
use crate::delta::{ObjectIntent, ObjectPath};
use crate::engine::{TrackedView, UnitOutput};
use crate::model::{ClusterKind, GatewayObject, ObjectKey, PodObject};
use crate::settings::GatewayMode;

pub(crate) fn translate_gateway_slices(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let (Some(gateway), Some(report)) = (view.get::<GatewayObject>(key), view.gateway_report(key)) else {
        return output;
    };
    if view.settings().mode != GatewayMode::Service || report.refusal.is_some() {
        return output;
    }
    let port = |port: &crate::derived::GatewayPort| {
        let target = port.target?;
        Some(json!({ "name": port.name(), "port": target, "protocol": port.transport() }))
    };
    let ports: Vec<Value> = report.ports.iter().filter_map(port).collect();
    if ports.is_empty() {
        return output;
    }
    let pods = view.list_all::<PodObject>(ClusterKind::Pod);
    for (family, suffix) in [("IPv4", "ipv4"), ("IPv6", "ipv6")] {
        let endpoints: Vec<Value> = pods.iter().filter_map(|pod| endpoint(pod, family == "IPv6")).collect();
        // A cluster of one family has no slice of the other.
        if endpoints.is_empty() {
            continue;
        }
        let service = service_key(key);
        let slice = ObjectKey {
            kind: ClusterKind::EndpointSlice,
            namespace: service.namespace.clone(),
            name: format!("{}-{suffix}", service.name).into(),
        };
        let labels: Map<String, Value> = [
            ("kubernetes.io/service-name".to_owned(), Value::from(&*service.name)),
            ("endpointslice.kubernetes.io/managed-by".to_owned(), "yumen".into()),
        ]
        .into_iter()
        .collect();
        let value = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata(&slice, key, gateway, labels),
            "addressType": family,
            "ports": ports,
            "endpoints": endpoints,
        });
        output.objects.insert(ObjectPath { key: slice }, ObjectIntent::Apply(value));
    }
    output
}

/// The endpoint of a pod that is ready, with its address of the family.
fn endpoint(pod: &PodObject, is_ipv6: bool) -> Option<Value> {
    if !pod.is_ready() || pod.meta.is_deleting {
        return None;
    }
    let address = pod.status.pod_ips.iter().find(|address| address.ip.contains(':') == is_ipv6)?;
    let mut endpoint = json!({
        "addresses": [address.ip],
        "conditions": { "ready": true, "serving": true, "terminating": false },
        "targetRef": { "kind": "Pod", "namespace": pod.meta.namespace, "name": pod.meta.name, "uid": pod.meta.uid },
    });
    // Load balancers of `externalTrafficPolicy: Local` choose nodes by it.
    if let Some(node) = &pod.spec.node_name {
        endpoint["nodeName"] = (&**node).into();
    }
    Some(endpoint)
}
