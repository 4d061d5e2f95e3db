//! Locations by the rules of the Gateway API.

use serde_json::{Value, json};

use crate::testing::run;

/// Checks the location of a request for `/foo/bar?a=1` at a listener with this port.
fn check(port: u16, redirect: Value, expected: &str) {
    let request = format!("GET /foo/bar?a=1\nHost: example.org:{port}");
    let answered = run(port, json!({ "redirect": redirect }), &request, &[]).answered;
    let (status, fields) = answered.unwrap_or_else(|| panic!("{redirect}: no response"));
    let wanted = redirect["status"].as_u64().unwrap_or(302);
    assert_eq!((u64::from(status), &fields[0]), (wanted, &format!("Location: {expected}")), "{redirect}");
}

#[test]
fn the_port_follows_the_scheme_or_the_listener() {
    for (port, redirect, expected) in [
        // Listener 80.
        (80, json!({ "host": "other.org" }), "http://other.org/foo/bar?a=1"),
        (80, json!({ "scheme": "https" }), "https://example.org/foo/bar?a=1"),
        (80, json!({ "scheme": "http" }), "http://example.org/foo/bar?a=1"),
        (80, json!({ "port": 8080 }), "http://example.org:8080/foo/bar?a=1"),
        (80, json!({ "port": 80 }), "http://example.org/foo/bar?a=1"),
        (80, json!({ "scheme": "https", "port": 443 }), "https://example.org/foo/bar?a=1"),
        (80, json!({ "scheme": "https", "port": 8443 }), "https://example.org:8443/foo/bar?a=1"),
        (80, json!({ "scheme": "https", "port": 80 }), "https://example.org:80/foo/bar?a=1"),
        // Listener 8080.
        (8080, json!({ "host": "other.org" }), "http://other.org:8080/foo/bar?a=1"),
        (8080, json!({ "scheme": "http" }), "http://example.org/foo/bar?a=1"),
        (8080, json!({ "scheme": "https" }), "https://example.org/foo/bar?a=1"),
        (8080, json!({ "port": 80 }), "http://example.org/foo/bar?a=1"),
        (8080, json!({ "port": 8080 }), "http://example.org:8080/foo/bar?a=1"),
        // Listener 443.
        (443, json!({ "host": "other.org" }), "https://other.org/foo/bar?a=1"),
        (443, json!({ "scheme": "http" }), "http://example.org/foo/bar?a=1"),
        (443, json!({ "scheme": "http", "port": 8080 }), "http://example.org:8080/foo/bar?a=1"),
        (443, json!({ "port": 8443 }), "https://example.org:8443/foo/bar?a=1"),
        (443, json!({ "port": 443 }), "https://example.org/foo/bar?a=1"),
    ] {
        check(port, redirect, expected);
    }
}

#[test]
fn each_status_of_the_gateway_api_is_sent() {
    for status in [301, 302, 303, 307, 308] {
        check(80, json!({ "status": status, "host": "b.org" }), "http://b.org/foo/bar?a=1");
    }
}

#[test]
fn the_path_is_replaced_and_the_query_stays() {
    check(80, json!({ "path": { "full": "/new" } }), "http://example.org/new?a=1");
    check(
        80,
        json!({ "path": { "prefix": { "from": "/foo", "to": "/x/" } } }),
        "http://example.org/x/bar?a=1",
    );
    check(
        80,
        json!({ "path": { "prefix": { "from": "/other", "to": "/x" } } }),
        "http://example.org/foo/bar?a=1",
    );
    check(80, json!({ "path": { "full": "/ä b" } }), "http://example.org/%C3%A4%20b?a=1");
    check(80, json!({ "keep_query": false }), "http://example.org/foo/bar");
}

#[test]
fn a_condition_lets_other_requests_pass() {
    let when = json!({ "scheme": "http", "exempt_paths": ["/.well-known/acme-challenge"] });
    let redirect = json!({ "stage": "first", "scheme": "https", "status": 308, "when": when });
    let check = |port: u16, path: &str, fields: &str, expected: Option<&str>| {
        let actions = json!({ "redirect": redirect, "rewrite": { "host": "up" } });
        let outcome = run(port, actions, &format!("GET {path}\nHost: a.example:{port}{fields}"), &[]);
        let location = outcome.answered.map(|(status, fields)| (status, fields[0].clone()));
        assert_eq!(location, expected.map(|url| (308, format!("Location: {url}"))), "{port} {path}");
    };
    check(80, "/a?b=c", "", Some("https://a.example/a?b=c"));
    check(8080, "/", "", Some("https://a.example/"));
    check(443, "/a", "", None);
    check(80, "/a", "\nX-Forwarded-Proto: https", None);
    check(80, "/.well-known/acme-challenge/token", "", None);
    check(80, "/x/../.well-known/acme-challenge/token", "", None);
    check(80, "/.well-known/acme-challenge/../x", "", Some("https://a.example/.well-known/x"));
}

#[test]
fn the_location_may_be_relative_or_a_text_with_variables() {
    check(80, json!({ "path": { "full": "/app" }, "relative": true }), "/app?a=1");
    let url = json!({ "url": "https://$host/x$request_uri", "status": 301 });
    check(8080, url, "https://example.org/x/foo/bar?a=1");
    check(80, json!({ "url": "https://b.example/" }), "https://b.example/");
}

#[test]
fn the_last_slash_is_cut_if_there_is_no_query() {
    let check = |path: &str, expected: &str| {
        let actions = json!({ "redirect": { "scheme": "https", "path": "trim_slash" } });
        let answered = run(80, actions, &format!("GET {path}\nHost: a.example"), &[]).answered.unwrap();
        assert_eq!(answered.1, [format!("Location: https://a.example{expected}")]);
    };
    check("/a/", "/a");
    check("/", "");
    check("/a", "/a");
    check("/a/?b", "/a/?b");
}

#[test]
fn whole_paths_limit_a_redirect() {
    let redirect = json!({ "when": { "paths": ["/"] }, "url": "/app" });
    for (path, is_redirected) in [("/", true), ("/?a", true), ("/a", false)] {
        let request = format!("GET {path}\nHost: a");
        let outcome = run(80, json!({ "redirect": redirect }), &request, &[]);
        assert_eq!(outcome.answered.is_some(), is_redirected, "{path}");
    }
}

#[test]
fn a_path_never_names_another_host() {
    let answered = run(80, json!({ "redirect": {} }), "GET //evil.example/x\nHost: ", &[]).answered.unwrap();
    assert_eq!(answered.1, ["Location: /evil.example/x"]);
}

#[test]
fn the_scheme_of_a_trusted_proxy_counts_with_its_own_port() {
    let request = "GET /x\nHost: example.org\nX-Forwarded-Proto: https";
    let answered = run(8080, json!({ "redirect": { "host": "b.org" } }), request, &[]).answered.unwrap();
    assert_eq!(answered.1, ["Location: https://b.org/x"]);
}

#[test]
fn a_fixed_response_has_its_fields_and_response_edits() {
    let actions = json!({
        "respond": { "status": 503, "body": "later", "fields": [["Retry-After", "10"]] },
        "response_fields": { "set": [["X-A", "1"]] },
    });
    let outcome = run(80, actions, "GET /\nHost: a.example", &[]);
    assert_eq!(outcome.answered.map(|(status, _)| status), Some(503));
    assert_eq!(outcome.response, ["Retry-After: 10", "X-A: 1"]);
}
