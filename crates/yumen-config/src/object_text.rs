//! One object as text in YAML or JSON, as people edit it.

use serde_json::Value;

use crate::document::{self, TextFault};
use crate::duplicate_keys;
use crate::json_text::JsonText;
use crate::yaml;

/// Reads an object. A text that begins like a JSON object is JSON; any other text is YAML. Merge keys (`<<`) are expanded,
/// and duplicate members are refused, because readers disagree on which of them counts.
pub fn read(text: &str) -> Result<Value, TextFault> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let fault = |message: String| TextFault { message, at: None, hint: None };
    let is_json = document::is_json(text);
    let read =
        match is_json {
            true => duplicate_keys::from_json(text.as_bytes())
                .map_err(|error| json_fault(text, error.to_string()))?,
            false => duplicate_keys::from_yaml(text.as_bytes())
                .map_err(|error| TextFault::of_yaml(text, &error))?,
        };
    let mut value = read.into_distinct().map_err(fault)?;
    if !is_json {
        document::merge_keys(&mut value);
    }
    match value.is_object() {
        true => Ok(value),
        false => Err(fault("the text is not an object: write its members as \"name: value\"".to_owned())),
    }
}

/// The place comes from a second read, since the first one checks for duplicates and reports texts only.
fn json_fault(text: &str, message: String) -> TextFault {
    let json = JsonText::new(text.as_bytes());
    match serde_json::from_slice::<Value>(json.strict()) {
        Err(error) => TextFault::of_json(&json, &error),
        Ok(_) => TextFault { message, at: None, hint: None },
    }
}

/// Writes an object in YAML, block style.
pub fn to_yaml(object: Value) -> Result<String, String> {
    // Readers of YAML would expand it.
    if document::has_merge_key(&object) {
        return Err("a member is named \"<<\", which YAML would expand: edit the object as JSON".to_owned());
    }
    yaml::write(object).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn object_survives_both_directions() {
        for object in [
            json!({}),
            json!({"uri": "/a/*", "methods": ["GET"], "priority": 1, "vars": [["arg_x", "==", "on"]]}),
            json!({"key": "0123", "yes": "no", "plugins": {"mocking": {"response_example": "a\nb\n"}}}),
            json!({"z": 1, "a": {"c": null, "b": []}, "port": 12_345_678_901_234_567_890_u64}),
        ] {
            let yaml = to_yaml(object.clone()).unwrap();
            let read = read(&yaml).unwrap();
            // The order of members too.
            assert_eq!(read.to_string(), object.to_string(), "{yaml}");
        }
    }

    #[test]
    fn text_may_be_json_and_may_have_comments_and_anchors() {
        let text = "# a comment\nuri: /a\nplugins: &p\n  cors: {}\nmore:\n  <<: *p\n";
        assert_eq!(read(text).unwrap(), json!({"uri": "/a", "plugins": {"cors": {}}, "more": {"cors": {}}}));
        assert_eq!(read(" {\"uri\": \"/a\"}").unwrap(), json!({"uri": "/a"}));
    }

    #[test]
    fn invalid_text_is_refused_with_its_line() {
        for (text, line, part) in [
            ("uri: /a\n\tname: x\n", Some(2), "tab"),
            ("uri: /a\nname: [\n", Some(2), ""),
            ("{\"uri\": \"/a\",\n}", Some(1), "comma"),
            ("uri: /a\nuri: /b\n", None, "more than once"),
            ("- uri: /a\n", None, "not an object"),
            ("", None, "not an object"),
        ] {
            let fault = read(text).unwrap_err();
            assert!(fault.message.contains(part), "{text:?}: {}", fault.message);
            if let Some(line) = line {
                assert_eq!(fault.at.map(|at| at.line), Some(line), "{text:?}: {}", fault.message);
            }
        }
        assert!(to_yaml(json!({"a": [{"<<": {}}]})).is_err());
    }
}
