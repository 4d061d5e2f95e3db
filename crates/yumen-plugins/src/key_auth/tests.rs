use serde_json::{Value, json};

use crate::testing::{PluginBench, TestReply};

fn run(settings: Value, request: &str) -> TestReply {
    let mut bench = PluginBench::new();
    let jack = bench.add_consumer("jack");
    bench.add_key(&jack, "key-auth", json!({"key": "auth-one"}), None);
    bench.add_key(&jack, "key-auth", json!({"key": "auth two"}), Some("c2"));
    bench.add_consumer("nobody");
    let plugin = bench.plugin("key-auth", settings);
    bench.run(&plugin, request)
}

#[track_caller]
fn check_refused(settings: Value, request: &str, message: &str, challenge: &str) {
    let reply = run(settings, request);
    assert_eq!(reply.status, 401);
    assert_eq!(reply.body, format!("{{\"message\":\"{message}\"}}\n"));
    assert_eq!(reply.field("WWW-Authenticate").as_deref(), Some(challenge));
    assert!(reply.upstream.is_none());
}

/// Checks the request line, consumer, credential and `apikey` of the upstream request.
#[track_caller]
fn check_admitted(settings: Value, request: &str, expected: [&str; 4]) {
    let reply = run(settings, request);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let field = |name| reply.upstream_field(name).unwrap_or_default();
    let found = [
        reply.upstream_line().to_owned(),
        field("X-Consumer-Username"),
        field("X-Credential-Identifier"),
        field("apikey"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn invalid_key_is_refused_with_the_reason() {
    let challenge = "apikey realm=\"key\"";
    let missing = "Missing API key in request";
    let invalid = "Invalid API key in request";
    check_refused(json!({}), "GET / HTTP/1.1", missing, challenge);
    check_refused(json!({}), "GET /?apikey2=auth-one HTTP/1.1", missing, challenge);
    check_refused(json!({}), "GET / HTTP/1.1\napikey: other", invalid, challenge);
    check_refused(json!({}), "GET / HTTP/1.1\napikey:", invalid, challenge);
    check_refused(json!({}), "GET /?apikey HTTP/1.1", invalid, challenge);
    check_refused(json!({}), "GET /?apikey=auth-one&apikey=auth-one HTTP/1.1", invalid, challenge);
    check_refused(json!({}), "GET /?apikey=auth-one HTTP/1.1\napikey: other", invalid, challenge);
    check_refused(json!({"header": "K"}), "GET / HTTP/1.1\napikey: auth-one", missing, challenge);
    check_refused(json!({"realm": "my own"}), "GET / HTTP/1.1", missing, "apikey realm=\"my own\"");
}

#[test]
fn a_valid_key_leads_to_its_consumer() {
    let plain = ["GET /", "jack", "", "auth-one"];
    check_admitted(json!({}), "GET / HTTP/1.1\nApiKey: auth-one", plain);
    check_admitted(json!({}), "GET / HTTP/1.1\nX-Credential-Identifier: forged\napikey: auth-one", plain);
    check_admitted(json!({}), "GET /?apikey=auth-one HTTP/1.1", ["GET /?apikey=auth-one", "jack", "", ""]);
    check_admitted(
        json!({}),
        "GET /?apikey=auth%20two HTTP/1.1",
        ["GET /?apikey=auth%20two", "jack", "c2", ""],
    );
    check_admitted(json!({"header": "K"}), "GET / HTTP/1.1\nk: auth-one", ["GET /", "jack", "", ""]);
    check_admitted(json!({"query": "q"}), "GET /?q=auth-one HTTP/1.1", ["GET /?q=auth-one", "jack", "", ""]);
}

#[test]
fn a_hidden_key_does_not_reach_the_upstream() {
    let hide = || json!({"hide_credentials": true});
    check_admitted(hide(), "GET / HTTP/1.1\napikey: auth-one", ["GET /", "jack", "", ""]);
    check_admitted(hide(), "GET /?apikey=auth-one HTTP/1.1", ["GET /", "jack", "", ""]);
    check_admitted(hide(), "GET /a?b=1&apikey=auth-one&c=2 HTTP/1.1", ["GET /a?b=1&c=2", "jack", "", ""]);
    // The key is only removed from where it was found.
    check_admitted(hide(), "GET /?apikey=x HTTP/1.1\napikey: auth-one", ["GET /?apikey=x", "jack", "", ""]);
}

#[test]
fn the_anonymous_consumer_stands_in_where_no_key_is_valid() {
    let anonymous = || json!({"anonymous_consumer": "nobody"});
    check_admitted(anonymous(), "GET / HTTP/1.1", ["GET /", "nobody", "", ""]);
    check_admitted(anonymous(), "GET / HTTP/1.1\napikey: bad", ["GET /", "nobody", "", "bad"]);
    check_admitted(anonymous(), "GET / HTTP/1.1\napikey: auth-one", ["GET /", "jack", "", "auth-one"]);
    let hidden = json!({"anonymous_consumer": "nobody", "hide_credentials": true});
    check_admitted(hidden, "GET /?apikey=bad&b=1 HTTP/1.1\napikey: bad", ["GET /?b=1", "nobody", "", ""]);
    let challenge = "apikey realm=\"key\"";
    check_refused(
        json!({"anonymous_consumer": "gone"}),
        "GET / HTTP/1.1",
        "Invalid user authorization",
        challenge,
    );
}

#[test]
fn empty_name_turns_its_place_off() {
    let challenge = "apikey realm=\"key\"";
    let missing = "Missing API key in request";
    check_refused(json!({"header": ""}), "GET / HTTP/1.1\napikey: auth-one", missing, challenge);
    check_refused(json!({"query": ""}), "GET /?apikey=auth-one HTTP/1.1", missing, challenge);
    check_refused(json!({"query": ""}), "GET /?=auth-one HTTP/1.1", missing, challenge);
}
