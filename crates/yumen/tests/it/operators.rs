//! Operators at work: transactions, import and export, rollback, waiting for a revision; all over the admin
//! listener.

use serde_json::{Value, json};

use crate::harness::gateway::YUMEN;
use crate::harness::{Client, Gateway, Options, Reply, Upstream, run};

/// The admin listener with a key.
struct Admin<'g> {
    gateway: &'g Gateway,
    key: String,
}

impl Admin<'_> {
    fn ask(&self, method: &str, path: &str, body: &str) -> Reply {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: admin\r\nX-API-KEY: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            self.key,
            body.len(),
        );
        Client::connect(self.gateway.admin).send(head).send(body).reply()
    }

    fn put(&self, path: &str, value: &Value) -> Reply {
        self.ask("PUT", &format!("/apisix/admin/{path}?wait=applied"), &value.to_string())
    }

    fn revision(&self) -> u64 {
        self.ask("GET", "/yumen/v1/applied", "").json()["revision"].as_u64().expect("a revision")
    }
}

fn mock(uri: &str, text: &str) -> Value {
    json!({ "uri": uri, "plugins": { "mocking": { "response_example": text, "content_type": "text/plain" } } })
}

#[test]
fn what_was_written_is_served_by_the_next_request_once_waited_for() {
    let (gateway, key) = Gateway::embedded();
    let admin = Admin { gateway: &gateway, key };
    for round in 0..100 {
        let reply = admin.put("routes/1", &mock("/version", &round.to_string()));
        assert_eq!(reply.field("x-yumen-applied"), Some("true"), "{reply:?}");
        assert_eq!(gateway.get("/version").text(), round.to_string());
    }
}

#[test]
fn a_transaction_is_one_revision_or_nothing() {
    let (gateway, key) = Gateway::embedded();
    let admin = Admin { gateway: &gateway, key };
    let before = admin.revision();
    let route = |id: &str, service: &str| json!({ "id": id, "uri": format!("/{id}"), "service_id": service, "plugins": mock("", id)["plugins"] });
    let good = json!({ "put": {
        "routes": [route("a", "s"), route("b", "s")],
        "services": [{ "id": "s", "name": "s" }],
    }, "delete": ["routes/hello"] });
    let reply = admin.ask("POST", "/yumen/v1/apply?wait=applied", &good.to_string());
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json(), json!({ "revision": before + 1, "put": 3, "deleted": 1, "unchanged": 0 }));
    assert_eq!(gateway.get("/a").text(), "a");
    assert_eq!(gateway.get("/hello").status, 404);
    // The same again: nothing differs.
    let again = json!({ "put": good["put"] });
    let reply = admin.ask("POST", "/yumen/v1/apply", &again.to_string());
    assert_eq!(reply.json(), json!({ "revision": before + 1, "put": 0, "deleted": 0, "unchanged": 3 }));
    let refusals = [
        (json!({ "put": { "routes": [route("c", "s"), route("d", "no-such")] } }), 400, "no-such"),
        (json!({ "put": { "routes": [route("c", "s"), { "id": "d", "uri": 7 }] } }), 400, "routes/d"),
        (json!({ "put": { "routes": [route("c", "s")] }, "delete": ["services/s"] }), 400, "service"),
        (json!({ "put": { "routes": [route("c", "s")] }, "delete": ["routes/none"] }), 404, "routes/none"),
        (json!({ "put": { "routes": [route("c", "s")] }, "expected_revision": before }), 412, "revision"),
        (json!({ "unknown": 1 }), 400, "unknown"),
    ];
    for (transaction, status, word) in refusals {
        let reply = admin.ask("POST", "/yumen/v1/apply", &transaction.to_string());
        assert_eq!(reply.status, status, "{transaction}: {}", reply.text());
        assert!(reply.text().contains(word), "{transaction}: {}", reply.text());
        assert_eq!(admin.revision(), before + 1);
    }
    assert_eq!(gateway.get("/c").status, 404);
}

