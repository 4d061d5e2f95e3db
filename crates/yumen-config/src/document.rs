//! The standalone document: all resources in one YAML or JSON text.
//!
//! An error in one item never blocks another. This module identifies items and resolves variables; the
//! compiler decodes and validates their settings. The caller supplies the environment as a closure.

mod collect;
mod encoding;
mod foreign;
mod identity;
mod places;
mod substitute;
mod syntax;
#[cfg(test)]
mod tests;
mod variable_marks;
mod yaml_mistake;

use std::collections::{HashMap, HashSet};

use serde::Deserializer;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use yumen_base::{Problem, ProblemLevel};

use crate::json_text::JsonText;
use crate::resource::{Kind, Resource, position_of};
use crate::yaml;
use collect::{DocumentUse, ItemSource, ResourceCollector};
pub use encoding::decode;
pub use places::{DocumentPlaces, locate_members};
use substitute::DocumentVariables;
pub use substitute::merge_keys;
pub use syntax::TextFault;
use variable_marks::VariableMarks;

/// Looks up an environment variable; `None` if it is not set.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Parses the document of a node. A text that begins like a JSON object is JSON; any other text is YAML.
///
/// A line `#END` may end the document; a leading byte order mark is ignored. `${{NAME}}` and
/// `${{NAME:=default}}` in values and keys are replaced through `lookup` ([`substitute`]), and YAML merge keys
/// (`<<`) are expanded. A text that cannot be parsed yields no resources and one problem of the object `file` with line
/// and column.
///
/// An item without an id is identified by its position ([`is_position_id`](crate::resource::is_position_id)). An item
/// with an unset variable, an invalid id or a duplicate id stays among the resources and carries its defects
/// ([`ResourceDefect`](crate::resource::ResourceDefect)), which the compiler reports. Dropping the item would
/// delete the object and open the routes that it guards.
pub fn parse(text: &str, lookup: Lookup<'_>) -> (Vec<Resource>, Vec<Problem>) {
    read(text, DocumentUse::Active(lookup))
}

/// The section that a problem of [`parse`] leaves out: all its objects are unknown, and those of other sections are not
/// affected.
pub fn unreadable_section(problem: &Problem) -> Option<Kind> {
    let is_error = problem.object == "file" && problem.level == ProblemLevel::Error;
    is_error.then(|| Kind::from_name(&problem.path)).flatten()
}

/// Parses a document that a client submits. Unlike in [`parse`], `${{NAME}}` stays literal: the client's
/// environment is not the node's, and the output of [`to_yaml`] must survive a round trip. Every item needs
/// an id, since a position is not unique among stored objects. Invalid items are left out and reported as
/// problems.
pub fn parse_literally(text: &str) -> (Vec<Resource>, Vec<Problem>) {
    read(text, DocumentUse::Submitted)
}

fn read(text: &str, meant: DocumentUse<'_>) -> (Vec<Resource>, Vec<Problem>) {
    // Editors on Windows write the mark, which a JSON text must not have (RFC 8259 §8.1).
    let marked = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = until_end(marked);
    // A file that a writer has only created or truncated is not a configuration without resources.
    if matches!(meant, DocumentUse::Active(_)) && text.len() == marked.len() && is_blank(text) {
        let message = "the document is empty; a configuration without resources is the line #END";
        let hint = "write a list such as routes: [], or the line #END";
        return (Vec::new(), vec![Problem::error("file", "", message.to_owned()).hint(hint)]);
    }
    let (mut collector, outcome) = collect(text, meant);
    match outcome {
        // A document of another program must not count as one without resources.
        Ok(()) => match collector.foreign_problem() {
            None => collector.finish(),
            Some(problem) => (Vec::new(), vec![problem]),
        },
        // Items that were read before the error are dropped: the rest of the document is unknown, and a partial
        // configuration would delete objects.
        Err(fault) => (Vec::new(), vec![foreign::of_broken(text).unwrap_or_else(|| fault.into_problem())]),
    }
}

/// Reads the items of a text.
fn collect<'l>(text: &'l str, meant: DocumentUse<'l>) -> (ResourceCollector<'l>, Result<(), TextFault>) {
    // JSON is valid YAML, but it has no merge keys, and its own parser is faster.
    let is_json = is_json(text);
    let marked = match meant {
        DocumentUse::Active(_) if !is_json => VariableMarks::mark(text),
        _ => None,
    };
    let (marks, marked) = marked.unzip();
    let variables = DocumentVariables::of(meant, text, marks);
    let mut collector = ResourceCollector::new(meant, variables, !is_json, text.len());
    let outcome = match is_json {
        true => read_json(text, &mut collector),
        false => read_yaml(text, marked.as_deref().unwrap_or(text), &mut collector),
    };
    (collector, outcome)
}

/// Whether a text begins like a JSON object. A flow mapping of YAML with a plain first key is none.
pub(crate) fn is_json(text: &str) -> bool {
    let inner = text.trim_start().strip_prefix('{').map(str::trim_start);
    inner.is_some_and(|inner| inner.is_empty() || inner.starts_with(['"', '}']))
}

