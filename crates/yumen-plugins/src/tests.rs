//! Dry runs of plugins agree with their real effects and have none of their own.

use serde_json::{Value, json};
use yumen_plugin::{DryRunResult, PhaseSet, Plugin};

use crate::testing::{PluginBench, TestReply};

/// A dry run of the request phases: the status of a local response, or the resulting request.
fn foreseen(bench: &PluginBench, plugin: &dyn Plugin, request: &str) -> Result<Vec<String>, u16> {
    let mut ex = bench.exchange(request);
    for phase in [PhaseSet::REWRITE, PhaseSet::ACCESS] {
        if !plugin.phases().has(phase) {
            continue;
        }
        match plugin.dry_run(phase, &mut ex) {
            DryRunResult::Continue | DryRunResult::Note(_) => {}
            DryRunResult::Respond(response) | DryRunResult::Refuse(response, _) => {
                return Err(response.status);
            }
            DryRunResult::Unknown => panic!("{request}: nothing is foreseen"),
        }
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let line = |(name, value): (&[u8], &[u8])| format!("{}: {}", text(name), text(value));
    let first = format!("{} {}", text(ex.request.method_name()), text(ex.request.upstream_target()));
    Ok(std::iter::once(first).chain(ex.request.fields.iter().map(line)).collect())
}

fn came(reply: TestReply) -> Result<Vec<String>, u16> {
    reply.upstream.ok_or(reply.status)
}

fn bench() -> PluginBench {
    let mut bench = PluginBench::new();
    let alice = bench.add_consumer("alice");
    bench.add_key(&alice, "key-auth", json!({"key": "secret"}), None);
    bench.add_key(&alice, "basic-auth", json!({"username": "alice", "password": "pw"}), None);
    bench
}

/// Runs each request dry twice and then for real, each on its own harness.
fn check(name: &str, settings: Value, requests: &[&str]) {
    for request in requests {
        let (asked, ran) = (bench(), bench());
        let plugin = asked.plugin(name, settings.clone());
        let told = foreseen(&asked, &*plugin, request);
        let expected = came(ran.run(&ran.plugin(name, settings.clone()), request));
        assert_eq!(told, expected, "{name} {settings} {request}");
    }
}

#[test]
fn a_plugin_does_what_it_says_it_would() {
    check("adaptive-concurrency", json!({}), &["GET /a HTTP/1.1"]);
    // Without `tell_upstream`, because the field for endpoints is only set for an attempt.
    check(
        "deadline",
        json!({"tell_upstream": false}),
        &["GET /a HTTP/1.1\nGrpc-Timeout: 1S", "GET /a HTTP/1.1"],
    );
    check(
        "key-auth",
        json!({"hide_credentials": true}),
        &[
            "GET /a HTTP/1.1",
            "GET /a HTTP/1.1\napikey: secret",
            "GET /a?apikey=secret&b=1 HTTP/1.1",
            "GET /a HTTP/1.1\napikey: wrong",
        ],
    );
    check(
        "basic-auth",
        json!({}),
        &[
            "GET /a HTTP/1.1",
            "GET /a HTTP/1.1\nAuthorization: Basic YWxpY2U6cHc=",
            "GET /a HTTP/1.1\nAuthorization: Basic YWxpY2U6",
        ],
    );
    check(
        "proxy-rewrite",
        json!({"regex_uri": ["^/a(.*)", "/b$1"], "method": "POST", "headers": {"X": "$uri"}}),
        &["GET /a/1?q HTTP/1.1", "GET /c HTTP/1.1"],
    );
    check("redirect", json!({"uri": "/b"}), &["GET /a HTTP/1.1"]);
    check(
        "redirect",
        json!({"http_to_https": true}),
        &["GET /a HTTP/1.1", "POST /a HTTP/1.1\nX-Forwarded-Proto: https"],
    );
    check("ip-restriction", json!({"blacklist": ["127.0.0.1"]}), &["GET /a HTTP/1.1"]);
    check("ip-restriction", json!({"whitelist": ["127.0.0.1"]}), &["GET /a HTTP/1.1"]);
    check("real-ip", json!({"source": "arg_ip"}), &["GET /a?ip=1.2.3.4 HTTP/1.1"]);
    check("client-control", json!({"max_body_size": 1}), &["GET /a HTTP/1.1", "POST /a HTTP/1.1\n\nabc"]);
    check(
        "referer-restriction",
        json!({"whitelist": ["a.b"]}),
        &["GET /a HTTP/1.1", "GET /a HTTP/1.1\nReferer: http://a.b/"],
    );
    check(
        "ua-restriction",
        json!({"denylist": ["x"]}),
        &["GET /a HTTP/1.1", "GET /a HTTP/1.1\nUser-Agent: y"],
    );
    check("api-breaker", json!({"break_response_code": 502}), &["GET /a HTTP/1.1"]);
    check("csrf", json!({"key": "k"}), &["GET /a HTTP/1.1", "POST /a HTTP/1.1"]);
    check("hmac-auth", json!({}), &["GET /a HTTP/1.1"]);
    check("jwt-auth", json!({"hide_credentials": true}), &["GET /a HTTP/1.1", "GET /a?jwt=x HTTP/1.1"]);
    let needs_field = json!({"header_schema": {"type": "object", "required": ["a"]}});
    check("request-validation", needs_field, &["GET /a HTTP/1.1", "GET /a HTTP/1.1\na: b"]);
    check("uri-blocker", json!({"block_rules": ["root"]}), &["GET /root HTTP/1.1", "GET /a HTTP/1.1"]);
    check("consumer-restriction", json!({"whitelist": ["alice"]}), &["GET /a HTTP/1.1"]);
    check("consumer-restriction", json!({"type": "route_id", "whitelist": ["1"]}), &["GET /a HTTP/1.1"]);
    check("cors", json!({}), &["OPTIONS /a HTTP/1.1\nOrigin: http://a", "GET /a HTTP/1.1\nOrigin: http://a"]);
    check(
        "mocking",
        json!({"response_status": 201, "response_example": "x", "delay": 1}),
        &["GET /a HTTP/1.1"],
    );
    check(
        "request-id",
        json!({"algorithm": "nanoid"}),
        &["GET /a HTTP/1.1", "GET /a HTTP/1.1\nX-Request-Id: 1"],
    );
    check(
        "fault-injection",
        json!({"abort": {"http_status": 418, "vars": [[["arg_a", "==", "1"]]]}}),
        &["GET /a?a=1 HTTP/1.1", "GET /a?a=2 HTTP/1.1"],
    );
    check(
        "fault-injection",
        json!({"abort": {"http_status": 418, "vars": [[["post_arg_a", "==", "1"]]]}}),
        &["GET /a HTTP/1.1"],
    );
    check("fault-injection", json!({"delay": {"duration": 1}}), &["GET /a HTTP/1.1"]);
    check(
        "grpc-web",
        json!({}),
        &[
            "OPTIONS /a HTTP/1.1",
            "GET /a HTTP/1.1",
            "POST /a HTTP/1.1\nContent-Type: application/grpc-web+proto\n\nabc",
        ],
    );
    let user = json!({"query": "query { user { id } }", "variables": ["id"]});
    check("degraphql", user, &["GET /a?id=1 HTTP/1.1", "PUT /a HTTP/1.1"]);
    // Without the proto it lets all requests pass; the plugin's own tests cover the rest.
    let shop = json!({"proto_id": 1, "service": "a.B", "method": "C"});
    check("grpc-transcode", shop, &["GET /a HTTP/1.1"]);
    let alone = json!({"rules": [{"weighted_upstreams": [{"weight": 1}]}]});
    check("traffic-split", alone, &["GET /a HTTP/1.1"]);
}

/// Alternates dry and real runs on one harness: each dry run must predict the next real one.
fn check_in_turn(name: &str, settings: Value, times: usize, refused: usize) {
    let bench = bench();
    let plugin = bench.plugin(name, settings.clone());
    let mut refusals = 0;
    for turn in 0..times {
        let told = foreseen(&bench, &*plugin, "GET /a HTTP/1.1");
        assert_eq!(
            told,
            foreseen(&bench, &*plugin, "GET /a HTTP/1.1"),
            "{name} {settings}: asking counts nothing"
        );
        refusals += usize::from(told.is_err());
        // The exchanges keep running, so that no count is released.
        let mut ex = bench.exchange("GET /a HTTP/1.1");
        let answer = bench.admit(std::slice::from_ref(&plugin), &mut ex, "GET /a HTTP/1.1");
        assert_eq!(told.err(), answer.map(|response| response.status), "{name} {settings}, request {turn}");
        if name == "limit-conn" {
            std::mem::forget(ex);
        }
    }
    assert_eq!(refusals, refused, "{name} {settings}");
}

#[test]
fn limits_foresee_without_counting() {
    check_in_turn("limit-count", json!({"count": 3, "time_window": 60, "rejected_code": 429}), 5, 2);
    let sliding = json!({"count": 2, "time_window": 60, "window_type": "sliding"});
    check_in_turn("limit-count", sliding, 4, 2);
    check_in_turn("limit-req", json!({"rate": 1, "burst": 1, "nodelay": true, "key": "remote_addr"}), 4, 2);
    let conn = json!({"conn": 1, "burst": 1, "default_conn_delay": 0.1, "key": "remote_addr"});
    check_in_turn("limit-conn", conn, 4, 2);
}

#[test]
fn what_is_left_to_chance_is_said() {
    let bench = bench();
    let settings = json!({"abort": {"http_status": 418, "percentage": 30}, "delay": {"duration": 0.5}});
    let plugin = bench.plugin("fault-injection", settings);
    let mut ex = bench.exchange("GET /a HTTP/1.1");
    let DryRunResult::Note(says) = plugin.dry_run(PhaseSet::REWRITE, &mut ex) else {
        panic!("nothing is said")
    };
    assert_eq!(says, "delays 100 % of such requests by 0.5 s; answers 30 % of such requests with 418");
    let plugin = bench.plugin("forward-auth", json!({"uri": "http://auth.test/x"}));
    let DryRunResult::Note(says) = plugin.dry_run(PhaseSet::ACCESS, &mut ex) else {
        panic!("nothing is said")
    };
    assert_eq!(says, "depends on the response of http://auth.test/x");
    assert!(bench.host.asked.borrow().is_empty());
}

/// Every plugin with a request phase implements its dry run.
#[test]
fn no_plugin_is_silent() {
    let bench = bench();
    let answering = [
        ("brotli", json!({})),
        ("gzip", json!({})),
        ("prometheus", json!({})),
        ("proxy-buffering", json!({})),
        ("proxy-control", json!({})),
        ("response-rewrite", json!({"body": "x"})),
        ("zstd", json!({})),
    ];
    for (name, settings) in answering {
        let phases = bench.plugin(name, settings).phases();
        assert!(!phases.has(PhaseSet::REWRITE) && !phases.has(PhaseSet::ACCESS), "{name} is asked now");
    }
    let checked = [
        "adaptive-concurrency",
        "api-breaker",
        "deadline",
        "basic-auth",
        "csrf",
        "hmac-auth",
        "jwt-auth",
        "request-validation",
        "brotli",
        "client-control",
        "proxy-buffering",
        "proxy-control",
        "referer-restriction",
        "ua-restriction",
        "consumer-restriction",
        "cors",
        "gzip",
        "zstd",
        "fault-injection",
        "forward-auth",
        "degraphql",
        "grpc-transcode",
        "grpc-web",
        "proxy-mirror",
        "traffic-split",
        "ip-restriction",
        "key-auth",
        "limit-conn",
        "limit-count",
        "limit-req",
        "mocking",
        // Only for stream routes.
        "mqtt-proxy",
        "proxy-rewrite",
        "real-ip",
        "redirect",
        "request-id",
        "uri-blocker",
        "prometheus",
        "response-rewrite",
    ];
    let forgotten: Vec<_> = crate::BUILTIN.iter().filter(|kind| !checked.contains(&kind.name)).collect();
    assert!(
        forgotten.is_empty(),
        "add to the tests above: {:?}",
        forgotten.iter().map(|one| one.name).collect::<Vec<_>>()
    );
}

#[test]
fn a_status_that_is_none_of_a_last_answer_becomes_the_nearest_that_is_one() {
    for (name, settings, expected) in [
        ("mocking", json!({"response_status": 101, "response_example": "x"}), 200),
        ("mocking", json!({"response_status": 1000, "response_example": "x"}), 999),
        ("fault-injection", json!({"abort": {"http_status": 70_000}}), 999),
        ("redirect", json!({"uri": "/b", "ret_code": 1000}), 999),
        ("uri-blocker", json!({"block_rules": ["a"], "rejected_code": 1000}), 999),
        ("uri-blocker", json!({"block_rules": ["a"], "rejected_code": 1000, "rejected_msg": "no"}), 999),
        ("uri-blocker", json!({"block_rules": ["a"], "rejected_code": 451}), 451),
    ] {
        let bench = bench();
        let plugin = bench.plugin(name, settings.clone());
        assert_eq!(bench.run(&plugin, "GET /a HTTP/1.1").status, expected, "{name} {settings}");
    }
}