#[test]
fn an_export_imported_elsewhere_is_the_same_configuration() {
    let (first, key) = Gateway::embedded();
    let admin = Admin { gateway: &first, key };
    assert_eq!(admin.put("upstreams/u", &json!({ "nodes": { "127.0.0.1:1": 1 } })).status, 201);
    assert_eq!(admin.put("routes/r", &mock("/r", "r")).status, 201);
    assert_eq!(
        admin
            .put("consumers/ann", &json!({ "username": "ann", "plugins": { "key-auth": { "key": "k" } } }))
            .status,
        201
    );
    let credential = json!({ "plugins": { "basic-auth": { "username": "ann", "password": "p" } } });
    assert_eq!(admin.put("consumers/ann/credentials/c", &credential).status, 201);
    let (file, at) = (first.scratch.file("export.yaml"), format!("http://{}", first.admin));
    let file = file.display().to_string();
    let (_, json, _) = run(YUMEN, &["export", "--json", "--admin", &at, "--key", &admin.key]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON where that was asked for");
    assert!(json["routes"].is_array(), "{json}");
    let (code, _, err) = run(YUMEN, &["export", "--out", &file, "--admin", &at, "--key", &admin.key]);
    assert_eq!(code, 0, "{err}");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).unwrap());
    assert_eq!(mode & 0o777, 0o600, "private keys are in it");
    let (second, key) = Gateway::embedded();
    let at = format!("http://{}", second.admin);
    let (code, out, err) = run(YUMEN, &["import", "file", &file, "--replace", "--admin", &at, "--key", &key]);
    assert_eq!(code, 0, "{out}{err}");
    let admin_of_second = Admin { gateway: &second, key };
    for path in ["routes", "upstreams", "consumers", "consumers/ann/credentials"] {
        let values = |reply: Reply| -> Vec<Value> {
            let list = reply.json()["list"].as_array().cloned().unwrap_or_default();
            let mut values: Vec<Value> = list.iter().map(|item| item["value"].clone()).collect();
            // The times and the order of the members may differ.
            for value in &mut values {
                let object = value.as_object_mut().expect("an object");
                object.retain(|name, _| !name.ends_with("_time"));
                object.sort_keys();
            }
            values
        };
        let path = format!("/apisix/admin/{path}");
        let (one, other) =
            (values(admin.ask("GET", &path, "")), values(admin_of_second.ask("GET", &path, "")));
        assert_eq!(one, other, "{path}");
        assert!(!one.is_empty(), "{path}");
    }
    assert_eq!(second.get("/r").text(), "r");
}

#[test]
fn what_looks_like_a_variable_is_imported_as_it_is_and_told() {
    let (gateway, key) = Gateway::embedded();
    let (file, at) = (gateway.scratch.file("routes.json"), format!("http://{}", gateway.admin));
    let mut route = mock("/v", "v");
    (route["id"], route["desc"]) = ("v".into(), "${{HOME}} and ${{NAME:=none}}".into());
    std::fs::write(&file, json!({ "routes": [route] }).to_string()).unwrap();
    let file = file.display().to_string();
    let (code, _, err) = run(YUMEN, &["import", "file", &file, "--admin", &at, "--key", &key]);
    assert!(code == 0 && err.contains("${{...}} is imported as it is"), "{code} {err}");
    let stored = Admin { gateway: &gateway, key }.ask("GET", "/apisix/admin/routes/v", "").json();
    assert_eq!(stored["value"]["desc"], "${{HOME}} and ${{NAME:=none}}");
}

#[test]
fn a_write_says_that_what_it_wrote_is_not_in_force() {
    let (gateway, key) = Gateway::embedded();
    let admin = Admin { gateway: &gateway, key };
    let mut route = mock("/q", "q");
    // A function in Lua quarantines the route.
    route["filter_func"] = "function(vars) return true end".into();
    let reply = admin.put("routes/q", &route);
    assert_eq!((reply.status, reply.field("x-yumen-applied")), (201, Some("quarantined")), "{reply:?}");
    assert_eq!(gateway.get("/q").status, 404);
    let reply = admin.put("routes/q", &mock("/q", "q"));
    assert_eq!((reply.status, reply.field("x-yumen-applied")), (200, Some("true")), "{reply:?}");
}

#[test]
fn a_file_is_read_through_the_admin_listener_and_not_written() {
    let upstream = Upstream::text("x");
    let node = "admin: {keys: [{name: ci, key: 0123456789abcdef}]}";
    let gateway =
        Gateway::with(&upstream.everything(), &crate::harness::Options { node, ..Default::default() });
    let admin = Admin { gateway: &gateway, key: "0123456789abcdef".into() };
    assert_eq!(admin.ask("GET", "/apisix/admin/routes/all", "").status, 200);
    let reply = admin.put("routes/2", &mock("/2", "2"));
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(reply.text().contains("routes.yaml"), "{}", reply.text());
}

