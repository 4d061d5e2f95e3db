//! The evaluator's messages, and derived schemas.

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::{notices_unknown_members, of, unknown_members, validate, validate_document};

fn check(schema: Value, mut instance: Value, path: &str, message: &str) {
    let expected = match message {
        "" => Ok(()),
        _ => Err((path.to_owned(), message.to_owned())),
    };
    let given = instance.to_string();
    let found = validate(&schema, &mut instance).map_err(|refused| (refused.path, refused.message));
    assert_eq!(found, expected, "{given} by {schema}");
}

#[test]
fn messages_about_types_and_objects_are_exact() {
    let table = [
        (json!({"type": "string"}), json!(1), "", "wrong type: expected string, got number"),
        (json!({"type": "integer"}), json!(1.5), "", "wrong type: expected integer, got number"),
        (json!({"type": "integer"}), json!(1e99), "", "wrong type: expected integer, got number"),
        (json!({"type": "integer"}), json!(u64::MAX), "", "wrong type: expected integer, got number"),
        (json!({"type": "object"}), json!(null), "", "wrong type: expected object, got userdata"),
        (
            json!({"type": ["string", "integer"]}),
            json!({"a": 1}),
            "",
            "wrong type: expected one of string, integer, got table",
        ),
        (
            json!({"properties": {"x": {"properties": {"y": {"type": "string"}}}}}),
            json!({"x": {"y": true}}),
            "x.y",
            "property \"x\" validation failed: property \"y\" validation failed: wrong type: expected string, got boolean",
        ),
        (json!({"required": ["x"]}), json!({}), "x", "property \"x\" is required"),
        (json!({"properties": {"x": {}}, "required": ["x"]}), json!({}), "x", "property \"x\" is required"),
        (
            json!({"dependencies": {"x": ["y"]}}),
            json!({"x": 1}),
            "y",
            "property \"y\" is required when \"x\" is set",
        ),
        (
            json!({"dependencies": {"x": {"required": ["y"]}}}),
            json!({"x": 1}),
            "y",
            "failed to validate dependent schema for \"x\": property \"y\" is required",
        ),
        (
            json!({"additionalProperties": false}),
            json!({"x": 1}),
            "x",
            "additional properties forbidden, found x",
        ),
        (
            json!({"additionalProperties": {"type": "string"}}),
            json!({"x": 1}),
            "x",
            "failed to validate additional property x: wrong type: expected string, got number",
        ),
        (
            json!({"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": false}),
            json!({"xy": 1}),
            "xy",
            "failed to validate xy (matching \"^x\"): wrong type: expected string, got number",
        ),
        (json!({"minProperties": 1}), json!({}), "", "expect object to have at least 1 properties"),
        (
            json!({"maxProperties": 1}),
            json!({"a": 1, "b": 1}),
            "",
            "expect object to have at most 1 properties",
        ),
    ];
    for (schema, instance, path, message) in table {
        check(schema, instance, path, message);
    }
}

#[test]
fn messages_about_arrays_strings_and_numbers_are_exact() {
    let table = [
        (json!({"minItems": 2}), json!([1]), "", "expect array to have at least 2 items"),
        (json!({"maxItems": 1}), json!([1, 2]), "", "expect array to have at most 1 items"),
        (
            json!({"items": {"type": "string"}}),
            json!(["a", 1]),
            "[1]",
            "failed to validate item 2: wrong type: expected string, got number",
        ),
        (
            json!({"uniqueItems": true}),
            json!([1, 1]),
            "[1]",
            "expected unique items but items 1 and 2 are equal",
        ),
        (
            json!({"items": [{}], "additionalItems": false}),
            json!([1, 2]),
            "[1]",
            "found unexpected extra items in array",
        ),
        (json!({"minLength": 1}), json!(""), "", "string too short, expected at least 1, got 0"),
        (json!({"maxLength": 2}), json!("äöü"), "", "string too long, expected at most 2, got 3"),
        (
            json!({"pattern": "^a$"}),
            json!("http://user:secret@host"),
            "",
            "failed to match pattern \"^a$\" with \"http://user:******@host\"",
        ),
        (json!({"pattern": "^a$"}), json!("b"), "", "failed to match pattern \"^a$\" with \"b\""),
        (
            json!({"pattern": "^\\*?[a-z]+$"}),
            json!("a\"b"),
            "",
            r#"failed to match pattern "^\\*?[a-z]+$" with "a\"b""#,
        ),
        (json!({"format": "ipv4"}), json!("x"), "", "expect valid ipv4 format but got: x"),
        (json!({"format": "ipv6"}), json!("1.2.3.4"), "", "expect valid ipv6 format but got: 1.2.3.4"),
        (json!({"minimum": 1}), json!(0), "", "expected 0 to be at least 1"),
        (json!({"maximum": 9}), json!(10), "", "expected 10 to be at most 9"),
        (json!({"exclusiveMinimum": 0}), json!(0), "", "expected 0 to be greater than 0"),
        (json!({"minimum": 0, "exclusiveMinimum": true}), json!(0), "", "expected 0 to be greater than 0"),
        (json!({"exclusiveMaximum": 1}), json!(1), "", "expected 1 to be smaller than 1"),
        (json!({"multipleOf": 2}), json!(5), "", "expected 5 to be a multiple of 2"),
    ];
    for (schema, instance, path, message) in table {
        check(schema, instance, path, message);
    }
}

