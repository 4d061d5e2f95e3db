//! Upstreams outside the cluster: the external nodes of an ApisixUpstream.

use serde_json::{Map, Value, json};

use super::{upstream_of, write_config};
use crate::derived::UpstreamKey;
use crate::engine::{TrackedView, UnitOutput};
use crate::model::{ApisixExternalNode, ApisixUpstreamObject, ClusterKind, ObjectKey, ServiceObject};
use crate::resources::{SpecDefect, TranslatedKind, mark_broken};

/// The weight of a node that has none.
const WEIGHT: i64 = 100;

/// Writes the upstream of an ApisixUpstream with external nodes or discovery.
pub(crate) fn external_upstream(view: &TrackedView<'_>, key: &UpstreamKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let Some(object) = upstream_of(view, &key.namespace, &key.service) else { return output };
    let mut members = Map::new();
    let (nodes, mut defects) = nodes_of(view, object);
    members.insert("scheme".to_owned(), "http".into());
    members.insert("nodes".to_owned(), nodes.into());
    write_config(view, object, &object.spec.config, &mut members, &mut defects);
    let origin = ObjectKey::new(ClusterKind::ApisixUpstream, &key.namespace, &key.service);
    members.insert("labels".to_owned(), json!({ "origin": origin.origin_label() }));
    mark_broken(&mut members, &defects);
    output.add_resource(TranslatedKind::Upstreams, key.id(), &members.into());
    output
}

/// The external nodes, and the parts that cannot be followed.
pub(super) fn nodes_of(
    view: &TrackedView<'_>,
    object: &ApisixUpstreamObject,
) -> (Vec<Value>, Vec<SpecDefect>) {
    let mut defects = Vec::new();
    let nodes = object.spec.external_nodes.iter();
    let nodes = nodes.filter_map(|node| node_value(view, object, node, &mut defects)).collect();
    (nodes, defects)
}

fn node_value(
    view: &TrackedView<'_>,
    object: &ApisixUpstreamObject,
    node: &ApisixExternalNode,
    defects: &mut Vec<SpecDefect>,
) -> Option<Value> {
    let host = match node.kind.as_deref() {
        Some("Domain") => node.name.clone(),
        _ => match external_name(view, &object.meta.namespace, &node.name) {
            Ok(host) => host,
            Err(message) => {
                defects.push(SpecDefect::new("nodes", message));
                return None;
            }
        },
    };
    let mut value = json!({ "host": &*host, "weight": node.weight.unwrap_or(WEIGHT) });
    let default = match object.spec.config.settings.scheme.as_deref() {
        Some("https" | "grpcs") => 443,
        _ => 80,
    };
    value["port"] = node.port.unwrap_or(default).into();
    Some(value)
}

/// The host name of a Service of type ExternalName.
fn external_name(
    view: &TrackedView<'_>,
    namespace: &std::sync::Arc<str>,
    name: &std::sync::Arc<str>,
) -> Result<std::sync::Arc<str>, String> {
    let key = ObjectKey { kind: ClusterKind::Service, namespace: namespace.clone(), name: name.clone() };
    let service = view
        .get::<ServiceObject>(&key)
        .ok_or_else(|| format!("external node: Service {namespace}/{name} does not exist"))?;
    let host = service.spec.external_name.clone().filter(|_| &*service.spec.kind == "ExternalName");
    host.ok_or_else(|| format!("external node: Service {namespace}/{name} is not of type ExternalName"))
}