#[test]
fn a_write_that_breaks_a_test_of_the_configuration_is_refused() {
    let (gateway, key) = Gateway::embedded();
    let admin = Admin { gateway: &gateway, key };
    admin.put("routes/v1", &mock("/api/*", "v1"));
    let test = json!({ "request": { "url": "/api/users" }, "expect": { "route": "v1" } });
    let reply = admin.put("tests/users", &test);
    assert_eq!(reply.status, 201, "{}", reply.text());
    let revision = admin.revision();
    let reply = admin.put("routes/v2", &mock("/api/users", "v2"));
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert!(reply.text().contains("tests/users") && reply.text().contains("v2"), "{}", reply.text());
    assert_eq!(admin.revision(), revision);
    assert_eq!(gateway.get("/api/users").text(), "v1");
    // Changing both at once is consistent again.
    let test = json!({ "id": "users", "request": { "url": "/api/users" }, "expect": { "route": "v2" } });
    let mut route = mock("/api/users", "v2");
    route["id"] = "v2".into();
    let both = json!({ "put": { "routes": [route], "tests": [test] } });
    let reply = admin.ask("POST", "/yumen/v1/apply?wait=applied", &both.to_string());
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(gateway.get("/api/users").text(), "v2");
}

#[test]
fn a_bulk_change_that_does_much_needs_somebodys_word() {
    let (gateway, key) = Gateway::embedded();
    let admin = Admin { gateway: &gateway, key };
    let routes: Vec<Value> = (0..20)
        .map(|i| json!({ "id": format!("r{i}"), "uri": format!("/r{i}"), "plugins": mock("", "x")["plugins"] }))
        .collect();
    let all = json!({ "put": { "routes": routes } });
    assert_eq!(admin.ask("POST", "/yumen/v1/apply?wait=applied", &all.to_string()).status, 200);
    // Replaces twenty routes by five.
    let few = json!({ "routes": routes[..5] }).to_string();
    let planned = admin.ask("POST", "/yumen/v1/plan?mode=replace", &few);
    assert_eq!(planned.status, 200, "{}", planned.text());
    assert!(planned.json()["needs_confirmation"].is_string(), "{}", planned.text());
    let reply = admin.ask("POST", "/yumen/v1/import?mode=replace", &few);
    assert_eq!(reply.status, 409, "{}", reply.text());
    let (file, at) = (gateway.scratch.file("few.json"), format!("http://{}", gateway.admin));
    std::fs::write(&file, &few).unwrap();
    let file = file.display().to_string();
    let command = ["import", "file", &file, "--replace", "--admin", &at, "--key", &admin.key];
    let (code, _, err) = run(YUMEN, &command);
    assert!(code == 3 && err.contains("; repeat with --yes to confirm"), "{code} {err}");
    assert_eq!(gateway.get("/r9").status, 200);
    let reply = admin.ask("POST", "/yumen/v1/import?mode=replace&confirm=true&wait=applied", &few);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(gateway.get("/r9").status, 404);
    // The rollback adds routes and removes none.
    let reply = admin.ask("POST", "/yumen/v1/revisions/2/rollback?wait=applied", "");
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(gateway.get("/r9").status, 200);
}

#[test]
fn requests_without_a_key_are_refused() {
    let (gateway, key) = Gateway::embedded();
    let paths = [
        "/apisix/admin/routes",
        "/apisix/admin/configs",
        "/apisix/admin/plugins/list",
        "/apisix/admin/schema/route",
        "/yumen/v1/revisions",
        "/yumen/v1/diff?from=0",
        "/yumen/v1/export",
        "/yumen/v1/applied",
        "/yumen/v1/problems",
        "/yumen/v1/openapi.json",
    ];
    for wrong in ["", "wrong"] {
        // A node answers 429 after many wrong keys.
        let (gateway, _) = Gateway::embedded();
        let admin = Admin { gateway: &gateway, key: wrong.into() };
        for path in paths {
            assert_eq!(admin.ask("GET", path, "").status, 401, "{path}");
        }
        for path in
            ["/yumen/v1/apply", "/yumen/v1/import", "/yumen/v1/explain", "/yumen/v1/revisions/1/rollback"]
        {
            assert_eq!(admin.ask("POST", path, "{}").status, 401, "{path}");
        }
        assert_eq!(admin.put("routes/1", &mock("/1", "1")).status, 401);
    }
    let admin = Admin { gateway: &gateway, key };
    for path in paths {
        assert_eq!(admin.ask("GET", path, "").status, 200, "{path}");
    }
}

