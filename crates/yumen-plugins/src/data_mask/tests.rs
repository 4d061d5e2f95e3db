use serde_json::{Value, json};

use crate::testing::PluginBench;

/// The request of the entry that a logger behind the plugin writes.
fn logged(rules: Value, request: &str) -> Value {
    let bench = PluginBench::new();
    let mask =
        bench.plugin("data-mask", json!({"request": rules, "max_body_size": 100, "max_req_post_args": 3}));
    let logger = bench.plugin(
        "http-logger",
        json!({"uri": "http://sink.test/", "batch_max_size": 1, "include_req_body": true}),
    );
    let reply = bench.run_all(&[mask, logger], request);
    let line = request.lines().next().unwrap().trim_end_matches(" HTTP/1.1");
    assert_eq!(reply.upstream_line(), line, "the upstream receives the request unchanged");
    let entry: Value = serde_json::from_str(&bench.sink_bodies()[0]).unwrap();
    entry["request"].clone()
}

#[test]
fn queries_and_fields_are_masked() {
    let rules = json!([
        {"type": "query", "name": "password", "action": "remove"},
        {"type": "query", "name": "token", "action": "replace", "value": "*****"},
        {"type": "query", "name": "card", "action": "regex", "regex": "(\\d{4})\\d+(\\d{2})", "value": "$1***$2"},
        {"type": "header", "name": "X-Secret", "action": "replace", "value": "hidden"},
        {"type": "header", "name": "Cookie", "action": "remove"},
    ]);
    let request = "GET /a?password=p&token=t&card=12345678&b=2 HTTP/1.1\nX-Secret: s\nCookie: c=1";
    let logged = logged(rules, request);
    assert_eq!(logged["uri"], "/a?token=*****&card=1234***78&b=2");
    assert_eq!(logged["querystring"], json!({"token": "*****", "card": "1234***78", "b": "2"}));
    assert_eq!(
        (&logged["headers"]["x-secret"], &logged["headers"]["cookie"]),
        (&json!("hidden"), &Value::Null)
    );
}

#[test]
fn json_bodies_are_masked_by_path() {
    fn check(path: &str, action: Value, body: &str, expected: &str) {
        let mut rule = json!({"type": "body", "body_format": "json", "name": path});
        rule.as_object_mut().unwrap().extend(action.as_object().unwrap().clone());
        let logged =
            logged(json!([rule]), &format!("POST /a HTTP/1.1\nContent-Type: application/json\n\n{body}"));
        assert_eq!(logged["body"], expected, "{path}");
    }
    let remove = || json!({"action": "remove"});
    let replace = || json!({"action": "replace", "value": "***"});
    check("$.a", remove(), r#"{"a":1,"b":2}"#, r#"{"b":2}"#);
    check("a.b", replace(), r#"{"a":{"b":"x"}}"#, r#"{"a":{"b":"***"}}"#);
    check("$.u[*].t", replace(), r#"{"u":[{"t":1},{"t":2},{}]}"#, r#"{"u":[{"t":"***"},{"t":"***"},{}]}"#);
    check("$.u[1]", remove(), r#"{"u":[1,2,3]}"#, r#"{"u":[1,3]}"#);
    check("$..t", replace(), r#"{"t":1,"a":[{"t":{"t":2}}]}"#, r#"{"t":"***","a":[{"t":"***"}]}"#);
    check("$['a b']", replace(), r#"{"a b":1}"#, r#"{"a b":"***"}"#);
    let regex = json!({"action": "regex", "regex": "^.+@", "value": "***@"});
    check("$.mail", regex, r#"{"mail":"jack@shop"}"#, r#"{"mail":"***@shop"}"#);
    check("$.a", remove(), r#"{"b":2}"#, r#"{"b":2}"#);
}

#[test]
fn a_body_that_cannot_be_masked_is_hidden() {
    let json_rule = || json!([{"type": "body", "body_format": "json", "name": "$.a", "action": "remove"}]);
    let form_rule =
        || json!([{"type": "body", "body_format": "urlencoded", "name": "a", "action": "remove"}]);
    let body = |rules, kind: &str, body: &str| {
        logged(rules, &format!("POST /a HTTP/1.1\nContent-Type: {kind}\n\n{body}"))["body"].clone()
    };
    let form = "application/x-www-form-urlencoded";
    assert_eq!(body(json_rule(), "application/json", "{\"a\":"), "******");
    assert_eq!(
        body(json_rule(), "application/json", &format!("{{\"a\":\"{}\"}}", "x".repeat(200))),
        "******"
    );
    assert_eq!(body(form_rule(), form, "a=1&b=2"), "b=2");
    assert_eq!(body(form_rule(), form, "b=1&c=2&d=3&a=4"), "******");
}

#[test]
fn wrong_paths_and_incomplete_rules_are_refused() {
    let bench = PluginBench::new();
    for rule in [
        json!({"type": "body", "body_format": "json", "name": "$.a[", "action": "remove"}),
        json!({"type": "body", "body_format": "json", "name": "$..", "action": "remove"}),
        json!({"type": "body", "name": "a", "action": "remove"}),
        json!({"type": "query", "name": "a", "action": "replace"}),
        json!({"type": "query", "name": "a", "action": "regex", "regex": "(", "value": ""}),
    ] {
        assert!(bench.build("data-mask", json!({"request": [rule]})).is_err(), "{rule}");
    }
}
