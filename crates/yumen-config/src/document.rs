//! The standalone document: all resources in one YAML or JSON text.
//!
//! Reading is total: what is wrong with one item never blocks another. Settings are not judged here,
//! only taken apart and named; the compiler decodes them. The environment comes in as a closure.

mod collect;
mod substitute;
#[cfg(test)]
mod tests;

use serde::Deserializer;
use serde_json::{Map, Value};
use yumen_base::Problem;

use crate::resource::Resource;
use collect::Collector;

/// Finds the value of a variable.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads a document. JSON is told by its first byte `{`; everything else is YAML.
///
/// A line `#END` ends a document, if there is one. `${{NAME}}` and `${{NAME:=default}}` in values
/// and keys are replaced through `lookup`. A text that cannot be parsed at all gives no resources and
/// one problem of the object `file` that tells line and column.
pub fn parse(text: &str, lookup: Lookup<'_>) -> (Vec<Resource>, Vec<Problem>) {
    let substitutes = text.contains("${{").then_some(lookup);
    let mut collector = Collector::new(substitutes);
    let text = until_end(text);
    let outcome = match text.trim_start().starts_with('{') {
        true => read_json(text, &mut collector),
        false => read_yaml(text, &mut collector),
    };
    match outcome {
        Ok(()) => collector.finish(),
        Err(message) => (Vec::new(), vec![Problem::error("file", "", message)]),
    }
}

fn read_json(text: &str, collector: &mut Collector<'_>) -> Result<(), String> {
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_any(collector).and_then(|()| json.end()).map_err(|error| error.to_string())
}

// The YAML reader is serde_yaml_ng. Two were tried: it read 100 000 routes (29 MB) in 1.0-1.3 s on a busy
// machine. serde-saphyr stopped at its default budget of 250 000 nodes, some 8 000 routes in; by then it
// had taken about twice as long (0.15 s for 0.07 s). How it does with the budget raised was not measured.
fn read_yaml(text: &str, collector: &mut Collector<'_>) -> Result<(), String> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(());
    }
    serde_yaml_ng::Deserializer::from_str(text).deserialize_any(collector).map_err(|error| error.to_string())
}

/// What stands before the line `#END`.
fn until_end(text: &str) -> &str {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "#END" {
            return &text[..start];
        }
        start += line.len();
    }
    text
}

/// Writes resources as a YAML document that [`parse`] reads back, ending in `#END`.
///
/// Ids are written into the items. A resource whose text is not a JSON object is an error: a document without it
/// would not be all of them.
pub fn to_yaml(resources: &[Resource]) -> Result<String, Problem> {
    let mut document = Map::new();
    for resource in resources {
        let mut item: Map<String, Value> = serde_json::from_str(&resource.json).map_err(|error| {
            Problem::error(resource.to_string(), "", format!("the stored text cannot be read: {error}"))
        })?;
        if resource.kind != crate::Kind::Consumers {
            item.insert("id".into(), resource.id.as_ref().into());
        }
        let list = document.entry(resource.kind.name()).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(items) = list {
            items.push(Value::Object(item));
        }
    }
    let unwritable = |error| Problem::error("file", "", format!("no document can be written: {error}"));
    let mut text = serde_yaml_ng::to_string(&document).map_err(unwritable)?;
    text.push_str("#END\n");
    Ok(text)
}
