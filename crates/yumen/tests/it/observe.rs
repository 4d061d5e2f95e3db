//! Insight into live traffic: cost of plugins, `yumen top`, recent requests, explain tokens.

use serde_json::{Value, json};

use crate::harness::gateway::YUMEN;
use crate::harness::{Gateway, Options, Upstream, certs, eventually, run};

const SECRET: &str = "a secret of more than sixteen bytes";

/// A route `shop` that requires a key, and an unused route.
fn resources(upstream: &Upstream) -> Value {
    json!({
        "consumers": [{ "username": "alice", "plugins": { "key-auth": { "key": "alices-secret-key" } } }],
        "routes": [
            { "id": "shop", "name": "the shop", "uri": "/shop/*", "upstream_id": "carts",
              "plugins": { "key-auth": {}, "response-rewrite": { "headers": { "set": { "X-A": "b" } } } } },
            { "id": "unused", "uri": "/unused", "upstream_id": "carts" },
        ],
        "upstreams": [{ "id": "carts", "nodes": upstream.nodes() }],
    })
}

/// Five requests without a key, then twenty with one.
fn make_traffic(gateway: &Gateway) {
    for _ in 0..5 {
        assert_eq!(gateway.get("/shop/a?key=none").status, 401);
    }
    for _ in 0..20 {
        ask(gateway);
    }
}

fn ask(gateway: &Gateway) {
    assert_eq!(gateway.get_with("/shop/a?token=in-the-query", "apikey: alices-secret-key\r\n").status, 200);
}

/// The sample of `/metrics` for this name and plugin; 0 without one.
fn cost(gateway: &Gateway, name: &str, plugin: &str) -> f64 {
    let (_, text) = gateway.status_text("/metrics");
    let sample = format!("{name}{{plugin=\"{plugin}\"}} ");
    let found = text.lines().find_map(|line| line.strip_prefix(&sample));
    found.map_or(0.0, |value| value.parse().expect("a number"))
}

#[test]
fn metrics_tell_what_each_plugin_costs() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&resources(&upstream));
    make_traffic(&gateway);
    eventually("all runs are counted", 20, || {
        // A sample that is lost to a concurrent reader is included in the next one.
        ask(&gateway);
        cost(&gateway, "yumen_plugin_runs_total", "key-auth") >= 25.0
    });
    assert_eq!(cost(&gateway, "yumen_plugin_answers_total", "key-auth"), 5.0);
    assert_eq!(cost(&gateway, "yumen_plugin_answers_total", "response-rewrite"), 0.0);
    assert!(cost(&gateway, "yumen_plugin_runs_total", "response-rewrite") >= 25.0);
    for plugin in ["key-auth", "response-rewrite"] {
        assert!(cost(&gateway, "yumen_plugin_run_seconds_total", plugin) > 0.0, "{plugin}");
    }
}

#[test]
fn waiting_is_told_apart_from_running() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&json!({ "routes": [{
        "id": "late", "uri": "/*", "upstream": upstream.alone(),
        "plugins": { "fault-injection": { "delay": { "duration": 0.3 } } },
    }] }));
    assert_eq!(gateway.get("/").status, 200);
    let waited = || cost(&gateway, "yumen_plugin_wait_seconds_total", "fault-injection");
    eventually("the wait is counted", 20, || {
        gateway.get("/");
        waited() > 0.0
    });
    assert!(waited() >= 0.25, "{}", waited());
}

/// The output of `yumen top` for all traffic since the start.
fn top(gateway: &Gateway, more: &[&str]) -> String {
    let status = format!("http://{}", gateway.status);
    let mut args = vec!["top", "--status", &status, "--once", "--interval", "0"];
    args.extend(more);
    let (code, out, err) = run(YUMEN, &args);
    assert_eq!(code, 0, "{err}");
    out
}

