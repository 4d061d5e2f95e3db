//! Formats of ids, and the conditions for generating one.

use regex::Regex;
use serde_json::{Value, json};

use crate::testing::{PluginBench, TestReply};

fn run(settings: Value, request: &str) -> TestReply {
    let bench = PluginBench::new();
    bench.run(&bench.plugin("request-id", settings), request)
}

#[test]
fn ids_have_the_shape_of_their_algorithm_and_reach_both_sides() {
    for (settings, shape) in [
        (json!({}), "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"),
        (json!({"algorithm": "uuidv7"}), "^018bcfe5-6800-7000-80[0-9a-f]{2}-[0-9a-f]{12}$"),
        (json!({"algorithm": "nanoid"}), "^[A-Za-z0-9_-]{21}$"),
        (json!({"algorithm": "ksuid"}), "^2Y[0-9A-Za-z]{25}$"),
        (json!({"algorithm": "range_id"}), "^[A-Za-z0-9]{16}$"),
        (json!({"algorithm": "range_id", "range_id": {"length": 8, "char_set": "abcdef"}}), "^[a-f]{8}$"),
    ] {
        let reply = run(settings, "GET / HTTP/1.1");
        let id = reply.upstream_field("X-Request-Id").expect("an id goes upstream");
        assert!(Regex::new(shape).expect("a pattern").is_match(&id), "{id} has not the shape {shape}");
        assert_eq!(reply.field("X-Request-Id"), Some(id));
    }
}

#[test]
fn an_id_that_came_is_kept() {
    let reply = run(json!({}), "GET / HTTP/1.1\nX-Request-Id: mine");
    assert_eq!(reply.upstream_field("X-Request-Id").as_deref(), Some("mine"));
    assert_eq!(reply.field("X-Request-Id").as_deref(), Some("mine"));
}

#[test]
fn an_empty_id_is_replaced() {
    let reply = run(json!({}), "GET / HTTP/1.1\nX-Request-Id:");
    assert_eq!(reply.field("X-Request-Id").expect("an id").len(), 36);
}

#[test]
fn the_name_is_configured_and_the_client_need_not_be_told() {
    let reply = run(json!({"header_name": "X-Trace", "include_in_response": false}), "GET / HTTP/1.1");
    assert!(reply.upstream_field("X-Trace").is_some() && reply.field("X-Trace").is_none());
}

#[test]
fn the_upstreams_own_id_stays() {
    let mut bench = PluginBench::new();
    bench.upstream_reply = "HTTP/1.1 200 OK\r\nX-Request-Id: theirs\r\nContent-Length: 0\r\n\r\n".to_owned();
    let reply = bench.run(&bench.plugin("request-id", json!({})), "GET / HTTP/1.1");
    assert_eq!(reply.field("X-Request-Id").as_deref(), Some("theirs"));
}

#[test]
fn ids_ordered_by_time_ascend_within_a_millisecond() {
    let bench = PluginBench::new();
    let plugin = bench.plugin("request-id", json!({"algorithm": "uuidv7"}));
    let id = || bench.run(&plugin, "GET / HTTP/1.1").field("X-Request-Id").expect("an id");
    let ids: Vec<String> = (0..200).map(|_| id()).collect();
    assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]));
}
