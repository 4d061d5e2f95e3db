//! Plugins that rewrite requests and responses.

use serde_json::{Map, Value, json};

use super::super::entity::KongEntity;
use super::{ConvertedPlugins, PluginJob};

/// Parses a field as `Name:value`.
fn split(line: &str) -> (String, String) {
    match line.split_once(':') {
        Some((name, value)) => (name.trim().to_owned(), value.trim().to_owned()),
        None => (line.trim().to_owned(), String::new()),
    }
}

/// Converts Kong's templates `$(headers.x)` to variables; `None` if one has no counterpart.
fn template(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        // A dollar sign without parentheses would start a variable here, so such a value is not taken over.
        let (inside, after) = after.strip_prefix('(')?.split_once(')')?;
        let (table, member) = inside.split_once(['.', '['])?;
        let member = member.trim_end_matches(']').trim_matches(['"', '\'']);
        let is_name =
            !member.is_empty() && member.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        match table.trim() {
            "headers" if is_name => {
                out.push_str(&format!("${{http_{}}}", member.to_lowercase().replace('-', "_")));
            }
            "query_params" if is_name => out.push_str(&format!("${{arg_{member}}}")),
            _ => return None,
        }
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

/// The fields of one operation with their converted values.
fn fields(job: &mut PluginJob<'_>, operation: &mut KongEntity, name: &str) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for line in operation.texts("headers", job.report) {
        let (field, value) = split(&line);
        match template(&value) {
            Some(value) => out.push((field, value)),
            None => {
                let why = format!("\"{value}\" holds a template that means nothing here");
                // Without the replacement, the upstream receives the client's own field.
                job.loses_guard |= name == "replace";
                job.dropped(&format!("{name}.headers"), why);
            }
        }
    }
    out
}

/// Drops parts of an operation. A dropped removal or replacement may reveal data.
fn drop_parts(job: &mut PluginJob<'_>, operation: &mut KongEntity, name: &str, parts: &[&str], why: &str) {
    let hides = matches!(name, "remove" | "rename" | "replace");
    for part in parts {
        job.loses_guard |=
            hides && HIDDEN_PARTS.contains(part) && operation.peek(part).is_some_and(has_content);
        operation.skip(part, &Value::Null, why, job.report);
    }
}

/// Whether a setting has content.
fn has_content(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        // Dumps contain all lists of an operation, most of them empty.
        Value::Object(members) => members.values().any(has_content),
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}

/// Settings with an allow list.
const LISTS_OF_ALLOWED: [&str; 2] = ["allow", "whitelist"];

/// Whether the plugin has an allow list, which hides everything else.
fn has_allow_list(job: &PluginJob<'_>) -> bool {
    LISTS_OF_ALLOWED.iter().any(|list| job.settings.peek(list).is_some_and(has_content))
}

const HIDDEN_PARTS: [&str; 3] = ["body", "querystring", "json"];
const REQUEST_PARTS: [&str; 3] = ["body", "querystring", "json_types"];
const RESPONSE_PARTS: [&str; 4] = ["json", "json_types", "body", "if_status"];