#[test]
fn top_tells_what_routes_upstreams_plugins_and_consumers_are_used_for() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&resources(&upstream));
    make_traffic(&gateway);
    let mut seen = Value::Null;
    eventually("all requests are seen", 20, || {
        ask(&gateway);
        seen = gateway.status_json("/yumen/v1/top");
        seen["routes"][0]["requests"].as_u64() >= Some(25)
    });
    let row = &seen["routes"][0];
    assert_eq!((&row["id"], &row["name"], &row["errors"]), (&json!("shop"), &json!("the shop"), &json!(0)));
    assert_eq!(row["answers"], 5);
    assert!(row["busy_ns"].as_u64() > Some(0) && row["sent_bytes"].as_u64() > Some(25 * 100));
    assert_eq!(seen["upstreams"][0]["id"], "upstreams/carts");
    assert!(seen["upstreams"][0]["requests"].as_u64() >= Some(20));
    assert_eq!(seen["consumers"][0]["id"], "alice");
    assert_eq!(seen["routes"].as_array().unwrap().len(), 1, "what is not used is not listed");

    let frame: Value = serde_json::from_str(&top(&gateway, &["--json"])).expect("a JSON object");
    assert_eq!((&frame["routes"][0]["id"], &frame["workers"]), (&json!("shop"), &json!(2)));
    assert!(frame["routes"][0]["requests_per_second"].as_f64() > Some(0.0), "{frame}");
    assert!(frame["routes"][0]["p99_us"].as_f64() > Some(0.0), "{frame}");
    let text = top(&gateway, &["--sort", "cpu"]);
    for part in
        ["revision", "ROUTES", "shop the shop", "UPSTREAMS", "PLUGINS", "key-auth", "CONSUMERS", "cpu*"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn top_shows_what_happened_in_its_interval() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&resources(&upstream));
    ask(&gateway);
    let status = format!("http://{}/", gateway.status);
    let (code, out, err) = run(YUMEN, &["top", "--status", &status, "--interval", "0.05"]);
    assert_eq!(code, 0, "without a terminal it ends after one table: {err}");
    assert!(out.contains("connections"), "{out}");
}

#[test]
fn top_says_what_to_do_where_nobody_answers() {
    let closed = format!("http://{}", crate::harness::free_port());
    let (code, _, err) = run(YUMEN, &["top", "--once", "--status", &closed]);
    assert_eq!(code, 2);
    assert!(err.contains(&closed["http://".len()..]) && err.contains("start a gateway (yumen run)"), "{err}");
    let (code, _, err) = run(YUMEN, &["top", "--once", "--status", "127.0.0.1:9091"]);
    assert!(code == 2 && err.contains("http://HOST:PORT"), "{err}");
    let upstream = Upstream::text("x");
    let (code, _, err) = run(YUMEN, &["top", "--once", "--status", &format!("http://{}", upstream.address)]);
    assert!(code == 2 && err.contains("no JSON"), "{err}");
}

#[test]
fn top_asks_over_tls_and_trusts_whom_the_system_trusts() {
    let authority = certs::Authority::new("the authority of this test");
    let pair = authority.sign("localhost", &["localhost"], certs::ecdsa());
    let gateway = Gateway::start(&json!({}));
    // The route needs the address of the status listener, so it follows the start.
    gateway.apply(&json!({
        "ssls": [{ "id": "1", "cert": pair.cert, "key": pair.key, "snis": ["localhost"] }],
        "routes": [{ "id": "ops", "uri": "/ops/*", "upstream": { "nodes": { gateway.status.to_string(): 1 }, "pass_host": "node" },
                     "plugins": { "proxy-rewrite": { "regex_uri": ["^/ops(/.*)", "$1"] } } }],
    }));
    let roots = gateway.scratch.write("ca.pem", &authority.cert);
    let status = format!("https://localhost:{}/ops/", gateway.https.port());
    let top = |roots: &str| {
        let mut command = std::process::Command::new(YUMEN);
        command.env("SSL_CERT_FILE", roots).env_remove("SSL_CERT_DIR");
        command.args(["top", "--once", "--interval", "0", "--status", &status]);
        command.output().expect("yumen runs")
    };
    let trusting = top(&roots);
    let text = String::from_utf8_lossy(&trusting.stdout).into_owned();
    assert!(trusting.status.success() && text.contains("connections"), "{text}{trusting:?}");
    let foreign = gateway.scratch.write("foreign.pem", certs::Authority::new("another").cert);
    let refusing = top(&foreign);
    let text = String::from_utf8_lossy(&refusing.stderr).into_owned();
    assert!(!refusing.status.success() && text.contains("TLS with localhost"), "{text}");
}

