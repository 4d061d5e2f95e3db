use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use yumen_plugin::Plugin;

use crate::testing::{PluginBench, TestReply};

/// Milliseconds since the previous request, request fields, status, and `limit/remaining/reset` (empty
/// without quota fields).
type Case<'a> = (u64, &'a str, u16, &'a str);

fn run(bench: &PluginBench, plugin: &Arc<dyn Plugin>, fields: &str) -> TestReply {
    bench.run(plugin, &format!("GET / HTTP/1.1{fields}"))
}

fn quota(reply: &TestReply, names: [&str; 3]) -> String {
    let values: Vec<String> = names.iter().filter_map(|name| reply.field(name)).collect();
    values.join("/")
}

const NAMES: [&str; 3] = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"];

#[track_caller]
fn check(settings: Value, cases: &[Case<'_>]) {
    let bench = PluginBench::new();
    let plugin = bench.plugin("limit-count", settings);
    for (number, (elapsed_ms, fields, status, expected)) in cases.iter().enumerate() {
        bench.host.advance(Duration::from_millis(*elapsed_ms));
        let reply = run(&bench, &plugin, fields);
        let found = (reply.status, quota(&reply, NAMES));
        assert_eq!(found, (*status, (*expected).to_owned()), "request {number}");
        assert_eq!(reply.upstream.is_some(), *status == 200, "request {number}");
    }
}

#[test]
fn a_fixed_window_begins_with_its_first_request_and_ends_for_good() {
    check(
        json!({"count": 2, "time_window": 60}),
        &[
            (0, "", 200, "2/1/60"),
            (10_105, "", 200, "2/0/49.89"),
            (5, "", 503, "2/0/49.89"),
            (49_889, "", 503, "2/0/0"),
            (1, "", 200, "2/1/60"),
            (59_900, "", 200, "2/0/0.1"),
            (100, "", 200, "2/1/60"),
        ],
    );
}

#[test]
fn a_sliding_window_counts_what_is_still_in_view_of_the_one_before() {
    // The test clock starts 20 s into a window of 60 s.
    check(
        json!({"count": 4, "time_window": 60, "window_type": "sliding"}),
        &[
            (0, "", 200, "4/3/40"),
            (0, "", 200, "4/2/40"),
            (0, "", 200, "4/1/40"),
            (0, "", 200, "4/0/40"),
            (0, "", 503, "4/0/40"),
            // 10 s into the next window: 4 * 50/60 still count.
            (50_000, "", 200, "4/0/50"),
            (0, "", 503, "4/0/5"),
            (5_000, "", 503, "4/0/0"),
            (1, "", 200, "4/0/45"),
            // After two windows nothing counts any more.
            (120_000, "", 200, "4/3/45"),
        ],
    );
}

#[test]
fn keys_are_variables_combinations_or_constants_and_fall_back_to_the_address() {
    check(
        json!({"count": 1, "time_window": 9, "key": "http_a"}),
        &[
            (0, "\na: 1", 200, "1/0/9"),
            (0, "\na: 2", 200, "1/0/9"),
            (0, "\na: 1", 503, "1/0/9"),
            (0, "", 200, "1/0/9"),
            (0, "", 503, "1/0/9"),
        ],
    );
    check(
        json!({"count": 1, "time_window": 9, "key": "$http_a $http_b", "key_type": "var_combination"}),
        &[
            (0, "\na: 1", 200, "1/0/9"),
            (0, "\na: 1\nb: 1", 200, "1/0/9"),
            (0, "\na: 1\nb: 1", 503, "1/0/9"),
            (0, "", 200, "1/0/9"),
            (0, "", 503, "1/0/9"),
        ],
    );
    check(
        json!({"count": 1, "time_window": 9, "key": "all", "key_type": "constant"}),
        &[(0, "\na: 1", 200, "1/0/9"), (0, "\na: 2", 503, "1/0/9")],
    );
}

#[test]
fn count_and_window_may_come_from_variables() {
    check(
        json!({"count": "${http_count ?? 2}", "time_window": "$http_tw"}),
        &[
            (0, "\ntw: 5", 200, "2/1/5"),
            (0, "\ntw: 5\ncount: 1", 503, "1/0/5"),
            (0, "\ntw: 5\ncount: 9", 200, "9/6/5"),
            (0, "", 500, ""),
            (0, "\ntw: 5\ncount: 0", 500, ""),
            (0, "\ntw: 5\ncount: 1.5", 500, ""),
        ],
    );
    check(
        json!({"count": "$http_count", "time_window": 5, "allow_degradation": true}),
        &[(0, "\ncount: x", 200, ""), (0, "\ncount: 1", 200, "1/0/5")],
    );
}

#[test]
fn a_refusal_has_the_status_and_body_that_are_set() {
    let bench = PluginBench::new();
    let settings = json!({"count": 1, "time_window": 9, "rejected_code": 429, "rejected_msg": "enough",
        "show_limit_quota_header": false});
    let plugin = bench.plugin("limit-count", settings);
    assert_eq!(quota(&run(&bench, &plugin, ""), NAMES), "");
    let reply = run(&bench, &plugin, "");
    assert_eq!((reply.status, reply.body.as_str()), (429, "{\"error_msg\":\"enough\"}\n"));
    assert_eq!(quota(&reply, NAMES), "");
    let plain = bench.plugin("limit-count", json!({"count": 1, "time_window": 9, "key": "uri"}));
    run(&bench, &plain, "");
    assert_eq!(run(&bench, &plain, "").body, "");
}

#[test]
fn metadata_names_the_fields() {
    let mut bench = PluginBench::new();
    bench.metadata = Some(json!({"limit_header": "X-Custom-RateLimit-Limit", "reset_header": "Re\r\nset"}));
    let plugin = bench.plugin("limit-count", json!({"count": 3, "time_window": 9}));
    let reply = run(&bench, &plugin, "");
    assert_eq!(quota(&reply, ["X-Custom-RateLimit-Limit", "X-RateLimit-Remaining", "Re--set"]), "3/2/9");
}

#[test]
fn rules_each_have_their_window_and_their_fields() {
    let bench = PluginBench::new();
    let rules = json!([
        {"count": 2, "time_window": 2, "key": "${remote_addr}_2s"},
        {"count": "${http_n ?? 3}", "time_window": 5, "key": "$http_user", "header_prefix": "user"}
    ]);
    let plugin = bench.plugin("limit-count", json!({"rules": rules, "rejected_msg": "no"}));
    let numbered = ["X-1-RateLimit-Limit", "X-1-RateLimit-Remaining", "X-1-RateLimit-Reset"];
    let named = ["X-user-RateLimit-Limit", "X-user-RateLimit-Remaining", "X-user-RateLimit-Reset"];
    let expect = |fields: &str, status: u16, first: &str, second: &str| {
        let reply = run(&bench, &plugin, fields);
        let found = (reply.status, quota(&reply, numbered), quota(&reply, named));
        assert_eq!(found, (status, first.to_owned(), second.to_owned()), "{fields:?}");
    };
    expect("", 200, "2/1/2", "");
    expect("\nuser: a", 200, "2/0/2", "3/2/5");
    expect("\nuser: a", 503, "2/0/2", "");
    bench.host.advance(Duration::from_secs(2));
    expect("\nuser: a\nn: 1", 503, "2/1/2", "1/0/3");
    // A rule that applies but has an invalid amount prevents counting under any rule.
    expect("\nuser: a\nn: x", 500, "", "");
    expect("", 200, "2/0/2", "");
}

#[test]
fn no_applicable_rule_is_an_error() {
    let rules =
        json!([{"count": 1, "time_window": 2, "key": "$http_a"}, {"count": 1, "time_window": 2, "key": "x"}]);
    check(json!({"rules": rules}), &[(0, "", 500, ""), (0, "\na: 1", 200, "")]);
    check(json!({"rules": rules, "allow_degradation": true}), &[(0, "", 200, "")]);
}

#[test]
fn counters_outlive_the_plugin_but_not_its_settings() {
    let bench = PluginBench::new();
    let settings = |count: u64| json!({"count": count, "time_window": 9});
    let first = bench.plugin("limit-count", settings(2));
    assert_eq!(quota(&run(&bench, &first, ""), NAMES), "2/1/9");
    let same = bench.plugin("limit-count", settings(2));
    drop(first);
    assert_eq!(quota(&run(&bench, &same, ""), NAMES), "2/0/9");
    let other = bench.plugin("limit-count", settings(3));
    assert_eq!(quota(&run(&bench, &other, ""), NAMES), "3/2/9");
}

#[test]
fn a_group_shares_counters_between_objects_that_agree_and_no_others() {
    let mut bench = PluginBench::new();
    let settings = |count: u64| json!({"count": count, "time_window": 9, "group": "g"});
    let first = bench.plugin("limit-count", settings(2));
    bench.owner = "routes/2".to_owned();
    let second = bench.plugin("limit-count", settings(2));
    assert_eq!(quota(&run(&bench, &first, ""), NAMES), "2/1/9");
    assert_eq!(quota(&run(&bench, &second, ""), NAMES), "2/0/9");
    let alone = bench.plugin("limit-count", json!({"count": 2, "time_window": 9}));
    assert_eq!(quota(&run(&bench, &alone, ""), NAMES), "2/1/9");
    let changed = bench.plugin("limit-count", settings(3));
    assert_eq!(quota(&run(&bench, &changed, ""), NAMES), "3/2/9");
    assert_eq!(run(&bench, &first, "").status, 503);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let bench = PluginBench::new();
    let rule = json!({"count": 1, "time_window": 2, "key": "$http_a"});
    let check = |settings: Value, message: &str| {
        let error = bench.build("limit-count", settings).err().expect("it is refused");
        assert!(error.message.contains(message), "{}", error.message);
    };
    let both = "count/time_window and rules cannot be specified at the same time";
    check(json!({"count": 1, "time_window": 2, "rules": [rule]}), both);
    check(json!({"group": "g", "rules": [rule]}), "group and rules cannot be specified at the same time");
    check(json!({"rules": [rule, rule]}), "duplicate key '$http_a' in rules");
    let redis = |time_window: u64, sync_interval: f64| {
        json!({"count": 1, "time_window": time_window, "policy": "redis", "redis_host": "127.0.0.1",
            "sync_interval": sync_interval})
    };
    check(redis(2, 0.05), "sync_interval should not be smaller than 0.1");
    check(redis(2, 2.0), "sync_interval should be smaller than time_window");
    let nowhere = json!({"count": 1, "time_window": 2, "policy": "redis"});
    assert_eq!(bench.build("limit-count", nowhere).err().expect("it is refused").path, "redis_host");
}

#[test]
fn a_limit_admits_exactly_its_number_however_many_workers_count() {
    const WORKERS: usize = 4;
    const REQUESTS: usize = 3000;
    for window_type in ["fixed", "sliding"] {
        let settings = json!({"count": 5000, "time_window": 9, "window_type": window_type});
        let plugin = PluginBench::new().plugin("limit-count", settings);
        let worker = |_| {
            let plugin = plugin.clone();
            std::thread::spawn(move || {
                let bench = PluginBench::new();
                let admitted = |_: &usize| run(&bench, &plugin, "").status == 200;
                (0..REQUESTS).filter(admitted).count()
            })
        };
        let workers: Vec<_> = (0..WORKERS).map(worker).collect();
        let admitted: usize = workers.into_iter().map(|worker| worker.join().expect("no panic")).sum();
        assert_eq!(admitted, 5000, "{window_type}");
    }
}

/// Prints the cost of a request; run with `--release -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a test"]
#[allow(clippy::print_stdout, reason = "it prints its finding")]
fn request_cost() {
    let bench = PluginBench::new();
    let plugin = bench.plugin("limit-count", json!({"count": 1_000_000_000, "time_window": 60}));
    let mut ex = bench.exchange("GET / HTTP/1.1");
    let rounds = 2_000_000u32;
    let begun = std::time::Instant::now();
    for _ in 0..rounds {
        ex.response.fields.clear(4096);
        assert!(matches!(plugin.access(&mut ex), yumen_plugin::Step::Continue));
    }
    println!("{} ns", begun.elapsed().as_nanos() / u128::from(rounds));
}

#[test]
fn rules_that_find_the_same_value_count_apart() {
    let bench = PluginBench::new();
    let rules = json!([
        {"count": 3, "time_window": 60, "key": "$http_user"},
        {"count": 3, "time_window": 60, "key": "$http_team"}
    ]);
    let plugin = bench.plugin("limit-count", json!({"rules": rules}));
    let statuses = [(); 4].map(|()| run(&bench, &plugin, "\nuser: a\nteam: a").status);
    assert_eq!(statuses, [200, 200, 200, 503]);
}

#[test]
fn settings_that_do_not_bear_on_the_count_may_change_while_it_goes_on() {
    let bench = PluginBench::new();
    let mut settings = json!({"count": 1, "time_window": 60});
    let ask = |settings: &Value| run(&bench, &bench.plugin("limit-count", settings.clone()), "").status;
    let _kept = bench.plugin("limit-count", settings.clone());
    assert_eq!(ask(&settings), 200);
    let others = [
        ("rejected_msg", json!("no")),
        ("show_limit_quota_header", json!(false)),
        ("rejected_code", json!(429)),
    ];
    for (name, value) in others {
        settings[name] = value;
        assert_ne!(ask(&settings), 200, "{name}");
    }
    settings["count"] = json!(2);
    assert_eq!(ask(&settings), 200, "another limit counts anew");
}