#[test]
fn requests_are_explained_as_they_are_served() {
    let (gateway, key) = Gateway::embedded();
    let admin = Admin { gateway: &gateway, key };
    admin.put(
        "routes/only-get",
        &json!({ "uri": "/x", "methods": ["GET"], "plugins": mock("", "x")["plugins"] }),
    );
    let explain = |question: Value, at: &str| {
        let reply = admin.ask("POST", &format!("/yumen/v1/explain{at}"), &question.to_string());
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    };
    let served = explain(json!({ "url": "/x" }), "");
    assert_eq!(served["route"]["id"], "only-get", "{served}");
    let lost = explain(json!({ "method": "POST", "url": "/x" }), "");
    assert_eq!(lost["route"], Value::Null, "{lost}");
    assert!(lost["candidates"].to_string().contains("only-get"), "{lost}");
    // Before the route was written, no route matched.
    let past = explain(json!({ "url": "/x" }), "?at=1");
    assert_eq!(past["route"], Value::Null, "{past}");
    assert_eq!(admin.ask("POST", "/yumen/v1/explain?at=99", "{\"url\":\"/x\"}").status, 404);
    assert_eq!(admin.ask("POST", "/yumen/v1/explain", "{}").status, 400);
}

#[test]
fn the_control_api_has_a_listener_of_its_own_where_one_is_configured() {
    let resources = json!({
        "upstreams": [
            { "id": "u", "nodes": { "127.0.0.1:1": 1 }, "checks": { "active": { "type": "tcp" } } },
        ],
        "routes": [{ "id": "r", "uri": "/r", "upstream_id": "u" }],
    });
    let node = "control: { listen: \"127.0.0.1:0\" }";
    let gateway = Gateway::with(&resources, &Options { node, ..Options::default() });
    let control = gateway.lines().iter().find_map(|line| {
        let address = line.trim().strip_prefix("control  http://")?.split('/').next()?;
        address.parse::<std::net::SocketAddr>().ok()
    });
    let control = control.expect("the listener is announced");
    for (line, status, word) in [
        ("GET /v1/routes", 200, "/apisix/routes/r"),
        ("GET /v1/upstream/u", 200, "\"key\":\"/apisix/upstreams/u\""),
        ("GET /v1/upstream/none", 404, "upstream[none] not found"),
        ("GET /v1/healthcheck", 200, "/apisix/upstreams/u"),
        ("GET /v1/schema", 200, "stream_plugins"),
        ("POST /v1/gc", 200, ""),
        ("PUT /v1/plugins/reload", 200, "done"),
        ("GET /metrics", 404, "not found"),
    ] {
        let head =
            format!("{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        let reply = Client::connect(control).send(head).reply();
        assert_eq!(reply.status, status, "{line}: {}", reply.text());
        assert!(reply.text().contains(word), "{line}: {}", reply.text());
    }
}

#[test]
fn the_status_listener_shows_what_is_configured_without_secrets() {
    let (gateway, key) = Gateway::embedded();
    let admin = Admin { gateway: &gateway, key };
    let upstream = json!({ "nodes": { "127.0.0.1:1": 1 }, "checks": { "active": { "type": "tcp" } } });
    assert_eq!(admin.put("upstreams/u", &upstream).status, 201);
    let route = json!({ "uri": "/r", "upstream_id": "u", "plugins": {
        "openid-connect": { "client_id": "me", "client_secret": "hush", "discovery": "http://127.0.0.1:1",
            "session": { "secret": "hush hush hush hush" } } } });
    let reply = admin.put("routes/r", &route);
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert_eq!(admin.put("plugin_metadata/datadog", &json!({ "api_key": "hush" })).status, 201);
    let ask = |method: &str, path: &str| {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        );
        Client::connect(gateway.status).send(head).reply()
    };
    for (line, status, word) in [
        ("GET /v1/routes", 200, "/apisix/routes/r"),
        ("GET /v1/route/r", 200, "client_id"),
        ("GET /v1/route/none", 404, "route[none] not found"),
        ("GET /v1/upstreams", 200, "/apisix/upstreams/u"),
        ("GET /v1/services", 200, "[]"),
        ("GET /v1/schema", 200, "stream_plugins"),
        ("GET /v1/healthcheck", 200, "/apisix/upstreams/u"),
        ("GET /v1/healthcheck/upstreams/u", 200, "/apisix/upstreams/u"),
        ("GET /v1/healthcheck/routes/r", 404, "no checker"),
        ("GET /v1/plugin_metadatas", 200, "datadog"),
        ("GET /v1/consumers", 404, "not found"),
        ("PUT /v1/plugins/reload", 200, "done"),
        ("POST /v1/gc", 200, ""),
        ("DELETE /v1/route/r", 405, "method not allowed"),
        ("GET /status", 200, "revision"),
    ] {
        let (method, path) = line.split_once(' ').expect("a verb and a path");
        let reply = ask(method, path);
        assert_eq!(reply.status, status, "{line}: {}", reply.text());
        assert!(reply.text().contains(word) && !reply.text().contains("hush"), "{line}: {}", reply.text());
    }
    assert_eq!(admin.ask("GET", "/apisix/admin/routes/r", "").status, 200);
}
