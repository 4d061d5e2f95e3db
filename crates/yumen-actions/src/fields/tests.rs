//! Field edits by the rules of the Gateway API.

use serde_json::{Value, json};

use crate::testing::run;

/// Checks the fields of a request with these fields after edits; each is `name: value`.
fn check(edits: Value, request: &[&str], expected: &[&str]) {
    let lines: String = request.iter().map(|line| format!("\n{line}")).collect();
    let host = "\nHost: a.example";
    let sent = run(80, json!({ "request_fields": edits }), &format!("GET /{host}{lines}"), &[]);
    let fields: Vec<&str> =
        sent.fields.iter().map(String::as_str).filter(|one| !one.starts_with("Host")).collect();
    assert_eq!(fields, expected, "{edits} on {request:?}");
    let pairs: Vec<(&str, &str)> = request.iter().map(|line| line.split_once(": ").unwrap()).collect();
    let received = run(80, json!({ "response_fields": edits }), &format!("GET /{host}"), &pairs);
    assert_eq!(received.response, expected, "{edits} on a response with {request:?}");
}

#[test]
fn set_replaces_all_fields_of_a_name() {
    check(json!({ "set": [["X-A", "new"]] }), &["X-A: 1", "x-a: 2", "X-B: 3"], &["X-A: new", "X-B: 3"]);
    check(json!({ "set": [["X-A", "new"]] }), &["X-B: 3"], &["X-B: 3", "X-A: new"]);
    check(json!({ "set": [["x-a", "new"]] }), &["X-A: 1"], &["x-a: new"]);
}

#[test]
fn add_keeps_the_fields_that_are_there() {
    check(json!({ "add": [["X-A", "2"], ["X-A", "3"]] }), &["X-A: 1"], &["X-A: 1", "X-A: 2", "X-A: 3"]);
}

#[test]
fn remove_takes_all_fields_of_a_name_in_any_case() {
    check(json!({ "remove": ["x-a"] }), &["X-A: 1", "x-A: 2", "X-B: 3"], &["X-B: 3"]);
    check(json!({ "remove": ["x-a"] }), &["X-B: 3"], &["X-B: 3"]);
}

#[test]
fn the_order_is_remove_set_add() {
    let edits = json!({ "add": [["X-A", "added"]], "set": [["X-A", "set"]], "remove": ["X-A"] });
    check(edits, &["X-A: 1", "X-A: 2"], &["X-A: set", "X-A: added"]);
}

#[test]
fn host_is_set_for_the_upstream_and_cannot_be_removed() {
    let set = run(
        80,
        json!({ "request_fields": { "set": [["Host", "b.example"]] } }),
        "GET /\nHost: a.example",
        &[],
    );
    assert_eq!((set.host.as_deref(), &*set.fields), (Some("b.example"), &["Host: a.example".to_owned()][..]));
    let removed = run(80, json!({ "request_fields": { "remove": ["host"] } }), "GET /\nHost: a.example", &[]);
    assert_eq!((removed.host, &*removed.fields), (None, &["Host: a.example".to_owned()][..]));
}

#[test]
fn values_with_variables_read_the_request_before_its_edits() {
    let edits = json!({
        "variables": true,
        "remove": ["X-User"],
        "set": [["X-Real", "$remote_addr/$http_x_user"], ["X-Gone", "$http_absent"]],
        "add": [["X-Path", "$request_uri"], ["X-None", "$http_absent"]],
    });
    let outcome =
        run(80, json!({ "request_fields": edits }), "GET /a?b\nHost: a.example\nX-User: ada\nX-Gone: 1", &[]);
    assert_eq!(outcome.fields, ["Host: a.example", "X-Real: 192.0.2.7/ada", "X-Path: /a?b"]);
    let host = json!({ "variables": true, "set": [["Host", "$http_x_tenant.internal"]] });
    let request = "GET /\nHost: a.example\nX-Tenant: t";
    let outcome = run(80, json!({ "request_fields": host }), request, &[]);
    assert_eq!(outcome.host.as_deref(), Some("t.internal"));
}
