//! Edits of fields and query arguments whose effect depends on the presence of a name. Must not know the plugins.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_http::Fields;
use yumen_http::uri::encode_query_value;
use yumen_plugin::Exchange;

use crate::query::decode;
use crate::text::{HeaderEntries, MatchGroups, TextTemplate, header_map_schema};

#[cfg(test)]
mod tests;

/// Edits in a fixed order: remove, rename, replace, default, append.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct PresenceEditSettings {
    /// Names to remove.
    #[serde(default)]
    #[schemars(inner(length(min = 1)))]
    remove: Vec<String>,
    /// New names by name. A name that is present keeps its values under the new name.
    #[serde(default)]
    #[schemars(schema_with = "header_map_schema")]
    rename: HeaderEntries,
    /// New values of names that are present.
    #[serde(default)]
    #[schemars(schema_with = "header_map_schema")]
    replace: HeaderEntries,
    /// Values of names that are absent.
    #[serde(default)]
    #[schemars(schema_with = "header_map_schema")]
    default: HeaderEntries,
    /// Values to add, whether the name is present or not.
    #[serde(default)]
    #[schemars(schema_with = "appended_schema")]
    append: HeaderEntries,
}

/// Names and values of fields, where a field may have several values.
pub(crate) fn appended_schema(_: &mut SchemaGenerator) -> Schema {
    let scalar = serde_json::json!([{"type": "string"}, {"type": "number"}]);
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "patternProperties": {"^[^:]+$": {"oneOf": [
            {"type": "string"},
            {"type": "number"},
            {"type": "array", "minItems": 1, "items": {"oneOf": scalar}},
        ]}},
    })
}

/// A name and its compiled value.
type EditTemplate = (String, TextTemplate);

/// The compiled edits.
#[derive(Debug)]
pub(crate) struct PresenceEdits {
    remove: Vec<String>,
    rename: Vec<(String, String)>,
    replace: Vec<EditTemplate>,
    default: Vec<EditTemplate>,
    append: Vec<EditTemplate>,
}

/// The values of one request, rendered before the first edit: a template sees the request as it was.
pub(crate) struct EditValues {
    replace: Vec<Vec<u8>>,
    default: Vec<Vec<u8>>,
    append: Vec<Vec<u8>>,
}

/// One value per name; several for names to append.
fn templates(entries: HeaderEntries) -> Vec<EditTemplate> {
    let each = |(name, values): (String, Vec<String>)| {
        values.into_iter().map(move |value| (name.clone(), TextTemplate::parse(&value)))
    };
    entries.0.into_iter().flat_map(each).collect()
}

impl PresenceEdits {
    /// Compiles the edits at `path`; `is_name` refuses names that cannot be written.
    pub(crate) fn new(
        settings: PresenceEditSettings,
        path: &str,
        is_name: impl Fn(&str) -> bool,
    ) -> Result<PresenceEdits, InvalidSettings> {
        let PresenceEditSettings { remove, rename, replace, default, append } = settings;
        let rename: Vec<(String, String)> =
            rename.0.into_iter().map(|(from, to)| (from, to.concat())).collect();
        let (replace, default, append) = (templates(replace), templates(default), templates(append));
        let renamed = rename.iter().flat_map(|(from, to)| [from, to]);
        let edited = replace.iter().chain(&default).chain(&append).map(|(name, _)| name);
        if let Some(name) = remove.iter().chain(renamed).chain(edited).find(|name| !is_name(name)) {
            return Err(InvalidSettings::at(path, format!("invalid name \"{name}\"")));
        }
        Ok(PresenceEdits { remove, rename, replace, default, append })
    }

    /// Renders the values for one request.
    pub(crate) fn values(&self, ex: &Exchange<'_>, groups: Option<&MatchGroups>) -> EditValues {
        let render = |templates: &[EditTemplate]| {
            let one = |(_, template): &EditTemplate| {
                let mut value = Vec::new();
                template.fill(ex, groups, &mut value);
                value
            };
            templates.iter().map(one).collect()
        };
        EditValues {
            replace: render(&self.replace),
            default: render(&self.default),
            append: render(&self.append),
        }
    }

