//! Rewrites of host and path: the table of the Gateway API, encodings, patterns.

use serde_json::{Value, json};

use crate::testing::run;

/// Checks the target for the upstream.
fn check(path: Value, target: &str, expected: &str) {
    let request = format!("GET {target}\nHost: a.example");
    let sent = run(80, json!({ "rewrite": { "path": path } }), &request, &[]);
    assert_eq!(sent.target, expected, "{path} on {target}");
}

#[test]
fn a_prefix_is_replaced_by_the_table_of_the_gateway_api() {
    for (target, from, to, expected) in [
        ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
        ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
        ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
        ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
        ("/foo", "/foo", "/xyz", "/xyz"),
        ("/foo/", "/foo", "/xyz", "/xyz/"),
        ("/foo/bar", "/foo", "", "/bar"),
        ("/foo/", "/foo", "", "/"),
        ("/foo", "/foo", "", "/"),
        ("/foo/", "/foo", "/", "/"),
        ("/foo", "/foo", "/", "/"),
        ("/foo/bar", "/foo", "/", "/bar"),
        ("/foo", "/foo", "/xyz/", "/xyz/"),
        ("/foo/bar", "/", "/xyz", "/xyz/foo/bar"),
    ] {
        let edit = json!({ "prefix": { "from": from, "to": to } });
        check(edit.clone(), target, expected);
        check(edit, &format!("{target}?a=1&b"), &format!("{expected}?a=1&b"));
    }
}

#[test]
fn a_prefix_ends_at_a_path_element() {
    for target in ["/foobar", "/Foo", "/foo%2Fbar", "/fo"] {
        check(json!({ "prefix": { "from": "/foo", "to": "/xyz" } }), target, target);
    }
}

#[test]
fn the_rest_of_a_path_keeps_its_encoding() {
    let edit = json!({ "prefix": { "from": "/a b", "to": "/x" } });
    check(edit.clone(), "/a%20b/c%20d%2Fe", "/x/c%20d%2Fe");
    check(json!({ "prefix": { "from": "/a%20b", "to": "/x" } }), "/a%20b/c", "/x/c");
    check(edit, "/a%20b/../a%20b/c", "/x/c");
    check(json!({ "prefix": { "from": "/a%25b", "to": "/x" } }), "/a%25b/c%25d%20e", "/x/c%25d%20e");
}

#[test]
fn a_full_path_keeps_the_query() {
    check(json!({ "full": "/new" }), "/old?a=1", "/new?a=1");
    check(json!({ "full": "/new?b" }), "/old?a=1", "/new?b&a=1");
    check(json!({ "full": "" }), "/old", "/");
}

#[test]
fn a_pattern_fills_its_groups_in() {
    let edit = |pattern: &str, to: &str| json!({ "regex": { "pattern": pattern, "to": to } });
    check(edit("/api/(.*)", "/$1"), "/api/users%20x?q", "/users%20x?q");
    check(edit("/(a)/(b)", "/$2/$1/$$1"), "/a/b", "/b/a/$1");
    check(edit("/api/(.*)", "/$1"), "/other/api/x", "/other/api/x");
    check(json!({ "regex": { "pattern": "/API", "ignore_case": true, "to": "/x" } }), "/api", "/x");
}

#[test]
fn a_group_cannot_form_a_dot_segment() {
    let rewrite =
        json!({ "rewrite": { "path": { "regex": { "pattern": "/([^/]*)/(.*)", "to": "/.$1/$2" } } } });
    let refused = run(80, rewrite, "GET /./x/..b\nHost: a.example", &[]);
    // The request path is `/x/..b`; the new one begins with `/.x`.
    assert_eq!(refused.answered, None);
    let rewrite = json!({ "rewrite": { "path": { "regex": { "pattern": "/x(.)/(.*)", "to": "/.$1/$2" } } } });
    let refused = run(80, rewrite, "GET /x./secret\nHost: a.example", &[]);
    assert_eq!(refused.answered.map(|(status, _)| status), Some(400));
}

#[test]
fn the_host_is_replaced_for_the_upstream() {
    let sent = run(80, json!({ "rewrite": { "host": "b.example:81" } }), "GET /\nHost: a.example", &[]);
    assert_eq!(sent.host.as_deref(), Some("b.example:81"));
}

#[test]
fn mirrors_are_drawn_by_their_share() {
    // The random numbers of the host are 0, 1, 2.
    let mirrors = json!({ "mirrors": [
        { "upstream_id": "1" },
        { "upstream_id": "2", "numerator": 1, "denominator": 4 },
        { "upstream_id": "3", "numerator": 3, "denominator": 4 },
        { "upstream_id": "4", "numerator": 0, "denominator": 1 },
    ] });
    let sent = run(80, mirrors, "GET /\nHost: a.example", &[]);
    assert_eq!(sent.mirrors, [1, 3]);
}
