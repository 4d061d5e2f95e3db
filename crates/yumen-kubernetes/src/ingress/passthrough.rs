//! Hosts whose TLS the service of `/` ends (`ssl-passthrough`).

use serde_json::{Value, json};

use super::backends::port_number;
use super::listeners;
use super::locations::{HostLocation, LocationTarget};
use crate::derived::{UpstreamFlavor, UpstreamKey, UpstreamSource};
use crate::engine::{TrackedView, UnitOutput};
use crate::resources::TranslatedKind;

/// Writes the stream route of a host. Returns the scope of its TLS.
pub(super) fn add_stream(
    view: &TrackedView<'_>,
    scope: &str,
    hosts: &[String],
    root: &HostLocation<'_>,
    output: &mut UnitOutput,
) -> Option<(String, Value)> {
    let (owner, LocationTarget::Service(service)) = (root.owner?, root.target) else { return None };
    let key = port_number(view, &owner.key.namespace, &service.name, &service.port, false).map(|port| {
        UpstreamKey {
            namespace: owner.key.namespace.clone(),
            service: service.name.clone(),
            port,
            flavor: UpstreamFlavor::Sealed,
            source: UpstreamSource::Ingress,
            gateway: None,
        }
    });
    let backends = match key {
        Ok(key) => {
            let value = json!([{ "weight": 1, "upstream_id": key.to_string() }]);
            output.upstreams.insert(key);
            value
        }
        Err(_) => json!([{ "weight": 1, "status": 503 }]),
    };
    let id = format!("{scope}!tls");
    let labels = json!({ "origin": owner.key.origin_label() });
    let route = json!({
        "backends": backends,
        "scopes": [id],
        "create_time": owner.object.meta.created_s,
        "labels": labels,
    });
    output.add_resource(TranslatedKind::StreamRoutes, id.clone(), &route);
    let value = json!({
        "listeners": [listeners::HTTPS],
        "hosts": hosts,
        "wildcard": "one",
        "tls": { "mode": "passthrough" },
        "labels": labels,
    });
    Some((id, value))
}
