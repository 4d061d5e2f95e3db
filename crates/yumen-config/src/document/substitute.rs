//! `${{NAME}}` and `${{NAME:=default}}` in values and keys, and YAML's merge key `<<`.
//!
//! In JSON, a text with a variable becomes a number or a boolean if it reads as one. In YAML, quotes decide, as in
//! APISIX, which substitutes in the text: `"${{PORT}}"` is text, `${{PORT}}` is the value that the variable holds.
//! Unlike there, the parser reads marks in place of the variables (`variable_marks`), so a value is one value,
//! whatever its quotes, line breaks and colons: it adds no member, item or comment to the document.

use std::convert::Infallible;

use serde_json::{Map, Value};

use super::Lookup;
use super::collect::DocumentUse;
use super::variable_marks::VariableMarks;
use crate::duplicate_keys::{self, message_at};
use crate::resource::ResourceDefect;

/// The variables of one document.
pub(super) struct DocumentVariables<'l> {
    lookup: Lookup<'l>,
    /// The marks of a YAML document.
    marks: Option<VariableMarks<'l>>,
}

impl<'l> DocumentVariables<'l> {
    /// The variables of a text. Most documents have none, so one search spares the visit of every value.
    pub(super) fn of(
        meant: DocumentUse<'l>,
        text: &str,
        marks: Option<VariableMarks<'l>>,
    ) -> Option<DocumentVariables<'l>> {
        match meant {
            DocumentUse::Active(lookup) if text.contains("${{") => Some(DocumentVariables { lookup, marks }),
            _ => None,
        }
    }

    /// Replaces variables everywhere in `value`. A text with an unset variable stays unchanged and yields a
    /// defect; so does a name that becomes that of another member.
    pub(super) fn resolve(&self, value: &mut Value) -> Vec<ResourceDefect> {
        let mut defects = Vec::new();
        self.resolve_at(value, "", &mut defects);
        defects
    }

    fn resolve_at(&self, value: &mut Value, path: &str, defects: &mut Vec<ResourceDefect>) {
        match value {
            Value::String(text) => match self.resolve_text(text, path, defects) {
                None => {}
                Some(resolved) if self.marks.is_none() => *value = typed(resolved),
                Some(resolved) => *text = resolved,
            },
            Value::Number(number) => {
                let marks = self.marks.as_ref();
                if let Some(written) = number.as_u64().and_then(|number| marks?.plain(number)) {
                    *value = self.resolve_plain(written, path, defects);
                }
            }
            Value::Array(items) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.resolve_at(item, &format!("{path}[{i}]"), defects);
                }
            }
            Value::Object(members) => {
                // Values before keys, so that a path in a report has the key as the user wrote it.
                for (name, member) in members.iter_mut() {
                    self.resolve_at(member, &join(path, &self.as_written(name)), defects);
                }
                // Only a key with a variable needs a new map.
                if members.keys().any(|name| self.has_variable(name)) {
                    *members = self.resolve_keys(std::mem::take(members), path, defects);
                }
            }
            _ => {}
        }
    }

    fn resolve_keys(
        &self,
        members: Map<String, Value>,
        path: &str,
        defects: &mut Vec<ResourceDefect>,
    ) -> Map<String, Value> {
        // A map cannot rename keys in place; rebuilding keeps their order.
        let mut resolved = Map::with_capacity(members.len());
        for (mut name, member) in members {
            let name = self.resolve_text(&mut name, path, defects).unwrap_or(name);
            // Any of the duplicates may be the intended one, as in a text without variables.
            if resolved.contains_key(&name) {
                defects.push(duplicate(&join(path, &name)));
            }
            resolved.insert(name, member);
        }
        resolved
    }

    fn has_variable(&self, text: &str) -> bool {
        match &self.marks {
            None => text.contains("${{"),
            Some(marks) => marks.has_mark(text),
        }
    }

    /// The text with variables in place of their marks.
    pub(super) fn as_written(&self, text: &str) -> String {
        let written = |written: &str| Ok::<String, Infallible>(written.to_owned());
        let replaced = self.marks.as_ref().and_then(|marks| marks.replace(text, &mut { written }).ok()?);
        replaced.unwrap_or_else(|| text.to_owned())
    }

    /// The text with its variables replaced; `None` if it has none or an unset one, which is a defect. Then
    /// `text` has the variables as written.
    pub(super) fn resolve_text(
        &self,
        text: &mut String,
        path: &str,
        defects: &mut Vec<ResourceDefect>,
    ) -> Option<String> {
        let resolved = match &self.marks {
            None => resolve_text(text, self.lookup).map_err(str::to_owned),
            Some(marks) => marks.replace(text, &mut |written| match resolve_text(written, self.lookup) {
                Ok(resolved) => Ok(resolved.unwrap_or_else(|| written.to_owned())),
                Err(name) => Err(name.to_owned()),
            }),
        };
        resolved.unwrap_or_else(|name| {
            defects.push(self.not_set(path, &name));
            // The text stays, so the item keeps its identity and can be reported and refused as a whole.
            *text = self.as_written(text);
            None
        })
    }

    /// The value of a plain scalar of YAML that consists of variables and text.
    fn resolve_plain(&self, written: &str, path: &str, defects: &mut Vec<ResourceDefect>) -> Value {
        match resolve_text(written, self.lookup) {
            Ok(resolved) => typed_plain(resolved.unwrap_or_else(|| written.to_owned())),
            Err(name) => {
                defects.push(self.not_set(path, name));
                Value::String(written.to_owned())
            }
        }
    }

    fn not_set(&self, path: &str, name: &str) -> ResourceDefect {
        let message = format!("the environment variable \"{name}\" is not set");
        ResourceDefect::new(path, message).hint(format!("set it, or write ${{{{{name}:=default}}}}"))
    }
}

