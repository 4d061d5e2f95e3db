//! The readable parts of an Ingress that does not decode.
//!
//! Without its paths, requests would fall to the wider paths of others, which may admit more.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::kind::ClusterKind;
use super::object::{ClusterObject, ObjectBody};
use super::{IngressBackend, IngressObject, IngressTls};

/// The object with the parts that decode, whose paths are refused for `reason`; `None` for other kinds, and without a
/// name.
pub fn salvage(kind: ClusterKind, object: &Value, reason: &str) -> Option<ClusterObject> {
    if kind != ClusterKind::Ingress {
        return None;
    }
    let readable =
        json!({ "metadata": readable_metadata(&object["metadata"]), "spec": readable_spec(&object["spec"]) });
    let mut ingress: IngressObject = serde_json::from_value(readable).ok()?;
    ingress.spec.unreadable = Some(reason.into());
    let is_named = !ingress.meta.name.is_empty();
    is_named.then(|| ClusterObject { kind, body: ObjectBody::Ingress(Arc::new(ingress)) })
}

/// The members of `metadata` that a translation reads. Annotations that are no texts become texts.
pub fn readable_metadata(metadata: &Value) -> Value {
    let mut readable = Map::new();
    for name in ["name", "namespace", "creationTimestamp", "uid"] {
        readable.extend(metadata[name].as_str().map(|text| (name.to_owned(), text.into())));
    }
    let annotations = metadata["annotations"].as_object().into_iter().flatten();
    let texts = annotations.map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (name.clone(), Value::from(text))
    });
    readable.insert("annotations".to_owned(), texts.collect::<Map<String, Value>>().into());
    readable.into()
}

fn readable_spec(spec: &Value) -> Value {
    let mut readable = Map::new();
    readable.extend(text_member(spec, "ingressClassName"));
    if is_readable::<IngressBackend>(&spec["defaultBackend"]) {
        readable.insert("defaultBackend".to_owned(), spec["defaultBackend"].clone());
    }
    let tls = spec["tls"].as_array().into_iter().flatten().filter(|one| is_readable::<IngressTls>(one));
    readable.insert("tls".to_owned(), tls.cloned().collect());
    let rules = spec["rules"].as_array().into_iter().flatten();
    // A host that is no text is unknown.
    let rules = rules.filter(|rule| rule["host"].is_null() || rule["host"].is_string());
    readable.insert("rules".to_owned(), rules.map(readable_rule).collect());
    readable.into()
}

fn readable_rule(rule: &Value) -> Value {
    let mut readable = Map::from_iter(text_member(rule, "host"));
    if let Some(paths) = rule["http"]["paths"].as_array() {
        let paths = paths.iter().map(|path| {
            let mut members = Map::from_iter(text_member(path, "path"));
            members.extend(text_member(path, "pathType"));
            if is_readable::<IngressBackend>(&path["backend"]) {
                members.insert("backend".to_owned(), path["backend"].clone());
            }
            Value::from(members)
        });
        readable.insert("http".to_owned(), json!({ "paths": paths.collect::<Value>() }));
    }
    readable.into()
}

fn text_member(object: &Value, name: &str) -> Option<(String, Value)> {
    object[name].as_str().map(|text| (name.to_owned(), text.into()))
}

fn is_readable<T: DeserializeOwned>(value: &Value) -> bool {
    !value.is_null() && serde_json::from_value::<T>(value.clone()).is_ok()
}
