//! All faults of a value. [`validate`] stops at the first one.

use serde_json::{Map, Value};

use super::{InvalidSettings, object, validate};

/// The faults of a value by a schema, with the messages of [`validate`]. Members are checked one by one, at every level.
/// A rule over several members is reported only if no member is refused alone.
pub fn faults(schema: &Value, instance: &Value) -> Vec<InvalidSettings> {
    let Err(first) = validate(schema, &mut instance.clone()) else { return Vec::new() };
    let inner = match (schema.get("properties"), instance) {
        (Some(Value::Object(properties)), Value::Object(members)) => of_members(schema, properties, members),
        _ => Vec::new(),
    };
    if inner.is_empty() { vec![first] } else { inner }
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

fn is_required(schema: &Value, name: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|required| required.iter().any(|other| other == name))
}
