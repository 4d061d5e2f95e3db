//! Plugins of a Kong file: the imported configuration treats requests as Kong does.

use crate::harness::gateway::YUMEN;
use crate::harness::{Gateway, Options, Scratch, Upstream, run};

/// Imports a file without missing guards and serves the result.
fn imported(text: &str) -> Gateway {
    imported_with_status(text, 0)
}

/// Imports a file with this exit status and serves the result.
fn imported_with_status(text: &str, status: i32) -> Gateway {
    let scratch = Scratch::new();
    let kong = scratch.write("kong.yaml", text);
    let routes = scratch.file("routes.yaml").display().to_string();
    let (code, _, report) = run(YUMEN, &["import", "kong", &kong, "--out", &routes]);
    assert_eq!(code, status, "{report}");
    Gateway::launch(scratch, &Options::default(), &["--file", &routes])
}

/// A file with one service and this text as its routes, consumers and plugins.
fn file(upstream: &Upstream, routes: &str) -> String {
    format!(
        "_format_version: \"3.0\"\nservices:\n- name: s\n  url: http://{}\n  routes:\n{routes}",
        upstream.address
    )
}

#[test]
fn request_transformer_applies_kongs_order() {
    let upstream = Upstream::echo("s");
    let gateway = imported(&file(
        &upstream,
        r#"
  - name: t
    paths: [/t]
    strip_path: false
    plugins:
    - name: request-transformer
      config:
        remove: {headers: [X-A], querystring: [a]}
        rename: {headers: ["X-Old:X-New"], querystring: ["p:q"]}
        replace: {headers: ["X-R:1", "Host:internal.example.com"], querystring: ["r:2"]}
        add: {headers: ["X-A:new", "X-New:none", "X-Kept:mine", "X-Copy:$(headers.x-a)"], querystring: ["a:1"]}
        append: {headers: ["X-M:2"], querystring: ["b:2"]}
"#,
    ));
    let seen = gateway
        .get_with("/t?a=0&b=1&p=3", "X-A: old\r\nX-Old: 7\r\nX-Kept: yours\r\nX-M: 1\r\nX-R: 0\r\n")
        .json();
    assert_eq!(seen["target"], "/t?b=1&q=3&a=1&b=2");
    for (name, expected) in [
        ("x-a", "new"),
        ("x-new", "7"),
        ("x-kept", "yours"),
        ("x-copy", "old"),
        ("x-r", "1"),
        ("host", "internal.example.com"),
    ] {
        assert_eq!(seen["fields"][name], expected, "{name}: {seen}");
    }
    assert_eq!(seen["fields"]["x-old"], serde_json::Value::Null);
    let seen = gateway.get("/t").json();
    assert_eq!((&seen["target"], &seen["fields"]["x-new"]), (&"/t?a=1&b=2".into(), &"none".into()));
    assert_eq!(seen["fields"]["x-r"], serde_json::Value::Null, "an absent field is not replaced");
}

#[test]
fn response_transformer_applies_kongs_order() {
    let upstream = Upstream::echo("s");
    let gateway = imported(&file(
        &upstream,
        r#"
  - name: t
    paths: [/t]
    plugins:
    - name: response-transformer
      config:
        remove: {headers: [Content-Type]}
        replace: {headers: ["X-None:1"]}
        add: {headers: ["Content-Type:text/x-new", "X-Url:http://a/"]}
        append: {headers: ["X-Price:$5"]}
"#,
    ));
    let reply = gateway.get("/t");
    for (name, expected) in [
        ("content-type", Some("text/x-new")),
        ("x-none", None),
        ("x-url", Some("http://a/")),
        ("x-price", Some("$5")),
    ] {
        assert_eq!(reply.field(name), expected, "{name}");
    }
}

/// Signed with `secret-of-ann`, with HS256.
const KEY_IN_HEADER: &str =
    "eyJhbGciOiJIUzI1NiIsImtpZCI6ImsxIn0.e30.5UZvZPEe6OoY11suFPSAq-bvQM4v4nLi77kLCQgftNU";
const KEY_IN_CLAIM: &str =
    "eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJrMSJ9.Dh3sDqot9BQBI01yHarYkRsBxkEUsBwb67BgeMWqa0s";
