//! Labels of the routes that Ingresses lead to, from the translated resources.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use yumen_config::Kind;
use yumen_store::StoreState;

/// The separator of the Ingress and the rest in the id of a route: `shop/cart!ingress!shop.test!0.0`.
const SEPARATOR: &str = "!ingress!";

/// The Ingress, Service, host and path of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RouteLabel {
    pub(super) namespace: String,
    pub(super) ingress: String,
    /// The Service of the first backend; empty without one.
    pub(super) service: String,
    pub(super) host: String,
    pub(super) path: String,
}

/// The labels of all routes of Ingresses.
#[derive(Debug, Default)]
pub(super) struct RouteLabels {
    by_id: BTreeMap<Box<str>, RouteLabel>,
    /// Namespace, Ingress and defect.
    orphans: BTreeSet<(String, String, &'static str)>,
}

impl RouteLabels {
    pub(super) fn of(state: &StoreState) -> RouteLabels {
        let mut labels = RouteLabels::default();
        for (id, entry) in state.of_kind(Kind::Routes) {
            let Some((ingress, rest)) = id.split_once(SEPARATOR) else { continue };
            let Some((namespace, ingress)) = ingress.split_once('/') else { continue };
            let route: Value = serde_json::from_str(&entry.json).unwrap_or_default();
            let upstream = route["backends"][0]["upstream_id"].as_str();
            labels.note_orphan(state, namespace, ingress, &route["backends"][0], upstream);
            let host = rest.split('!').next().unwrap_or_default();
            let label = RouteLabel {
                namespace: namespace.to_owned(),
                ingress: ingress.to_owned(),
                service: upstream.and_then(service_of).unwrap_or_default().to_owned(),
                host: host_text(host),
                path: path_of(&route["match"]).to_owned(),
            };
            labels.by_id.insert((&**id).into(), label);
        }
        labels
    }

    pub(super) fn get(&self, id: &str) -> Option<&RouteLabel> {
        self.by_id.get(id)
    }

    pub(super) fn orphans(&self) -> &BTreeSet<(String, String, &'static str)> {
        &self.orphans
    }

    fn note_orphan(
        &mut self,
        state: &StoreState,
        namespace: &str,
        ingress: &str,
        backend: &Value,
        upstream: Option<&str>,
    ) {
        let defect = match upstream {
            // A route with a status instead of an upstream has no Service.
            None if backend["status"].is_u64() => "no-service",
            None => return,
            Some(upstream) => match state.get(Kind::Upstreams, upstream) {
                None => "no-service",
                Some(entry) if has_nodes(&entry.json) => return,
                Some(_) => "no-endpoint",
            },
        };
        self.orphans.insert((namespace.to_owned(), ingress.to_owned(), defect));
    }
}

/// The label `origin` of a resource; empty without one.
pub(super) fn origin(json: &str) -> String {
    let resource: Value = serde_json::from_str(json).unwrap_or_default();
    resource["labels"]["origin"].as_str().unwrap_or_default().to_owned()
}

/// Whether an upstream has an endpoint, or finds them elsewhere.
fn has_nodes(json: &str) -> bool {
    let upstream: Value = serde_json::from_str(json).unwrap_or_default();
    match &upstream["nodes"] {
        Value::Array(nodes) => !nodes.is_empty(),
        Value::Object(nodes) => !nodes.is_empty(),
        _ => !upstream["service_name"].is_null(),
    }
}

/// The Service in the id of an upstream, such as `shop/cart!ingress!80.http`.
fn service_of(upstream: &str) -> Option<&str> {
    Some(upstream.split_once('!')?.0.split_once('/')?.1)
}

/// A host as people write it: ids have `_.shop.test` for `*.shop.test` and `_` for every host, as ingress-nginx does.
fn host_text(part: &str) -> String {
    match part.strip_prefix("_.") {
        Some(suffix) => format!("*.{suffix}"),
        None => part.to_owned(),
    }
}

/// The path that a route matches.
fn path_of(matching: &Value) -> &str {
    let pattern = matching["path_regex"]["pattern"].as_str();
    let literal = || {
        let lists = matching["paths"].as_object()?;
        lists.values().find_map(|list| list[0].as_str())
    };
    pattern.or_else(literal).unwrap_or_default()
}
