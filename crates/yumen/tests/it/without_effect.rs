//! Configuration without effect: `yumen check` reports it, and a section of a wrong type fails alone.

use serde_json::{Value, json};

use crate::harness::gateway::YUMEN;
use crate::harness::{Gateway, Scratch, Upstream, eventually, run};

/// Checks that `yumen check` prints the lines for a document.
fn check(document: &str, exit: i32, expected: &[&str]) {
    let scratch = Scratch::new();
    let path = scratch.write("routes.yaml", document);
    let (code, out, err) = run(YUMEN, &["check", &path]);
    for part in expected {
        assert!(out.contains(part), "{part:?} is not in\n{out}");
    }
    assert_eq!(code, exit, "{document}\n{out}{err}");
}

/// A document with one route with these plugins.
fn with_plugins(plugins: &str) -> String {
    format!(
        "routes:\n- id: r\n  uri: /a\n  plugins: {{{plugins}}}\n  upstream: {{nodes: {{\"127.0.0.1:80\": 1}}}}\n"
    )
}

#[test]
fn misspelt_settings_of_plugins_are_warnings_with_the_name_that_was_meant() {
    check(
        &with_plugins(
            "key-auth: {heder: x}, limit-count: {count: 1, time_window: 2, rejectd_code: 429, redis_host: h}",
        ),
        0,
        &[
            "warning: routes/r at plugins.key-auth.heder: unknown member \"heder\" has no effect",
            "did you mean \"header\"?",
            "plugins.limit-count.rejectd_code",
            "did you mean \"rejected_code\"?",
            "plugins.limit-count.redis_host: \"redis_host\" has no effect together with the other settings",
            "0 errors, 3 warnings",
        ],
    );
    check(&with_plugins("limit-cuont: {count: 1}"), 1, &["unknown plugin [limit-cuont]", "\"limit-count\""]);
}

#[test]
fn amount_that_is_no_number_is_refused() {
    let expected = "plugins.limit-count.count: \"two\" is not a number";
    check(&with_plugins("limit-count: {count: two, time_window: 60}"), 1, &[expected]);
    let expected = "plugins.limit-conn.burst: \"x\" is not a number";
    check(
        &with_plugins("limit-conn: {conn: \"1\", burst: x, default_conn_delay: 1, key: remote_addr}"),
        1,
        &[expected],
    );
    check(
        &with_plugins("limit-count: {count: \"$arg_n\", time_window: \"60\"}"),
        0,
        &["0 errors, 0 warnings"],
    );
}

#[test]
fn plugin_behind_one_that_always_responds_never_runs() {
    let message = "mocking responds to every request, so limit-count never runs";
    check(
        &with_plugins(
            "mocking: {response_example: x}, limit-count: {count: 1, time_window: 2}, key-auth: {}",
        ),
        0,
        &[message, "0 errors, 1 warning"],
    );
    let services = "services:\n- {id: s, plugins: {fault-injection: {abort: {http_status: 500}}}}\nroutes:\n- {id: r, uri: /a, service_id: s, plugins: {key-auth: {}}}\n";
    let message = "routes/r at plugins.key-auth: fault-injection responds to every request, so key-auth never runs (fault-injection of services/s, key-auth of routes/r)";
    check(services, 0, &[message, "0 errors, 1 warning"]);
}

/// The fields, with names in lower case, of a request that the upstream received through a route with `proxy-rewrite`.
fn sent_fields(headers: Value, fields: &str) -> Value {
    let upstream = Upstream::echo("a");
    let plugins = json!({ "proxy-rewrite": { "headers": headers } });
    let route = json!({ "id": "r", "uri": "/*", "plugins": plugins, "upstream": upstream.alone() });
    let gateway = Gateway::start(&json!({ "routes": [route] }));
    gateway.get_with("/", fields).json()["fields"].clone()
}

