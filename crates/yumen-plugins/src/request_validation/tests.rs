use serde_json::{Value, json};

use crate::testing::{PluginBench, TestReply};

fn run(settings: Value, request: &str) -> TestReply {
    let bench = PluginBench::new();
    let plugin = bench.plugin("request-validation", settings);
    let mut ex = bench.exchange(request);
    let answer = bench.admit(std::slice::from_ref(&plugin), &mut ex, request);
    let body = ex.body.buffered.as_deref().map(<[u8]>::to_vec);
    let mut reply = bench.finish(std::slice::from_ref(&plugin), ex, answer);
    // The body of the upstream request if the request passes.
    if reply.status == 200 {
        reply.body = body.map(|body| String::from_utf8(body).expect("text")).unwrap_or_default();
    }
    reply
}

#[track_caller]
fn check(settings: Value, request: &str, expected: (u16, &str)) {
    let reply = run(settings.clone(), request);
    assert_eq!((reply.status, reply.body.as_str()), expected, "{settings} {request}");
}

fn person_settings() -> Value {
    json!({"body_schema": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 2, "pattern": "^[a-z]+$"},
            "age": {"type": "integer", "maximum": 150},
            "tags": {"type": "array", "items": {"type": "string"}},
            "size": {"type": "string", "enum": ["s", "m"], "default": "m"},
        },
    }})
}