#[test]
fn messages_about_choices_and_combinations_are_exact() {
    let table = [
        (json!({"enum": ["a"]}), json!("b"), "", "matches none of the enum values"),
        (json!({"const": 1}), json!(2), "", "failed to check const value"),
        (
            json!({"allOf": [{"required": ["x"]}]}),
            json!({}),
            "x",
            "allOf 1 failed: property \"x\" is required",
        ),
        (
            json!({"anyOf": [{"required": ["a"]}, {"required": ["b", "c"]}]}),
            json!({}),
            "",
            "object matches none of the required: [\"a\"] or [\"b\",\"c\"]",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "number"}]}),
            json!(true),
            "",
            "object matches none of the required",
        ),
        (
            json!({"oneOf": [{"type": "string"}]}),
            json!(1),
            "",
            "value should match only one schema, but matches none",
        ),
        (
            json!({"oneOf": [{"type": "number"}, {"type": "integer"}]}),
            json!(1),
            "",
            "value should match only one schema, but matches both schemas 1 and 2",
        ),
        (
            json!({"if": {"required": ["a"]}, "then": {"required": ["b"]}}),
            json!({"a": 1}),
            "b",
            "then clause did not match",
        ),
        (
            json!({"if": {"required": ["a"]}, "else": {"required": ["b"]}}),
            json!({}),
            "b",
            "else clause did not match",
        ),
        (json!({"not": {"type": "string"}}), json!("a"), "", "value wasn't supposed to match schema"),
    ];
    for (schema, instance, path, message) in table {
        check(schema, instance, path, message);
    }
}

#[test]
fn valid_values_are_accepted() {
    let table = [
        (json!({"type": "integer"}), json!(2.0)),
        (json!({"type": "array"}), json!({})),
        (json!({"type": "object"}), json!([])),
        (json!({"type": "number"}), json!(1)),
        (json!({"enum": [1]}), json!(1.0)),
        (json!({"multipleOf": 0.5}), json!(1.5)),
        (json!({"properties": {"x": {"default": 1}}, "required": ["x"]}), json!({})),
        (json!({"pattern": "^[a-zA-Z0-9-_.]+$"}), json!("a-b_c.d")),
        (json!({"contains": {"const": 1}}), json!([2, 1])),
        (json!({"if": {"required": ["a"]}, "then": {"required": ["b"]}}), json!({})),
        (json!(true), json!(1)),
    ];
    for (schema, instance) in table {
        check(schema, instance, "", "");
    }
}

#[test]
fn first_fault_in_evaluation_order_is_reported() {
    let schema = json!({
        "type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"],
        "additionalProperties": false, "minProperties": 9, "anyOf": [{"required": ["z"]}]
    });
    let a = "property \"a\" validation failed: wrong type: expected string, got number";
    check(schema.clone(), json!({"a": 1, "c": 1}), "a", a);
    check(schema.clone(), json!({"c": 1}), "b", "property \"b\" is required");
    check(schema.clone(), json!({"b": 1, "c": 1}), "b", "additional properties forbidden, found b");
    check(schema, json!([]), "b", "property \"b\" is required");
}

#[test]
fn defaults_are_filled_in_but_not_those_of_a_branch_that_lost() {
    let schema = json!({
        "properties": {
            "a": {"default": 1},
            "inner": {"properties": {"b": {"default": "x"}}},
            "list": {"type": "array", "items": {"properties": {"c": {"default": true}}}},
            "n": {"type": "integer"}
        },
        "oneOf": [
            {"properties": {"d": {"default": 4}, "kind": {"const": 1}}},
            {"properties": {"e": {"default": 5}, "kind": {"const": 2}}}
        ]
    });
    let mut instance = json!({"kind": 2, "inner": {}, "list": [{}], "n": 3.0});
    assert_eq!(validate(&schema, &mut instance), Ok(()));
    let expected = json!({"kind": 2, "inner": {"b": "x"}, "list": [{"c": true}], "n": 3, "a": 1, "e": 5});
    assert_eq!(instance, expected);
}

