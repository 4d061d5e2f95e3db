//! Conversion of schemas to tables.

use serde_json::json;

use super::plugin_examples::{EXAMPLES, example_of};
use super::settings;

#[test]
fn examples_are_sorted_and_use_their_plugin() {
    assert!(EXAMPLES.is_sorted_by_key(|(name, _)| *name));
    for (name, example) in EXAMPLES {
        assert!(yumen_plugins::BUILTIN.iter().any(|kind| kind.name == *name), "{name}");
        assert!(example.contains(&format!("{name}:")) || example.contains(&format!("id: {name}")), "{name}");
        assert_eq!(example_of(name), Some(*example));
    }
}

#[test]
fn dependent_settings_appear_once_and_numbers_are_listed() {
    let host = json!({"type": "string", "description": "A host."});
    let schema = json!({
        "properties": {
            "policy": {"enum": ["near", "far"], "default": "near", "description": "Where."},
            "level": {"enum": [1, 2.5]},
        },
        "if": {"properties": {"policy": {"enum": ["far"]}}},
        "then": {"properties": {"host": host, "port": {"type": "integer"}}, "required": ["host"]},
        "else": {"if": {"properties": {"policy": {"enum": ["farther"]}}}, "then": {"properties": {"host": host}}},
        "dependencies": {"level": {"oneOf": [{"properties": {"level": {"enum": [1]}, "one": {"type": "boolean"}}}]}},
    });
    let mut out = String::new();
    settings(&mut out, &schema);
    let rows: Vec<&str> = out.lines().skip(2).collect();
    assert_eq!(
        rows,
        [
            "| `policy` | `near`, `far` | `\"near\"` | Where. |",
            "| `level` | `1`, `2.5` |  |  |",
            "| `host` | string | required | A host. Only with `policy` `far`, `farther`. |",
            "| `port` | integer |  |  Only with `policy` `far`. |",
            "| `one` | boolean |  |  Only with `level` `1`. |",
        ]
    );
}
