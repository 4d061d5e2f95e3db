//! Generates a commented `yumen.yaml` with every default from the types, so that the reference cannot drift.

use std::fmt::Write;

use serde_json::Value;

use super::NodeConfig;
use crate::schema;

const WIDTH: usize = 100;

/// The whole file: every field with its description, default and allowed values.
pub fn reference() -> String {
    let schema = schema::of::<NodeConfig>();
    let defaults = serde_json::to_value(NodeConfig::default()).unwrap_or_default();
    let mut out = String::from("# yumen.yaml: every setting of a node with its default.\n");
    section(&schema, &defaults, 0, &mut out);
    out
}

fn section(schema: &Value, defaults: &Value, indent: usize, out: &mut String) {
    let (Some(properties), Some(members)) = (schema["properties"].as_object(), defaults.as_object()) else {
        return;
    };
    for (name, property) in properties {
        if indent == 0 {
            out.push('\n');
        }
        comment(property, indent, out);
        let pad = " ".repeat(indent);
        match members.get(name) {
            Some(inner @ Value::Object(_)) => {
                line(out, format_args!("{pad}{name}:"));
                section(property, inner, indent + 2, out);
            }
            Some(Value::Array(items)) if items.iter().any(Value::is_object) => {
                line(out, format_args!("{pad}{name}:"));
                items.iter().for_each(|item| list_item(&property["items"], item, indent + 2, out));
            }
            Some(value) => line(out, format_args!("{pad}{name}: {value}")),
            None => {}
        }
    }
}

/// An object in a list. The dash has a line of its own, so that the first field can have a comment above it
/// too.
fn list_item(schema: &Value, item: &Value, indent: usize, out: &mut String) {
    line(out, format_args!("{}-", " ".repeat(indent)));
    section(schema, item, indent + 2, out);
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}

fn comment(property: &Value, indent: usize, out: &mut String) {
    // Doc comments have the line breaks of the source; the reference has its own width.
    let mut text = property["description"].as_str().unwrap_or("").replace('\n', " ");
    let allowed = allowed(property);
    if !allowed.is_empty() {
        text = format!("{text} ({allowed})");
    }
    let pad = " ".repeat(indent);
    let mut current = String::new();
    for word in text.split_whitespace() {
        if !current.is_empty() && indent + current.len() + word.len() + 3 > WIDTH {
            line(out, format_args!("{pad}# {current}"));
            current.clear();
        }
        if !current.is_empty() {
            current.push(' ');
        }
        current.push_str(word);
    }
    if !current.is_empty() {
        line(out, format_args!("{pad}# {current}"));
    }
}

fn allowed(property: &Value) -> String {
    if let Some(values) = property["enum"].as_array() {
        let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        return values.join(" | ");
    }
    // Almost every count has the minimum 0, which needs no mention.
    let min = property.get("minimum").filter(|min| **min != 0 || property.get("maximum").is_some());
    match (min, property.get("maximum")) {
        (Some(min), Some(max)) => format!("{min} to {max}"),
        (Some(min), None) => format!("from {min}"),
        (None, Some(max)) => format!("up to {max}"),
        (None, None) => String::new(),
    }
}
