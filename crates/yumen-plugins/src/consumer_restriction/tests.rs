use serde_json::{Value, json};

use crate::testing::PluginBench;

/// User name (empty for none), method, and the resulting status and body.
type Case<'a> = (&'a str, &'a str, u16, &'a str);

#[track_caller]
fn check(settings: Value, cases: &[Case<'_>]) {
    for (username, method, status, body) in cases {
        let mut bench = PluginBench::new();
        bench.add_consumer_of("jack1", Some("company_a"));
        bench.add_consumer_of("jack2", None);
        let plugins = [bench.plugin("consumer-restriction", settings.clone())];
        let request = format!("{method} / HTTP/1.1");
        let mut ex = bench.exchange(&request);
        if let Some(consumer) = bench.consumers.named(username) {
            ex.identify(consumer, None);
        }
        let answer = bench.admit(&plugins, &mut ex, &request);
        let reply = bench.finish(&plugins, ex, answer);
        assert_eq!((reply.status, reply.body.as_str()), (*status, *body), "{username} {method}");
    }
}

const FORBIDDEN: &str = "{\"message\":\"The consumer_name is forbidden.\"}\n";
const NOBODY: &str =
    "{\"message\":\"The request is rejected, please check the consumer_name for this request\"}\n";

#[test]
fn lists_admit_and_refuse_consumers() {
    check(
        json!({"whitelist": ["jack1"]}),
        &[("jack1", "GET", 200, "ok\n"), ("jack2", "GET", 403, FORBIDDEN), ("", "GET", 401, NOBODY)],
    );
    check(
        json!({"blacklist": ["jack1"]}),
        &[("jack1", "GET", 403, FORBIDDEN), ("jack2", "GET", 200, "ok\n"), ("", "GET", 401, NOBODY)],
    );
    check(
        json!({"blacklist": ["jack1"], "whitelist": ["jack1", "jack2"]}),
        &[("jack1", "GET", 403, FORBIDDEN), ("jack2", "GET", 200, "ok\n")],
    );
}

#[test]
fn a_consumer_may_be_bound_to_methods() {
    let methods =
        json!([{"user": "jack1", "methods": ["POST", "PUT"]}, {"user": "jack1", "methods": ["GET"]}]);
    check(
        json!({"allowed_by_methods": methods}),
        &[("jack1", "POST", 200, "ok\n"), ("jack1", "GET", 403, FORBIDDEN), ("jack2", "GET", 200, "ok\n")],
    );
    check(
        json!({"allowed_by_methods": methods, "whitelist": ["jack1"]}),
        &[("jack1", "GET", 200, "ok\n"), ("jack2", "POST", 403, FORBIDDEN)],
    );
    check(
        json!({"allowed_by_methods": methods, "blacklist": ["jack1"]}),
        &[("jack1", "POST", 403, FORBIDDEN), ("jack2", "POST", 200, "ok\n")],
    );
}

#[test]
fn status_and_message_are_settings() {
    check(
        json!({"blacklist": ["jack1"], "rejected_code": 401, "rejected_msg": "no jack"}),
        &[("jack1", "GET", 401, "{\"message\":\"no jack\"}\n")],
    );
}

#[test]
fn routes_services_and_groups_can_be_restricted() {
    let forbidden = |kind: &str| format!("{{\"message\":\"The {kind} is forbidden.\"}}\n");
    check(json!({"type": "route_id", "whitelist": ["1"]}), &[("", "GET", 200, "ok\n")]);
    check(json!({"type": "route_id", "blacklist": ["1"]}), &[("", "GET", 403, &forbidden("route_id"))]);
    check(json!({"type": "service_id", "whitelist": ["s2"]}), &[("", "GET", 403, &forbidden("service_id"))]);
    check(
        json!({"type": "consumer_group_id", "blacklist": ["company_a"]}),
        &[
            ("jack1", "GET", 403, &forbidden("consumer_group_id")),
            ("jack2", "GET", 401, &NOBODY.replace("consumer_name", "consumer_group_id")),
        ],
    );
}
