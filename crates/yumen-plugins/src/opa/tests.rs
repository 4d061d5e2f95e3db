use serde_json::{Value, json};
use yumen_plugin::{Method, SubrequestFault, SubrequestResponse, SubrequestSpec};

use crate::testing::{InlineUpstreams, PluginBench, TestReply, service_response};

fn bench() -> PluginBench {
    let mut bench = PluginBench::new();
    bench.objects = Some(Box::new(InlineUpstreams));
    bench
}

fn settings(more: Value) -> Value {
    let mut settings = json!({ "host": "http://opa.test:8181/", "policy": "shop/http" });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

/// The result of a request after a decision.
fn run(
    more: Value,
    answer: Result<SubrequestResponse, SubrequestFault>,
    request: &str,
) -> (TestReply, SubrequestSpec) {
    let mut bench = bench();
    bench.host.answer = Some(answer);
    let reply = bench.run(&bench.plugin("opa", settings(more)), request);
    let mut questions = bench.host.subrequests.take();
    assert_eq!(questions.len(), 1);
    (reply, questions.remove(0))
}

fn decision(result: &Value) -> Result<SubrequestResponse, SubrequestFault> {
    service_response(200, &[], &json!({ "result": result }).to_string())
}

#[test]
fn policy_sees_the_request() {
    let request =
        "PUT /orders?a=1&a=2&b&c=%20x HTTP/1.1\nHost: shop.test:9080\nX-Tag: one\nX-Tag: two\nX-User: ann";
    let (reply, question) = run(json!({}), decision(&json!({ "allow": true })), request);
    assert_eq!(reply.upstream_line(), "PUT /orders?a=1&a=2&b&c=%20x");
    assert_eq!((question.method, question.authority.as_str()), (Method::Post, "opa.test:8181"));
    assert_eq!((question.target.as_str(), question.plugin), ("/v1/data/shop/http", "opa"));
    assert_eq!(question.fields.get("content-type"), Some(&b"application/json"[..]));
    let body: Value = serde_json::from_slice(&question.body).unwrap();
    let expected = json!({ "input": {
        "type": "http",
        "request": {
            "scheme": "http",
            "method": "PUT",
            "host": "shop.test",
            "port": 9080,
            "path": "/orders",
            "headers": { "host": "shop.test:9080", "x-tag": ["one", "two"], "x-user": "ann" },
            "query": { "a": ["1", "2"], "b": true, "c": " x" },
        },
        "var": {
            "server_addr": "127.0.0.1",
            "server_port": "9080",
            "remote_addr": "127.0.0.1",
            "remote_port": "40000",
            "timestamp": 1_700_000_000,
        },
    }});
    assert_eq!(body, expected);
}

#[test]
fn objects_are_described_without_secrets_and_upstream() {
    let mut bench = bench();
    bench.host.answer = Some(decision(&json!({ "allow": true })));
    let route = json!({ "id": "1", "name": "r", "plugins": { "opa": { "host": "x" } }, "upstream": {}, "labels": { "a": "b" } });
    bench.route.written = Some(route.to_string().into());
    bench.route.service_written = Some(json!({ "id": "s1", "upstream": {} }).to_string().into());
    for (member, with, expected) in [
        ("route", true, json!({ "id": "1", "name": "r", "plugins": { "opa": {} }, "labels": { "a": "b" } })),
        ("service", true, json!({ "id": "s1" })),
        ("service", false, Value::Null),
        // Without a consumer, there is no such member.
        ("consumer", true, Value::Null),
    ] {
        let plugin = bench.plugin("opa", settings(json!({ format!("with_{member}"): with })));
        bench.run(&plugin, "GET / HTTP/1.1");
        let body: Value = serde_json::from_slice(&bench.host.subrequests.take()[0].body).unwrap();
        assert_eq!(body["input"][member], expected, "{member} {with}");
    }
}

#[test]
fn only_a_whole_decision_admits() {
    fn check(answer: Result<SubrequestResponse, SubrequestFault>, expected: u16) {
        let (reply, _) = run(json!({}), answer.clone(), "GET / HTTP/1.1");
        assert_eq!((reply.status, reply.upstream.is_some()), (expected, expected == 200), "{answer:?}");
    }
    check(decision(&json!({ "allow": true })), 200);
    for result in [json!({}), json!({ "allow": false }), json!({ "allow": "true" }), json!({ "allow": null })]
    {
        check(decision(&result), 403);
    }
    for body in ["", "no JSON", "{}", r#"{"result":null}"#, r#"{"result":true}"#, "[]"] {
        check(service_response(200, &[], body), 503);
    }
    check(service_response(500, &[], r#"{"result":{"allow":true}}"#), 503);
    for fault in [SubrequestFault::NoEndpoint, SubrequestFault::Timeout, SubrequestFault::Busy] {
        check(Err(fault), 403);
    }
    let cut = decision(&json!({ "allow": true }))
        .map(|answer| SubrequestResponse { fault: Some(SubrequestFault::ConnectionLost), ..answer });
    check(cut, 403);
}

#[test]
fn refused_client_gets_the_response_of_the_decision() {
    let result = json!({
        "allow": false,
        "status_code": 302,
        "headers": { "Location": "/login", "X-List": ["a", 1], "Content-Length": "9", "X-Bad": "a\r\nX-In: b" },
        "reason": "log in first",
    });
    let (reply, _) = run(json!({}), decision(&result), "GET / HTTP/1.1");
    assert_eq!((reply.status, reply.body.as_str()), (302, "log in first"));
    for (name, expected) in
        [("Location", Some("/login")), ("X-List", Some("a|1")), ("Content-Length", None), ("X-In", None)]
    {
        assert_eq!(reply.field(name).as_deref(), expected, "{name}");
    }
    for status in [json!("401"), json!(0), json!(101), json!(600), json!(9000), json!(-1), json!(401.5)] {
        let result = json!({ "allow": false, "status_code": status, "reason": { "code": 7 } });
        let (reply, _) = run(json!({}), decision(&result), "GET / HTTP/1.1");
        assert_eq!((reply.status, reply.body.as_str()), (403, r#"{"code":7}"#), "{status}");
    }
}

#[test]
fn upstream_gets_fields_of_the_decision_only_from_the_decision() {
    let more = json!({ "send_headers_upstream": ["X-User", "X-Role", "x-user"] });
    let request = "GET / HTTP/1.1\nX-User: forged\nX_Role: forged\nX-Other: kept";
    let result = json!({ "allow": true, "headers": { "x-user": "ann", "x-new": "no" } });
    let (reply, _) = run(more, decision(&result), request);
    let fields = reply.upstream.expect("it went upstream")[1..].to_vec();
    assert_eq!(fields, ["X-Other: kept", "Host: test.com", "X-User: ann"]);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    for (more, path) in [
        (json!({ "host": "opa.test" }), "host"),
        (json!({ "host": "http://opa.test?a=b" }), "host"),
        (json!({ "policy": "a b" }), "policy"),
        (json!({ "policy": "a#b" }), "policy"),
        (json!({ "send_headers_upstream": ["a b"] }), "send_headers_upstream"),
        (json!({ "send_headers_upstream": [] }), "send_headers_upstream"),
        (json!({ "timeout": 0 }), "timeout"),
        (json!({ "timeout": 60001 }), "timeout"),
    ] {
        let refused = PluginBench::new().build("opa", settings(more.clone())).err();
        assert_eq!(refused.map(|refused| refused.path).as_deref(), Some(path), "{more}");
    }
}
