//! Plugins that rewrite requests and responses.

use serde_json::{Map, Value, json};

use super::super::entity::KongEntity;
use super::{ConvertedPlugins, PluginJob};

/// The methods that `proxy-rewrite` sets.
const METHODS: [&str; 14] = [
    "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "LOCK", "TRACE", "UNLOCK", "PROPFIND",
    "MOVE", "COPY", "MKCOL",
];

/// Parses `name:value`. Kong skips all colons between the two.
fn split(line: &str) -> (String, String) {
    match line.split_once(':') {
        Some((name, value)) => (name.trim().to_owned(), value.trim_start_matches(':').trim().to_owned()),
        None => (line.trim().to_owned(), String::new()),
    }
}

/// Text without variables.
pub(super) fn literal(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            // After a backslash, a dollar sign starts no variable.
            '$' if !out.ends_with('\\') => out.push_str("${$}"),
            c => out.push(c),
        }
    }
    out
}

/// Converts Kong's templates `$(headers.x)` to variables; `None` if one has no counterpart.
fn template(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("$(") {
        out.push_str(&literal(before));
        let (inside, after) = after.split_once(')')?;
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
    out.push_str(&literal(rest));
    Some(out)
}

/// One part of a request or response: its name in Kong, and the conversion of its values.
#[derive(Clone, Copy)]
struct EditedPart {
    list: &'static str,
    value: fn(&str) -> Option<String>,
    /// Whether `Host` is no field of this part.
    excludes_host: bool,
}

const REQUEST_FIELDS: EditedPart = EditedPart { list: "headers", value: template, excludes_host: true };
const REQUEST_ARGUMENTS: EditedPart =
    EditedPart { list: "querystring", value: template, excludes_host: false };
const RESPONSE_FIELDS: EditedPart =
    EditedPart { list: "headers", value: |text| Some(literal(text)), excludes_host: false };

/// Edits by presence, in the form of `field_edits` and `query_edits`. Both have Kong's order of operations.
#[derive(Default)]
struct KongEdits {
    remove: Vec<Value>,
    /// Kong's `rename`, `replace`, `add` and `append`, under the names of the settings.
    operations: [Map<String, Value>; 4],
}

/// Operations with a value: the name in Kong, and the setting.
const VALUED: [(&str, &str); 4] =
    [("rename", "rename"), ("replace", "replace"), ("add", "default"), ("append", "append")];

impl KongEdits {
    /// Adds one line of an operation.
    fn add(&mut self, operation: &str, name: String, value: String) {
        let Some(at) = VALUED.iter().position(|(kong, _)| *kong == operation) else {
            self.remove.push(name.into());
            return;
        };
        let map = &mut self.operations[at];
        match operation {
            // The later of two values replaces the earlier one.
            "replace" => drop(map.insert(name, value.into())),
            "append" => push(map, name, value),
            // After the first of two lines, the name is renamed, or present.
            _ => drop(map.entry(name).or_insert_with(|| value.into())),
        }
    }

    /// The settings; `None` without any edit.
    fn settings(self) -> Option<Value> {
        let mut out = Map::new();
        if !self.remove.is_empty() {
            out.insert("remove".into(), self.remove.into());
        }
        for ((_, setting), map) in VALUED.iter().zip(self.operations) {
            if !map.is_empty() {
                out.insert((*setting).to_owned(), Value::Object(map));
            }
        }
        (!out.is_empty()).then_some(Value::Object(out))
    }
}

/// Adds a value to a name: a text, or a list for several values.
fn push(map: &mut Map<String, Value>, name: String, value: String) {
    let several = match map.get(&name).cloned() {
        None => Value::from(value),
        Some(Value::Array(mut values)) => {
            values.push(value.into());
            Value::Array(values)
        }
        Some(one) => json!([one, value]),
    };
    map.insert(name, several);
}

/// Converts the lines of one operation on one part. Returns the lines about `Host`, if it is no field there.
fn read_edits(
    job: &mut PluginJob<'_>,
    operation: &mut KongEntity,
    name: &str,
    part: EditedPart,
    edits: &mut KongEdits,
) -> Vec<String> {
    let mut hosts = Vec::new();
    for line in operation.texts(part.list, job.report) {
        let (field, value) = split(&line);
        let path = format!("{name}.{}", part.list);
        let names_host = |text: &str| part.excludes_host && text.eq_ignore_ascii_case("host");
        if field.is_empty() || (name != "remove" && value.is_empty()) {
            job.dropped(&path, format!("\"{line}\" is not name:value, and Kong ignores it"));
        } else if names_host(&field) {
            hosts.push(value);
        } else if name == "rename" && names_host(&value) {
            // Without the new name the upstream receives the host of its service.
            job.loses_guard = true;
            job.dropped(&path, "the host of the upstream is not taken from a field");
        } else if matches!(name, "remove" | "rename") {
            edits.add(name, field, value);
        } else if let Some(value) = (part.value)(&value) {
            edits.add(name, field, value);
        } else {
            // Without the replacement, the upstream receives the client's own value.
            job.loses_guard |= name == "replace";
            job.dropped(&path, format!("\"{value}\" holds a template that means nothing here"));
        }
    }
    hosts
}

/// Sets the host for the upstream. Kong leaves `Host` alone in all other operations.
fn set_host(job: &mut PluginJob<'_>, name: &str, hosts: Vec<String>, out: &mut Map<String, Value>) {
    let path = format!("{name}.headers");
    for host in hosts {
        let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
        let (bare, port) = host.split_once(':').unwrap_or((&host, "80"));
        if !matches!(name, "replace" | "append") {
            job.dropped(&path, format!("Kong does not apply {name} to Host"));
        } else if !bare.is_empty() && is_plain(bare) && port.parse::<u16>().is_ok() {
            out.insert("host".into(), host.into());
        } else {
            job.loses_guard = true;
            job.dropped(&path, format!("\"{host}\" is not a host; a host has no template"));
        }
    }
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

/// Settings that hide everything else, or data that a function selects.
const HIDING_SETTINGS: [&str; 3] = ["allow", "whitelist", "transform"];

/// Whether a setting that is not converted hides data.
fn hides_data(job: &PluginJob<'_>) -> bool {
    HIDING_SETTINGS.iter().any(|list| job.settings.peek(list).is_some_and(has_content))
}

/// Whether a transformer hides data or replaces a client's own value.
pub(super) fn hides_content(settings: &KongEntity) -> bool {
    ["remove", "rename", "replace", "allow", "whitelist"]
        .iter()
        .any(|operation| settings.peek(operation).is_some_and(has_content))
}

/// Whether lines name the field `Server`.
fn names_server(lines: &Value) -> bool {
    let is_server =
        |line: &Value| line.as_str().is_some_and(|line| split(line).0.eq_ignore_ascii_case("server"));
    lines.as_array().is_some_and(|lines| lines.iter().any(is_server))
}

/// Kong's order of operations.
const OPERATIONS: [&str; 5] = ["remove", "rename", "replace", "add", "append"];

const HIDDEN_PARTS: [&str; 2] = ["body", "json"];
const REQUEST_PARTS: [&str; 2] = ["body", "json_types"];
const RESPONSE_PARTS: [&str; 4] = ["json", "json_types", "body", "if_status"];

pub(super) fn request_transformer(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    // An allow list hides every other argument; without it they would reach the upstream.
    job.loses_guard |= hides_data(job);
    let mut out = Map::new();
    if let Some(method) = job.text("http_method").map(|method| method.to_uppercase()) {
        match METHODS.contains(&method.as_str()) {
            true => drop(out.insert("method".into(), method.into())),
            false => job.dropped("http_method", format!("{method} cannot be set here")),
        }
    }
    let (mut fields, mut arguments) = (KongEdits::default(), KongEdits::default());
    for name in OPERATIONS {
        let Some(mut operation) = job.settings.child(name, job.report) else { continue };
        drop_parts(job, &mut operation, name, &REQUEST_PARTS, "bodies are not rewritten here");
        if let Some(uri) = operation.text("uri", job.report) {
            match template(&uri).filter(|uri| uri.starts_with('/')) {
                Some(uri) => drop(out.insert("uri".into(), uri.into())),
                None => {
                    job.loses_guard = true;
                    let why = "does not begin with a slash, or holds a template that means nothing here";
                    job.dropped("replace.uri", format!("\"{uri}\" {why}"));
                }
            }
        }
        let hosts = read_edits(job, &mut operation, name, REQUEST_FIELDS, &mut fields);
        set_host(job, name, hosts, &mut out);
        read_edits(job, &mut operation, name, REQUEST_ARGUMENTS, &mut arguments);
        operation.finish(job.report);
    }
    job.skip("dots_in_keys", json!(true), "bodies are not rewritten here");
    out.extend(fields.settings().map(|edits| ("field_edits".to_owned(), edits)));
    out.extend(arguments.settings().map(|edits| ("query_edits".to_owned(), edits)));
    // Everything was dropped and reported; an empty plugin would be invalid.
    if out.is_empty() { Vec::new() } else { super::one("proxy-rewrite", Value::Object(out)) }
}

pub(super) fn response_transformer(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let why = "bodies are not transformed as JSON here";
    job.loses_guard |= hides_data(job);
    let mut fields = KongEdits::default();
    for name in OPERATIONS {
        let Some(mut operation) = job.settings.child(name, job.report) else { continue };
        drop_parts(job, &mut operation, name, &RESPONSE_PARTS, why);
        if operation.peek("headers").is_some_and(names_server) {
            let path = format!("{name}.headers");
            job.different(&path, "Server remains that of the gateway", "it is set after all plugins");
        }
        read_edits(job, &mut operation, name, RESPONSE_FIELDS, &mut fields);
        operation.finish(job.report);
    }
    job.skip("dots_in_keys", json!(true), why);
    match fields.settings() {
        Some(edits) => super::one("response-rewrite", json!({ "field_edits": edits })),
        None => Vec::new(),
    }
}
