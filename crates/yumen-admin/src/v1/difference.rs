//! Differences between two texts of one object, path by path.

use serde_json::{Map, Value, json};
use yumen_config::Kind;
use yumen_store::{EntryChange, StoreEntry};

use crate::secrets::{self, SecretVisibility};

/// A change as its reader may see it: the object, the action, and the paths that differ.
pub(super) fn shown(changed: &EntryChange, visibility: SecretVisibility) -> Value {
    let text = |entry: &Option<StoreEntry>| VisibleObject::of(entry.as_ref()?, changed.key.kind, visibility);
    let (before, after) = (text(&changed.before), text(&changed.after));
    let mut paths = Vec::new();
    if let (Some(before), Some(after)) = (&before, &after) {
        compare("", before.sides(), after.sides(), &mut paths);
    }
    let paths = paths.into_iter();
    let paths: Vec<Value> = paths
        .map(|PathDifference { path, before, after }| json!({ "path": path, "before": before, "after": after }))
        .collect();
    json!({
        "object": changed.key.to_string(),
        "action": action(changed),
        "before": before.map(|text| text.shown),
        "after": after.map(|text| text.shown),
        "paths": paths,
    })
}

/// The action on an object.
pub(super) fn action(changed: &EntryChange) -> &'static str {
    match (&changed.before, &changed.after) {
        (None, _) => "created",
        (Some(_), Some(_)) => "changed",
        (Some(_), None) => "deleted",
    }
}

/// An object as written, and as its reader may see it.
struct VisibleObject {
    written: Value,
    shown: Value,
}

impl VisibleObject {
    fn of(entry: &StoreEntry, kind: Kind, visibility: SecretVisibility) -> Option<VisibleObject> {
        let written: Value = serde_json::from_str(&entry.json).ok()?;
        let mut shown = written.clone();
        if let Some(object) = shown.as_object_mut() {
            secrets::in_history(visibility, kind, object);
        }
        Some(VisibleObject { written, shown })
    }

    fn sides(&self) -> VisiblePair<'_> {
        VisiblePair { written: &self.written, shown: &self.shown }
    }
}

/// The value at one path, as stored and as shown.
#[derive(Clone, Copy)]
struct VisiblePair<'t> {
    written: &'t Value,
    shown: &'t Value,
}

impl<'t> VisiblePair<'t> {
    /// The members, if both forms are objects.
    fn members(self) -> Option<VisibleMembers<'t>> {
        Some(VisibleMembers { written: self.written.as_object()?, shown: self.shown.as_object()? })
    }
}

/// The members of an object, as stored and as shown.
#[derive(Clone, Copy)]
struct VisibleMembers<'t> {
    written: &'t Map<String, Value>,
    shown: &'t Map<String, Value>,
}

impl<'t> VisibleMembers<'t> {
    /// One member; null if absent.
    fn get(self, name: &str) -> VisiblePair<'t> {
        let of = |members: &'t Map<String, Value>| members.get(name).unwrap_or(&Value::Null);
        VisiblePair { written: of(self.written), shown: of(self.shown) }
    }
}

/// A path whose stored values differ, with the shown values.
struct PathDifference {
    path: String,
    before: Value,
    after: Value,
}

/// Compares objects member by member, and all other values, lists included, as a whole.
///
/// Stored values are compared, shown values reported: a changed secret is reported without its text.
fn compare(path: &str, before: VisiblePair<'_>, after: VisiblePair<'_>, out: &mut Vec<PathDifference>) {
    let (Some(old), Some(new)) = (before.members(), after.members()) else {
        if before.written != after.written {
            let path = path.to_owned();
            out.push(PathDifference { path, before: before.shown.clone(), after: after.shown.clone() });
        }
        return;
    };
    let is_new = |name: &&String| !old.written.contains_key(*name);
    let names: Vec<&String> = old.written.keys().chain(new.written.keys().filter(is_new)).collect();
    for name in names {
        if path.is_empty() && name == "update_time" {
            // Every write changes this time.
            continue;
        }
        let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        compare(&inner, old.get(name), new.get(name), out);
    }
}
