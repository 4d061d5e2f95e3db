//! Endpoints of Services whose EndpointSlices are not among the manifests: controllers of the cluster write those.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Address of the one endpoint that stands for those of a Service (RFC 5737 §3, TEST-NET-1).
pub(crate) const PLACEHOLDER_ADDRESS: &str = "192.0.2.1";

/// Services and EndpointSlices of the manifests.
#[derive(Debug, Default)]
pub(super) struct PlaceholderEndpoints {
    /// Ports of each Service, by namespace and name.
    services: BTreeMap<(String, String), Value>,
    /// Services with an EndpointSlice.
    sliced: BTreeSet<(String, String)>,
}

impl PlaceholderEndpoints {
    /// Takes note of an object with its namespace.
    pub(super) fn observe(&mut self, object: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let namespace = text(&metadata["namespace"]);
        match object["kind"].as_str() {
            Some("Service") if object["spec"]["type"] != "ExternalName" => {
                let ports = object["spec"]["ports"].clone();
                self.services.insert((namespace, text(&metadata["name"])), ports);
            }
            Some("EndpointSlice") => {
                let service = text(&metadata["labels"]["kubernetes.io/service-name"]);
                self.sliced.insert((namespace, service));
            }
            _ => {}
        }
    }

    /// An EndpointSlice for each Service that has none, with the namespace and name of the Service.
    pub(super) fn slices(&self) -> impl Iterator<Item = (&(String, String), Value)> {
        let lacking = self.services.iter().filter(|(service, _)| !self.sliced.contains(service));
        lacking.map(|(service, ports)| (service, slice(service, ports)))
    }
}

fn slice((namespace, name): &(String, String), ports: &Value) -> Value {
    let port = |port: &Value| {
        // The number of a named port is in the pods, which no manifest has.
        let number = port["targetPort"].as_u64().map_or_else(|| port["port"].clone(), Value::from);
        json!({ "name": port["name"].as_str().unwrap_or_default(), "port": number, "protocol": port["protocol"].as_str().unwrap_or("TCP") })
    };
    let ports: Vec<Value> = ports.as_array().into_iter().flatten().map(port).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            // No name of a cluster has this character.
            "name": format!("{name}!placeholder"),
            "labels": { "kubernetes.io/service-name": name },
        },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": [{ "addresses": [PLACEHOLDER_ADDRESS], "conditions": { "ready": true } }],
    })
}
