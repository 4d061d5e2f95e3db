use serde_json::{Value, json};
use yumen_config::document;
use yumen_config::resource::Question;

use crate::testing::compiler;
use crate::{ExplainContext, explain_any};

const NODE: &str = r#"
listeners:
- {id: web, address: "0.0.0.0:20080", protocol: http, port: 80}
- {id: secure, address: "0.0.0.0:20443", protocol: https, port: 443}
- {id: streams, address: "0.0.0.0:20444", protocol: tls}
scopes:
- {id: any, listeners: [web, secure]}
- {id: a, listeners: [web, secure], hosts: [a.test]}
- {id: pass, listeners: [streams], hosts: ["*.pass.test"], tls: {mode: passthrough}}
- {id: end, listeners: [streams], hosts: [end.test]}
routes:
- {id: plain, uri: "/*", upstream: &u {nodes: {"10.0.0.1:80": 1}}}
- {id: of-any, uri: "/*", scopes: [any], upstream: *u}
- {id: of-a, uri: "/a*", scopes: [a], upstream: *u}
stream_routes:
- {id: passed, scopes: [pass], upstream: *u}
- {id: plain-stream, server_port: 20444, upstream: *u}
ssls:
- {id: c, snis: [a.test], scopes: [a], cert: cert, key: key}
"#;

/// The explanation as JSON and as text, or the error.
fn explain(question: Value) -> Result<(Value, String), String> {
    let (resources, problems) = document::parse(NODE, &|_| None);
    assert!(problems.is_empty(), "{problems:?}");
    let mut compiler = compiler();
    let snapshot = compiler.replace_all(resources, 7).snapshot;
    assert_eq!(compiler.problems(), []);
    let question: Question = serde_json::from_value(question).unwrap();
    let explained = explain_any(&snapshot, &question, &ExplainContext::default());
    let explained = explained.map_err(|error| format!("{}: {}", error.path, error.message))?;
    Ok((serde_json::to_value(&explained).unwrap(), explained.to_string()))
}

#[test]
fn a_request_is_explained_in_the_scope_of_its_listener() {
    #[track_caller]
    fn check(question: Value, scope: Value, route: Value, status: Value) {
        let (explained, text) = explain(question).unwrap();
        let found = (&explained["scope"], &explained["route"]["id"], &explained["answer"]["status"]);
        assert_eq!(found, (&scope, &route, &status), "{text}");
    }
    let of = |listener: &str, id: &str| json!({ "listener": listener, "id": id });
    let nothing = || Value::Null;
    check(json!({ "url": "http://a.test/a" }), nothing(), json!("plain"), nothing());
    let ask = |listener: &str, url: &str| json!({ "listener": listener, "url": url });
    check(ask("web", "http://a.test/a"), of("web", "a"), json!("of-a"), nothing());
    check(ask("web", "http://a.test/b"), of("web", "a"), nothing(), json!(404));
    check(ask("web", "http://b.test/b"), of("web", "any"), json!("of-any"), nothing());
    check(ask("secure", "/b"), of("secure", "any"), json!("of-any"), nothing());
    check(ask("secure", "https://a.test/a"), of("secure", "a"), json!("of-a"), nothing());
    let misdirected = json!({ "listener": "secure", "url": "https://a.test/a", "sni": "b.test" });
    check(misdirected, of("secure", "a"), nothing(), json!(421));
}

#[test]
fn a_route_of_another_scope_has_its_words() {
    let why = |listener: Option<&str>, url: &str, route: &str| {
        let mut question = json!({ "url": url, "why_not": route });
        listener.into_iter().for_each(|id| question["listener"] = json!(id));
        explain(question).unwrap().0["why_not"]["why"].as_str().unwrap().to_owned()
    };
    assert_eq!(why(Some("web"), "http://a.test/a", "of-any"), "it serves only the scopes any");
    assert_eq!(why(None, "http://a.test/a", "of-a"), "it serves only the scopes a");
    let of_node = "it has no scopes, and serves only the listeners of the node's settings";
    assert_eq!(why(Some("web"), "http://a.test/a", "plain"), of_node);
    assert_eq!(why(Some("web"), "http://a.test/b", "of-a"), "its path is /a*, not /b");
}

#[test]
fn the_certificate_is_that_of_the_scope() {
    let (explained, text) = explain(json!({ "listener": "secure", "url": "https://a.test/a" })).unwrap();
    assert_eq!(explained["certificate"], json!({ "id": "c", "matched": "a.test" }));
    assert!(text.contains("\nScope\n  a of listener secure\n"), "{text}");
    let (explained, _) = explain(json!({ "listener": "secure", "url": "https://b.test/b" })).unwrap();
    assert_eq!(explained["certificate"], Value::Null);
    let remark = "the handshake fails: no certificate of scope any is for b.test";
    assert_eq!(explained["remarks"], json!([remark]));
}

#[test]
fn a_stream_is_explained_in_the_scope_of_its_server_name() {
    let ask = |url: &str| explain(json!({ "listener": "streams", "url": url })).unwrap().0;
    let passed = ask("tls://a.pass.test:20444");
    assert_eq!((&passed["scope"]["id"], &passed["stream_route"]["id"]), (&json!("pass"), &json!("passed")));
    assert_eq!(passed["certificate"], Value::Null);
    let ended = ask("tls://end.test:20444");
    assert_eq!((&ended["scope"]["id"], &ended["stream_route"]), (&json!("end"), &Value::Null));
    let unknown = ask("tls://other.test:20444");
    let remark = "the handshake fails: no scope of the listener is for other.test";
    assert_eq!((&unknown["scope"]["id"], &unknown["remarks"][0]), (&Value::Null, &json!(remark)));
    let of_node = explain(json!({ "url": "tls://a.pass.test:20444" })).unwrap().0;
    assert_eq!(of_node["stream_route"]["id"], "plain-stream");
}

#[test]
fn a_listener_that_is_unknown_or_of_another_protocol_is_an_error() {
    let check = |listener: &str, url: &str, expected: &str| {
        let error = explain(json!({ "listener": listener, "url": url })).unwrap_err();
        assert_eq!(error, format!("listener: {expected}"));
    };
    check("none", "/", "listener none does not exist, is disabled, or is broken");
    check("web", "https://a.test/", "listener web has protocol http, the URL https");
    check("secure", "http://a.test/", "listener secure has protocol https, the URL http");
    check("streams", "/", "listener streams has protocol tls, the URL http");
    check("web", "tcp://10.0.0.1:80", "listener web has protocol http, the URL tcp");
    check("streams", "udp://10.0.0.1:80", "listener streams has protocol tls, the URL udp");
}
