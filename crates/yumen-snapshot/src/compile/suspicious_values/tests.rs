//! Values in the notation of other programs to warnings.

use serde_json::{Value, json};
use yumen_config::Kind;

use crate::compile::tests::{compiler, nodes, put};

fn check(kind: Kind, object: Value, expected: &[&str]) {
    let problems = compiler().apply(vec![put(kind, "1", object)], 1).problems;
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(lines, expected);
}

/// Checks the warning about a path, as message and hint.
fn check_uri(uri: &str, message: &str, hint: &str) {
    let expected = format!("warning: routes/1 at uri: {message}\n  hint: {hint}");
    check(Kind::Routes, json!({ "uri": uri, "upstream": nodes("10.0.0.1") }), &[&expected]);
}

#[test]
fn paths_of_other_notations_are_reported() {
    let pattern = "write the constant begin of the path, as in \"/api/*\", and the pattern in vars: [\"uri\", \"~~\", \"^/api/v[0-9]+\"]";
    check_uri("noslash", "no request matches \"noslash\": a path begins with /", "write \"/noslash\"");
    for uri in ["~^/re", "^/re", "~ ^/a$", "~* /a", "/a/.*", "/a/\\d+", "/v[0-9]+/a", "/a$"] {
        check_uri(uri, &format!("\"{uri}\" is compared as text: a path is no regular expression"), pattern);
    }
    check_uri("/go/{id}", "{id} in \"/go/{id}\" is compared as text", "write \"/go/:id\"");
    check_uri(
        "/a?b=1",
        "the ? in \"/a?b=1\" is compared as text: a path has no query",
        "write \"/a\", and match the query in vars: [\"arg_b\", \"==\", \"...\"]",
    );
    check_uri(
        "http://a.test/b",
        "no request matches \"http://a.test/b\": a path begins with /",
        "write \"/b\", and \"a.test\" in host",
    );
    let escape = "no request matches \"/a%20b\": %20 is decoded before paths are compared";
    check_uri("/a%20b", escape, "write the character itself");
    for uri in ["/a//b", "/a/./b", "/a/../b"] {
        let message =
            format!("no request matches \"{uri}\": paths are compared without empty and dot segments");
        check_uri(uri, &message, "write the path without them, as in \"/a/b\"");
    }
}