/// The list and position of each object, by its name in problems.
fn sources(text: &str, meant: DocumentUse<'_>) -> HashMap<String, ItemSource> {
    let marked = text.strip_prefix('\u{feff}').unwrap_or(text);
    collect(until_end(marked), meant).0.sources()
}

/// The fault of syntax of a text in YAML or JSON, if any.
pub fn syntax_problem(text: &str) -> Option<Problem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let fault = match is_json(text) {
        true => {
            let json = JsonText::new(text.as_bytes());
            let read = serde_json::from_slice::<IgnoredAny>(json.strict());
            read.err().map(|error| TextFault::of_json(&json, &error))
        }
        false => {
            serde_yaml_ng::from_str::<IgnoredAny>(text).err().map(|error| TextFault::of_yaml(text, &error))
        }
    };
    fault.map(TextFault::into_problem)
}

fn read_json(text: &str, collector: &mut ResourceCollector<'_>) -> Result<(), TextFault> {
    let text = JsonText::new(text.as_bytes());
    let mut json = serde_json::Deserializer::from_slice(text.strict());
    // Text behind the object would be ignored otherwise.
    let read = json.deserialize_any(collector).and_then(|()| json.end());
    read.map_err(|error| TextFault::of_json(&text, &error))
}

// The YAML reader is serde_yaml_ng. It read 100 000 routes (29 MB) in 1.0-1.3 s on a busy machine.
// serde-saphyr stopped at its default budget of 250 000 nodes, about 8 000 routes, and took about twice as
// long up to there (0.15 s against 0.07 s); a raised budget was not measured.
fn read_yaml(written: &str, text: &str, collector: &mut ResourceCollector<'_>) -> Result<(), TextFault> {
    // The YAML parser reports an empty text as an error; here it is a document without resources.
    if is_blank(text) {
        return Ok(());
    }
    let read = serde_yaml_ng::Deserializer::from_str(text).deserialize_any(collector);
    read.map_err(|error| TextFault::of_marked_yaml(written, text, &error))
}

/// Whether a text contains only white space, comments and YAML document markers (`---`).
fn is_blank(text: &str) -> bool {
    // Comments too: a writer may have written the header only.
    let is_blank = |line: &str| line.is_empty() || line.starts_with('#') || line == "---";
    text.lines().map(str::trim).all(is_blank)
}

/// Strips the final line `#END`, which marks a complete document. In any other position `#END` is a comment,
/// as in APISIX, and the text after it counts.
fn until_end(text: &str) -> &str {
    // Editors add a line break after the last line.
    let whole = text.trim_end();
    match whole.strip_suffix("#END") {
        // The mark must be a line of its own, not the end of a longer comment.
        Some(rest) if rest.is_empty() || rest.ends_with('\n') => rest,
        _ => text,
    }
}

/// Serializes resources as a YAML document that [`parse_literally`] reads back, ending in `#END`. YAML
/// readers take an object member `<<` for a merge key, so a document with such a member is written as JSON,
/// which is valid YAML.
///
/// Items carry their ids. A resource identified by its position gets the id `arr_` plus the position, which
/// may differ in the new document. A resource that is not a JSON object is an error, since the document would
/// be incomplete.
pub fn to_yaml(resources: &[Resource]) -> Result<String, Problem> {
    let document = whole(resources)?;
    // A plugin setting may contain `<<` as data, such as a template; YAML readers would expand it.
    let text = match has_merge_key(&document) {
        true => json(&document)?,
        false => yaml::write(document).map_err(|error| unwritable(&error))?,
    };
    // The mark distinguishes a whole file from one that is still being written, as in APISIX.
    Ok(text + "#END\n")
}

/// As [`to_yaml`], in JSON, without an end marker: truncated JSON does not parse.
pub fn to_json(resources: &[Resource]) -> Result<String, Problem> {
    json(&whole(resources)?)
}

fn whole(resources: &[Resource]) -> Result<Value, Problem> {
    let mut document = Map::new();
    // Collected first: an id by position may equal the id of any later object.
    let taken = resources.iter().map(|one| (one.kind, &*one.id)).collect();
    for resource in resources {
        let mut item: Map<String, Value> = serde_json::from_str(&resource.json).map_err(|error| {
            Problem::error(resource.to_string(), "", format!("the stored text cannot be read: {error}"))
        })?;
        // A consumer is identified by its username and has no member `id`.
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

/// The id of a resource in a document. A position becomes `arr_` plus the position, with `_` appended until
/// the id is free.
fn written_id(resource: &Resource, taken: &HashSet<(Kind, &str)>) -> String {
    let Some(position) = position_of(resource.kind, &resource.id) else { return resource.id.to_string() };
    let mut id = format!("arr_{position}");
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

/// Whether an object in the value has a member `<<`, which YAML readers take for a merge key.
pub(crate) fn has_merge_key(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_merge_key),
        Value::Object(members) => members.contains_key("<<") || members.values().any(has_merge_key),
        _ => false,
    }
}
