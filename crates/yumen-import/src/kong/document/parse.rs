//! The text of a file as a value: YAML with anchors and merge keys, or JSON.

use serde_json::Value;
use yumen_config::{json_text, yaml};

use crate::report::{ImportReport, different};

/// The form of a file, for the error of another one.
const EXPECTED: &str = "expected YAML or JSON in the format of decK or of Kong without a database";

/// Parses a file.
///
/// # Errors
/// The first syntax error, with line and column.
pub(super) fn parse(text: &str, has_templates: bool, report: &mut ImportReport) -> Result<Value, String> {
    if text.trim_start().starts_with('{') {
        match json_text::from_slice(text.as_bytes()) {
            Ok(value) => return Ok(value),
            // A template outside of quotes is no JSON, but YAML.
            Err(error) if !has_templates => return Err(format!("{error}; {EXPECTED}")),
            Err(_) => {}
        }
    }
    yaml::bounded(text).map_err(|error| error.to_string())?;
    let mut value: serde_yaml_ng::Value = match serde_yaml_ng::from_str(text) {
        Ok(value) => value,
        Err(error) => {
            // A member that is written twice is no reason to refuse the file: decK takes the later one.
            let value: Value = serde_yaml_ng::from_str(text).map_err(|_| format!("{error}; {EXPECTED}"))?;
            let line = different("file", "", "the later of two members with one name counts");
            report.add(line.why(error.to_string()));
            return Ok(value);
        }
    };
    let unmerged = value.clone();
    if value.apply_merge().is_err() {
        value = unmerged;
    }
    serde_json::to_value(value).map_err(|error| format!("{error}; {EXPECTED}"))
}

/// The type of a value, for messages.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
