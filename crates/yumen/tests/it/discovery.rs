//! Endpoints from external sources: found, changed, and kept while the source is unavailable.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::harness::registry::{Registry, consul_instance};
use crate::harness::upstream::respond;
use crate::harness::{Gateway, Options, Scratch, Upstream, eventually, free_port};

/// A document with one route, to a discovered service.
fn upstream_of(kind: &str, service: &str, args: Value) -> Value {
    let mut upstream = json!({ "service_name": service, "discovery_type": kind });
    if !args.is_null() {
        upstream["discovery_args"] = args;
    }
    json!({
        "upstreams": [dict(&upstream, "web")],
        "routes": [{ "id": "all", "uri": "/*", "upstream_id": "web" }],
    })
}

fn dict(object: &Value, id: &str) -> Value {
    let mut object = object.clone();
    object["id"] = id.into();
    object
}

fn start(node: &str, resources: &Value) -> Gateway {
    Gateway::with(resources, &Options { node, ..Options::default() })
}

/// The distinct responses to eight requests.
fn answers(gateway: &Gateway) -> Vec<String> {
    let mut seen: Vec<String> = (0..8)
        .map(|_| gateway.get("/"))
        .map(|reply| if reply.status == 200 { reply.text() } else { reply.status.to_string() })
        .collect();
    seen.sort();
    seen.dedup();
    seen
}