/// The defect of a member whose name a variable has made that of another one.
fn duplicate(path: &str) -> ResourceDefect {
    ResourceDefect::new(path, message_at(path))
        .hint("leave one of them, or give the variable in the name another value")
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The text with its variables replaced; `None` if it has none. Fails with the name of the first unset
/// variable.
fn resolve_text<'t>(text: &'t str, lookup: Lookup<'_>) -> Result<Option<String>, &'t str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((start, length)) = super::variable_marks::next_variable(rest) {
        let inner = rest[start + 3..start + length - 2].trim();
        let (name, default) = match inner.split_once(":=") {
            Some((name, default)) => (name.trim(), Some(default.trim())),
            None => (inner, None),
        };
        out.push_str(&rest[..start]);
        match lookup(name) {
            Some(value) => out.push_str(&value),
            // An empty variable is set, so the default does not replace it.
            None => out.push_str(default.ok_or(name)?),
        }
        // Behind the variable: a value that contains `${{` is not resolved again.
        rest = &rest[start + length..];
    }
    if rest.len() == text.len() {
        return Ok(None);
    }
    out.push_str(rest);
    Ok(Some(out))
}

/// In JSON, a substituted text becomes a number or a boolean if it parses as one, as in APISIX.
fn typed(text: String) -> Value {
    match text.as_str() {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => match text.parse::<i64>() {
            // Integers first, because a float loses digits beyond 2^53.
            Ok(number) => Value::from(number),
            Err(_) => match text.parse::<f64>() {
                // `inf` and `nan` parse as floats, but JSON has no such numbers.
                Ok(number) if number.is_finite() => Value::from(number),
                _ => Value::String(text),
            },
        },
    }
}

/// The value that a text has as a plain value of YAML: null, a number, a boolean, a quoted text, or an object or list
/// in JSON or flow style. Any other text stays one text, with its line breaks, colons and comment marks.
fn typed_plain(text: String) -> Value {
    let trimmed = text.trim();
    // YAML reads an absent value as null, and so does APISIX. As a text, it would be an empty key.
    if trimmed.is_empty() {
        return Value::Null;
    }
    let is_compound = trimmed.starts_with(['{', '[']);
    let is_quoted = trimmed.len() > 1
        && ["\"", "'"].iter().any(|quote| trimmed.starts_with(quote) && trimmed.ends_with(quote));
    // A line break outside these would begin another value.
    if !is_compound && !is_quoted && text.contains(['\n', '\r']) {
        return Value::String(text);
    }
    let Ok(read) = duplicate_keys::from_yaml(trimmed.as_bytes()) else { return Value::String(text) };
    match read.into_distinct() {
        Ok(value @ (Value::Object(_) | Value::Array(_))) if is_compound => value,
        Ok(value @ Value::String(_)) if is_quoted => value,
        Ok(value @ (Value::Number(_) | Value::Bool(_) | Value::Null)) => value,
        _ => Value::String(text),
    }
}

/// Expands YAML merge keys (`<<`). Members of the object itself take precedence over merged ones.
pub fn merge_keys(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(merge_keys),
        Value::Object(members) => {
            // Inner mappings first, so that a mapping is complete before it is merged into another one.
            members.values_mut().for_each(merge_keys);
            let sources = match members.get("<<") {
                Some(Value::Object(_)) => vec![members.shift_remove("<<").unwrap_or_default()],
                Some(Value::Array(all)) if all.iter().all(Value::is_object) => {
                    match members.shift_remove("<<") {
                        Some(Value::Array(all)) => all,
                        _ => Vec::new(),
                    }
                }
                // Any other `<<` stays an ordinary member, and the schema refuses it where it is unknown.
                _ => return,
            };
            for source in sources {
                let Value::Object(source) = source else { continue };
                for (name, member) in source {
                    // An earlier source takes precedence over a later one (YAML merge key type, 2005).
                    members.entry(name).or_insert(member);
                }
            }
        }
        _ => {}
    }
}