const EXPIRED: &str = "eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJrMSIsImV4cCI6MTAwMDAwMDAwMH0.-QFmF09Qop2OyfU40S3wGECLToHtWL58ZTRe1z15PVI";

#[test]
fn tokens_are_found_where_kong_looks_for_them() {
    let upstream = Upstream::echo("s");
    let gateway = imported(&file(
        &upstream,
        r#"
  - {name: kid, paths: [/kid], plugins: [{name: jwt, config: {key_claim_name: kid, secret_is_base64: true}}]}
  - name: header
    paths: [/header]
    plugins: [{name: jwt, config: {uri_param_names: [], secret_is_base64: true}}]
  - name: preflight
    paths: [/preflight]
    plugins: [{name: jwt, config: {run_on_preflight: false, secret_is_base64: true}}]
  - name: guests
    paths: [/guests]
    plugins:
    - {name: jwt, config: {anonymous: guest, secret_is_base64: true}}
    - {name: key-auth, config: {anonymous: guest}}
consumers:
- {username: guest}
- {username: ann, jwt_secrets: [{key: k1, secret: c2VjcmV0LW9mLWFubg}], keyauth_credentials: [{key: anns-key}]}
"#,
    ));
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    for (target, fields, status) in [
        ("/kid".to_owned(), bearer(KEY_IN_HEADER), 200),
        ("/header".to_owned(), bearer(KEY_IN_CLAIM), 200),
        ("/kid".to_owned(), bearer(KEY_IN_CLAIM), 401),
        (format!("/kid?jwt={KEY_IN_HEADER}"), String::new(), 200),
        (format!("/header?jwt={KEY_IN_CLAIM}"), String::new(), 401),
        // Stricter than Kong, which verifies no claim that is not listed.
        ("/header".to_owned(), bearer(EXPIRED), 401),
        ("/header".to_owned(), format!("Cookie: jwt={KEY_IN_CLAIM}\r\n"), 401),
    ] {
        assert_eq!(gateway.get_with(&target, &fields).status, status, "{target} {fields}");
    }
    let preflight = "OPTIONS /preflight HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(gateway.send(preflight).status, 200);
    for (fields, consumer) in
        [(bearer(KEY_IN_CLAIM), "ann"), ("apikey: anns-key\r\n".to_owned(), "ann"), (String::new(), "guest")]
    {
        let seen = gateway.get_with("/guests", &format!("{fields}X-Consumer-ID: forged\r\n")).json();
        assert_eq!(seen["fields"]["x-consumer-username"], consumer, "{fields}");
        assert_eq!(seen["fields"]["x-consumer-id"], serde_json::Value::Null, "a client cannot set it");
    }
}

#[test]
fn allow_list_of_bot_detection_only_exempts() {
    let upstream = Upstream::text("served");
    let text = file(
        &upstream,
        "  - {name: r, paths: [/r], plugins: [{name: bot-detection, config: {allow: [good-bot], deny: [bot]}}]}\n",
    );
    // Kong's own list of robots is lost.
    let gateway = imported_with_status(&text, 1);
    for (agent, status) in [
        ("User-Agent: good-bot/1\r\n", 200),
        ("User-Agent: bad-bot/1\r\n", 403),
        ("User-Agent: Mozilla/5.0\r\n", 200),
        ("", 200),
    ] {
        let request = format!("GET /r HTTP/1.1\r\nHost: a\r\n{agent}\r\n");
        assert_eq!(gateway.send(&request).status, status, "{agent}");
    }
}