#[test]
fn text_behind_a_mark_that_is_read_as_a_name_is_reported() {
    for (uri, segment, matched, name, remedy) in [
        (
            "/n/*.php",
            "*.php",
            "any text",
            ".php",
            r#""/n/*", and match the end of the path in vars: ["uri", "~~", "\\.php$"]"#,
        ),
        (
            "/n/*a.php",
            "*a.php",
            "any text",
            "a.php",
            r#""/n/*", and match the end of the path in vars: ["uri", "~~", "\\.php$"]"#,
        ),
        (
            "/n/*.php/x",
            "*.php",
            "any text",
            ".php",
            r#""/n/*", and match the end of the path in vars: ["uri", "~~", "\\.php$"]"#,
        ),
        (
            "/u/:id.json",
            ":id.json",
            "any segment",
            "id.json",
            r#""/u/:id", and match the end of the path in vars: ["uri", "~~", "\\.json$"]"#,
        ),
        ("/a/**", "**", "any text", "*", r#""/a/*""#),
        ("/a/:id,:name", ":id,:name", "any segment", "id,:name", r#""/a/:id""#),
    ] {
        let message =
            format!("{segment} in \"{uri}\" matches {matched}: \"{name}\" is the name of a parameter");
        check_uri(uri, &message, &format!("write {remedy}"));
    }
}

#[test]
fn fields_that_a_probe_cannot_send_are_reported() {
    let upstream = json!({
        "nodes": { "10.0.0.1:80": 1 },
        "checks": { "active": { "http_req_body": "abc", "req_headers": [
            "Content-Length: 0", "X: 1", "transfer-encoding: chunked", "X: a\r\nY: b", "content-length: 3",
            "Host: a", "host: b", "A B: 1", "Z: 1\n",
        ] } },
    });
    let at = |at: usize, message: &str, remedy: &str| {
        format!("warning: upstreams/1 at checks.active.req_headers[{at}]: {message}\n  hint: {remedy}")
    };
    let expected = [
        at(0, "Content-Length has no effect: the body of the probe has 3 bytes", "remove it"),
        at(2, "transfer-encoding has no effect: a probe sends its body with a Content-Length", "remove it"),
        at(
            3,
            "the value of X has control characters: the field is not sent",
            "write each header as an item of its own",
        ),
        at(6, "host has no effect: a request has one (RFC 9112 §3.2, §6.3)", "remove it"),
        at(
            7,
            "the text before the colon is no name of a header: the field is not sent",
            "write `Name: value`",
        ),
    ];
    check(Kind::Upstreams, upstream.clone(), &expected.each_ref().map(String::as_str));
    let inline = json!({ "uri": "/", "upstream": upstream });
    let inline_expected =
        expected.each_ref().map(|line| line.replace("upstreams/1 at ", "routes/1 at upstream."));
    check(Kind::Routes, inline, &inline_expected.each_ref().map(String::as_str));
}

#[test]
fn ordinary_paths_and_hosts_are_not_reported() {
    let uris = [
        "/",
        "/*",
        "*",
        "/a/:id",
        "/a/*rest",
        "/a/*rest-1/:user_id/:gr\u{f6}\u{df}e",
        "/a/x*.php",
        "*.php",
        "/a.b",
        "/a(1)",
        "/$metadata",
        "/~me",
        "/a:b",
        "/a b",
        "/a%2Fb",
        "/a/",
    ];
    let hosts = ["a.test", "*.a.test", "*", "[::1]", "127.0.0.1"];
    check(Kind::Routes, json!({ "uris": uris, "hosts": hosts, "upstream": nodes("10.0.0.1") }), &[]);
}

#[test]
fn hosts_with_a_port_are_reported() {
    let expected = [
        "warning: routes/1 at hosts[0]: no request matches \"a.test:8080\": a host is compared without its port\n  hint: write \"a.test\"; vars can match the port: [\"server_port\", \"==\", \"8080\"]",
        "warning: routes/1 at hosts[1]: no request matches \"[::1]:80\": a host is compared without its port\n  hint: write \"[::1]\"; vars can match the port: [\"server_port\", \"==\", \"80\"]",
    ];
    let route = json!({ "uri": "/", "hosts": ["a.test:8080", "[::1]:80"], "upstream": nodes("10.0.0.1") });
    check(Kind::Routes, route, &expected);
    let expected = "warning: services/1 at hosts[0]: no request matches \"a:1\": a host is compared without its port\n  hint: write \"a\"; vars can match the port: [\"server_port\", \"==\", \"1\"]";
    check(Kind::Services, json!({ "hosts": ["a:1"] }), &[expected]);
}

#[test]
fn nodes_with_a_scheme_or_a_path_are_reported() {
    let written = json!({ "nodes": { "http://backend:8080": 1, "10.0.0.1:80": 1, "b/x:1": 1 } });
    let expected = [
        "warning: upstreams/1 at nodes: no host has the name \"http://backend\": a node is a host and a port\n  hint: write \"backend:8080\", and the protocol in scheme",
        "warning: upstreams/1 at nodes: no host has the name \"b/x\": a node is a host and a port\n  hint: write \"b:1\"",
    ];
    check(Kind::Upstreams, written, &expected);
}

#[test]
fn hosts_that_cannot_have_a_name_are_reported() {
    let check_node = |node: &str, flaw: &str| {
        let written = json!({ "nodes": { node: 1 } });
        let problems = compiler().apply(vec![put(Kind::Upstreams, "1", written)], 1).problems;
        assert!(problems.iter().any(|one| one.message.contains(flaw)), "{node}: {problems:?}");
    };
    check_node("a b:80", "it has white space");
    check_node("${{BACKEND", "the variable is not closed");
    check_node("${BACKEND}:80", "a variable has two braces");
    check_node("a@b:80", "it has the character @");
    let pair = json!({ "nodes": [{ "host": "10.0.0.1:80", "port": 80, "weight": 1 }] });
    let expected = "warning: upstreams/1 at nodes: no host has the name \"10.0.0.1:80\": the port has its own member\n  hint: write \"10.0.0.1\" in host, and 80 in port";
    check(Kind::Upstreams, pair, &[expected]);
    check(Kind::Upstreams, json!({ "nodes": { "[::1]:80": 1, "::2": 1, "a_b.test": 1 } }), &[]);
    let service = json!({ "service_name": "a", "discovery_type": "k8s" });
    let problems = compiler().apply(vec![put(Kind::Upstreams, "1", service)], 1).problems;
    assert!(problems.iter().any(|one| one.path == "discovery_type"), "{problems:?}");
}

#[test]
fn members_of_upstreams_that_others_exclude_are_reported() {
    let unused = |member: &str, reason: &str, remedy: &str| {
        format!(
            "warning: routes/1 at upstream.{member}: \"{member}\" has no effect {reason}\n  hint: {remedy}"
        )
    };
    let expected = [
        unused("upstream_host", "without pass_host \"rewrite\"", "set pass_host to \"rewrite\""),
        unused("key", "without type \"chash\"", "set type to \"chash\""),
        unused("tls", "with a scheme without TLS", "set scheme to \"https\", \"grpcs\" or \"tls\""),
    ];
    let upstream = json!({
        "nodes": { "10.0.0.1:80": 1 }, "upstream_host": "a.test", "key": "remote_addr", "tls": { "verify": true }
    });
    let expected = expected.each_ref().map(String::as_str);
    check(Kind::Routes, json!({ "uri": "/", "upstream": upstream }), &expected);
    let used = json!({
        "nodes": { "10.0.0.1:443": 1 }, "upstream_host": "a.test", "pass_host": "rewrite", "scheme": "https",
        "type": "chash", "key": "remote_addr", "tls": { "verify": true }
    });
    check(Kind::Upstreams, used, &[]);
    let both = json!({ "uri": "/", "upstream": nodes("10.0.0.1"), "upstream_id": "u" });
    let problems = compiler().apply(vec![put(Kind::Routes, "1", both)], 1).problems;
    assert!(problems.iter().any(|one| one.path == "upstream"), "{problems:?}");
}
