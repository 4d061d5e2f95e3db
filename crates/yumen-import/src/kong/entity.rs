//! One object of the file. Converters take its fields; the rest goes to the report.

use serde_json::{Map, Value};

use crate::report::{ImportReport, dropped};

/// Fields that Kong and its tools add to the settings, without effect on a gateway.
const BOOKKEEPING: [&str; 7] =
    ["_comment", "_ignore", "created_at", "updated_at", "ws_id", "id", UNSET_FIELDS];

/// Field with the names of the other fields whose values refer to variables that are not set.
pub(super) const UNSET_FIELDS: &str = "_unset";

/// Name of a plugin that cannot be read. It may guard access, as any unknown plugin.
pub(super) const UNREADABLE: &str = "unreadable";

/// Stands for the name of a field in [`UNSET_FIELDS`] that itself refers to a variable.
pub(super) const UNSET_NAME: &str = "*";

/// An object of the file.
#[derive(Debug, Clone, Default)]
pub(super) struct KongEntity {
    /// Label in the report, such as `route orders`.
    pub(super) label: String,
    /// The name, or a substitute.
    pub(super) name: String,
    /// Unique key of references, beside the name.
    pub(super) key: String,
    /// Path of the fields inside the labelled object; empty, or ends with a dot.
    prefix: String,
    fields: Map<String, Value>,
}

impl KongEntity {
    pub(super) fn new(label: String, name: String, key: String, fields: Map<String, Value>) -> KongEntity {
        KongEntity { label, name, key, prefix: String::new(), fields }
    }

    /// Removes a field and returns its value; `None` for null.
    pub(super) fn take(&mut self, field: &str) -> Option<Value> {
        // Removal marks a field as read; `finish` reports the others. Null is an unset field.
        self.fields.shift_remove(field).filter(|value| !value.is_null())
    }

    pub(super) fn peek(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    /// Whether the value of one of these fields refers to a variable that is not set. The fields need not be present.
    pub(super) fn lacks_any(&self, fields: &[&str]) -> bool {
        let unset = self.fields.get(UNSET_FIELDS).and_then(Value::as_array).into_iter().flatten();
        unset.filter_map(Value::as_str).any(|name| name == UNSET_NAME || fields.contains(&name))
    }

    /// The value of a boolean field, which remains to be taken.
    pub(super) fn peek_flag(&self, field: &str) -> Option<bool> {
        match self.peek(field)? {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) => boolean(text),
            _ => None,
        }
    }

    pub(super) fn set(&mut self, field: &str, value: Value) {
        self.fields.insert(field.to_owned(), value);
    }

    pub(super) fn path(&self, field: &str) -> String {
        format!("{}{field}", self.prefix)
    }

    fn refuse(&self, field: &str, found: &Value, expected: &str, report: &mut ImportReport) {
        let message = format!("left out: found {found}, expected {expected}");
        report.add(dropped(&self.label, &self.path(field), message));
    }

    pub(super) fn text(&mut self, field: &str, report: &mut ImportReport) -> Option<String> {
        match self.take(field)? {
            Value::String(text) => Some(text),
            // YAML reads an unquoted id or version as a number.
            Value::Number(number) => Some(number.to_string()),
            other => {
                self.refuse(field, &other, "text", report);
                None
            }
        }
    }

