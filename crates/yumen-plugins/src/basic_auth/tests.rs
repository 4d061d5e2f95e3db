use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::testing::{PluginBench, TestReply};

fn run(settings: Value, authorization: Option<&str>) -> TestReply {
    let mut bench = PluginBench::new();
    let foo = bench.add_consumer("foo-consumer");
    bench.add_key(&foo, "basic-auth", json!({"username": "foo", "password": "bar"}), None);
    let spaced = json!({"username": "a b", "password": " two words\t"});
    bench.add_key(&foo, "basic-auth", spaced, Some("c2"));
    let long = json!({"username": "long", "password": "p:".repeat(400)});
    bench.add_key(&foo, "basic-auth", long, Some("c1"));
    bench.add_consumer("nobody");
    let plugin = bench.plugin("basic-auth", settings);
    let field = authorization.map(|value| format!("\nAuthorization: {value}")).unwrap_or_default();
    bench.run(&plugin, &format!("GET / HTTP/1.1{field}"))
}

fn basic(credentials: &str) -> String {
    format!("Basic {}", STANDARD.encode(credentials))
}

#[track_caller]
fn check_refused(authorization: Option<&str>, message: &str) {
    let reply = run(json!({}), authorization);
    assert_eq!((reply.status, reply.body), (401, format!("{{\"message\":\"{message}\"}}\n")));
    let challenge = reply.fields.iter().find(|line| line.starts_with("WWW-Authenticate"));
    assert_eq!(challenge.map(String::as_str), Some("WWW-Authenticate: Basic realm=\"basic\""));
}

/// Checks the consumer and the `Authorization` field of the upstream request.
#[track_caller]
fn check_admitted(settings: Value, authorization: Option<&str>, username: &str, sent: Option<&str>) {
    let reply = run(settings, authorization);
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.upstream_field("X-Consumer-Username").as_deref(), Some(username));
    assert_eq!(reply.upstream_field("Authorization").as_deref(), sent);
}

#[test]
fn invalid_password_is_refused_with_the_reason() {
    check_refused(None, "Missing authorization in request");
    let malformed = "Invalid authorization in request";
    for bad in
        ["Bad_header YmFyOmJhcgo=", "Basic aca_a", "Basic YmFy", "Basic", "Basic Zm9vOg==", "Basic Og=="]
    {
        check_refused(Some(bad), malformed);
    }
    let wrong = "Invalid user authorization";
    for bad in
        ["bar:bar", "foo:foo", "foo:bar2", "foo:ba", ":bar", "foo:bar:baz", "a b:twowords", "ab: two words\t"]
    {
        check_refused(Some(&basic(bad)), wrong);
    }
}

#[test]
fn a_valid_password_leads_to_its_consumer() {
    for value in ["Basic Zm9vOmJhcg==", "basic Zm9vOmJhcg==", "bASiC Zm9vOmJhcg", "BASIC Zm9vOmJhcgo="] {
        check_admitted(json!({}), Some(value), "foo-consumer", Some(value));
    }
    let spaced = basic("a b: two words\t");
    check_admitted(json!({}), Some(&spaced), "foo-consumer", Some(&spaced));
    let long = basic(&format!("long:{}", "p:".repeat(400)));
    check_admitted(json!({}), Some(&long), "foo-consumer", Some(&long));
}

#[test]
fn hidden_credentials_do_not_reach_the_upstream() {
    check_admitted(json!({"hide_credentials": true}), Some("Basic Zm9vOmJhcg=="), "foo-consumer", None);
}

#[test]
fn the_anonymous_consumer_stands_in_where_no_password_is_valid() {
    check_admitted(json!({"anonymous_consumer": "nobody"}), None, "nobody", None);
    let hidden = json!({"anonymous_consumer": "nobody", "hide_credentials": true});
    check_admitted(hidden, Some("Basic bad"), "nobody", None);
    let reply = run(json!({"anonymous_consumer": "gone", "realm": "r"}), None);
    assert_eq!((reply.status, reply.body.as_str()), (401, "{\"message\":\"Invalid user authorization\"}\n"));
    assert_eq!(reply.field("WWW-Authenticate").as_deref(), Some("Basic realm=\"r\""));
}
