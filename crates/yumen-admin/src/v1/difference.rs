//! What differs between two texts of one object, path by path.

use serde_json::{Map, Value, json};
use yumen_config::Kind;
use yumen_store::{Changed, Entry};

/// Stands for a value that is never shown.
const HIDDEN: &str = "(hidden)";

/// A change as clients see it: the object, what was done to it, and the paths that differ.
pub(super) fn shown(changed: &Changed) -> Value {
    let (before, after) = (text_of(changed.before.as_ref()), text_of(changed.after.as_ref()));
    let mut paths = Vec::new();
    if let (Some(before), Some(after)) = (&before, &after) {
        compare("", before, after, &mut paths);
    }
    let hide = |value: Option<Value>| value.map(|value| without_secrets(changed.key.kind, value));
    let paths: Vec<Value> = paths
        .into_iter()
        .map(|(path, before, after)| match is_secret(changed.key.kind, &path) {
            true => json!({ "path": path, "before": HIDDEN, "after": HIDDEN }),
            false => json!({ "path": path, "before": before, "after": after }),
        })
        .collect();
    json!({
        "object": changed.key.to_string(),
        "action": action(changed),
        "before": hide(before),
        "after": hide(after),
        "paths": paths,
    })
}

/// What was done to an object.
pub(super) fn action(changed: &Changed) -> &'static str {
    match (&changed.before, &changed.after) {
        (None, _) => "created",
        (Some(_), Some(_)) => "changed",
        (Some(_), None) => "deleted",
    }
}

fn text_of(entry: Option<&Entry>) -> Option<Value> {
    serde_json::from_str(&entry?.json).ok()
}

/// Private keys of certificates never leave, as in the rest of the API.
fn without_secrets(kind: Kind, mut value: Value) -> Value {
    if let (Kind::Ssls, Some(object)) = (kind, value.as_object_mut()) {
        for secret in ["key", "keys"] {
            if let Some(value) = object.get_mut(secret) {
                *value = HIDDEN.into();
            }
        }
    }
    value
}

fn is_secret(kind: Kind, path: &str) -> bool {
    kind == Kind::Ssls && (path == "key" || path.starts_with("keys"))
}

type Difference = (String, Value, Value);

/// Objects are compared member by member; everything else, lists too, as a whole.
fn compare(path: &str, before: &Value, after: &Value, out: &mut Vec<Difference>) {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        if before != after {
            out.push((path.to_owned(), before.clone(), after.clone()));
        }
        return;
    };
    let is_new = |name: &&String| !old.contains_key(*name);
    let names: Vec<&String> = old.keys().chain(new.keys().filter(is_new)).collect();
    for name in names {
        if path.is_empty() && name == "update_time" {
            continue;
        }
        let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let member = |of: &Map<String, Value>| of.get(name).cloned().unwrap_or(Value::Null);
        compare(&inner, &member(old), &member(new), out);
    }
}