#[test]
fn recent_requests_are_keys_without_secrets() {
    let upstream = Upstream::text("x");
    let options = Options { node: "observe: {list_recent_requests: true}", ..Options::default() };
    let gateway = Gateway::with(&resources(&upstream), &options);
    ask(&gateway);
    let fields = "Host: Long.test:80\r\nCookie: session=secret\r\n";
    // The path is longer than the list keeps.
    let long = gateway.get_with(&format!("/{}?a=b", "x".repeat(1000)), fields);
    assert_eq!(long.status, 404);
    let mut recent = Value::Null;
    eventually("both are remembered", 20, || {
        ask(&gateway);
        recent = gateway.status_json("/yumen/v1/recent");
        let all = recent.as_array().unwrap();
        all.iter().any(|one| one["status"] == 404) && all.iter().any(|one| one["status"] == 200)
    });
    let find = |status: u16| recent.as_array().unwrap().iter().find(|one| one["status"] == status).unwrap();
    let (found, cut) = (find(200), find(404));
    let expected = [
        ("method", "GET"),
        ("scheme", "http"),
        ("host", "test"),
        ("path", "/shop/a"),
        ("client_ip", "127.0.0.1"),
        ("consumer", "alice"),
        ("route_id", "shop"),
    ];
    for (key, value) in expected {
        assert_eq!(found[key], value, "{key}");
    }
    assert_eq!((&found["is_cut"], &cut["is_cut"]), (&json!(false), &json!(true)));
    assert_eq!((&cut["host"], &cut["route_id"]), (&json!("long.test"), &Value::Null));
    assert!(cut["path"].as_str().unwrap().ends_with('…'));
    let text = recent.to_string();
    for secret in ["alices-secret-key", "in-the-query", "secret"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

#[test]
fn recent_requests_are_listed_only_where_asked_for() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&resources(&upstream));
    let (status, text) = gateway.status_text("/yumen/v1/recent");
    assert!(status == 404 && text.contains("observe.list_recent_requests"), "{status} {text}");
}

/// A token as any holder of the secret can make it.
fn token(secret: &str, expiry_unix_s: u64) -> String {
    let claim = format!("v1.{expiry_unix_s}");
    let script = format!("printf %s {claim} | openssl dgst -sha256 -hmac '{secret}' -r");
    let (code, out, err) = run("sh", &["-c", &script]);
    assert_eq!(code, 0, "{err}");
    format!("{claim}.{}", out.split_whitespace().next().expect("a digest"))
}

const FAR_FUTURE: u64 = 99_999_999_999;

#[test]
fn a_request_with_a_token_explains_itself() {
    let upstream = Upstream::echo("up");
    let node = format!("observe: {{debug_key: {SECRET}}}");
    let mut resources = resources(&upstream);
    let posts = json!({ "id": "posts", "uri": "/shop/*", "methods": ["POST"], "priority": 1, "upstream_id": "carts" });
    resources["routes"].as_array_mut().unwrap().push(posts);
    let gateway = Gateway::with(&resources, &Options { node: &node, ..Options::default() });
    let debug = format!("x-yumen-debug: {}\r\n", token(SECRET, FAR_FUTURE));
    let reply = gateway.get_with("/shop/a", &format!("{debug}apikey: alices-secret-key\r\n"));
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()["fields"]["x-yumen-debug"], Value::Null, "the token stays here");
    let explanation: Value =
        serde_json::from_str(reply.field("x-yumen-explain").expect("an explanation")).unwrap();
    assert_eq!((&explanation["route"], &explanation["consumer"]), (&json!("shop"), &json!("alice")));
    assert_eq!((&explanation["upstream"], &explanation["status"]), (&json!("upstreams/carts"), &json!(200)));
    assert_eq!(explanation["revision"].as_u64(), Some(gateway.revision()));
    let plugins: Vec<_> = explanation["plugins"].as_array().unwrap().iter().collect();
    let steps: Vec<_> = plugins.iter().map(|one| (&one["name"], &one["phase"], &one["origin"])).collect();
    assert_eq!(
        steps,
        [
            (&json!("key-auth"), &json!("rewrite"), &json!("routes/shop")),
            (&json!("response-rewrite"), &json!("response_head"), &json!("routes/shop")),
        ]
    );
    assert_eq!((&explanation["matched_uri"], &explanation["matched_host"]), (&json!("/shop/*"), &json!("")));
    assert_eq!(
        (&explanation["request"]["path"], &explanation["request"]["sni"]),
        (&json!("/shop/a"), &Value::Null)
    );
    assert_eq!(explanation["certificate"], Value::Null);
    assert_eq!(explanation["candidates"], json!([{ "route": "posts", "lost": "method" }]));
    let attempt = &explanation["attempts"][0];
    assert_eq!(
        (&attempt["endpoint"], &attempt["outcome"]),
        (&json!(upstream.address.to_string()), &json!("answered"))
    );
    assert!(
        attempt["connect_ns"].as_u64() > Some(0) && explanation["total_ns"].as_u64() > Some(0),
        "{explanation}"
    );

    let refused = gateway.get_with("/shop/a", &debug);
    let explanation: Value = serde_json::from_str(refused.field("x-yumen-explain").unwrap()).unwrap();
    assert_eq!((&explanation["status"], &explanation["plugins"][0]["answered"]), (&json!(401), &json!(true)));
    assert_eq!((&explanation["attempts"], &explanation["upstream"]), (&json!([]), &Value::Null));
}

