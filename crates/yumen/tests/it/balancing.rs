//! The choice of an endpoint, and the effects of its failures.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::upstream::{Gate, respond};
use crate::harness::{Client, Gateway, Options, Upstream, eventually, free_port};

fn one_route(upstream: &Value) -> Value {
    json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] })
}

fn one_worker(upstream: &Value) -> Gateway {
    Gateway::with(&one_route(upstream), &Options { workers: 1, ..Options::default() })
}

/// Number of responses of each upstream to `count` requests with these fields.
fn shares(gateway: &Gateway, count: usize, fields: impl Fn(usize) -> String) -> BTreeMap<String, usize> {
    let mut client = Client::connect(gateway.http);
    let mut shares = BTreeMap::new();
    for i in 0..count {
        let reply = client.send(format!("GET /{i} HTTP/1.1\r\nHost: x\r\n{}\r\n", fields(i))).reply();
        assert_eq!(reply.status, 200, "{reply:?}");
        *shares.entry(reply.text()).or_default() += 1;
    }
    shares
}

fn expected(shares: &[(&str, usize)]) -> BTreeMap<String, usize> {
    shares.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn round_robin_follows_weights_exactly() {
    let (a, b, c) = (Upstream::text("a"), Upstream::text("b"), Upstream::text("c"));
    let nodes = json!({ a.address.to_string(): 3, b.address.to_string(): 2, c.address.to_string(): 1 });
    let gateway = one_worker(&json!({ "nodes": nodes }));
    let found = shares(&gateway, 120, |_| String::new());
    assert_eq!(found, expected(&[("a", 60), ("b", 40), ("c", 20)]));
}

#[test]
fn a_node_of_weight_zero_gets_nothing() {
    let (a, b) = (Upstream::text("a"), Upstream::text("b"));
    let nodes = json!({ a.address.to_string(): 1, b.address.to_string(): 0 });
    let gateway = one_worker(&json!({ "nodes": nodes }));
    assert_eq!(shares(&gateway, 20, |_| String::new()), expected(&[("a", 20)]));
}

#[test]
fn a_hashed_key_keeps_its_endpoint() {
    let (a, b, c) = (Upstream::text("a"), Upstream::text("b"), Upstream::text("c"));
    let nodes = json!({ a.address.to_string(): 1, b.address.to_string(): 1, c.address.to_string(): 1 });
    let upstream = json!({ "nodes": nodes, "type": "chash", "hash_on": "header", "key": "X-User" });
    // Two workers and two processes agree.
    let first = Gateway::start(&one_route(&upstream));
    let second = Gateway::start(&one_route(&upstream));
    let endpoint_of = |gateway: &Gateway, user: usize| {
        let reply = gateway.get_with("/", &format!("X-User: user-{user}\r\n"));
        assert_eq!(reply.status, 200);
        reply.text()
    };
    let endpoints: Vec<String> = (0..30).map(|user| endpoint_of(&first, user)).collect();
    for _ in 0..3 {
        assert_eq!(endpoints, (0..30).map(|user| endpoint_of(&first, user)).collect::<Vec<_>>());
    }
    assert_eq!(endpoints, (0..30).map(|user| endpoint_of(&second, user)).collect::<Vec<_>>());
    let used: std::collections::BTreeSet<&String> = endpoints.iter().collect();
    assert_eq!(used.len(), 3, "{endpoints:?}");
}

#[test]
fn cookies_variables_and_combinations_are_hashed_too() {
    let (a, b) = (Upstream::text("a"), Upstream::text("b"));
    let nodes = json!({ a.address.to_string(): 1, b.address.to_string(): 1 });
    let table = [
        (json!({ "hash_on": "cookie", "key": "sid" }), "Cookie: sid=7\r\n"),
        (json!({ "hash_on": "vars", "key": "remote_addr" }), ""),
        (json!({ "hash_on": "vars_combinations", "key": "$remote_addr$http_x_a" }), "X-A: 1\r\n"),
    ];
    for (mut upstream, fields) in table {
        upstream["nodes"] = nodes.clone();
        upstream["type"] = "chash".into();
        let gateway = Gateway::start(&one_route(&upstream));
        assert_eq!(shares(&gateway, 10, |_| fields.to_owned()).len(), 1, "{upstream}");
    }
}

#[test]
fn least_connections_avoids_the_busy_endpoint() {
    let gate = Gate::default();
    let slow = Upstream::gated(&gate, "slow");
    let fast = Upstream::text("fast");
    let nodes = json!({ slow.address.to_string(): 1, fast.address.to_string(): 1 });
    let gateway = one_worker(&json!({ "nodes": nodes, "type": "least_conn" }));
    std::thread::scope(|scope| {
        let gateway = &gateway;
        // Some request waits at the slow endpoint.
        let waiting = scope.spawn(move || (0..1000).any(|_| gateway.get("/").text() == "slow"));
        eventually("one waits", 10, || slow.requests() == 1);
        let found = shares(gateway, 20, |_| String::new());
        gate.open();
        assert_eq!(found, expected(&[("fast", 20)]));
        assert!(waiting.join().unwrap());
    });
}

#[test]
fn peak_ewma_prefers_the_endpoint_that_answers_sooner() {
    let slow = Upstream::start(|_, stream| {
        // Scripted.
        std::thread::sleep(Duration::from_millis(30));
        respond(stream, 200, "", b"slow")
    });
    let fast = Upstream::text("fast");
    let nodes = json!({ slow.address.to_string(): 1, fast.address.to_string(): 1 });
    let gateway = one_worker(&json!({ "nodes": nodes, "type": "ewma" }));
    let found = shares(&gateway, 60, |_| String::new());
    assert!(found.get("fast").copied().unwrap_or(0) > 38, "{found:?}");
}

#[test]
fn a_dead_endpoint_costs_no_request() {
    let alive = Upstream::text("alive");
    let nodes = json!({ free_port().to_string(): 1, alive.address.to_string(): 1 });
    let gateway = Gateway::start(&one_route(&json!({ "nodes": nodes })));
    assert_eq!(shares(&gateway, 40, |_| String::new()), expected(&[("alive", 40)]));
    // A buffered body is sent again, because no byte had reached the dead endpoint.
    let mut client = Client::connect(gateway.http);
    for _ in 0..10 {
        let reply = client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody").reply();
        assert_eq!((reply.status, reply.text().as_str()), (200, "alive"));
    }
    assert!(gateway.metric("yumen_upstream_retries_total") >= 20.0);
}

#[test]
fn each_attempt_has_a_status_and_one_that_never_begins_is_no_retry() {
    // More retries than endpoints: the last one finds none.
    let nodes = json!({ free_port().to_string(): 1, free_port().to_string(): 1 });
    let gateway = Gateway::start(&one_route(&json!({ "nodes": nodes, "retries": 5 })));
    let reply = gateway.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!((reply.status, reply.field("x-apisix-upstream-status")), (502, Some("502, 502")));
    gateway.assert_metric("yumen_upstream_retries_total", 1.0);

    // The body that the only endpoint has read counts, although no further attempt follows.
    let fragile = Upstream::start(|_, _| false);
    let nodes = json!({ fragile.address.to_string(): 1 });
    let gateway = Gateway::start(&one_route(&json!({ "nodes": nodes, "retries": 5 })));
    let request = format!(
        "PUT / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n{}",
        "b".repeat(1000)
    );
    let reply = gateway.send(&request);
    assert_eq!((reply.status, reply.field("x-apisix-upstream-status")), (502, Some("502")));
    gateway.assert_metric("yumen_upstream_retries_total", 0.0);
    gateway.assert_metric("yumen_received_bytes_total", request.len() as f64);
}

#[test]
fn a_request_that_may_have_acted_is_not_repeated() {
    let fragile = Upstream::start(|_, _| false);
    let alive = Upstream::text("alive");
    let nodes = json!({ fragile.address.to_string(): 1, alive.address.to_string(): 1 });
    let gateway = one_worker(&json!({ "nodes": nodes }));
    let mut statuses = Vec::new();
    for _ in 0..10 {
        statuses.push(
            gateway
                .send("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx")
                .status,
        );
    }
    statuses.sort_unstable();
    // By round robin, every second request goes to the fragile endpoint.
    assert_eq!(statuses, [[200; 5], [502; 5]].concat());
    assert_eq!(fragile.requests(), 5);
    // Idempotent requests are retried on the next endpoint.
    assert_eq!(shares(&gateway, 10, |_| String::new()), expected(&[("alive", 10)]));
}

#[test]
fn a_kept_connection_that_died_costs_no_request() {
    let upstream = Upstream::start(|request, stream| {
        respond(stream, 200, "", b"x");
        // Closes the connection after every second request, without notice.
        !request.target.ends_with('1')
    });
    let gateway = one_worker(&upstream.alone());
    for round in 0..30 {
        let reply = gateway.get(&format!("/{}", round % 2));
        assert_eq!(reply.status, 200);
    }
}

#[test]
fn lower_priorities_serve_only_when_the_higher_fail() {
    let (first, second) = (Upstream::text("first"), Upstream::text("second"));
    let node = |address: std::net::SocketAddr, priority: i32| json!({ "host": "127.0.0.1", "port": address.port(), "weight": 1, "priority": priority });
    let gateway = one_worker(&json!({ "nodes": [node(first.address, 10), node(second.address, -10)] }));
    assert_eq!(shares(&gateway, 10, |_| String::new()), expected(&[("first", 10)]));
    let nodes = json!([node(free_port(), 10), node(free_port(), 10), node(second.address, -10)]);
    gateway.apply(&one_route(&json!({ "nodes": nodes })));
    assert_eq!(shares(&gateway, 10, |_| String::new()), expected(&[("second", 10)]));
}

#[test]
fn when_all_are_down_the_client_is_told_soon() {
    let nodes = json!({ free_port().to_string(): 1, free_port().to_string(): 1 });
    let gateway = Gateway::start(&one_route(&json!({ "nodes": nodes })));
    let started = Instant::now();
    let reply = gateway.get("/");
    assert_eq!(reply.status, 502);
    assert!(reply.json()["error_msg"].is_string());
    assert!(started.elapsed() < Duration::from_secs(30));
    gateway.apply(&one_route(&json!({ "nodes": {} })));
    let reply = gateway.get("/");
    assert_eq!(reply.status, 503);
    assert!(reply.json()["error_msg"].is_string());
}

#[test]
fn retries_zero_means_one_attempt() {
    let alive = Upstream::text("alive");
    let nodes = json!({ free_port().to_string(): 1, alive.address.to_string(): 1 });
    let gateway = one_worker(&json!({ "nodes": nodes, "retries": 0 }));
    let mut statuses: Vec<u16> = (0..10).map(|_| gateway.get("/").status).collect();
    statuses.sort_unstable();
    // By round robin, every second request goes to the closed port.
    assert_eq!(statuses, [[200; 5], [502; 5]].concat());
}

#[test]
fn the_upstream_is_told_the_host_that_pass_host_says() {
    let upstream = Upstream::echo("a");
    let table = [
        (json!({}), "client.test".to_owned()),
        (json!({ "pass_host": "pass" }), "client.test".to_owned()),
        (json!({ "pass_host": "node" }), upstream.address.to_string()),
        (json!({ "pass_host": "rewrite", "upstream_host": "other.test" }), "other.test".to_owned()),
    ];
    let gateway = Gateway::start(&json!({}));
    for (mut settings, host) in table {
        settings["nodes"] = upstream.nodes();
        gateway.apply(&one_route(&settings));
        let seen = gateway.get_with("/", "Host: client.test\r\n").json();
        assert_eq!(seen["fields"]["host"], host, "{settings}");
    }
}

#[test]
fn services_and_upstream_ids_are_followed() {
    let (a, b) = (Upstream::text("a"), Upstream::text("b"));
    let document = json!({
        "upstreams": [{ "id": "u", "nodes": a.nodes() }],
        "services": [{ "id": "s", "upstream": b.alone() }, { "id": "t", "upstream_id": "u" }],
        "routes": [
            { "id": "1", "uri": "/u", "upstream_id": "u" },
            { "id": "2", "uri": "/s", "service_id": "s" },
            { "id": "3", "uri": "/t", "service_id": "t" },
            { "id": "4", "uri": "/su", "service_id": "s", "upstream_id": "u" },
        ],
    });
    let gateway = Gateway::start(&document);
    for (path, expected) in [("/u", "a"), ("/s", "b"), ("/t", "a"), ("/su", "a")] {
        assert_eq!(gateway.get(path).text(), expected, "{path}");
    }
}
