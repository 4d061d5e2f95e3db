//! Settings and the resulting responses.

use std::time::Duration;

use serde_json::{Value, json};

use crate::testing::{PluginBench, TestReply};

fn run(settings: Value) -> TestReply {
    let bench = PluginBench::new();
    bench.run(&bench.plugin("mocking", settings), "GET /hello?a=1 HTTP/1.1")
}

#[test]
fn an_example_is_the_answer() {
    let reply = run(json!({"response_example": "hello", "response_status": 201}));
    assert_eq!((reply.status, reply.body.as_str(), reply.upstream), (201, "hello", None));
    let expected = ["Content-Type: application/json;charset=utf8", "x-mock-by: APISIX/3.18.0"];
    assert_eq!(reply.fields, expected);
    assert!(reply.slept.is_empty());
}

#[test]
fn further_fields_are_added_and_the_mark_can_be_left_out() {
    let reply =
        run(json!({"response_example": "<a/>", "content_type": "text/xml", "with_mock_header": false,
        "response_headers": {"X-One": "1", "X-Two": 2}}));
    assert_eq!(reply.fields, ["Content-Type: text/xml", "X-One: 1", "X-Two: 2"]);
}

#[test]
fn the_answer_waits_for_its_delay() {
    let reply = run(json!({"response_example": "hello", "delay": 2}));
    assert_eq!((reply.status, reply.slept), (200, vec![Duration::from_secs(2)]));
}

#[test]
fn a_schema_is_filled_with_examples_and_random_values() {
    let schema = json!({"type": "object", "properties": {
        "text": {"type": "string", "example": "hi"}, "count": {"type": "integer", "example": 5.7},
        "ratio": {"type": "number", "example": 0.5}, "sure": {"type": "boolean", "example": false},
        "any": {"type": "string"}, "list": {"type": "array", "items": {"type": "integer"}},
        "none": {"type": "array"}, "deep": {"type": "object", "properties": {"b": {"type": "boolean"}}}}});
    let body: Value = serde_json::from_str(&run(json!({"response_schema": schema})).body).expect("JSON");
    let fixed = (&body["text"], &body["count"], &body["ratio"], &body["sure"]);
    assert_eq!(fixed, (&json!("hi"), &json!(5), &json!(0.5), &json!(false)));
    let letters = body["any"].as_str().expect("text");
    assert!((1..=10).contains(&letters.len()) && letters.bytes().all(|byte| byte.is_ascii_lowercase()));
    let list = body["list"].as_array().expect("a list");
    assert!(
        (1..=3).contains(&list.len()) && list.iter().all(|n| (1..=10_000).contains(&n.as_i64().unwrap()))
    );
    assert!(body.get("none").is_none() && body["deep"]["b"].is_boolean());
}

#[test]
fn a_schema_can_be_written_as_xml() {
    let schema = json!({"properties": {"a": {"type": "string", "example": "x<y"}, "b": {"type": "object",
        "properties": {"c": {"type": "integer", "example": 1}}}}});
    let reply = run(json!({"response_schema": schema, "content_type": "application/xml;charset=utf8"}));
    assert_eq!(reply.body, "<data><a>x&lt;y</a><b><c>1</c></b></data>");
}

#[test]
fn only_texts_can_be_mocked() {
    let error =
        PluginBench::new().build("mocking", json!({"response_example": "a", "content_type": "image/png"}));
    assert_eq!(error.err().expect("refused").message, "unsupported content type!");
}

#[test]
fn variables_are_filled_in() {
    let reply =
        run(json!({"response_example": "a=$arg_a from ${remote_addr}", "response_headers": {"X-U": "$uri"}}));
    assert_eq!((reply.body.as_str(), reply.field("X-U").as_deref()), ("a=1 from 127.0.0.1", Some("/hello")));
}