#[test]
fn nesting_without_end_is_refused() {
    let mut schema = json!({"type": "string"});
    for _ in 0..200 {
        schema = json!({"allOf": [schema]});
    }
    let refused = validate(&schema, &mut json!("a")).expect_err("200 levels");
    assert!(refused.message.ends_with("too deeply nested"), "{}", refused.message);
}

/// Documented.
#[derive(JsonSchema, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Sample {
    /// Counted.
    #[schemars(range(min = 1))]
    count: u32,
    title: Option<String>,
    mode: Option<Mode>,
    #[serde(default)]
    flag: bool,
    inner: Option<Inner>,
}

#[derive(JsonSchema, serde::Serialize, serde::Deserialize)]
#[allow(dead_code)]
struct Inner {
    rate: Option<f64>,
}

#[derive(JsonSchema, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code)]
enum Mode {
    /// The one.
    One,
    /// The other.
    Two,
}

#[test]
fn derived_schemas_are_plain() {
    let expected = json!({
        "description": "Documented.",
        "type": "object",
        "properties": {
            "count": {"description": "Counted.", "type": "integer", "minimum": 1},
            "title": {"type": "string"},
            "mode": {"type": "string", "enum": ["one", "two"]},
            "flag": {"type": "boolean", "default": false},
            "inner": {"type": "object", "properties": {"rate": {"type": "number"}}}
        },
        "additionalProperties": false,
        "required": ["count"]
    });
    assert_eq!(of::<Sample>(), expected);
}

/// An object in an object.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!({}), |inner, _| json!({"next": inner}))
}

#[test]
fn a_reference_stands_for_the_part_it_names() {
    let schema = json!({
        "definitions": {"name": {"type": "string"}, "a/b": {"type": "integer"}},
        "properties": {
            "name": {"$ref": "#/definitions/name", "type": "integer"},
            "count": {"$ref": "#/definitions/a~1b"},
            "next": {"$ref": "#"},
        },
    });
    let check =
        |mut instance: Value| validate_document(&schema, &mut instance).map_err(|invalid| invalid.path);
    assert_eq!(check(json!({"name": "a", "count": 1, "next": {"next": {"name": "b"}}})), Ok(()));
    assert_eq!(check(json!({"next": {"next": {"name": 7}}})), Err("next.next.name".into()));
    assert_eq!(check(json!({"next": {"count": "x"}})), Err("next.count".into()));
    assert!(validate_document(&json!({"not": {"$ref": "#/definitions/none"}}), &mut json!(1)).is_err());
}

#[test]
fn recursive_schema_ends_at_the_step_limit() {
    let next = json!({"properties": {"next": {"$ref": "#"}}});
    let doubling = json!({"anyOf": [{"allOf": [next, {"required": ["none"]}]}, next]});
    // A reference under `not` does not evade the bound.
    let text = doubling.to_string().replace("\"#\"", "\"#/definitions/doubling\"");
    let inner: Value = serde_json::from_str(&text).unwrap();
    let turned = json!({"definitions": {"doubling": inner}, "not": {"$ref": "#/definitions/doubling"}});
    assert_eq!(validate_document(&doubling, &mut nested(5)), Ok(()));
    for schema in [&doubling, &turned, &json!({"$ref": "#"}), &json!({"not": {"$ref": "#"}})] {
        assert!(validate_document(schema, &mut nested(100)).is_err(), "{schema}");
    }
}

#[test]
fn names_of_properties_are_judged_too() {
    let schema = json!({"propertyNames": {"pattern": "^[a-z]+$"}});
    assert_eq!(validate(&schema, &mut json!({"abc": 1})), Ok(()));
    assert_eq!(validate(&schema, &mut json!({"A1": 1})).map_err(|invalid| invalid.path), Err("A1".into()));
}

#[test]
fn every_fault_of_a_value_is_found() {
    let schema = json!({
        "type": "object",
        "properties": {
            "a": { "type": "integer" },
            "b": { "type": "object", "properties": { "c": { "type": "string" }, "d": { "minimum": 1 } }, "required": ["c"] },
            "e": { "type": "array", "items": { "type": "string" } },
            "f": { "type": "string", "default": "x" },
            "g": {},
        },
        "required": ["f", "g"],
        "additionalProperties": false,
    });
    let paths = |value: Value| {
        let paths = super::faults(&schema, &value).into_iter().map(|fault| fault.path);
        paths.collect::<Vec<_>>()
    };
    let all = json!({ "a": "x", "b": { "d": 0 }, "e": ["x", 1, 2], "h": 1 });
    assert_eq!(paths(all.clone()), ["a", "b.c", "b.d", "e[1]", "e[2]", "g", "h"]);
    // The first fault equals that of validation.
    let first = super::validate(&schema, &mut all.clone()).unwrap_err();
    assert_eq!(super::faults(&schema, &all)[0], first);
    assert_eq!(paths(json!({ "a": 1, "e": {}, "g": 1 })), [""; 0]);
    assert_eq!(paths(json!(5)), [""]);
}

