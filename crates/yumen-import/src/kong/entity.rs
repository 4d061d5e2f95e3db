//! One object of the file while it is taken apart: what nobody took at the end goes to the report.

use serde_json::{Map, Value};

use crate::report::{ImportReport, dropped};

/// What Kong and its tools write beside the settings; it means nothing to a gateway.
const BOOKKEEPING: [&str; 6] = ["_comment", "_ignore", "created_at", "updated_at", "ws_id", "id"];

/// An object of the file.
#[derive(Debug, Clone, Default)]
pub(super) struct KongEntity {
    /// What the report calls it: `route orders`.
    pub(super) label: String,
    /// The name, or what stands for it.
    pub(super) name: String,
    /// What others may refer to it by beside the name; no two are alike.
    pub(super) key: String,
    /// Where its fields stand inside the object the report names; empty, or ends with a dot.
    prefix: String,
    fields: Map<String, Value>,
}

impl KongEntity {
    pub(super) fn new(label: String, name: String, key: String, fields: Map<String, Value>) -> KongEntity {
        KongEntity { label, name, key, prefix: String::new(), fields }
    }

    /// What stands under `field`; null is as good as absent.
    pub(super) fn take(&mut self, field: &str) -> Option<Value> {
        self.fields.shift_remove(field).filter(|value| !value.is_null())
    }

    pub(super) fn peek(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    pub(super) fn set(&mut self, field: &str, value: Value) {
        self.fields.insert(field.to_owned(), value);
    }

    pub(super) fn path(&self, field: &str) -> String {
        format!("{}{field}", self.prefix)
    }

    fn refuse(&self, field: &str, found: &Value, wanted: &str, report: &mut ImportReport) {
        let message = format!("left out: found {found}, expected {wanted}");
        report.add(dropped(&self.label, &self.path(field), message));
    }

    pub(super) fn text(&mut self, field: &str, report: &mut ImportReport) -> Option<String> {
        match self.take(field)? {
            Value::String(text) => Some(text),
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
            // What came out of the environment is text.
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        if number.is_none() {
            self.refuse(field, &value, "a number", report);
        }
        number
    }

    /// A whole number that is not negative.
    pub(super) fn count(&mut self, field: &str, report: &mut ImportReport) -> Option<u64> {
        let number = self.number(field, report)?;
        if number >= 0.0 && number.fract() == 0.0 && number < 9e15 {
            return Some(number as u64);
        }
        self.refuse(field, &Value::from(number), "a whole number from 0", report);
        None
    }

    pub(super) fn flag(&mut self, field: &str, report: &mut ImportReport) -> Option<bool> {
        match self.take(field)? {
            Value::Bool(flag) => Some(flag),
            Value::String(text) if text == "true" || text == "false" => Some(text == "true"),
            other => {
                self.refuse(field, &other, "true or false", report);
                None
            }
        }
    }

    /// A list of texts; a single text is a list of one. Empty where the field is absent.
    pub(super) fn texts(&mut self, field: &str, report: &mut ImportReport) -> Vec<String> {
        let items = match self.take(field) {
            None => return Vec::new(),
            Some(Value::Array(items)) => items,
            // To Kong's tools an empty object and an empty list are the same.
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

    /// A list of whole numbers, such as statuses.
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

    /// An object inside this one; its fields are reported under `field`.
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

    /// The objects in a list.
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

    /// Takes a field that has no counterpart; says so unless it has the value Kong gives it by default.
    pub(super) fn skip(&mut self, field: &str, default: &Value, why: &str, report: &mut ImportReport) {
        match self.take(field) {
            Some(value) if value != *default && !is_empty(&value) => {
                report.add(dropped(&self.label, &self.path(field), "left out").why(why));
            }
            _ => {}
        }
    }

    /// Reports what nobody took.
    pub(super) fn finish(self, report: &mut ImportReport) {
        for (field, value) in &self.fields {
            let unimportant = value.is_null() || is_empty(value);
            let kept = self.prefix.is_empty() && BOOKKEEPING.contains(&field.as_str());
            if !unimportant && !kept {
                let why = "unknown field";
                report.add(dropped(&self.label, &self.path(field), "left out").why(why));
            }
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}
