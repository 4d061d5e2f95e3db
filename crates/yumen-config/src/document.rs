//! The standalone document: all resources in one YAML or JSON text.
//!
//! Reading is total: what is wrong with one item never blocks another. Settings are not judged here,
//! only taken apart and named; the compiler decodes them. The environment comes in as a closure.

mod collect;
mod identity;
mod substitute;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde::Deserializer;
use serde_json::{Map, Value};
use yumen_base::Problem;

use crate::resource::{Kind, Resource, place_of};
use crate::yaml;
use collect::{DocumentUse, ResourceCollector};
pub use substitute::merge_keys;

/// Finds the value of a variable.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads a document. JSON is told by its first byte `{`; everything else is YAML.
///
/// A line `#END` ends a document, if there is one; a mark of the byte order before it says nothing. `${{NAME}}` and
/// `${{NAME:=default}}` in values and keys are replaced through `lookup`, merge keys (`<<`) of YAML are followed. A
/// text that cannot be parsed at all gives no resources and one problem of the object `file` that tells line and
/// column.
///
/// An item without an id is known by its place ([`is_place`](crate::resource::is_place)). One with a variable that is
/// not set, or an id that is none or another's, is among the resources as one that is broken: it carries its
/// [`Defect`](crate::resource::Defect)s, of which only who compiles it tells. Left out it would be deleted, and what
/// it guards would be open.
pub fn parse(text: &str, lookup: Lookup<'_>) -> (Vec<Resource>, Vec<Problem>) {
    read(text, DocumentUse::Active(lookup))
}

/// As [`parse`], but `${{NAME}}` is what it says: who sends a document here knows another environment, and what
/// [`to_yaml`] wrote is to come back. Items need ids, since a place says nothing where they are kept among others;
/// what is broken is left out and told.
pub fn parse_literally(text: &str) -> (Vec<Resource>, Vec<Problem>) {
    read(text, DocumentUse::Submitted)
}

fn read(text: &str, meant: DocumentUse<'_>) -> (Vec<Resource>, Vec<Problem>) {
    let marked = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = until_end(marked);
    // A file that a writer has only created or truncated is not a configuration without resources.
    if matches!(meant, DocumentUse::Active(_)) && text.len() == marked.len() && is_blank(text) {
        let message = "the document is empty; a configuration without resources is the line #END";
        return (Vec::new(), vec![Problem::error("file", "", message.to_owned())]);
    }
    let is_json = text.trim_start().starts_with('{');
    let mut collector = ResourceCollector::new(meant, text.contains("${{"), !is_json);
    let outcome = match is_json {
        true => read_json(text, &mut collector),
        false => read_yaml(text, &mut collector),
    };
    match outcome {
        Ok(()) => collector.finish(),
        Err(message) => (Vec::new(), vec![Problem::error("file", "", message)]),
    }
}

fn read_json(text: &str, collector: &mut ResourceCollector<'_>) -> Result<(), String> {
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_any(collector).and_then(|()| json.end()).map_err(|error| error.to_string())
}

// The YAML reader is serde_yaml_ng. Two were tried: it read 100 000 routes (29 MB) in 1.0-1.3 s on a busy
// machine. serde-saphyr stopped at its default budget of 250 000 nodes, some 8 000 routes in; by then it
// had taken about twice as long (0.15 s for 0.07 s). How it does with the budget raised was not measured.
fn read_yaml(text: &str, collector: &mut ResourceCollector<'_>) -> Result<(), String> {
    if is_blank(text) {
        return Ok(());
    }
    serde_yaml_ng::Deserializer::from_str(text).deserialize_any(collector).map_err(|error| error.to_string())
}

/// Whether a text holds nothing but space, comments, and lines that begin a document of YAML.
fn is_blank(text: &str) -> bool {
    let is_blank = |line: &str| line.is_empty() || line.starts_with('#') || line == "---";
    text.lines().map(str::trim).all(is_blank)
}

/// The text without the line `#END` that says that it is whole, which is its last. Elsewhere that is a comment, as
/// APISIX has it: what stands behind it counts.
fn until_end(text: &str) -> &str {
    let whole = text.trim_end();
    match whole.strip_suffix("#END") {
        Some(rest) if rest.is_empty() || rest.ends_with('\n') => rest,
        _ => text,
    }
}

/// Writes resources as a YAML document that [`parse_literally`] reads back, ending in `#END`. A member `<<` of an
/// object would be a merge key: then it is JSON, which is YAML too and has none.
///
/// Ids are written into the items; what was known by its place gets one that can be written, `arr_` and that, since
/// its place may be another there. A resource whose text is not a JSON object is an error: a document without it
/// would not be all of them.
pub fn to_yaml(resources: &[Resource]) -> Result<String, Problem> {
    let document = whole(resources)?;
    let text = match has_merge_key(&document) {
        true => json(&document)?,
        false => yaml::write(document).map_err(|error| unwritable(&error))?,
    };
    Ok(text + "#END\n")
}

/// As [`to_yaml`], in JSON, of which every reader sees by itself whether it is whole.
pub fn to_json(resources: &[Resource]) -> Result<String, Problem> {
    json(&whole(resources)?)
}

fn whole(resources: &[Resource]) -> Result<Value, Problem> {
    let mut document = Map::new();
    let taken = resources.iter().map(|one| (one.kind, &*one.id)).collect();
    for resource in resources {
        let mut item: Map<String, Value> = serde_json::from_str(&resource.json).map_err(|error| {
            Problem::error(resource.to_string(), "", format!("the stored text cannot be read: {error}"))
        })?;
        if resource.kind != Kind::Consumers {
            item.insert("id".into(), written_id(resource, &taken).into());
        }
        let list = document.entry(resource.kind.name()).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(items) = list {
            items.push(Value::Object(item));
        }
    }
    Ok(Value::Object(document))
}

/// The id a resource has in a document: one that was known by its place gets the first that is free.
fn written_id(resource: &Resource, taken: &HashSet<(Kind, &str)>) -> String {
    let Some(place) = place_of(resource.kind, &resource.id) else { return resource.id.to_string() };
    let mut id = format!("arr_{place}");
    while taken.contains(&(resource.kind, &*id)) {
        id.push('_');
    }
    id
}

fn json(document: &Value) -> Result<String, Problem> {
    Ok(serde_json::to_string_pretty(document).map_err(|error| unwritable(&error))? + "\n")
}

fn unwritable(error: &dyn std::fmt::Display) -> Problem {
    Problem::error("file", "", format!("no document can be written: {error}"))
}

/// Whether a reader of YAML would take a member for a merge key.
fn has_merge_key(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_merge_key),
        Value::Object(members) => members.contains_key("<<") || members.values().any(has_merge_key),
        _ => false,
    }
}
