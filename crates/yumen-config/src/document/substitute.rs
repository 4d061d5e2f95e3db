//! `${{NAME}}` and `${{NAME:=default}}` in values and keys, and YAML's merge key `<<`.

use serde_json::{Map, Value};
use yumen_base::Problem;

use super::Lookup;

/// Replaces variables everywhere in `value`. The problem names the path; its object is the caller's.
pub(super) fn resolve(value: &mut Value, lookup: Lookup<'_>) -> Result<(), Problem> {
    resolve_at(value, lookup, "")
}

fn resolve_at(value: &mut Value, lookup: Lookup<'_>, path: &str) -> Result<(), Problem> {
    match value {
        Value::String(text) => {
            if let Some(resolved) = resolve_text(text, lookup, path)? {
                *value = typed(resolved);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                resolve_at(item, lookup, &format!("{path}[{i}]"))?;
            }
        }
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                resolve_at(member, lookup, &join(path, name))?;
            }
            if members.keys().any(|name| name.contains("${{")) {
                *members = resolve_keys(std::mem::take(members), lookup, path)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn resolve_keys(
    members: Map<String, Value>,
    lookup: Lookup<'_>,
    path: &str,
) -> Result<Map<String, Value>, Problem> {
    members
        .into_iter()
        .map(|(name, member)| {
            let resolved = resolve_text(&name, lookup, path)?;
            Ok((resolved.unwrap_or(name), member))
        })
        .collect()
}

/// The text with its variables replaced; `None` if it has none.
fn resolve_text(text: &str, lookup: Lookup<'_>, path: &str) -> Result<Option<String>, Problem> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${{") {
        let Some(length) = rest[start..].find("}}") else { break };
        let inner = rest[start + 3..start + length].trim();
        let (name, default) = match inner.split_once(":=") {
            Some((name, default)) => (name.trim(), Some(default.trim())),
            None => (inner, None),
        };
        out.push_str(&rest[..start]);
        match lookup(name) {
            Some(value) => out.push_str(&value),
            None => match default {
                Some(default) => out.push_str(default),
                None => {
                    let message = format!("the environment variable \"{name}\" is not set");
                    return Err(Problem::error("", path, message)
                        .hint(format!("set it, or write ${{{{{name}:=default}}}}")));
                }
            },
        }
        rest = &rest[start + length + 2..];
    }
    if rest.len() == text.len() {
        return Ok(None);
    }
    out.push_str(rest);
    Ok(Some(out))
}

/// What came out of a variable is a number or a boolean if it reads like one, as in APISIX.
fn typed(text: String) -> Value {
    match text.as_str() {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => match text.parse::<i64>() {
            Ok(number) => Value::from(number),
            Err(_) => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Value::from(number),
                _ => Value::String(text),
            },
        },
    }
}

/// Merges what stands under `<<` into its object, as YAML has it; what the object says itself wins.
pub fn merge_keys(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(merge_keys),
        Value::Object(members) => {
            members.values_mut().for_each(merge_keys);
            let sources = match members.get("<<") {
                Some(Value::Object(_)) => vec![members.shift_remove("<<").unwrap_or_default()],
                Some(Value::Array(all)) if all.iter().all(Value::is_object) => {
                    match members.shift_remove("<<") {
                        Some(Value::Array(all)) => all,
                        _ => Vec::new(),
                    }
                }
                _ => return,
            };
            for source in sources {
                let Value::Object(source) = source else { continue };
                for (name, member) in source {
                    members.entry(name).or_insert(member);
                }
            }
        }
        _ => {}
    }
}
