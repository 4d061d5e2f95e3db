//! Reduces derived schemas to the plain form that APISIX tools expect.
//!
//! Visits schema positions only, since a property may be called `title` or `default`.

use serde_json::{Map, Value};

/// Removes the generator's metadata, and folds "or null" into "optional".
pub(super) fn simplify(schema: &mut Value) {
    let Value::Object(node) = schema else { return };
    remove_metadata(node);
    fold_null(node);
    fold_constants(node);
    for (keyword, value) in node.iter_mut() {
        match keyword.as_str() {
            "properties" | "patternProperties" | "dependencies" => {
                if let Value::Object(schemas) = value {
                    schemas.values_mut().for_each(simplify);
                }
            }
            "allOf" | "anyOf" | "oneOf" => each(value),
            "items" if value.is_array() => each(value),
            "items" | "additionalProperties" | "not" | "if" | "then" | "else" | "contains" => simplify(value),
            _ => {}
        }
    }
}

/// Adds the bounds of their types to integers without other bounds.
pub(super) fn bound_integers(schema: &mut Value) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(bound_integers),
        Value::Object(members) => {
            let largest = match members.get("format").and_then(Value::as_str) {
                Some("uint8") => Some(u8::MAX.into()),
                Some("uint16") => Some(u16::MAX.into()),
                Some("uint32") => Some(u32::MAX),
                _ => None,
            };
            if let Some(largest) = largest {
                members.entry("maximum").or_insert(largest.into());
            }
            members.values_mut().for_each(bound_integers);
        }
        _ => {}
    }
}

fn each(schemas: &mut Value) {
    if let Value::Array(schemas) = schemas {
        schemas.iter_mut().for_each(simplify);
    }
}

fn remove_metadata(node: &mut Map<String, Value>) {
    node.shift_remove("$schema");
    node.shift_remove("title");
    if node.get("default").is_some_and(Value::is_null) {
        node.shift_remove("default");
    }
    let numeric = |format: &str| {
        matches!(format, "float" | "double") || format.starts_with("int") || format.starts_with("uint")
    };
    if node.get("format").and_then(Value::as_str).is_some_and(numeric) {
        node.shift_remove("format");
    }
}

fn fold_null(node: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = node.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_mut_slice() {
            let only = only.take();
            node.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(values)) = node.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let Some(Value::Array(branches)) = node.get_mut("anyOf") else { return };
    let before = branches.len();
    branches.retain(|branch| branch.get("type").is_none_or(|name| name != "null"));
    // Only `Option` is folded; a union of several types stays an `anyOf`.
    if branches.len() == before || branches.len() != 1 {
        return;
    }
    let only = branches.pop();
    node.shift_remove("anyOf");
    if let Some(Value::Object(inner)) = only {
        for (keyword, value) in inner {
            // Keywords of the field take precedence over those of its type.
            node.entry(keyword).or_insert(value);
        }
    }
}

/// Folds an enum with described variants, which is generated as one schema per variant.
fn fold_constants(node: &mut Map<String, Value>) {
    let Some(Value::Array(branches)) = node.get("oneOf") else { return };
    let mut values = Vec::with_capacity(branches.len());
    for branch in branches {
        match (branch.get("const"), branch.get("enum"), branch.get("type")) {
            (Some(value), _, Some(Value::String(kind))) if kind == "string" => values.push(value.clone()),
            (None, Some(Value::Array(more)), Some(Value::String(kind))) if kind == "string" => {
                values.extend(more.iter().cloned());
            }
            // Not an enum of strings.
            _ => return,
        }
    }
    node.shift_remove("oneOf");
    node.insert("type".into(), "string".into());
    node.insert("enum".into(), Value::Array(values));
}
