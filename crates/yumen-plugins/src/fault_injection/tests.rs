//! Settings and their effects on requests.

use std::time::Duration;

use serde_json::{Value, json};
use yumen_plugin::Step;

use crate::testing::{PluginBench, TestReply};

fn run(settings: Value) -> TestReply {
    let bench = PluginBench::new();
    bench.run(&bench.plugin("fault-injection", settings), "GET /hello HTTP/1.1")
}

#[test]
fn an_abort_answers_as_configured() {
    let reply =
        run(json!({"abort": {"http_status": 503, "body": "broken\n", "headers": {"X-A": "b", "X-N": 1}}}));
    assert_eq!((reply.status, reply.body.as_str(), reply.upstream), (503, "broken\n", None));
    assert_eq!(reply.fields, ["X-A: b", "X-N: 1"]);
}

#[test]
fn a_body_is_asked_for_only_where_one_comes() {
    let bench = PluginBench::new();
    let settings = json!({"abort": {"http_status": 418, "vars": [[["post_arg_a", "==", "1"]]]}});
    let plugin = bench.plugin("fault-injection", settings);
    for (request, needs_body) in [
        ("GET / HTTP/1.1\r\nHost: a", false),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0", false),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3", true),
    ] {
        let mut ex = bench.exchange(request);
        let requested = matches!(plugin.rewrite(&mut ex), Step::NeedBody { .. });
        assert_eq!(requested, needs_body, "{request}");
    }
}

#[test]
fn a_delay_waits_and_goes_on() {
    let reply = run(json!({"delay": {"duration": 0.25}}));
    assert_eq!((reply.status, reply.slept), (200, vec![Duration::from_millis(250)]));
}

#[test]
fn a_delay_comes_before_the_abort() {
    let reply = run(json!({"delay": {"duration": 1}, "abort": {"http_status": 418}}));
    assert_eq!((reply.status, reply.slept.len()), (418, 1));
}

#[test]
fn the_percentage_is_the_share_that_is_hit() {
    let hits = |percentage: u8| {
        let bench = PluginBench::new();
        let settings = json!({"abort": {"http_status": 500, "percentage": percentage}});
        let plugin = bench.plugin("fault-injection", settings);
        (0..1000).filter(|_| bench.run(&plugin, "GET / HTTP/1.1").status == 500).count()
    };
    assert_eq!((hits(0), hits(100)), (0, 1000));
    let thirty = hits(30);
    assert!((250..350).contains(&thirty), "{thirty}");
}

#[test]
fn rule_without_conditions_matches_nothing() {
    assert_eq!(run(json!({"abort": {"http_status": 500, "vars": []}})).status, 200);
}

#[test]
fn a_wait_longer_than_time_is_refused() {
    let error = PluginBench::new().build("fault-injection", json!({"delay": {"duration": 1e300}}));
    assert_eq!(error.err().expect("refused").path, "delay.duration");
}

#[test]
fn one_condition_has_to_hold() {
    let bench = PluginBench::new();
    let vars = json!([[["arg_name", "==", "jack"], ["arg_age", "==", 18]], [["http_x_a", "==", "b"]]]);
    let settings = json!({"abort": {"http_status": 403, "body": "no $arg_name", "vars": vars}});
    let plugin = bench.plugin("fault-injection", settings);
    for (request, status) in [
        ("GET /?name=jack&age=18 HTTP/1.1", 403),
        ("GET /?name=jack HTTP/1.1", 200),
        ("GET / HTTP/1.1\nX-A: b", 403),
    ] {
        assert_eq!(bench.run(&plugin, request).status, status, "{request}");
    }
    assert_eq!(bench.run(&plugin, "GET /?name=jack&age=18 HTTP/1.1").body, "no jack");
}