    pub(super) fn number(&mut self, field: &str, report: &mut ImportReport) -> Option<f64> {
        let value = self.take(field)?;
        let number = match &value {
            Value::Number(number) => number.as_f64(),
            // Values from the environment are text.
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        if number.is_none() {
            self.refuse(field, &value, "a number", report);
        }
        number
    }

    /// A non-negative integer.
    pub(super) fn count(&mut self, field: &str, report: &mut ImportReport) -> Option<u64> {
        let number = self.number(field, report)?;
        // Below 2^53, up to which a float holds every integer.
        if number >= 0.0 && number.fract() == 0.0 && number < 9e15 {
            return Some(number as u64);
        }
        self.refuse(field, &Value::from(number), "a whole number from 0", report);
        None
    }

    pub(super) fn flag(&mut self, field: &str, report: &mut ImportReport) -> Option<bool> {
        match self.take(field)? {
            Value::Bool(flag) => Some(flag),
            Value::String(text) => {
                let flag = boolean(&text);
                if flag.is_none() {
                    self.refuse(field, &Value::String(text), "true or false", report);
                }
                flag
            }
            other => {
                self.refuse(field, &other, "true or false", report);
                None
            }
        }
    }

    /// A list of texts; a single text is a list of one. Empty if the field is absent.
    pub(super) fn texts(&mut self, field: &str, report: &mut ImportReport) -> Vec<String> {
        let items = match self.take(field) {
            None => return Vec::new(),
            Some(Value::Array(items)) => items,
            // Kong's tools write an empty list as an empty object (Lua has one table type).
            Some(Value::Object(members)) if members.is_empty() => return Vec::new(),
            Some(one) => vec![one],
        };
        let mut texts = Vec::new();
        for item in items {
            match item {
                Value::String(text) => texts.push(text),
                Value::Number(number) => texts.push(number.to_string()),
                other => self.refuse(field, &other, "text", report),
            }
        }
        texts
    }

    /// A list of non-negative integers, such as statuses.
    pub(super) fn counts(&mut self, field: &str, report: &mut ImportReport) -> Vec<u64> {
        let mut counts = Vec::new();
        for text in self.texts(field, report) {
            match text.parse() {
                Ok(count) => counts.push(count),
                Err(_) => self.refuse(field, &Value::from(text), "a whole number", report),
            }
        }
        counts
    }

    /// A nested object; its fields are reported under `field`.
    pub(super) fn child(&mut self, field: &str, report: &mut ImportReport) -> Option<KongEntity> {
        match self.take(field)? {
            Value::Object(fields) => Some(KongEntity {
                label: self.label.clone(),
                name: self.name.clone(),
                key: self.key.clone(),
                prefix: format!("{}{field}.", self.prefix),
                fields,
            }),
            Value::Array(items) if items.is_empty() => None,
            other => {
                self.refuse(field, &other, "an object", report);
                None
            }
        }
    }

    /// The items of a list.
    pub(super) fn list(&mut self, field: &str, report: &mut ImportReport) -> Vec<Value> {
        match self.take(field) {
            None => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(Value::Object(members)) if members.is_empty() => Vec::new(),
            Some(other) => {
                self.refuse(field, &other, "a list", report);
                Vec::new()
            }
        }
    }

    /// Takes a field without a counterpart, and reports the field unless it has Kong's default.
    pub(super) fn skip(&mut self, field: &str, default: &Value, why: &str, report: &mut ImportReport) {
        match self.take(field) {
            Some(value) if value != *default && !is_empty(&value) => {
                report.add(dropped(&self.label, &self.path(field), "left out").why(why));
            }
            _ => {}
        }
    }

    /// Whether a field is written as null.
    pub(super) fn is_null(&self, field: &str) -> bool {
        self.fields.get(field).is_some_and(Value::is_null)
    }

    /// Takes all fields, whose owner is reported as a whole.
    pub(super) fn drain(&mut self) {
        self.fields.clear();
    }

    /// Reports the fields that were not taken.
    pub(super) fn finish(self, report: &mut ImportReport) {
        for (field, value) in &self.fields {
            let is_unset = value.is_null() || is_empty(value);
            let is_bookkeeping = self.prefix.is_empty() && BOOKKEEPING.contains(&field.as_str());
            if !is_unset && !is_bookkeeping {
                let why = "unknown field";
                report.add(dropped(&self.label, &self.path(field), "left out").why(why));
            }
        }
    }
}

/// A boolean of YAML 1.1, which the parsers of decK and Kong read, as text of YAML 1.2.
fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Some(true),
        "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}
