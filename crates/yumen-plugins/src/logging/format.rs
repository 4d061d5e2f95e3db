//! `log_format` and `log_format_extra`: JSON with variables, compiled once.

use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::vars::is_data_value;
use yumen_plugin::{Var, VarInputs};

use super::entry::LogEntry;
use super::json_text::{ObjectWriter, write_json_text};

/// Levels of objects, the format itself included; deeper ones are emptied, as in APISIX.
const DEPTH_MAX: usize = 5;

/// A compiled format.
#[derive(Debug)]
pub(crate) struct LogFormat {
    members: Vec<(String, FormatValue)>,
}

#[derive(Debug)]
enum FormatValue {
    /// JSON text.
    Literal(Vec<u8>),
    Variable(Var),
    /// `$request_body`, which is read from the tap.
    RequestBody,
    Object(Vec<(String, FormatValue)>),
    List(Vec<FormatValue>),
}

/// Facts about a format for the plugin that has it.
#[derive(Debug, Default)]
pub(crate) struct FormatFacts {
    /// Inputs of the variables.
    pub(crate) inputs: VarInputs,
    /// Whether `$request_body` is in it.
    pub(crate) needs_request_body: bool,
    /// Whether an object was emptied because it is nested too deep.
    pub(crate) is_too_deep: bool,
}

impl LogFormat {
    /// Compiles the object at `path`.
    pub(crate) fn compile(
        path: &str,
        format: &Value,
        facts: &mut FormatFacts,
    ) -> Result<LogFormat, InvalidSettings> {
        let Value::Object(members) = format else {
            return Err(InvalidSettings::at(path, "not an object"));
        };
        let members =
            members.iter().map(|(name, value)| (name.clone(), FormatValue::compile(value, 2, facts)));
        Ok(LogFormat { members: members.collect() })
    }

    /// Whether the format has no member.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Removes the members with names for which `is_removed` holds, and returns their names.
    pub(crate) fn remove(&mut self, is_removed: impl Fn(&str) -> bool) -> Vec<String> {
        let (removed, kept) =
            std::mem::take(&mut self.members).into_iter().partition(|(name, _)| is_removed(name));
        self.members = kept;
        let removed: Vec<(String, FormatValue)> = removed;
        removed.into_iter().map(|(name, _)| name).collect()
    }

    /// Whether the format has a member with this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.members.iter().any(|(known, _)| known == name)
    }

    /// Appends the members to an object. Variables without a value are left out.
    pub(crate) fn write(&self, object: &mut ObjectWriter<'_>, entry: &LogEntry<'_, '_>) {
        write_members(&self.members, object, entry);
    }
}

fn write_members(members: &[(String, FormatValue)], object: &mut ObjectWriter<'_>, entry: &LogEntry<'_, '_>) {
    for (name, value) in members {
        object.optional(|out| {
            write_json_text(out, name.as_bytes());
            out.push(b':');
            value.write(out, entry)
        });
    }
}

impl FormatValue {
    fn compile(value: &Value, depth: usize, facts: &mut FormatFacts) -> FormatValue {
        match value {
            Value::String(text) => FormatValue::compile_text(text, facts),
            Value::Object(_) | Value::Array(_) if depth > DEPTH_MAX => {
                facts.is_too_deep = true;
                FormatValue::Literal(b"{}".to_vec())
            }
            Value::Object(members) => {
                let members = members
                    .iter()
                    .map(|(name, value)| (name.clone(), Self::compile(value, depth + 1, facts)));
                FormatValue::Object(members.collect())
            }
            Value::Array(items) => {
                FormatValue::List(items.iter().map(|item| Self::compile(item, depth + 1, facts)).collect())
            }
            other => FormatValue::Literal(other.to_string().into_bytes()),
        }
    }

    fn compile_text(text: &str, facts: &mut FormatFacts) -> FormatValue {
        let literal = || FormatValue::Literal(Value::from(text).to_string().into_bytes());
        // A value from a reference is data, even if it begins with a dollar sign.
        let name = text.strip_prefix('$').filter(|name| !name.is_empty() && !is_data_value(text));
        match name {
            None => literal(),
            Some("request_body") => {
                facts.needs_request_body = true;
                FormatValue::RequestBody
            }
            Some(name) => {
                facts.inputs = facts.inputs | VarInputs::of(text);
                FormatValue::Variable(Var::parse(name))
            }
        }
    }

    /// Appends the value; false if there is none.
    fn write(&self, out: &mut Vec<u8>, entry: &LogEntry<'_, '_>) -> bool {
        match self {
            FormatValue::Literal(json) => out.extend_from_slice(json),
            FormatValue::Variable(var) => match var.get(entry.ex) {
                Some(value) => write_json_text(out, &value),
                None => return false,
            },
            FormatValue::RequestBody => match entry.request_body() {
                Some(body) => write_json_text(out, &body),
                None => return false,
            },
            FormatValue::Object(members) => {
                let mut object = ObjectWriter::begin(out);
                write_members(members, &mut object, entry);
                object.end();
            }
            FormatValue::List(items) => {
                out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    if !item.write(out, entry) {
                        out.extend_from_slice(b"null");
                    }
                }
                out.push(b']');
            }
        }
        true
    }
}
