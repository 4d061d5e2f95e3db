//! Checks before serving: explain, lint, plan, and policy tests in the configuration.

use serde_json::{Value, json};

use crate::harness::certs;
use crate::harness::gateway::YUMEN;
use crate::harness::{Client, Gateway, Options, Scratch, Upstream, eventually, run};

/// Explains a request against a document; returns the JSON output.
fn explain(file: &str, args: &[&str]) -> Value {
    let (code, out, err) = run(YUMEN, &[&["explain", "--file", file, "--json"], args].concat());
    assert_eq!(code, 0, "{args:?}: {err}");
    serde_json::from_str(&out).unwrap()
}

fn resources(upstream: &Upstream) -> Value {
    let guarded = json!({"key-auth": {}, "proxy-rewrite": {"regex_uri": ["^/in/(.*)", "/$1"]}});
    json!({
        "routes": [
            { "id": "in", "uri": "/in/*", "plugins": guarded, "upstream_id": "u" },
            { "id": "beta", "uri": "/api", "priority": 5, "vars": [["http_x_beta", "==", "1"]], "upstream_id": "u" },
            { "id": "api", "uri": "/api", "methods": ["GET"], "upstream_id": "u" },
            { "id": "away", "uri": "/away", "plugins": { "redirect": { "uri": "/api", "ret_code": 301 } } },
        ],
        "upstreams": [{ "id": "u", "nodes": upstream.nodes() }],
        "consumers": [{ "username": "alice", "plugins": { "key-auth": { "key": "secret" } } }],
    })
}

#[test]
fn explain_says_what_the_gateway_does() {
    let upstream = Upstream::echo("u");
    let gateway = Gateway::start(&resources(&upstream));
    let file = gateway.scratch.file("routes.yaml").display().to_string();
    for (method, path, field) in [
        ("GET", "/in/x?q=1", ""),
        ("GET", "/in/x?q=1", "apikey: secret"),
        ("GET", "/in/x", "apikey: wrong"),
        ("GET", "/api", ""),
        ("POST", "/api", ""),
        ("POST", "/api", "X-Beta: 1"),
        ("GET", "/away", ""),
        ("GET", "/nobody", ""),
    ] {
        let fields = if field.is_empty() { String::new() } else { format!("{field}\r\n") };
        let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
        let reply = gateway.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\n{fields}{length}Connection: close\r\n\r\n"
        ));
        let url = format!("http://test{path}");
        let header = ["-H", field];
        let more: &[&str] = if field.is_empty() { &[] } else { &header };
        let explanation = explain(&file, &[&[method, &url], more].concat());
        match explanation["answer"]["status"].as_u64() {
            Some(status) => {
                assert_eq!(u64::from(reply.status), status, "{method} {path} {field}: {explanation}")
            }
            None => {
                let upstream_path = explanation["upstream"]["path"].as_str().unwrap();
                assert_eq!(reply.status, 200, "{method} {path} {field}: {explanation}");
                assert!(reply.text().contains(upstream_path), "{upstream_path} is not in {}", reply.text());
            }
        }
    }
}