fn until_answers(gateway: &Gateway, expected: &[&str]) {
    let mut seen = Vec::new();
    for _ in 0..1200 {
        seen = answers(gateway);
        if seen == expected {
            return;
        }
        // Pacing: each look is eight requests.
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{seen:?} and not {expected:?}\n{}", gateway.log());
}

fn problem(gateway: &Gateway) -> String {
    let problems = gateway.status_json("/yumen/v1/problems");
    let first = &problems[0];
    let text = |name: &str| first[name].as_str().unwrap_or_default().to_owned();
    format!("{} {}: {}", text("object"), text("path"), text("message"))
}

fn instances(addresses: &[SocketAddr]) -> Option<Value> {
    let all: Vec<Value> = addresses.iter().map(|address| consul_instance(*address, 1, json!({}))).collect();
    Some(all.into())
}

#[test]
fn consul_tells_of_changes_by_blocking_queries_and_may_fail() {
    let (a, b) = (Upstream::text("a"), Upstream::text("b"));
    let consul = Registry::consul();
    consul.set_answer("web", instances(&[a.address]));
    let node = format!(
        "discovery:\n  empty_hold_ms: 1000\n  consul:\n    servers: ['http://{}', '{}']\n    token: hush\n    datacenter: here\n",
        free_port(),
        consul.url()
    );
    let gateway = start(&node, &upstream_of("consul", "web", json!({ "tag": "blue" })));
    until_answers(&gateway, &["a"]);
    consul.set_answer("web", instances(&[a.address, b.address]));
    until_answers(&gateway, &["a", "b"]);

    consul.breaks(Some(500));
    eventually("the failure is told", 10, || {
        problem(&gateway).ends_with("No cluster leader; the last 2 endpoints stay in use")
    });
    assert!(problem(&gateway).starts_with("upstreams/web service_name: consul: "), "{}", problem(&gateway));
    until_answers(&gateway, &["a", "b"]);
    gateway.assert_metric("yumen_discovery_services_stale{source=\"consul\"}", 1.0);
    consul.set_answer("web", instances(&[b.address]));
    consul.breaks(None);
    until_answers(&gateway, &["b"]);
    eventually("the problem is gone", 10, || gateway.status_json("/yumen/v1/problems") == json!([]));

    // An empty result is only accepted after a while.
    consul.set_answer("web", None);
    eventually("the empty answer is told", 10, || problem(&gateway).contains("it has no endpoint"));
    until_answers(&gateway, &["503"]);
    assert_eq!(problem(&gateway), "upstreams/web service_name: consul: it has no endpoint");

    let queries = consul.queries();
    assert!(queries.iter().all(|head| head.to_ascii_lowercase().contains("x-consul-token: hush\r\n")));
    let first = "GET /v1/health/service/web?passing=true&dc=here&tag=blue HTTP/1.1";
    assert_eq!(queries[0].lines().next(), Some(first));
    assert!(
        queries[1].starts_with("GET /v1/health/service/web?passing=true&dc=here&tag=blue&index=2&wait=60s ")
    );
    assert!(gateway.metric("yumen_discovery_errors_total{source=\"consul\"}") >= 1.0);
}

#[test]
fn names_that_discovery_gives_cannot_forge_lines_of_the_log() {
    let upstream = Upstream::text("a");
    let consul = Registry::consul();
    let mut forged = consul_instance(upstream.address, 1, json!({}));
    forged["Service"]["Address"] = json!("a\r\n2026-01-01T00:00:00Z ERROR forged\u{0}\u{1b}[2J");
    let sound = consul_instance(upstream.address, 1, json!({}));
    consul.set_answer("web", Some(json!([sound, forged])));
    let node = format!("discovery:\n  consul:\n    servers: ['{}']\n", consul.url());
    let gateway = start(&node, &upstream_of("consul", "web", json!({})));
    until_answers(&gateway, &["a"]);
    eventually("the log tells of it", 10, || gateway.log().contains("forged"));
    let log = gateway.log();
    assert!(!log.contains(['\r', '\0', '\u{1b}']), "{log:?}");
    assert!(log.lines().all(|line| !line.starts_with("2026-01-01")), "{log}");
}

#[test]
fn servers_whose_answers_are_no_lists_are_passed_over() {
    let alive = Upstream::text("alive");
    let (lost, portal) =
        (Upstream::start(|_, stream| respond(stream, 404, "", b"lost")), Upstream::text("<html>"));
    let strange = Upstream::text(r#"{"code": 500}"#);
    let consul = Registry::consul();
    consul.set_answer("web", instances(&[alive.address]));
    let nacos = Registry::nacos();
    let instance = json!({ "ip": alive.address.ip().to_string(), "port": alive.address.port() });
    nacos.set_answer("web", Some(json!([instance])));
    let good = format!("nacos:secret@{}", nacos.address());
    let servers = [lost.address, portal.address, strange.address]
        .map(|address| format!("'http://{address}'"))
        .join(", ");
    let node = format!(
        "discovery:\n  consul: {{servers: [{servers}, '{}'], token: hush, datacenter: here}}\n  nacos: {{fetch_interval: 1, host: [{servers}, 'http://{good}']}}\n",
        consul.url()
    );
    let gateway = start(&node, &upstream_of("consul", "web", Value::Null));
    until_answers(&gateway, &["alive"]);
    gateway.apply(&upstream_of("nacos", "web", json!({ "namespace_id": "n", "group_name": "g" })));
    // Until Nacos has responded, the upstream uses the endpoints from Consul.
    eventually("each was asked before the next", 10, || strange.requests() > 1);
    until_answers(&gateway, &["alive"]);
}

#[test]
fn consul_endpoints_have_weights_and_are_chosen_by_metadata() {
    let (a, b, c) = (Upstream::text("a"), Upstream::text("b"), Upstream::text("c"));
    let consul = Registry::consul();
    let metadata = json!({ "stage": "live" });
    consul.set_answer(
        "web",
        Some(json!([
            consul_instance(a.address, 3, metadata.clone()),
            consul_instance(b.address, 1, metadata.clone()),
            consul_instance(c.address, 9, json!({ "stage": "test" })),
        ])),
    );
    let node = format!("discovery: {{consul: {{servers: ['{}']}}}}\n", consul.url());
    let options = Options { node: &node, workers: 1, ..Options::default() };
    let gateway = Gateway::with(&upstream_of("consul", "web", json!({ "metadata": metadata })), &options);
    until_answers(&gateway, &["a", "b"]);
    let (before_a, before_b) = (a.requests(), b.requests());
    for _ in 0..40 {
        gateway.get("/");
    }
    assert_eq!((a.requests() - before_a, b.requests() - before_b), (30, 10));
    assert_eq!(c.requests(), 0);

    let shown = gateway.status_json("/yumen/v1/discovery");
    let service = &shown["services"][0];
    assert_eq!((&service["source"], &service["service"]), (&json!("consul"), &json!("web")));
    assert_eq!(service["endpoints"].as_array().map(Vec::len), Some(2));
    assert!(service["last_success_age_ms"].is_u64(), "{shown}");
    let dump = gateway.status_json("/v1/discovery/consul/dump");
    assert_eq!(dump["config"]["token"], json!("(hidden)"));
    assert_eq!(dump["services"]["web"][0]["host"], json!("127.0.0.1"));
}

#[test]
fn a_node_that_starts_while_its_source_is_down_serves_what_it_knew() {
    let a = Upstream::text("a");
    let consul = Registry::consul();
    consul.set_answer("web", instances(&[a.address]));
    let node = format!("discovery: {{consul: {{servers: ['{}']}}}}\n", consul.url());
    let resources = upstream_of("consul", "web", Value::Null).to_string();
    let scratch = Scratch::new();
    let routes = scratch.write("routes.yaml", resources);
    let data = scratch.file("data").display().to_string();
    let options = Options { node: &node, ..Options::default() };
    {
        let gateway = Gateway::launch(Scratch::new(), &options, &["--file", &routes, "--data-dir", &data]);
        until_answers(&gateway, &["a"]);
        let cache_file = scratch.file("data/discovery.json");
        eventually("it is kept", 10, || {
            std::fs::read_to_string(&cache_file).is_ok_and(|text| text.contains("web"))
        });
    }
    consul.breaks(Some(500));
    let gateway = Gateway::launch(Scratch::new(), &options, &["--file", &routes, "--data-dir", &data]);
    until_answers(&gateway, &["a"]);
    assert!(problem(&gateway).contains("500"), "{}", problem(&gateway));
}

#[test]
fn consul_keys_are_endpoints() {
    let (a, b) = (Upstream::text("a"), Upstream::text("b"));
    let consul = Registry::consul();
    // `3`, an object with a weight, an object without one, and an invalid endpoint.
    let key = |host: String, value: &str| json!({ "Key": format!("upstreams/web/{host}"), "Value": value });
    let keys = |all: Vec<Value>| Some(Value::Array(all));
    consul.set_answer(
        "upstreams/web/",
        keys(vec![
            key(a.address.to_string(), "Mw=="),
            key(b.address.to_string(), "eyJ3ZWlnaHQiOiAxfQ=="),
            key("readme".into(), "aGVsbG8="),
            key("10.0.0.1:80".into(), "aGVsbG8="),
        ]),
    );
    let node = format!("discovery: {{consul_kv: {{servers: ['{}']}}}}\n", consul.url());
    let options = Options { node: &node, workers: 1, ..Options::default() };
    // A full URL, as in APISIX; the key or its last segment suffice too.
    let gateway = Gateway::with(
        &upstream_of("consul_kv", &format!("{}/v1/kv/upstreams/web/", consul.url()), Value::Null),
        &options,
    );
    until_answers(&gateway, &["a", "b"]);
    let (before_a, before_b) = (a.requests(), b.requests());
    for _ in 0..40 {
        gateway.get("/");
    }
    assert_eq!((a.requests() - before_a, b.requests() - before_b), (30, 10));
    consul.set_answer("upstreams/web/", keys(vec![key(b.address.to_string(), "")]));
    until_answers(&gateway, &["b"]);
    for name in ["upstreams/web", "web"] {
        gateway.apply(&upstream_of("consul_kv", name, Value::Null));
        until_answers(&gateway, &["b"]);
    }
    assert!(consul.queries().iter().all(|head| head.starts_with("GET /v1/kv/upstreams/web/?recurse=true")));
}

#[test]
fn nacos_is_asked_again_and_again_as_somebody_who_logged_in() {
    let (a, b, c) = (Upstream::text("a"), Upstream::text("b"), Upstream::text("c"));
    let nacos = Registry::nacos();
    let instance = |of: &Upstream, weight: f64, healthy: bool, stage: &str| {
        json!({ "ip": of.address.ip().to_string(), "port": of.address.port(), "weight": weight,
            "healthy": healthy, "enabled": true, "metadata": { "stage": stage } })
    };
    nacos.set_answer(
        "web",
        Some(json!([
            instance(&a, 1.5, true, "live"),
            instance(&b, 0.5, true, "live"),
            instance(&c, 1.0, true, "test"),
            instance(&c, 1.0, false, "live")
        ])),
    );
    let node = format!(
        "discovery: {{nacos: {{fetch_interval: 1, host: ['http://{}', 'http://nacos:secret@{}']}}}}\n",
        free_port(),
        nacos.address()
    );
    let args = json!({ "namespace_id": "n", "group_name": "g", "metadata": { "stage": "live" } });
    let options = Options { node: &node, workers: 1, ..Options::default() };
    let gateway = Gateway::with(&upstream_of("nacos", "web", args), &options);
    until_answers(&gateway, &["a", "b"]);
    let (before_a, before_b) = (a.requests(), b.requests());
    for _ in 0..40 {
        gateway.get("/");
    }
    assert_eq!((a.requests() - before_a, b.requests() - before_b), (30, 10));
    assert_eq!(c.requests(), 0);
    nacos.set_answer("web", Some(json!([instance(&b, 1.0, true, "live")])));
    until_answers(&gateway, &["b"]);
    nacos.breaks(Some(500));
    eventually("the failure is told", 10, || problem(&gateway).contains("server is DOWN now"));
    until_answers(&gateway, &["b"]);
    let queries = nacos.queries();
    let query = "serviceName=web&healthyOnly=true&namespaceId=n&groupName=g&accessToken=let-me-in";
    assert!(queries[1].starts_with(&format!("GET /nacos/v1/ns/instance/list?{query} ")), "{}", queries[1]);
    assert!(!gateway.log().contains("secret"));
    let dump = gateway.status_json("/v1/discovery/nacos/dump");
    assert_eq!(dump["config"]["host"], json!("(hidden)"));
}

#[test]
fn what_cannot_be_discovered_is_told_by_name() {
    let gateway = start("", &upstream_of("consul", "web", Value::Null));
    let has_problem = |expected: &str| {
        eventually("the line is logged", 10, || {
            problem(&gateway) == format!("upstreams/web service_name: {expected}")
        });
    };
    has_problem("consul: it is not set up: discovery.consul.servers of yumen.yaml names no server");
    gateway.edit(&upstream_of("eureka", "web", Value::Null));
    eventually("the type is refused", 10, || problem(&gateway).contains("eureka"));
    gateway.edit(&upstream_of("dns", "localhost", json!({ "group_name": "g" })));
    has_problem("dns: discovery_args.group_name: not supported for this type");
    gateway.edit(&upstream_of("dns", "localhost:x", Value::Null));
    has_problem("dns: `x` is no port");
    assert_eq!(gateway.get("/").status, 503);
}

#[test]
fn more_services_than_an_agent_takes_connections_are_asked_for_in_turn() {
    const SERVICES: usize = 100;
    let (a, b) = (Upstream::text("a"), Upstream::text("b"));
    let consul = Registry::consul();
    let name = |at: usize| format!("s{at}");
    let routes: Vec<Value> = (0..SERVICES)
        .map(|at| {
            consul.set_answer(&name(at), instances(&[a.address]));
            json!({ "id": name(at), "uri": format!("/{}", name(at)),
                "upstream": { "service_name": name(at), "discovery_type": "consul" } })
        })
        .collect();
    let node = format!("discovery: {{consul: {{servers: ['{}']}}}}\n", consul.url());
    let gateway = start(&node, &json!({ "routes": routes }));
    let all_answer = |text: &str| {
        let answers = |at: usize| gateway.get(&format!("/{}", name(at))).text() == text;
        eventually("all services are known", 10, || (0..SERVICES).all(answers));
    };
    all_answer("a");
    for at in 0..SERVICES {
        consul.set_answer(&name(at), instances(&[b.address]));
    }
    all_answer("b");
    assert!(consul.busy_max() <= 100, "{}", consul.busy_max());
    gateway.assert_metric("yumen_discovery_services{source=\"consul\"}", SERVICES as f64);
    gateway.assert_metric("yumen_discovery_services_stale{source=\"consul\"}", 0.0);
}
