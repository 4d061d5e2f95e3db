//! Guard plugins that this version does not implement: access fails closed, and is reported.

use serde_json::{Value, json};

use crate::harness::gateway::YUMEN;
use crate::harness::upstream::respond;
use crate::harness::{Client, Gateway, Options, Scratch, Upstream, run};
use crate::l4;

fn route(upstream: &Upstream, id: &str, plugins: Value) -> Value {
    json!({ "id": id, "uri": format!("/{id}"), "plugins": plugins, "upstream": upstream.alone() })
}

fn check(document: &Value, node: Option<&str>) -> (i32, String) {
    let scratch = Scratch::new();
    let file = scratch.write("routes.yaml", document.to_string());
    let node = node.map(|text| scratch.write("yumen.yaml", text));
    let mut arguments = vec!["check", &file];
    arguments.extend(node.iter().flat_map(|path| ["--config", path]));
    let (code, out, err) = run(YUMEN, &arguments);
    (code, out + &err)
}

#[test]
fn routes_behind_a_missing_guard_are_closed_in_every_object_it_may_stand_in() {
    let upstream = Upstream::text("x");
    let waf = json!({ "chaitin-waf": { "mode": "block" } });
    let mut by_service = route(&upstream, "service", json!({}));
    by_service["service_id"] = "s".into();
    let mut by_config = route(&upstream, "config", json!({}));
    by_config["plugin_config_id"] = "c".into();
    let document = json!({
        "services": [{ "id": "s", "plugins": waf, "upstream": upstream.alone() }],
        "plugin_configs": [{ "id": "c", "plugins": waf }],
        "consumers": [{ "username": "ann", "plugins": { "key-auth": { "key": "k" }, "saml-auth": {} } }],
        "routes": [
            by_service,
            by_config,
            route(&upstream, "consumer", json!({ "key-auth": {} })),
            route(&upstream, "login", json!({ "saml-auth": { "sp_issuer": "a" } })),
            route(&upstream, "lua", json!({ "serverless-pre-function": { "functions": [] } })),
            route(&upstream, "logged", json!({ "rocketmq-logger": { "topic": "t" } })),
        ],
    });
    let gateway = Gateway::start(&document);
    for path in ["/service", "/config", "/login", "/lua"] {
        let reply = gateway.get(path);
        assert_eq!(reply.status, 503, "{path}");
        assert_eq!(reply.json()["error_msg"], "a plugin that guards access is not available", "{path}");
    }
    assert_eq!(gateway.get_with("/consumer", "apikey: k\r\n").status, 503);
    assert_eq!(gateway.get("/logged").text(), "x");
    let (code, out) = check(&document, None);
    assert_eq!(code, 1, "{out}");
    for object in ["services/s", "plugin_configs/c", "consumers/ann", "routes/login", "routes/lua"] {
        assert!(out.contains(&format!("error: {object} at plugins.")), "{object} is not in\n{out}");
    }
    assert!(out.contains("5 errors, 1 warning"), "{out}");
    // A global rule fails closed for all routes.
    let mut ruled = document.clone();
    ruled["global_rules"] = json!([{ "id": "1", "plugins": { "chaitin-waf": {} } }]);
    gateway.apply(&ruled);
    assert_eq!(gateway.get("/logged").status, 503);
}