#[test]
fn options_without_preflight_fields_reaches_the_upstream() {
    let upstream = Upstream::text("served");
    let gateway = imported(&file(
        &upstream,
        r#"
  - {name: strict, paths: [/strict], plugins: [{name: cors, config: {origins: ["(a|b)\\.example\\.com"]}}]}
  - {name: continued, paths: [/continued], plugins: [{name: cors, config: {preflight_continue: true}}]}
"#,
    ));
    let origin = "Origin: https://b.example.com\r\n";
    let preflight = format!("{origin}Access-Control-Request-Method: PUT\r\n");
    for (path, fields, body, allowed) in [
        ("/strict", "", "served", None),
        ("/strict", origin, "served", Some("https://b.example.com")),
        ("/strict", &preflight, "", Some("https://b.example.com")),
        ("/continued", origin, "served", Some("*")),
        ("/continued", &preflight, "served", None),
    ] {
        let reply = gateway.send(format!("OPTIONS {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        assert_eq!((reply.status, reply.text().as_str()), (200, body), "{path} {fields}");
        assert_eq!(reply.field("access-control-allow-origin"), allowed, "{path} {fields}");
    }
}

#[test]
fn limit_of_a_service_counts_once_for_its_routes() {
    let upstream = Upstream::text("served");
    for (config, plugins) in [
        ("{minute: 3}", "key-auth"),
        ("{minute: 3, hour: 100}", "key-auth"),
        ("{minute: 3}", ""),
        ("{minute: 3, hour: 100}", ""),
        ("{minute: 3, limit_by: service}", "key-auth"),
    ] {
        let gateway = imported(&file(
            &upstream,
            &format!(
                r#"
  - {{name: a, paths: [/a], plugins: [{plugins}]}}
  - {{name: b, paths: [/b, "~/c/[0-9]"], plugins: [{plugins}]}}
  plugins: [{{name: rate-limiting, config: {config}}}]
consumers:
- {{username: ann, keyauth_credentials: [{{key: anns-key}}]}}
- {{username: bob, keyauth_credentials: [{{key: bobs-key}}]}}
"#
            ),
        ));
        let statuses = |key: &str, paths: &[&str]| -> Vec<u16> {
            let field = format!("apikey: {key}\r\n");
            paths.iter().map(|path| gateway.get_with(path, &field).status).collect()
        };
        let found = statuses("anns-key", &["/a", "/b", "/c/1", "/a", "/b"]);
        assert_eq!(found, [200, 200, 200, 429, 429], "{config} {plugins}");
        let counts_consumers = plugins == "key-auth" && !config.contains("limit_by");
        let expected = if counts_consumers { 200 } else { 429 };
        assert_eq!(statuses("bobs-key", &["/b", "/a"]), [expected; 2], "{config} {plugins}");
    }
}

#[test]
fn global_limit_counts_once_for_all_services() {
    let (first, second) = (Upstream::text("first"), Upstream::text("second"));
    for config in ["{minute: 3, limit_by: ip}", "{minute: 3, hour: 100, limit_by: ip}"] {
        let gateway = imported(&format!(
            r#"
_format_version: "3.0"
services:
- {{name: a, url: "http://{}", routes: [{{name: a, paths: [/a]}}]}}
- {{name: b, url: "http://{}", routes: [{{name: b, paths: [/b]}}]}}
- name: own
  url: "http://{}"
  routes: [{{name: own, paths: [/own]}}]
  plugins: [{{name: rate-limiting, config: {{minute: 1, limit_by: ip}}}}]
plugins: [{{name: rate-limiting, config: {config}}}]
"#,
            first.address, second.address, first.address
        ));
        let statuses = ["/a", "/b", "/a", "/b", "/a", "/own", "/own"].map(|path| gateway.get(path).status);
        assert_eq!(statuses, [200, 200, 200, 429, 429, 200, 429], "{config}");
    }
}

#[test]
fn limit_of_a_consumer_replaces_that_of_the_route_and_counts_for_all_routes() {
    let upstream = Upstream::text("served");
    let gateway = imported(&file(
        &upstream,
        r#"
  - {name: a, paths: [/a], plugins: [key-auth, {name: rate-limiting, config: {minute: 1}}]}
  - {name: b, paths: [/b], plugins: [key-auth]}
consumers:
- username: ann
  keyauth_credentials: [{key: anns-key}]
  plugins: [{name: rate-limiting, config: {minute: 3}}]
- {username: bob, keyauth_credentials: [{key: bobs-key}]}
"#,
    ));
    let statuses = |key: &str, paths: &[&str]| -> Vec<u16> {
        let field = format!("apikey: {key}\r\n");
        paths.iter().map(|path| gateway.get_with(path, &field).status).collect()
    };
    assert_eq!(statuses("anns-key", &["/a", "/a", "/b", "/a", "/b"]), [200, 200, 200, 429, 429]);
    assert_eq!(statuses("bobs-key", &["/a", "/a", "/b"]), [200, 429, 200]);
}
