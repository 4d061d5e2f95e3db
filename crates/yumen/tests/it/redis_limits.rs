//! Limits that nodes share through Redis: counted exactly, in one round trip, and what becomes of them
//! when Redis goes away.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::redis::{self, Redis};
use crate::harness::{Client, Gateway, Options, Upstream, certs, eventually};

/// Settings of a plugin and where its Redis is.
fn with(redis: &Redis, mut settings: Value) -> Value {
    settings["policy"] = json!("redis");
    settings["redis_host"] = json!("127.0.0.1");
    settings["redis_port"] = json!(redis.port);
    settings
}

/// A route for everything with these plugins.
fn routes(upstream: &Upstream, plugins: &Value) -> Value {
    json!({ "routes": [{ "id": "1", "uri": "/*", "plugins": plugins, "upstream": upstream.alone() }] })
}

fn node(upstream: &Upstream, plugin: &str, settings: &Value) -> Gateway {
    Gateway::start(&routes(upstream, &json!({ plugin: settings })))
}

/// Sends so many requests through each node at once; how many got 200.
fn flood(nodes: &[&Gateway], requests: usize) -> usize {
    let admitted = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // Two connections per node: each may be another worker's.
        for node in nodes.iter().chain(nodes) {
            scope.spawn(|| {
                let mut client = Client::connect(node.http);
                for _ in 0..requests / 2 {
                    let reply = client.get("/");
                    assert!(matches!(reply.status, 200 | 503), "{reply:?}");
                    admitted.fetch_add(usize::from(reply.status == 200), Ordering::Relaxed);
                }
            });
        }
    });
    admitted.into_inner()
}

#[test]
fn two_nodes_admit_exactly_what_the_limit_says_in_one_round_trip_each() {
    let (redis, upstream) = (Redis::start(), Upstream::text("x"));
    for window_type in ["fixed", "sliding"] {
        let settings = json!({ "count": 60, "time_window": 3600, "key": "host", "window_type": window_type });
        let nodes = [(); 2].map(|()| node(&upstream, "limit-count", &with(&redis, settings.clone())));
        redis.cli(&["CONFIG", "RESETSTAT"]);
        // Four hundred requests to each of two connections to each node.
        assert_eq!(flood(&[&nodes[0], &nodes[1]], 80), 60, "{window_type}");
        let (by_digest, by_text) = (redis.calls("evalsha"), redis.calls("eval"));
        assert_eq!(by_digest, 160, "{window_type}: a question each");
        assert!(by_text <= 4, "{window_type}: the text once per worker at most, not {by_text} times");
        let told: f64 = nodes.iter().map(|node| node.metric("yumen_redis_round_trips_total")).sum();
        assert_eq!(told as u64, by_digest + by_text, "{window_type}");
    }
}

#[test]
fn clients_are_told_their_quota_as_with_local_counters() {
    let (redis, upstream) = (Redis::start(), Upstream::text("x"));
    let settings = with(&redis, json!({ "count": 2, "time_window": 60, "rejected_code": 429 }));
    let gateway = node(&upstream, "limit-count", &settings);
    for (status, remaining) in [(200, "1"), (200, "0"), (429, "0")] {
        let reply = gateway.get("/");
        assert_eq!(reply.status, status);
        assert_eq!(reply.field("x-ratelimit-limit"), Some("2"));
        assert_eq!(reply.field("x-ratelimit-remaining"), Some(remaining));
        let reset: f64 = reply.field("x-ratelimit-reset").expect("a reset").parse().expect("seconds");
        assert!((0.0..=60.0).contains(&reset), "{reset}");
    }
}

#[test]
fn rules_are_counted_one_after_another_in_one_question() {
    let (redis, upstream) = (Redis::start(), Upstream::text("x"));
    let rules = json!([
        { "count": 1, "time_window": 3600, "key": "$http_a" },
        { "count": 10, "time_window": 3600, "key": "$http_b" },
    ]);
    let gateway = node(&upstream, "limit-count", &with(&redis, json!({ "rules": rules })));
    redis.cli(&["CONFIG", "RESETSTAT"]);
    let both = "A: 1\r\nB: 1\r\n";
    let first = gateway.get_with("/", both);
    assert_eq!((first.status, first.field("x-2-ratelimit-remaining")), (200, Some("9")));
    let second = gateway.get_with("/", both);
    assert_eq!((second.status, second.field("x-2-ratelimit-remaining")), (503, None), "the first refuses");
    let third = gateway.get_with("/", "B: 1\r\n");
    assert_eq!(
        (third.status, third.field("x-2-ratelimit-remaining")),
        (200, Some("8")),
        "refused, not counted"
    );
    assert_eq!(redis.calls("evalsha"), 3);
}

#[test]
fn a_group_is_called_in_redis_as_apisix_calls_it() {
    let (redis, upstream) = (Redis::start(), Upstream::text("x"));
    let settings = json!({ "count": 5, "time_window": 60, "group": "shop", "key": "remote_addr" });
    let gateway = node(&upstream, "limit-count", &with(&redis, settings));
    redis.cli(&["SET", "plugin-limit-count:v1:shop:127.0.0.1", "3", "EX", "50"]);
    let reply = gateway.get("/");
    assert_eq!(reply.field("x-ratelimit-remaining"), Some("1"), "what another gateway counted counts");
    assert_eq!(redis.cli(&["GET", "plugin-limit-count:v1:shop:127.0.0.1"]).trim(), "4");
}