#[test]
fn a_filter_that_holds_only_behind_the_rewrite_phase_closes_the_route() {
    let upstream = Upstream::text("x");
    let service = Upstream::start(|_, stream| respond(stream, 200, "X-Role: admin\r\n", b""));
    let only = |variable: &str, value: &str| json!({ "_meta": { "filter": [[variable, "==", value]] } });
    let role = only("http_x_role", "admin");
    let auth = json!({ "uri": format!("http://{}/", service.address), "upstream_headers": ["X-Role"] });
    let mut rule = only("consumer_name", "basil");
    rule["whitelist"] = 5.into();
    let document = json!({
        "consumers": [
            { "username": "coff", "plugins": { "key-auth": { "key": "k" } } },
            { "username": "open", "plugins": { "key-auth": { "key": "o" } } },
            { "username": "basil", "plugins": { "key-auth": { "key": "b" } } },
        ],
        "global_rules": [{ "id": "1", "plugins": { "ip-restriction": rule } }],
        "routes": [
            route(&upstream, "key", json!({ "key-auth": {}, "ai-prompt-guard": only("consumer_name", "coff") })),
            route(&upstream, "role", json!({ "forward-auth": auth, "ai-prompt-guard": role })),
            route(&upstream, "set", json!({ "proxy-rewrite": { "headers": { "X-Role": "admin" } }, "ai-prompt-guard": role })),
            route(&upstream, "unset", json!({ "ai-prompt-guard": role })),
        ],
    });
    let gateway = Gateway::start(&document);
    for (path, key, expected) in [
        ("/key", "k", 503),
        ("/key", "o", 200),
        ("/key", "b", 503),
        ("/role", "", 503),
        ("/set", "", 503),
        ("/unset", "", 200),
    ] {
        let reply = gateway.get_with(path, &format!("apikey: {key}\r\n"));
        assert_eq!(reply.status, expected, "{path} with {key}");
    }
}

#[test]
fn a_written_guard_that_is_missing_closes_a_route_that_was_open() {
    let upstream = Upstream::text("x");
    let (gateway, key) = Gateway::embedded();
    let put = |value: &Value| {
        let body = value.to_string();
        let head = format!(
            "PUT /apisix/admin/routes/r?wait=applied HTTP/1.1\r\nHost: admin\r\nX-API-KEY: {key}\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let reply = Client::connect(gateway.admin).send(head).send(body).reply();
        (reply.status, reply.field("x-yumen-applied").map(str::to_owned))
    };
    let open = json!({ "uri": "/r", "upstream": upstream.alone() });
    let mut closed = open.clone();
    closed["plugins"] = json!({ "saml-auth": { "sp_issuer": "a" } });
    assert_eq!(put(&open), (201, Some("true".into())));
    assert_eq!(gateway.get("/r").text(), "x");
    assert_eq!(put(&closed), (200, Some("quarantined".into())));
    assert_eq!(gateway.get("/r").status, 503);
    let at = format!("http://{}", gateway.admin);
    let (_, out, err) = run(YUMEN, &["explain", "/r", "--admin", &at, "--key", &key]);
    assert!(out.contains("saml-auth") && out.contains("503"), "{out}{err}");
    assert!(out.contains("plugin saml-auth is not available in this version"), "{out}{err}");
    closed["plugins"]["saml-auth"]["_meta"] = json!({ "disable": true });
    assert_eq!(put(&closed), (200, Some("true".into())));
    assert_eq!(gateway.get("/r").text(), "x");
}

#[test]
fn a_node_runs_without_a_guard_that_its_settings_name() {
    let upstream = Upstream::text("x");
    let document = json!({ "routes": [
        route(&upstream, "own", json!({ "our-own": {} })),
        route(&upstream, "chaitin-waf", json!({ "chaitin-waf": {} })),
        route(&upstream, "cas", json!({ "saml-auth": {} })),
    ] });
    let node = "plugins: {allow_missing: [our-own, chaitin-waf]}";
    let gateway = Gateway::with(&document, &Options { node, ..Default::default() });
    assert_eq!(["/own", "/chaitin-waf", "/cas"].map(|path| gateway.get(path).status), [200, 200, 503]);
    let (code, out) = check(&document, Some(node));
    assert!(code == 1 && out.contains("1 error, 2 warnings"), "{code} {out}");
    let (code, out) = check(&document, Some("plugins: {allow_missing: [our-own, chaitin-waf, saml-auth]}"));
    assert!(code == 0 && out.contains("0 errors, 3 warnings"), "{code} {out}");
}

#[test]
fn a_stream_route_with_a_missing_guard_closes_its_connections() {
    let server = l4::named("hello");
    let stream = |plugins: Value| json!({ "stream_routes": [{ "id": "1", "plugins": plugins, "upstream": l4::nodes(&[server]) }] });
    let (gateway, ports) = l4::start(l4::TCP, &stream(json!({})));
    assert_eq!(l4::first(&mut l4::connect(ports[0])), "hello");
    gateway.apply(&stream(json!({ "traffic-split": { "rules": [] } })));
    assert_eq!(l4::rest(&mut l4::connect(ports[0])), b"");
}
