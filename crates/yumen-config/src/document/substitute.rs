//! `${{NAME}}` and `${{NAME:=default}}` in values and keys, and YAML's merge key `<<`.

use serde_json::{Map, Value};

use super::Lookup;
use crate::resource::ResourceDefect;

/// Replaces variables everywhere in `value`. A text with an unset variable stays unchanged and yields a
/// defect.
pub(super) fn resolve(value: &mut Value, lookup: Lookup<'_>) -> Vec<ResourceDefect> {
    let mut unset = Vec::new();
    resolve_at(value, lookup, "", &mut unset);
    unset
}

fn resolve_at(value: &mut Value, lookup: Lookup<'_>, path: &str, unset: &mut Vec<ResourceDefect>) {
    match value {
        Value::String(text) => match resolve_text(text, lookup) {
            Ok(None) => {}
            Ok(Some(resolved)) => *value = typed(resolved),
            // The text stays, so the item keeps its identity and can be reported and refused as a whole.
            Err(name) => unset.push(not_set(path, name)),
        },
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                resolve_at(item, lookup, &format!("{path}[{i}]"), unset);
            }
        }
        Value::Object(members) => {
            // Values before keys, so that a path in a report has the key as the user wrote it.
            for (name, member) in members.iter_mut() {
                resolve_at(member, lookup, &join(path, name), unset);
            }
            // Only a key with a variable needs a new map.
            if members.keys().any(|name| name.contains("${{")) {
                *members = resolve_keys(std::mem::take(members), lookup, path, unset);
            }
        }
        _ => {}
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn resolve_keys(
    members: Map<String, Value>,
    lookup: Lookup<'_>,
    path: &str,
    unset: &mut Vec<ResourceDefect>,
) -> Map<String, Value> {
    // A map cannot rename keys in place; rebuilding keeps their order.
    let resolved = members.into_iter().map(|(name, member)| match resolve_text(&name, lookup) {
        Ok(resolved) => (resolved.unwrap_or(name), member),
        Err(variable) => {
            unset.push(not_set(path, variable));
            (name, member)
        }
    });
    resolved.collect()
}

fn not_set(path: &str, name: &str) -> ResourceDefect {
    ResourceDefect::new(path, format!("the environment variable \"{name}\" is not set"))
        .hint(format!("set it, or write ${{{{{name}:=default}}}}"))
}

/// The text with its variables replaced; `None` if it has none. Fails with the name of the first unset
/// variable.
fn resolve_text<'t>(text: &'t str, lookup: Lookup<'_>) -> Result<Option<String>, &'t str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${{") {
        // An unclosed `${{` is plain text.
        let Some(length) = rest[start..].find("}}") else { break };
        let inner = rest[start + 3..start + length].trim();
        let (name, default) = match inner.split_once(":=") {
            Some((name, default)) => (name.trim(), Some(default.trim())),
            None => (inner, None),
        };
        out.push_str(&rest[..start]);
        match lookup(name) {
            Some(value) => out.push_str(&value),
            // An empty variable is set, so the default does not replace it.
            None => out.push_str(default.ok_or(name)?),
        }
        // Behind the variable: a value that contains `${{` is not resolved again.
        rest = &rest[start + length + 2..];
    }
    if rest.len() == text.len() {
        return Ok(None);
    }
    out.push_str(rest);
    Ok(Some(out))
}

/// A substituted text becomes a number or a boolean if it parses as one, as in APISIX.
fn typed(text: String) -> Value {
    match text.as_str() {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => match text.parse::<i64>() {
            // Integers first, because a float loses digits beyond 2^53.
            Ok(number) => Value::from(number),
            Err(_) => match text.parse::<f64>() {
                // `inf` and `nan` parse as floats, but JSON has no such numbers.
                Ok(number) if number.is_finite() => Value::from(number),
                _ => Value::String(text),
            },
        },
    }
}

/// Expands YAML merge keys (`<<`). Members of the object itself take precedence over merged ones.
pub fn merge_keys(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(merge_keys),
        Value::Object(members) => {
            // Inner mappings first, so that a mapping is complete before it is merged into another one.
            members.values_mut().for_each(merge_keys);
            let sources = match members.get("<<") {
                Some(Value::Object(_)) => vec![members.shift_remove("<<").unwrap_or_default()],
                Some(Value::Array(all)) if all.iter().all(Value::is_object) => {
                    match members.shift_remove("<<") {
                        Some(Value::Array(all)) => all,
                        _ => Vec::new(),
                    }
                }
                // Any other `<<` stays an ordinary member, and the schema refuses it where it is unknown.
                _ => return,
            };
            for source in sources {
                let Value::Object(source) = source else { continue };
                for (name, member) in source {
                    // An earlier source takes precedence over a later one (YAML merge key type, 2005).
                    members.entry(name).or_insert(member);
                }
            }
        }
        _ => {}
    }
}
