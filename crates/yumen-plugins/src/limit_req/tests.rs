use std::time::Duration;

use serde_json::{Value, json};

use crate::testing::PluginBench;

/// Milliseconds since the previous request, last octet of the client address, status, and delay in
/// milliseconds.
type Case = (u64, u8, u16, u64);

#[track_caller]
fn check(settings: Value, cases: &[Case]) {
    let mut bench = PluginBench::new();
    let plugin = bench.plugin("limit-req", settings);
    for (number, (elapsed_ms, client, status, waited_ms)) in cases.iter().enumerate() {
        bench.host.advance(Duration::from_millis(*elapsed_ms));
        bench.client.peer.set_ip([10, 0, 0, *client].into());
        // Delays do not advance the clock for the next request: the requests arrive in parallel.
        let arrived = bench.host.now();
        let reply = bench.run(&plugin, "GET / HTTP/1.1");
        bench.host.set_now(arrived);
        let waited = reply.slept.iter().map(|slept| slept.as_millis() as u64).sum::<u64>();
        assert_eq!((reply.status, waited), (*status, *waited_ms), "request {number}");
    }
}

#[test]
fn requests_above_the_rate_wait_and_those_above_the_burst_are_refused() {
    let settings = json!({"rate": 10, "burst": 2, "key": "remote_addr"});
    let cases = [
        (0, 1, 200, 0),
        (0, 1, 200, 100),
        (0, 1, 200, 200),
        (0, 1, 503, 0),
        (0, 2, 200, 0),
        (50, 1, 503, 0),
        (50, 1, 200, 200),
        (250, 1, 200, 50),
        (10_000, 1, 200, 0),
        (0, 1, 200, 100),
    ];
    check(settings, &cases);
}

#[test]
fn without_a_burst_requests_come_one_by_one() {
    let settings = json!({"rate": 4, "burst": 0, "key": "remote_addr", "rejected_code": 429});
    check(settings, &[(0, 1, 200, 0), (249, 1, 429, 0), (1, 1, 200, 0), (0, 1, 429, 0), (250, 1, 200, 0)]);
}

#[test]
fn rates_below_one_are_paces_of_many_seconds() {
    let settings = json!({"rate": 0.1, "burst": 0.1, "key": "remote_addr"});
    check(settings, &[(0, 1, 200, 0), (8_000, 1, 503, 0), (1_000, 1, 200, 1000), (0, 1, 503, 0)]);
}

#[test]
fn nodelay_lets_the_burst_pass_at_once() {
    let settings = json!({"rate": 10, "burst": 1, "key": "remote_addr", "nodelay": true});
    check(settings, &[(0, 1, 200, 0), (0, 1, 200, 0), (0, 1, 503, 0)]);
}

#[test]
fn a_refusal_has_a_body_where_one_is_set() {
    let bench = PluginBench::new();
    let settings = json!({"rate": 1, "burst": 0, "key": "remote_addr", "rejected_msg": "slow down"});
    let plugin = bench.plugin("limit-req", settings);
    assert_eq!(bench.run(&plugin, "GET / HTTP/1.1").status, 200);
    assert_eq!(bench.run(&plugin, "GET / HTTP/1.1").body, "{\"error_msg\":\"slow down\"}\n");
}

#[test]
fn settings_that_do_not_bear_on_the_rate_may_change_while_buckets_stay() {
    let bench = PluginBench::new();
    let mut settings = json!({"rate": 1, "burst": 0, "key": "remote_addr"});
    let before = bench.plugin("limit-req", settings.clone());
    assert_eq!(bench.run(&before, "GET / HTTP/1.1").status, 200);
    for (name, value) in [("rejected_code", json!(429)), ("nodelay", json!(true))] {
        settings[name] = value;
        let after = bench.plugin("limit-req", settings.clone());
        assert_eq!(bench.run(&after, "GET / HTTP/1.1").status, 429, "{name}");
    }
}

#[test]
fn keys_are_variables_or_combinations_and_fall_back_to_the_address() {
    let bench = PluginBench::new();
    let run = |key_type: &str, key: &str, requests: &[(&str, u16)]| {
        let settings = json!({"rate": 1, "burst": 0, "key": key, "key_type": key_type});
        let plugin = bench.plugin("limit-req", settings);
        for (fields, status) in requests {
            let reply = bench.run(&plugin, &format!("GET / HTTP/1.1{fields}"));
            assert_eq!(reply.status, *status, "{key} {fields:?}");
        }
    };
    run("var", "http_a", &[("\na: 1", 200), ("\na: 2", 200), ("\na: 1", 503), ("", 200), ("", 503)]);
    let both = "$http_a $http_b";
    run("var_combination", both, &[("\na: 1", 200), ("\nb: 1", 200), ("\na: 1", 503), ("", 200), ("", 503)]);
}