    /// Edits fields.
    pub(crate) fn edit_fields(&self, values: &EditValues, fields: &mut Fields) {
        for name in &self.remove {
            fields.remove(name);
        }
        for (from, to) in &self.rename {
            let moved: Vec<Vec<u8>> = fields.all(from).map(<[u8]>::to_vec).collect();
            if moved.is_empty() {
                continue;
            }
            fields.remove(from);
            fields.remove(to);
            for value in moved {
                fields.add(to, &value);
            }
        }
        for ((name, _), value) in self.replace.iter().zip(&values.replace) {
            if fields.has(name) {
                fields.set(name, value);
            }
        }
        for ((name, _), value) in self.default.iter().zip(&values.default) {
            if !fields.has(name) {
                fields.add(name, value);
            }
        }
        for ((name, _), value) in self.append.iter().zip(&values.append) {
            fields.add(name, value);
        }
    }

    /// The target with edited query arguments. Arguments without an edit keep their order and encoding.
    pub(crate) fn edited_target(&self, values: &EditValues, target: &[u8]) -> Vec<u8> {
        // The asterisk form has no query (RFC 9112 §3.2.4).
        if !target.starts_with(b"/") {
            return target.to_vec();
        }
        let end = target.iter().position(|byte| *byte == b'?');
        let (path, query) = match end {
            Some(end) => (&target[..end], &target[end + 1..]),
            None => (target, &b""[..]),
        };
        let mut arguments = QueryPairs::parse(query);
        self.edit_arguments(values, &mut arguments);
        let mut edited = path.to_vec();
        for (at, (_, text)) in arguments.0.iter().enumerate() {
            edited.push(if at == 0 { b'?' } else { b'&' });
            edited.extend_from_slice(text);
        }
        edited
    }

    fn edit_arguments(&self, values: &EditValues, arguments: &mut QueryPairs<'_>) {
        for name in &self.remove {
            arguments.remove(name.as_bytes());
        }
        for (from, to) in &self.rename {
            arguments.rename(from.as_bytes(), to.as_bytes());
        }
        for ((name, _), value) in self.replace.iter().zip(&values.replace) {
            arguments.replace(name.as_bytes(), value);
        }
        for ((name, _), value) in self.default.iter().zip(&values.default) {
            if !arguments.has(name.as_bytes()) {
                arguments.append(name.as_bytes(), value);
            }
        }
        for ((name, _), value) in self.append.iter().zip(&values.append) {
            arguments.append(name.as_bytes(), value);
        }
    }
}

/// The decoded name of a query argument, and its encoded pair.
type NamedPair<'q> = (Cow<'q, [u8]>, Cow<'q, [u8]>);

/// Query arguments in their order.
struct QueryPairs<'q>(Vec<NamedPair<'q>>);

impl<'q> QueryPairs<'q> {
    fn parse(query: &'q [u8]) -> QueryPairs<'q> {
        let pairs = query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
        let name_of = |pair: &'q [u8]| pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        QueryPairs(pairs.map(|pair| (decode(name_of(pair)), Cow::Borrowed(pair))).collect())
    }

    fn has(&self, name: &[u8]) -> bool {
        self.0.iter().any(|(other, _)| other.as_ref() == name)
    }

    fn remove(&mut self, name: &[u8]) {
        self.0.retain(|(other, _)| other.as_ref() != name);
    }

    fn append(&mut self, name: &[u8], value: &[u8]) {
        self.0.push((Cow::Owned(name.to_vec()), Cow::Owned(encoded_pair(name, value))));
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) {
        if from == to || !self.has(from) {
            return;
        }
        self.remove(to);
        for (name, pair) in self.0.iter_mut().filter(|(name, _)| name.as_ref() == from) {
            let mut renamed = Vec::new();
            encode_query_value(to, &mut renamed);
            if let Some(equals) = pair.iter().position(|byte| *byte == b'=') {
                renamed.extend_from_slice(&pair[equals..]);
            }
            (*name, *pair) = (Cow::Owned(to.to_vec()), Cow::Owned(renamed));
        }
    }

    fn replace(&mut self, name: &[u8], value: &[u8]) {
        let Some(first) = self.0.iter().position(|(other, _)| other.as_ref() == name) else { return };
        self.0[first].1 = Cow::Owned(encoded_pair(name, value));
        let mut at = 0;
        // Several arguments of a name become one.
        self.0.retain(|(other, _)| {
            at += 1;
            at - 1 <= first || other.as_ref() != name
        });
    }
}

fn encoded_pair(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut pair = Vec::new();
    encode_query_value(name, &mut pair);
    pair.push(b'=');
    encode_query_value(value, &mut pair);
    pair
}