#[test]
fn proxy_rewrite_sets_and_removes_forwarding_fields() {
    let client = "X-Real-IP: 9.9.9.9\r\nX-Forwarded-For: 8.8.8.8\r\n";
    let set =
        json!({ "set": { "X-Real-IP": "1.2.3.4", "X-Forwarded-Proto": "https", "Host": "$host:9977" } });
    let sent = sent_fields(set, client);
    for (name, value) in [
        ("x-real-ip", "1.2.3.4"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-for", "8.8.8.8, 127.0.0.1"),
        ("host", "test:9977"),
    ] {
        assert_eq!(sent[name], value, "{name}");
    }
    let removed = ["x-real-ip", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port"];
    let all = [&removed[..], &["X-Forwarded-For"]].concat();
    let sent = sent_fields(json!({ "remove": all }), client);
    for name in removed {
        assert_eq!(sent[name], Value::Null, "{name}");
    }
    // As in APISIX: the list of other proxies is discarded.
    assert_eq!(sent["x-forwarded-for"], "127.0.0.1");
    assert_eq!(sent_fields(json!({ "set": { "X-A": "b" } }), client)["x-real-ip"], "127.0.0.1");
}

#[test]
fn fields_that_the_gateway_writes_itself_are_reported() {
    let headers = "{set: {Connection: close, Host: a.test}, remove: [host]}";
    check(
        &with_plugins(&format!("proxy-rewrite: {{host: b.test, headers: {headers}}}")),
        0,
        &[
            "\"Connection\" has no effect",
            "Host can be set only",
            "Host has no effect beside the setting host",
        ],
    );
    check(
        &with_plugins(
            "response-rewrite: {headers: {set: {Transfer-Encoding: x}, add: [\"Content-Length: 5\"]}}",
        ),
        0,
        &["\"Transfer-Encoding\" has no effect", "\"Content-Length\" has no effect", "0 errors, 2 warnings"],
    );
}

#[test]
fn section_of_a_wrong_type_keeps_its_objects_in_force() {
    let mock = |text: &str| json!({ "mocking": { "response_example": text, "content_type": "text/plain" } });
    let routes = json!([{ "id": "r", "uri": "/a", "plugin_config_id": "p", "service_id": "s" }]);
    let configs = |text: &str| json!([{ "id": "p", "plugins": mock(text) }]);
    let services = json!([{ "id": "s" }]);
    let gateway =
        Gateway::start(&json!({ "routes": routes, "plugin_configs": configs("1"), "services": services }));
    assert_eq!(gateway.get("/a").text(), "1");
    // The routes are a mapping, and another section changes.
    let mapping = json!({ "r": { "uri": "/b" } });
    gateway.edit(&json!({ "routes": mapping, "plugin_configs": configs("2"), "services": services }));
    eventually("the other section is in force", 5, || gateway.get("/a").text() == "2");
    let problems = gateway.status_json("/yumen/v1/problems").to_string();
    assert!(problems.contains("must be a list") && problems.contains("\\\"- id: r\\\""), "{problems}");
}

#[test]
fn unreadable_global_rule_keeps_the_rules_in_force() {
    let mock = |text: &str| json!({ "mocking": { "response_example": text, "content_type": "text/plain" } });
    let routes = |text: &str| json!([{ "id": "r", "uri": "/a", "plugins": mock(text) }]);
    let filter = json!({ "filter": [["arg_guarded", "==", "1"]] });
    let list = json!({ "blacklist": ["127.0.0.0/8"], "_meta": filter });
    let rule = json!({ "id": "g", "plugins": { "ip-restriction": list } });
    let gateway = Gateway::start(&json!({ "routes": routes("1"), "global_rules": [rule] }));
    assert_eq!(gateway.get("/a?guarded=1").status, 403);
    for (item, text) in [(json!("x"), "2"), (json!([rule]), "3")] {
        gateway.edit(&json!({ "routes": routes(text), "global_rules": [item] }));
        eventually("the other section is in force", 5, || gateway.get("/a").text() == text);
        assert_eq!(gateway.get("/a?guarded=1").status, 403, "{item}");
        let problems = gateway.status_json("/yumen/v1/problems").to_string();
        assert!(problems.contains("must be an object"), "{problems}");
    }
}
