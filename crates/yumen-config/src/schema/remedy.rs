//! Remedies of refused values: the allowed values, or another notation.
//!
//! The messages beside them are those of APISIX. A remedy contains no value that the user wrote, which may be a
//! secret.

use serde_json::Value;

use crate::hint::closest;

/// Listed values of an enumeration; a longer one is cut.
const LISTED_MAX: usize = 24;

/// The remedy of a number or a boolean in place of a text.
pub(crate) const IN_QUOTES: &str = "write the value in quotes";

/// The values of an enumeration, the closest one first if the value resembles one.
pub(super) fn of_values(allowed: &[Value], found: &Value) -> String {
    let listed: Vec<String> = allowed.iter().take(LISTED_MAX).map(Value::to_string).collect();
    let more = if allowed.len() > LISTED_MAX { ", …" } else { "" };
    let known = allowed.iter().filter_map(Value::as_str);
    let written = found.as_str().unwrap_or_default();
    let near = closest(written, known);
    let likely = near.filter(|_| !written.is_empty());
    let suggestion = likely.map(|near| format!("did you mean \"{near}\"? ")).unwrap_or_default();
    format!("{suggestion}allowed: {}{more}", listed.join(", "))
}

/// Another notation of a value of the wrong type.
pub(super) fn of_type(expected: &str, found: &Value) -> Option<String> {
    let hint = match (expected, found) {
        ("integer" | "number", Value::String(text)) if text.trim().parse::<f64>().is_ok() => {
            "write the number without quotes"
        }
        ("string", Value::Number(_) | Value::Bool(_)) => IN_QUOTES,
        ("array", Value::String(_) | Value::Number(_)) => "write a list, such as [a, b]",
        ("object", Value::Array(_) | Value::String(_)) => "write a mapping, such as {name: value}",
        (_, Value::Null) => "leave the member out, or give it a value",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// The members to add, by the branches that are a set of required members: those of the sets that lack fewest.
pub(super) fn of_required(branches: &[Value], found: &Value) -> Option<String> {
    let members = found.as_object()?;
    let missing = |branch: &Value| -> Option<Vec<String>> {
        let names = branch.get("required")?.as_array()?.iter().filter_map(Value::as_str);
        Some(names.filter(|name| !members.contains_key(*name)).map(str::to_owned).collect())
    };
    let sets: Vec<Vec<String>> = branches.iter().filter_map(missing).collect();
    // With a complete set, another rule is broken.
    if sets.iter().any(Vec::is_empty) {
        return None;
    }
    let required: Vec<&str> = branches
        .iter()
        .filter_map(|branch| branch.get("required")?.as_array())
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let others: Vec<&str> =
        members.keys().map(String::as_str).filter(|name| !required.contains(name)).collect();
    // A member that resembles a required one was meant to be that.
    let is_misspelt =
        |name: &&String| others.iter().any(|other| closest(other, required.iter().copied()) == Some(name));
    let misspelt = sets.iter().find(|set| set.iter().all(|name| is_misspelt(&name)));
    if let Some(set) = misspelt {
        let names: Vec<String> = set.iter().map(|name| format!("\"{name}\"")).collect();
        return Some(format!("did you mean {}?", names.join(" and ")));
    }
    let absent = |set: &Vec<String>| set.iter().filter(|name| !is_misspelt(name)).cloned().collect();
    let has_misspelt = sets.iter().any(|set| set.iter().any(|name| is_misspelt(&name)));
    let sets: Vec<Vec<String>> = match has_misspelt {
        true => sets.iter().filter(|set| set.iter().any(|name| is_misspelt(&name))).map(absent).collect(),
        false => sets,
    };
    let fewest = sets.iter().map(Vec::len).min()?;
    let mut choices: Vec<String> =
        sets.iter().filter(|set| set.len() == fewest).map(|set| set.join(" and ")).collect();
    choices.dedup();
    match choices.as_slice() {
        [one] => Some(format!("add {one}")),
        _ if fewest == 1 => Some(format!("add one of: {}", choices.join(", "))),
        _ => Some(format!("add {}", choices.join(", or "))),
    }
}
