use std::sync::Arc;

use serde_json::{Value, json};
use yumen_plugin::{Exchange, LocalResponse, Plugin};

use crate::testing::PluginBench;

/// Begins an exchange that runs until it is dropped.
fn start<'b>(
    bench: &'b PluginBench,
    plugin: &Arc<dyn Plugin>,
    request: &str,
) -> (Exchange<'b>, Option<LocalResponse>) {
    let mut ex = bench.exchange(request);
    let answer = bench.admit(std::slice::from_ref(plugin), &mut ex, request);
    (ex, answer)
}

/// Begins exchanges one after another that all keep running; cases are request fields, status (0 for passing)
/// and delay in milliseconds.
#[track_caller]
fn check(settings: Value, cases: &[(&str, u16, u64)]) {
    let bench = PluginBench::new();
    let plugin = bench.plugin("limit-conn", settings);
    let mut running = Vec::new();
    for (number, (fields, status, waited_ms)) in cases.iter().enumerate() {
        let (ex, answer) = start(&bench, &plugin, &format!("GET / HTTP/1.1{fields}"));
        let waited = bench.host.take_slept().iter().map(|slept| slept.as_millis() as u64).sum::<u64>();
        let found = (answer.as_ref().map_or(0, |response| response.status), waited);
        assert_eq!(found, (*status, *waited_ms), "exchange {number} {fields:?}");
        if answer.is_none() {
            running.push(ex);
        }
    }
    drop(running);
    let (_ex, answer) = start(&bench, &plugin, &format!("GET / HTTP/1.1{}", cases[0].0));
    assert!(answer.is_none(), "ended exchanges no longer count");
}

#[test]
fn exchanges_above_the_limit_wait_and_those_above_the_burst_are_refused() {
    let settings = json!({"conn": 2, "burst": 3, "default_conn_delay": 0.1, "key": "remote_addr"});
    check(settings, &[("", 0, 0), ("", 0, 0), ("", 0, 100), ("", 0, 100), ("", 0, 200), ("", 503, 0)]);
    let settings =
        json!({"conn": 1, "burst": 0, "default_conn_delay": 0.1, "key": "remote_addr", "rejected_code": 429});
    check(settings, &[("", 0, 0), ("", 429, 0), ("", 429, 0)]);
}

#[test]
fn an_exchange_that_ends_makes_room_for_another() {
    let bench = PluginBench::new();
    let settings = json!({"conn": 1, "burst": 0, "default_conn_delay": 0.1, "key": "remote_addr", "rejected_msg": "busy"});
    let plugin = bench.plugin("limit-conn", settings);
    for _ in 0..3 {
        let (first, answer) = start(&bench, &plugin, "GET / HTTP/1.1");
        assert!(answer.is_none());
        let (_, answer) = start(&bench, &plugin, "GET / HTTP/1.1");
        assert_eq!(answer.expect("it is refused").body.as_ref(), b"{\"error_msg\":\"busy\"}\n");
        drop(first);
    }
}

#[test]
fn different_keys_count_separately() {
    let settings = json!({"conn": 1, "burst": 0, "default_conn_delay": 0.1, "key": "http_a"});
    check(settings, &[("\na: 1", 0, 0), ("\na: 2", 0, 0), ("\na: 1", 503, 0), ("", 0, 0), ("", 503, 0)]);
}

#[test]
fn limits_may_come_from_variables() {
    let limits = |conn: &str, burst: &str| json!({"conn": conn, "burst": burst, "default_conn_delay": 0.1, "key": "remote_addr"});
    check(
        limits("$http_n", "0"),
        &[("\nn: 2", 0, 0), ("\nn: 2", 0, 0), ("\nn: 2", 503, 0), ("\nn: 3", 0, 0)],
    );
    check(limits("${http_n ?? 1}", "1"), &[("", 0, 0), ("", 0, 100), ("", 503, 0)]);
    check(limits("$http_n", "0"), &[("\nn: 1", 0, 0), ("\nn: x", 500, 0), ("\nn: 0", 500, 0), ("", 500, 0)]);
}

#[test]
fn rules_that_find_the_same_value_count_apart() {
    let rules = json!([
        {"conn": 3, "burst": 0, "key": "$http_user"},
        {"conn": 2, "burst": 0, "key": "$http_team"}
    ]);
    let settings = json!({"default_conn_delay": 0.1, "rules": rules});
    check(settings, &[("\nuser: a\nteam: a", 0, 0), ("\nuser: a\nteam: a", 0, 0), ("\nuser: a", 0, 0)]);
}

#[test]
fn settings_that_do_not_bear_on_the_count_may_change_while_it_goes_on() {
    let bench = PluginBench::new();
    let mut settings = json!({"conn": 1, "burst": 0, "default_conn_delay": 0.1, "key": "remote_addr"});
    let before = bench.plugin("limit-conn", settings.clone());
    let (_held, answer) = start(&bench, &before, "GET / HTTP/1.1");
    assert!(answer.is_none());
    for (name, value) in [("rejected_msg", json!("no")), ("rejected_code", json!(429))] {
        settings[name] = value;
        let after = bench.plugin("limit-conn", settings.clone());
        assert!(start(&bench, &after, "GET / HTTP/1.1").1.is_some(), "{name}");
    }
    settings["burst"] = json!(1);
    let after = bench.plugin("limit-conn", settings);
    assert!(start(&bench, &after, "GET / HTTP/1.1").1.is_none(), "another limit counts anew");
}

#[test]
fn rules_apply_where_their_keys_have_values() {
    let rules = json!([
        {"conn": 1, "burst": 0, "key": "$http_user"},
        {"conn": 2, "burst": 1, "key": "$http_team"}
    ]);
    let settings = json!({"default_conn_delay": 0.1, "rules": rules});
    let cases = [
        ("\nuser: a", 0, 0),
        ("\nuser: a", 503, 0),
        ("\nuser: b\nteam: t", 0, 0),
        ("\nteam: t", 0, 0),
        ("\nteam: t", 0, 100),
        ("\nteam: t", 503, 0),
        ("", 500, 0),
    ];
    check(settings.clone(), &cases);
    let mut degrading = settings;
    degrading["allow_degradation"] = json!(true);
    check(degrading, &[("", 0, 0), ("", 0, 0), ("", 0, 0)]);
}