#[test]
fn explain_knows_by_which_port_a_request_comes_in() {
    let (gateway, key) = Gateway::embedded();
    let port = gateway.http.port().to_string();
    let route = json!({ "uri": "/p", "vars": [["server_port", "==", port]], "plugins": { "redirect": { "uri": "/b" } } });
    let body = route.to_string();
    let mut client = Client::connect(gateway.admin);
    client.send(format!(
        "PUT /apisix/admin/routes/p?wait=applied HTTP/1.1\r\nHost: a\r\nX-API-KEY: {key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(client.reply().status, 201);
    assert_eq!(gateway.get("/p").status, 302);
    let admin = format!("http://{}", gateway.admin);
    for (url, status) in [("/p", 302), ("http://x/p", 302), ("http://x:80/p", 404), ("https://x/p", 404)] {
        let (_, out, err) = run(YUMEN, &["explain", url, "--json", "--admin", &admin, "--key", &key]);
        let explanation: Value = serde_json::from_str(&out).expect(&err);
        assert_eq!(explanation["answer"]["status"], json!(status), "{url}: {explanation}");
    }
}

#[test]
fn explain_names_the_fields_the_gateway_sends_by_itself() {
    let upstream = Upstream::echo("u");
    let mut document = resources(&upstream);
    let rewrite = json!({ "headers": { "set": { "X-Forwarded-Proto": "wss" } } });
    document["routes"][2]["plugins"] = json!({ "proxy-rewrite": rewrite });
    let gateway = Gateway::start(&document);
    let file = gateway.scratch.file("routes.yaml").display().to_string();
    let (url, hop) = (format!("http://test:{}/api", gateway.http.port()), "X-Forwarded-For: 10.9.9.9");
    let explanation = explain(&file, &[&url, "-H", hop, "-H", "X-Real-IP: 10.8.8.8"]);
    let reply = gateway.send(format!(
        "GET /api HTTP/1.1\r\nHost: test:{}\r\n{hop}\r\nX-Real-IP: 10.8.8.8\r\nConnection: close\r\n\r\n",
        gateway.http.port()
    ));
    let seen = reply.json();
    let sent = explanation["upstream"]["headers_sent"].as_object().unwrap();
    assert_eq!(sent.len(), 5, "{explanation}");
    for (name, value) in sent {
        assert_eq!(&seen["fields"][name.to_ascii_lowercase()], value, "{name}: {seen}");
    }
    assert_eq!(seen["fields"]["x-forwarded-proto"], "wss");
}

#[test]
fn explain_reads_well_and_says_why_not() {
    let scratch = Scratch::new();
    let file = scratch.write(
        "routes.yaml",
        "routes:\n- {id: a, uri: /a, host: a.com, plugins: {mocking: {response_example: x}}}\n",
    );
    let (code, out, _) = run(YUMEN, &["explain", "http://b.com/a", "--file", &file, "--why-not", "a"]);
    assert_eq!(code, 0);
    for part in
        ["GET b.com/a from 127.0.0.1", "none matches", "its host is a.com, not b.com", "404 by the gateway"]
    {
        assert!(out.contains(part), "{part:?} is not in\n{out}");
    }
    let refused: [(&[&str], &str); 4] = [
        (&["explain", "/a", "--admin", "http://127.0.0.1:1"], "start a gateway (yumen run)"),
        (&["explain", "ftp://a/", "--file", &file], "scheme"),
        (&["explain", "/a", "--file", &file, "-H", "nothing"], "NAME: VALUE"),
        (&["explain", "/a", "--file", "/nowhere/routes.yaml"], "/nowhere/routes.yaml"),
    ];
    for (args, part) in refused {
        let (code, _, err) = run(YUMEN, args);
        assert!(code == 2 && err.contains(part), "{args:?}: {code} {err}");
    }
}

#[test]
fn explain_answers_where_the_file_has_warnings_alone() {
    let scratch = Scratch::new();
    let file = scratch.write(
        "routes.yaml",
        "routes:\n- {id: a, uri: /a, plugins: {mocking: {response_example: x}}}\nrouts: []\n",
    );
    let (code, out, err) = run(YUMEN, &["explain", "/a", "--file", &file]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("routes/a") || out.contains("route a"), "{out}");
    assert!(err.contains("warning") && err.contains("routs") && !err.contains("error"), "{err}");
}

/// The document with a policy test that expects this route at `/api`.
fn tested(upstream: &Upstream, route: &str) -> Value {
    let mut document = resources(upstream);
    document["tests"] = json!([{ "id": "t", "request": { "url": "/api" }, "expect": { "route": route } }]);
    document
}

#[test]
fn check_runs_the_tests_of_a_document() {
    let (upstream, scratch) = (Upstream::text("x"), Scratch::new());
    let file = scratch.write("routes.yaml", tested(&upstream, "api").to_string());
    let (code, out, _) = run(YUMEN, &["check", &file]);
    assert_eq!((code, out.contains("7 objects, 0 errors")), (0, true), "{out}");
    let file = scratch.write("routes.yaml", tested(&upstream, "beta").to_string());
    let (code, out, _) = run(YUMEN, &["check", &file]);
    assert_eq!(code, 1);
    for part in [
        "error: tests/t at expect.route: expected route beta, found route api",
        r#"["http_x_beta","==","1"] does not hold: http_x_beta has no value"#,
        "help: see why: yumen explain GET /api --why-not beta",
    ] {
        assert!(out.contains(part), "{part:?} is not in\n{out}");
    }
}

#[test]
fn a_test_that_fails_by_no_write_of_anybody_is_told_and_an_export_warns_of_it() {
    let data = Scratch::new();
    let data_dir = data.path().display().to_string();
    let launch = || Gateway::launch(Scratch::new(), &Options::default(), &["--data-dir", &data_dir]);
    let mut gateway = launch();
    let key = gateway.admin_key().expect("a first start prints the admin key");
    let put = |gateway: &Gateway, path: &str, body: &Value| {
        let body = body.to_string();
        let mut client = Client::connect(gateway.admin);
        client.send(format!(
            "PUT /apisix/admin/{path} HTTP/1.1\r\nHost: a\r\nX-API-KEY: {key}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        assert_eq!(client.reply().status, 201, "{path}");
    };
    let problems = |gateway: &Gateway| gateway.status_json("/yumen/v1/problems");
    let route = json!({ "uri": "/brief", "plugins": { "mocking": { "response_example": "x" } } });
    put(&gateway, "routes/brief?ttl=3", &route);
    put(&gateway, "tests/t", &json!({ "request": { "url": "/brief" }, "expect": { "route": "brief" } }));
    assert_eq!(problems(&gateway), json!([]));
    eventually("the test fails", 20, || problems(&gateway)[0]["object"] == "tests/t");
    assert_eq!(gateway.get("/hello").status, 200, "nothing is held back");
    let admin = format!("http://{}", gateway.admin);
    let (code, out, err) = run(YUMEN, &["export", "--admin", &admin, "--key", &key]);
    assert!(code == 0 && out.contains("brief") && !out.contains("routes/brief"), "{out}");
    assert!(err.contains("warning: tests/t fails"), "{err}");

    gateway.terminate();
    gateway.wait(60);
    let gateway = launch();
    eventually("it is told after a start", 20, || problems(&gateway)[0]["object"] == "tests/t");
    put(&gateway, "routes/brief", &route);
    eventually("it holds again", 20, || problems(&gateway) == json!([]));
}

#[test]
fn a_document_whose_tests_fail_does_not_come_into_force() {
    let upstream = Upstream::echo("u");
    let gateway = Gateway::start(&tested(&upstream, "api"));
    assert_eq!(gateway.get("/api").status, 200);
    let mut broken = tested(&upstream, "api");
    broken["routes"][2]["uri"] = "/elsewhere".into();
    gateway.edit(&broken);
    let problems = || gateway.status_json("/yumen/v1/problems");
    eventually("the refusal is told", 20, || problems()[0]["object"] == "tests/t");
    assert_eq!((gateway.get("/api").status, gateway.get("/elsewhere").status), (200, 404));
    assert!(gateway.log().contains("expected route api"), "{}", gateway.log());
    // The corrected document is published, and the next change is compared with it.
    broken["tests"][0]["request"]["url"] = "/elsewhere".into();
    gateway.apply(&broken);
    assert_eq!((gateway.get("/api").status, gateway.get("/elsewhere").status), (404, 200));
    assert_eq!(problems(), json!([]));
}

#[test]
fn lint_finds_what_check_lets_pass() {
    let scratch = Scratch::new();
    let pair = certs::simple("test", &["a.com"]);
    let document = json!({
        "routes": [
            { "id": "a", "uri": "/a", "upstream": { "nodes": { "127.0.0.1:80": 1 } } },
            { "id": "b", "uri": "/a", "upstream": { "nodes": { "127.0.0.1:80": 1 } } },
        ],
        "ssls": [{ "id": "s", "sni": "a.com", "cert": pair.cert, "key": pair.key }],
    });
    let file = scratch.write("routes.yaml", document.to_string());
    assert_eq!(run(YUMEN, &["check", &file]).0, 0);
    let (code, out, _) = run(YUMEN, &["lint", &file]);
    assert_eq!(
        (code, out.contains("error: routes/b at uri: no request gets to this route")),
        (1, true),
        "{out}"
    );
    let (code, out, _) = run(YUMEN, &["lint", &file, "--strict", "--json"]);
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, found.as_array().unwrap().len()), (1, 3), "{found}");
    let clean = scratch.write("clean.yaml", "routes: []\n");
    assert_eq!(run(YUMEN, &["lint", &clean]).0, 0);
}

#[test]
fn lint_reads_real_certificates() {
    let scratch = Scratch::new();
    let (cert, key) = (scratch.file("cert.pem"), scratch.file("key.pem"));
    let (cert, key) = (cert.display().to_string(), key.display().to_string());
    let made = run(
        "openssl",
        &[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "10",
            "-subj",
            "/CN=a.com",
            "-keyout",
            &key,
            "-out",
            &cert,
        ],
    );
    assert_eq!(made.0, 0, "{}", made.2);
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    let document = json!({ "ssls": [{ "id": "s", "sni": "a.com", "cert": read(&cert), "key": read(&key) }] });
    let file = scratch.write("routes.yaml", document.to_string());
    let (code, out, _) = run(YUMEN, &["lint", &file]);
    assert_eq!(
        (code, out.contains("warning: ssls/s at cert: the certificate expires in")),
        (0, true),
        "{out}"
    );
}

#[test]
fn plan_tells_the_effect_of_a_change_and_asks_for_confirmation() {
    let (upstream, scratch) = (Upstream::text("x"), Scratch::new());
    let before = scratch.write("before.yaml", resources(&upstream).to_string());
    let requests = scratch
        .write("requests.jsonl", "{\"url\": \"/api\"}\n\n{\"url\": \"/in/x\", \"consumer\": \"alice\"}\n");
    let same = ["plan", &before, "--against", &before, "--requests", &requests];
    let (code, out, err) = run(YUMEN, &same);
    assert_eq!((code, out.contains("0 of 2 sampled requests would change")), (0, true), "{out}{err}");
    let mut changed = resources(&upstream);
    changed["routes"][2]["uri"] = "/v2/api".into();
    let after = scratch.write("after.yaml", changed.to_string());
    let (code, out, _) = run(YUMEN, &["plan", &after, "--against", &before, "--requests", &requests]);
    assert_eq!(code, 3, "{out}");
    for part in ["~ routes/api: uri", "1 would become 404", "Needs confirmation: 1 of 2 sampled requests"] {
        assert!(out.contains(part), "{part:?} is not in\n{out}");
    }
    let relaxed =
        ["plan", &after, "--against", &before, "--requests", &requests, "--changed-max", "50", "--json"];
    let (code, out, _) = run(YUMEN, &relaxed);
    let plan: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &plan["impact"]["lose_route"]), (0, &json!(1)), "{plan}");
    changed["routes"][2]["methods"] = json!(["FETCH"]);
    let broken = scratch.write("broken.yaml", changed.to_string());
    assert_eq!(run(YUMEN, &["plan", &broken, "--against", &before]).0, 1);
    let bad = scratch.write("bad.jsonl", "{\"url\": \"/api\"}\n{\"uri\": \"/api\"}\n");
    let (code, _, err) = run(YUMEN, &["plan", &after, "--against", &before, "--requests", &bad]);
    assert!(code == 2 && err.contains("bad.jsonl line 2"), "{err}");
}
