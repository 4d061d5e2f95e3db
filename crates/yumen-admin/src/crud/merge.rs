//! Changes of part of an object: a merge patch, or a new value at a path.

use serde_json::{Map, Value};

/// Maximum length of a path: nested objects are parsed and freed by recursion.
const NAMES_MAX: usize = 64;

/// Merges `patch` into `object` (RFC 7396): objects by member, null deletes, other values replace.
pub(crate) fn merge(object: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, value) in patch {
        match (object.get_mut(&name), value) {
            (_, Value::Null) => {
                object.shift_remove(&name);
            }
            (Some(Value::Object(inner)), Value::Object(patch)) => merge(inner, patch),
            (_, Value::Object(patch)) => {
                let mut inner = Map::new();
                // Merged into an empty object, so that nulls of the patch are not stored.
                merge(&mut inner, patch);
                object.insert(name, Value::Object(inner));
            }
            (_, value) => {
                object.insert(name, value);
            }
        }
    }
}

/// Sets the value at `path` and creates missing objects; null deletes.
///
/// # Errors
/// The part of the path that is not an object, or the excessive length.
pub(crate) fn replace(object: &mut Map<String, Value>, path: &[String], value: Value) -> Result<(), String> {
    let Some((last, parents)) = path.split_last() else {
        return Ok(());
    };
    if path.len() > NAMES_MAX {
        return Err(format!("it has {} names, at most {NAMES_MAX} are possible", path.len()));
    }
    let mut inner = object;
    for (i, name) in parents.iter().enumerate() {
        let next = inner.entry(name.as_str()).or_insert_with(|| Value::Object(Map::new()));
        inner = next.as_object_mut().ok_or_else(|| format!("/{}", path[..=i].join("/")))?;
    }
    match value {
        Value::Null => inner.shift_remove(last),
        value => inner.insert(last.clone(), value),
    };
    Ok(())
}