#[test]
fn large_arrays_are_unique_by_the_same_equality_as_small_ones() {
    let schema = json!({"uniqueItems": true});
    let filler: Vec<Value> = (100..140).map(Value::from).collect();
    let check = |first: Value, second: Value, is_unique: bool| {
        for filler in [&filler[..0], &filler] {
            let items: Vec<Value> =
                [first.clone(), second.clone()].into_iter().chain(filler.iter().cloned()).collect();
            assert_eq!(validate_document(&schema, &mut items.clone().into()).is_ok(), is_unique, "{items:?}");
        }
    };
    check(json!(1), json!(1.0), false);
    check(json!(0.0), json!(-0.0), false);
    check(json!([{"a": 1, "b": 2}]), json!([{"b": 2.0, "a": 1}]), false);
    check(json!(9_007_199_254_740_992_u64), json!(9_007_199_254_740_993_u64), true);
    check(json!("1"), json!(1), true);
    check(json!({"a": 1}), json!({"b": 1}), true);
    check(json!([]), json!({}), true);
}

#[test]
fn steps_of_an_evaluation_are_bounded_whatever_the_size_of_the_value() {
    let schema = json!({"definitions": {"n": {"properties": {"c": {"anyOf": [
        {"allOf": [{"$ref": "#/definitions/n"}, false]}, {"$ref": "#/definitions/n"},
    ]}}}}, "$ref": "#/definitions/n"});
    let padded = |depth| json!({"p": vec![1; 50_000], "c": nested_by("c", depth)});
    assert!(validate_document(&schema, &mut padded(4)).is_ok());
    let start = std::time::Instant::now();
    assert!(validate_document(&schema, &mut padded(40)).is_err());
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    let mut large: Value = vec![json!({"a": "x"}); 40_000].into();
    let plain = json!({"items": {"properties": {"a": {"type": "string"}}}});
    assert_eq!(validate_document(&plain, &mut large), Ok(()));
}

fn nested_by(name: &str, depth: usize) -> Value {
    (0..depth).fold(json!({}), |inner, _| json!({ name: inner }))
}

#[test]
fn integers_of_documents_have_no_bound() {
    let schema = json!({"type": "integer"});
    for text in ["9223372036854775808", "123456789012345678901234567890", "1E5", "3.00"] {
        let mut number: Value = serde_json::from_str(text).unwrap();
        assert_eq!(validate_document(&schema, &mut number), Ok(()), "{text}");
    }
    assert!(validate_document(&schema, &mut json!(3.5)).is_err());
}

/// Checks the paths of members without effect.
fn check_unknown(schema: &Value, instance: Value, expected: &[&str]) {
    let (_, is_noticed) = notices_unknown_members(|| validate(schema, &mut instance.clone()));
    let found: Vec<String> = unknown_members(schema, &instance).into_iter().map(|one| one.path).collect();
    assert_eq!(found, expected, "{instance}");
    // Nothing is searched for that validation does not notice.
    assert!(is_noticed || expected.is_empty(), "{instance}");
}

#[test]
fn members_that_no_branch_names_are_found_at_any_depth() {
    let schema = json!({
        "properties": {
            "list": { "items": { "properties": { "a": {} } } },
            "either": { "oneOf": [{ "properties": { "a": { "type": "string" } } }, { "properties": { "b": {} } }] },
            "map": { "patternProperties": { ".*": { "properties": { "a": {} } } } },
            "free": { "type": "object" },
            "policy": { "type": "string", "default": "local" },
        },
        "if": { "properties": { "policy": { "enum": ["redis"] } } },
        "then": { "properties": { "redis_host": {} } },
        "else": { "properties": { "size": {} } },
    });
    check_unknown(&schema, json!({ "list": [{ "a": 1 }, { "x": 1 }], "y": 2 }), &["list[1].x", "y"]);
    check_unknown(&schema, json!({ "either": { "a": 1, "b": 2, "c": 3 } }), &["either.c"]);
    check_unknown(
        &schema,
        json!({ "map": { "any": { "a": 1, "b": 2 } }, "free": { "x": 1 } }),
        &["map.any.b"],
    );
    check_unknown(&schema, json!({ "policy": "redis", "redis_host": "h" }), &[]);
    check_unknown(&schema, json!({ "policy": "redis", "redis_host": "h", "size": 1 }), &["size"]);
    check_unknown(&schema, json!({ "redis_host": "h", "size": 1 }), &["redis_host"]);
    // Refused by validation, which needs no warning beside it.
    let closed = json!({ "properties": { "a": {} }, "additionalProperties": false });
    check_unknown(&closed, json!({ "b": 1 }), &[]);
}
