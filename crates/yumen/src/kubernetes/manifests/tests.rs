use std::path::Path;

use serde_json::{Value, json};
use yumen_base::Problem;
use yumen_config::NodeConfig;

use super::document_starts::document_starts;
use super::{ManifestObjects, ManifestTranslator, values_of};

#[test]
fn documents_start_at_their_first_line_of_content() {
    for (text, expected) in [
        ("", &[][..]),
        ("a: 1\n", &[1]),
        ("# comment\n\n---\n# comment\na: 1\n--- # next\n\nb: |\n  ---\n  c\n---\n---\nd: 1\n", &[5, 8, 13]),
        ("--- { a: 1 }\n...\n---\nb: 1", &[1, 4]),
        ("{\"a\": \"---\"}", &[1]),
    ] {
        assert_eq!(document_starts(text), expected, "{text}");
    }
}

#[test]
fn problems_of_resources_name_the_kubernetes_object_and_its_place() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests/served");
    let manifests = ManifestObjects::read(&[folder]).expect("manifests");
    let translated = ManifestTranslator::new(&NodeConfig::default()).translate(&manifests);
    let mut problems = [
        Problem::error("routes/shop/cart!http!00!000", "match", "wrong"),
        Problem::error("upstreams/shop/db!svc!5432.tcp", "", "wrong"),
        Problem::error("routes/absent", "", "wrong"),
    ];
    translated.attribute(&mut problems, &manifests);
    let found = problems.map(|problem| {
        let line = problem.place.map(|place| place.span.line);
        (problem.object, problem.message, line)
    });
    let expected = [
        ("HTTPRoute/shop/cart", "wrong, in resource routes/shop/cart!http!00!000", Some(10)),
        ("Service/shop/db", "wrong, in resource upstreams/shop/db!svc!5432.tcp", Some(37)),
        ("routes/absent", "wrong", None),
    ];
    assert_eq!(found, expected.map(|(object, message, line)| (object.into(), message.into(), line)));
}

#[test]
fn json_may_escape_a_character_by_two_surrogates() {
    let check = |text: &str, expected: &[Value]| assert_eq!(values_of(text).unwrap(), expected, "{text}");
    check(r#"{"a": "\ud83d\ude00"}"#, &[json!({ "a": "\u{1f600}" })]);
    check("{\"a\": 1}\n{\"b\": 2}\n", &[json!({ "a": 1 }), json!({ "b": 2 })]);
    check("{a: b}\n---\nc: d\n", &[json!({ "a": "b" }), json!({ "c": "d" })]);
}
