//! Fields and query arguments before and after `field_edits` and `query_edits`.

use serde_json::{Value, json};

use crate::testing::PluginBench;

#[track_caller]
fn check_fields(edits: &Value, request: &str, expected: &[(&str, Option<&str>)]) {
    let bench = PluginBench::new();
    let reply = bench.run(&bench.plugin("proxy-rewrite", json!({ "field_edits": edits })), request);
    for (name, value) in expected {
        assert_eq!(reply.upstream_field(name).as_deref(), *value, "{name} with {edits} of {request:?}");
    }
}

#[track_caller]
fn check_query(edits: &Value, target: &str, expected: &str) {
    let bench = PluginBench::new();
    let plugin = bench.plugin("proxy-rewrite", json!({ "query_edits": edits }));
    let reply = bench.run(&plugin, &format!("GET {target} HTTP/1.1\nX-V: a&b"));
    assert_eq!(reply.upstream_line(), format!("GET {expected}"), "{target} with {edits}");
}

#[test]
fn default_after_remove_sets_the_field() {
    let edits = json!({"remove": ["X-A"], "default": {"X-A": "new"}});
    check_fields(&edits, "GET / HTTP/1.1\nX-A: old", &[("X-A", Some("new"))]);
    check_fields(&edits, "GET / HTTP/1.1", &[("X-A", Some("new"))]);
}

#[test]
fn renamed_field_keeps_its_lines_and_precedes_the_default() {
    let edits = json!({"rename": {"X-Old": "X-New"}, "default": {"X-New": "none"}});
    check_fields(&edits, "GET / HTTP/1.1\nX-Old: 1\nX-Old: 2", &[("X-New", Some("1|2")), ("X-Old", None)]);
    check_fields(&edits, "GET / HTTP/1.1", &[("X-New", Some("none")), ("X-Old", None)]);
    check_fields(&edits, "GET / HTTP/1.1\nX-Old: 1\nX-New: 2", &[("X-New", Some("1"))]);
    check_fields(&edits, "GET / HTTP/1.1\nX-New: 2", &[("X-New", Some("2"))]);
}

#[test]
fn replace_requires_presence_and_append_does_not() {
    let edits = json!({"replace": {"X-A": "new"}, "append": {"X-B": ["1", "2"]}});
    check_fields(&edits, "GET / HTTP/1.1\nX-A: old\nX-A: older", &[("X-A", Some("new"))]);
    check_fields(&edits, "GET / HTTP/1.1\nX-B: 0", &[("X-A", None), ("X-B", Some("0|1|2"))]);
}

#[test]
fn templates_see_the_request_before_the_edits() {
    let edits = json!({"remove": ["X-A"], "default": {"X-B": "was ${http_x_a}"}});
    check_fields(&edits, "GET / HTTP/1.1\nX-A: 1", &[("X-A", None), ("X-B", Some("was 1"))]);
}

#[test]
fn query_arguments_are_edited_by_decoded_name() {
    check_query(&json!({"remove": ["a"]}), "/x?a=1&b=%20&%61", "/x?b=%20");
    check_query(&json!({"remove": ["a"]}), "/x?a", "/x");
    check_query(&json!({"rename": {"a": "b c"}}), "/x?a=1&d&b+c=2&a", "/x?b%20c=1&d&b%20c");
    check_query(&json!({"rename": {"a": "b"}}), "/x?b=2", "/x?b=2");
    check_query(&json!({"replace": {"a": "9"}}), "/x?a=1&b=2&a=3", "/x?a=9&b=2");
    check_query(&json!({"replace": {"a": "9"}}), "/x?b=2", "/x?b=2");
    check_query(&json!({"default": {"a": "9"}}), "/x", "/x?a=9");
    check_query(&json!({"default": {"a": "9"}}), "/x?a=1", "/x?a=1");
    check_query(&json!({"append": {"a": "${http_x_v}"}}), "/x?a=1", "/x?a=1&a=a%26b");
    check_query(&json!({"remove": ["a"], "default": {"a": "9"}}), "/x?a=1", "/x?a=9");
}

#[test]
fn query_edits_apply_to_the_rewritten_target() {
    let bench = PluginBench::new();
    let settings = json!({"regex_uri": ["^/x", "/y"], "query_edits": {"default": {"a": "1"}}});
    let reply = bench.run(&bench.plugin("proxy-rewrite", settings), "GET /x?b=2 HTTP/1.1");
    assert_eq!(reply.upstream_line(), "GET /y?b=2&a=1");
}

#[test]
fn response_fields_are_edited_by_presence() {
    let mut bench = PluginBench::new();
    bench.upstream_reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Old: 1\r\nX-B: 2\r\n\r\n".into();
    let edits = json!({
        "remove": ["X-B"], "rename": {"X-Old": "X-New"}, "replace": {"X-C": "no"},
        "default": {"X-New": "no", "X-B": "http://b/"}, "append": {"X-D": "${$}d"},
    });
    let reply = bench.run(&bench.plugin("response-rewrite", json!({"field_edits": edits})), "GET / HTTP/1.1");
    for (name, expected) in [
        ("X-Old", None),
        ("X-New", Some("1")),
        ("X-B", Some("http://b/")),
        ("X-C", None),
        ("X-D", Some("$d")),
    ] {
        assert_eq!(reply.field(name).as_deref(), expected, "{name}");
    }
}