#[test]
fn bodies_are_held_to_the_schema() {
    let post = |body: &str| format!("POST / HTTP/1.1\nContent-Type: application/json\n\n{body}");
    let good = (200, r#"{"name": "ann", "age": 7,"size":"m"}"#);
    check(person_settings(), &post(r#"{"name": "ann", "age": 7}"#), good);
    for (body, refusal) in [
        (r#"{"age": 7}"#, "property \"name\" is required"),
        (r#"{"name": 7}"#, "property \"name\" validation failed: wrong type: expected string, got number"),
        (
            r#"{"name": "a"}"#,
            "property \"name\" validation failed: string too short, expected at least 2, got 1",
        ),
        (
            r#"{"name": "ann", "age": 151}"#,
            "property \"age\" validation failed: expected 151 to be at most 150",
        ),
        (
            r#"{"name": "ann", "size": "x"}"#,
            "property \"size\" validation failed: matches none of the enum values",
        ),
    ] {
        check(person_settings(), &post(body), (400, refusal));
    }
    assert_eq!(run(person_settings(), &post("{")).status, 400);
    check(person_settings(), "POST / HTTP/1.1", (400, ""));
}

#[test]
fn validated_body_is_forwarded() {
    let doubled = "POST / HTTP/1.1\n\n{\"name\": \"9\", \"name\": \"ann\"}";
    check(person_settings(), doubled, (200, r#"{"name":"ann","size":"m"}"#));
}

#[test]
fn forms_are_objects_of_texts() {
    let post = |body: &str| {
        format!("POST / HTTP/1.1\nContent-Type: application/x-www-form-urlencoded; charset=utf-8\n\n{body}")
    };
    check(person_settings(), &post("name=ann&tags=a&tags=b"), (200, "name=ann&tags=a&tags=b"));
    check(person_settings(), &post("n%61me=ann"), (200, "n%61me=ann"));
    check(person_settings(), &post("other=ann"), (400, "property \"name\" is required"));
}

#[test]
fn fields_are_held_to_a_schema_of_their_own() {
    let settings = || {
        json!({"header_schema": {
            "type": "object", "required": ["x-kind"], "properties": {"x-kind": {"type": "string", "enum": ["a"]}},
        }, "rejected_code": 422})
    };
    check(settings(), "GET / HTTP/1.1\nX-Kind: a", (200, ""));
    check(settings(), "GET / HTTP/1.1", (422, "property \"x-kind\" is required"));
    let refusal = "property \"x-kind\" validation failed: matches none of the enum values";
    check(settings(), "GET / HTTP/1.1\nx-kind: b", (422, refusal));
    let mut expected = settings();
    expected["rejected_msg"] = json!("no");
    check(expected, "GET / HTTP/1.1", (422, "no"));
}

#[test]
fn a_body_too_long_is_refused() {
    let mut settings = person_settings();
    settings["max_req_body_size"] = json!(10);
    assert_eq!(run(settings, "POST / HTTP/1.1\n\n{\"name\": \"ann\"}").status, 413);
}

#[test]
fn schemas_that_mean_nothing_are_refused() {
    for (settings, part) in [
        (json!({}), "object matches none of the required"),
        (json!({"body_schema": {"type": "text"}}), "\"text\" is not a type"),
        (json!({"body_schema": {"properties": {"a": {"type": []}}}}), "is not a type"),
        (json!({"header_schema": {"properties": []}}), "an object of schemas"),
        (json!({"body_schema": {"required": "a"}}), "a list of names"),
        (json!({"body_schema": {"items": {"pattern": "("}}}), "invalid regular expression"),
        (json!({"body_schema": {"anyOf": [{"not": {"type": "x"}}]}}), "\"x\" is not a type"),
        (json!({"body_schema": {}, "rejected_code": 199}), "rejected_code"),
        (json!({"body_schema": {"items": {"$ref": "#/definitions/none"}}}), "does not resolve to a schema"),
        (json!({"body_schema": {"contains": {"$ref": "other.json"}}}), "does not resolve to a schema"),
    ] {
        let error = PluginBench::new().build("request-validation", settings.clone()).err().expect(part);
        assert!(error.message.contains(part), "{settings}: {}", error.message);
    }
}

#[test]
fn a_schema_may_refer_to_itself() {
    let settings = json!({"body_schema": {
        "definitions": {"node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "next": {"$ref": "#/definitions/node"}},
        }},
        "$ref": "#/definitions/node",
    }});
    let post = |body: &str| format!("POST / HTTP/1.1\nContent-Type: application/json\n\n{body}");
    let good = r#"{"name":"a","next":{"name":"b"}}"#;
    check(settings.clone(), &post(good), (200, good));
    assert_eq!(run(settings, &post(r#"{"name":"a","next":{"name":7}}"#)).status, 400);
}

#[test]
fn the_text_of_a_body_stays_as_it_was_received() {
    let schema = json!({"type": "object", "properties": {
        "b": {"type": "integer"},
        "in": {"type": "object", "properties": {"d": {"default": 1}, "e": {"default": "\""}}},
        "list": {"type": "array"},
    }});
    let post = |body: &str| format!("POST / HTTP/1.1\nContent-Type: application/json\n\n{body}");
    for (body, expected) in [
        (r#" {"b":123456789012345678901234567890, "c":[3.00,1E5,-0] } "#, None),
        (r#"{"b":9223372036854775808,"list":{},"s":"\u0061}\"]\\"}"#, None),
        (r#"{"in":{ },"b":3.00}"#, Some(r#"{"in":{ "d":1,"e":"\""},"b":3.00}"#)),
        (r#"{"in":{"d":2.0 },"b":3.00}"#, Some(r#"{"in":{"d":2.0 ,"e":"\""},"b":3.00}"#)),
        (r#"{"in":[ ],"b":3.00}"#, Some(r#"{"in":{"d":1,"e":"\""},"b":3.00}"#)),
        (r#"{"b":1,"b":2,"in":{"d":0}}"#, Some(r#"{"b":2,"in":{"d":0,"e":"\""}}"#)),
    ] {
        check(json!({ "body_schema": schema }), &post(body), (200, expected.unwrap_or(body)));
    }
}

#[test]
fn one_media_type_in_any_case_tells_forms_from_json() {
    let post = |fields: &str| format!("POST / HTTP/1.1\n{fields}\n\nname=ann");
    let form = "Content-Type: Application/X-WWW-Form-Urlencoded ;a=b";
    check(person_settings(), &post(form), (200, "name=ann"));
    for fields in [&format!("{form}\nContent-Type: application/json"), "Content-Type: text/plain, text/html"]
    {
        let refusal = (400, "the request names more than one Content-Type");
        check(person_settings(), &post(fields), refusal);
    }
}