#[test]
fn the_command_line_makes_tokens_that_hold() {
    let upstream = Upstream::text("x");
    let node = format!("observe: {{debug_key: {SECRET}}}");
    let gateway = Gateway::with(&upstream.everything(), &Options { node: &node, ..Options::default() });
    let config = gateway.scratch.file("yumen.yaml").display().to_string();
    let (code, out, err) = run(YUMEN, &["debug-token", "--config", &config]);
    assert_eq!(code, 0, "{err}");
    let reply = gateway.get_with("/", &format!("X-Yumen-Debug: {}\r\n", out.trim()));
    assert!(reply.field("x-yumen-explain").is_some(), "{reply:?}");
    let (code, _, err) = run(YUMEN, &["debug-token"]);
    assert!(code == 2 && err.contains("observe.debug_key"), "{err}");
}

#[test]
fn an_attempt_that_fails_is_explained() {
    let resources = json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": {
        "nodes": { crate::harness::free_port().to_string(): 1 } } }] });
    let node = format!("observe: {{debug_key: {SECRET}}}");
    let gateway = Gateway::with(&resources, &Options { node: &node, ..Options::default() });
    let reply = gateway.get_with("/", &format!("X-Yumen-Debug: {}\r\n", token(SECRET, FAR_FUTURE)));
    assert_eq!(reply.status, 502);
    let explanation: Value = serde_json::from_str(reply.field("x-yumen-explain").unwrap()).unwrap();
    assert_eq!(explanation["attempts"][0]["outcome"], "connect_failed");
    assert_eq!(explanation["upstream"], "routes/1");
}

#[test]
fn a_token_that_does_not_hold_changes_nothing_and_goes_no_further() {
    let upstream = Upstream::echo("up");
    let node = format!("observe: {{debug_key: {SECRET}}}");
    let gateway = Gateway::with(&upstream.everything(), &Options { node: &node, ..Options::default() });
    for token in [token(SECRET, 1_000_000_000), token("another secret", FAR_FUTURE), "v1".into()] {
        let reply = gateway.get_with("/", &format!("X-Yumen-Debug: {token}\r\n"));
        assert_eq!((reply.status, reply.field("x-yumen-explain")), (200, None), "{token}");
        assert_eq!(reply.json()["fields"]["x-yumen-debug"], Value::Null, "{token}");
    }
}

#[test]
fn without_a_key_the_field_is_like_any_other() {
    let upstream = Upstream::echo("up");
    let gateway = Gateway::start(&upstream.everything());
    let reply = gateway.get_with("/", &format!("X-Yumen-Debug: {}\r\n", token(SECRET, FAR_FUTURE)));
    assert_eq!(reply.field("x-yumen-explain"), None);
    assert!(reply.json()["fields"]["x-yumen-debug"].is_string());
}
