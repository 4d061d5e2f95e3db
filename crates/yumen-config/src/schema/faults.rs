//! All faults of a value. [`validate`] stops at the first one.

use serde_json::{Map, Value};

use super::{InvalidSettings, object, validate};

/// Reported faults of one list.
const ITEM_FAULTS_MAX: usize = 32;

/// The faults of a value by a schema, with the messages of [`validate`]. Members are checked one by one, at every level.
/// A rule over several members is reported only if no member is refused alone.
pub fn faults(schema: &Value, instance: &Value) -> Vec<InvalidSettings> {
    let Err(first) = validate(schema, &mut instance.clone()) else { return Vec::new() };
    let inner = match (schema.get("properties"), instance) {
        (Some(Value::Object(properties)), Value::Object(members)) => of_members(schema, properties, members),
        (_, Value::Array(items)) => of_items(schema, items),
        _ => Vec::new(),
    };
    let inner = if inner.is_empty() { of_branch(schema, instance) } else { inner };
    if inner.is_empty() { vec![first] } else { inner }
}

/// The faults by the only branch of an `anyOf` or `oneOf` that has the type of the value.
fn of_branch(schema: &Value, instance: &Value) -> Vec<InvalidSettings> {
    let branches = ["anyOf", "oneOf"].iter().find_map(|keyword| schema.get(*keyword)?.as_array());
    let name = match instance {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        // The message about a scalar names all allowed types.
        _ => return Vec::new(),
    };
    let mut fitting = branches.into_iter().flatten().filter(|branch| branch["type"] == name);
    match (fitting.next(), fitting.next()) {
        (Some(branch), None) => faults(branch, instance),
        _ => Vec::new(),
    }
}

fn of_members(
    schema: &Value,
    properties: &Map<String, Value>,
    members: &Map<String, Value>,
) -> Vec<InvalidSettings> {
    let mut found = Vec::new();
    for (name, property) in properties {
        let Some(member) = members.get(name) else {
            if property.get("default").is_none() && is_required(schema, name) {
                found.push(InvalidSettings::at(name, format!("property \"{name}\" is required")));
            }
            continue;
        };
        found.extend(faults(property, member).into_iter().map(|fault| {
            fault.under(name).map_message(|inner| format!("property \"{name}\" validation failed: {inner}"))
        }));
    }
    if schema.get("additionalProperties") == Some(&Value::Bool(false))
        && schema.get("patternProperties").is_none()
    {
        let unknown = members.keys().filter(|name| !properties.contains_key(*name));
        found.extend(unknown.map(|name| {
            let refused = InvalidSettings::at(name, object::forbidden_message(name));
            match object::meant(name, Some(properties)) {
                Some(remedy) => refused.hint(remedy),
                None => refused,
            }
        }));
    }
    found
}

/// The faults of all items of a list whose items have one schema.
fn of_items(schema: &Value, items: &[Value]) -> Vec<InvalidSettings> {
    let Some(of_item @ Value::Object(_)) = schema.get("items") else { return Vec::new() };
    let numbered = items.iter().enumerate();
    let faults = numbered.flat_map(|(i, item)| {
        // APISIX counts items from 1 in messages; paths count from 0.
        let worded = move |fault: InvalidSettings| {
            fault
                .under(&format!("[{i}]"))
                .map_message(|inner| format!("failed to validate item {}: {inner}", i + 1))
        };
        faults(of_item, item).into_iter().map(worded)
    });
    faults.take(ITEM_FAULTS_MAX).collect()
}

fn is_required(schema: &Value, name: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|required| required.iter().any(|other| other == name))
}
