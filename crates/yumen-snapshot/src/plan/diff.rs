//! The objects in which two states differ, and the paths inside them.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use yumen_config::{Kind, Resource};

/// The change of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum ObjectChangeKind {
    Added,
    Changed,
    Removed,
}

/// An object that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObjectChange {
    /// Plural name of its kind.
    pub kind: &'static str,
    /// Id of the object.
    pub id: String,
    /// The change.
    pub what: ObjectChangeKind,
    /// The paths that differ, if both states have the object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// Objects that differ, in the order of compilation. Times, the order of members, and the form of an id as a
/// number or text are no difference.
pub fn diff(before: &[Resource], after: &[Resource]) -> Vec<ObjectChange> {
    let (old, new) = (by_rank(before), by_rank(after));
    let mut changes = BTreeMap::new();
    for (at, one) in &old {
        if !new.contains_key(at) {
            changes.insert(*at, change(one, ObjectChangeKind::Removed, Vec::new()));
        }
    }
    for (at, one) in &new {
        match old.get(at) {
            None => drop(changes.insert(*at, change(one, ObjectChangeKind::Added, Vec::new()))),
            // Equal texts need no parsing, and most objects do not change.
            Some(was) if was.json != one.json => {
                let paths = changed_paths(&was.json, &one.json);
                if !paths.is_empty() {
                    changes.insert(*at, change(one, ObjectChangeKind::Changed, paths));
                }
            }
            Some(_) => {}
        }
    }
    changes.into_values().collect()
}

type ByRank<'r> = BTreeMap<(usize, &'r str), &'r Resource>;

fn by_rank(resources: &[Resource]) -> ByRank<'_> {
    // The order of compilation, so that a plan lists an upstream before its routes.
    let rank = |kind: Kind| Kind::ALL.iter().position(|one| *one == kind).unwrap_or(Kind::ALL.len());
    resources.iter().map(|one| ((rank(one.kind), &*one.id), one)).collect()
}

fn change(one: &Resource, what: ObjectChangeKind, paths: Vec<String>) -> ObjectChange {
    ObjectChange { kind: one.kind.name(), id: one.id.to_string(), what, paths }
}

/// Members that the store writes, and the id, by which objects are compared.
const NO_DIFFERENCE: [&str; 3] = ["id", "create_time", "update_time"];

fn changed_paths(before: &str, after: &str) -> Vec<String> {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or(Value::Null);
    let mut paths = Vec::new();
    walk("", &parsed(before), &parsed(after), &mut paths);
    paths.retain(|path| !NO_DIFFERENCE.contains(&path.as_str()));
    paths
}

fn walk(path: &str, before: &Value, after: &Value, paths: &mut Vec<String>) {
    match (before, after) {
        _ if before == after => {}
        (Value::Object(old), Value::Object(new)) => {
            let removed = old.keys().filter(|name| !new.contains_key(*name));
            for name in new.keys().chain(removed) {
                let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let (old, new) = (old.get(name), new.get(name));
                match (old, new) {
                    (Some(old), Some(new)) => walk(&inner, old, new, paths),
                    _ => paths.push(inner),
                }
            }
        }
        // Arrays of different lengths differ as a whole: an insertion would shift every later item.
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (at, (old, new)) in old.iter().zip(new).enumerate() {
                walk(&format!("{path}[{at}]"), old, new, paths);
            }
        }
        _ => paths.push(path.to_owned()),
    }
}