pub(super) fn request_transformer(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let why = "bodies and query arguments are not rewritten here";
    job.loses_guard |= has_allow_list(job);
    let mut out = Map::new();
    let mut add = Map::new();
    let mut set = Map::new();
    let mut remove = Vec::new();
    if let Some(method) = job.text("http_method") {
        out.insert("method".into(), method.to_uppercase().into());
    }
    // Kong's order of operations.
    for name in ["remove", "rename", "replace", "add", "append"] {
        let Some(mut operation) = job.settings.child(name, job.report) else { continue };
        drop_parts(job, &mut operation, name, &REQUEST_PARTS, why);
        if let Some(uri) = operation.text("uri", job.report) {
            match template(&uri) {
                Some(uri) => drop(out.insert("uri".into(), uri.into())),
                None => {
                    job.loses_guard = true;
                    job.dropped("replace.uri", format!("\"{uri}\" holds a template that means nothing here"));
                }
            }
        }
        for (field, value) in fields(job, &mut operation, name) {
            match name {
                "remove" => remove.push(Value::from(field)),
                "rename" => {
                    let instead = format!("{value} is set even where {field} is absent");
                    job.different(
                        "rename.headers",
                        instead,
                        "a field cannot be renamed, only set and removed",
                    );
                    set.insert(value, format!("${{http_{}}}", field.to_lowercase().replace('-', "_")).into());
                    remove.push(field.into());
                }
                "replace" => {
                    job.different("replace.headers", "the field is set even where it is absent", "");
                    set.insert(field, value.into());
                }
                "add" => {
                    job.different("add.headers", "the field is added even where there is one", "");
                    push(&mut add, field, value);
                }
                _ => push(&mut add, field, value),
            }
        }
        operation.finish(job.report);
    }
    job.skip("dots_in_keys", json!(true), "bodies are not rewritten here");
    let mut headers = Map::new();
    for (name, map) in [("add", add), ("set", set)] {
        if !map.is_empty() {
            headers.insert(name.into(), Value::Object(map));
        }
    }
    if !remove.is_empty() {
        headers.insert("remove".into(), remove.into());
    }
    if !headers.is_empty() {
        out.insert("headers".into(), Value::Object(headers));
    }
    // Everything was dropped and reported; an empty plugin would be invalid.
    if out.is_empty() { Vec::new() } else { super::one("proxy-rewrite", Value::Object(out)) }
}

/// Adds a value to a field: a text, or a list for several values.
fn push(map: &mut Map<String, Value>, field: String, value: String) {
    let several = match map.get(&field).cloned() {
        None => Value::from(value),
        Some(Value::Array(mut values)) => {
            values.push(value.into());
            Value::Array(values)
        }
        Some(one) => json!([one, value]),
    };
    map.insert(field, several);
}

pub(super) fn response_transformer(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let why = "bodies are not transformed as JSON here";
    // An allow list hides every other argument; without it they would reach the upstream.
    job.loses_guard |= has_allow_list(job);
    let mut add = Vec::new();
    let mut set = Map::new();
    let mut remove = Vec::new();
    for name in ["remove", "rename", "replace", "add", "append"] {
        let Some(mut operation) = job.settings.child(name, job.report) else { continue };
        drop_parts(job, &mut operation, name, &RESPONSE_PARTS, why);
        for (field, value) in fields(job, &mut operation, name) {
            match name {
                "remove" => remove.push(Value::from(field)),
                "rename" => {
                    let instead = format!("{value} is taken away where {field} is absent");
                    job.different(
                        "rename.headers",
                        instead,
                        "a field cannot be renamed, only set and removed",
                    );
                    set.insert(
                        value,
                        format!("${{sent_http_{}}}", field.to_lowercase().replace('-', "_")).into(),
                    );
                    remove.push(field.into());
                }
                "replace" => {
                    job.different("replace.headers", "the field is set even where it is absent", "");
                    set.insert(field, value.into());
                }
                // An added value must not contain a colon or end with a slash.
                _ if value.contains(':') || value.ends_with('/') || value.is_empty() => {
                    let instead = "the field is set, not added";
                    job.different(&format!("{name}.headers"), instead, "such a value can only be set");
                    set.insert(field, value.into());
                }
                _ => {
                    if name == "add" {
                        job.different("add.headers", "the field is added even where there is one", "");
                    }
                    add.push(Value::from(format!("{field}: {value}")));
                }
            }
        }
        operation.finish(job.report);
    }
    job.skip("dots_in_keys", json!(true), why);
    let mut headers = Map::new();
    if !add.is_empty() {
        headers.insert("add".into(), add.into());
    }
    if !set.is_empty() {
        headers.insert("set".into(), Value::Object(set));
    }
    if !remove.is_empty() {
        headers.insert("remove".into(), remove.into());
    }
    if headers.is_empty() {
        Vec::new()
    } else {
        super::one("response-rewrite", json!({ "headers": headers }))
    }
}
