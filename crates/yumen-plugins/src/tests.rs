//! A dry run reports what the plugin then does, and changes nothing.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use yumen_plugin::{DryRunResult, PhaseSet, Plugin, PluginRegistry};

use crate::testing::{PluginBench, TestReply};

/// The phases that a dry run covers.
const REQUEST_PHASES: [PhaseSet; 2] = [PhaseSet::REWRITE, PhaseSet::ACCESS];

fn has_request_phase(plugin: &dyn Plugin) -> bool {
    REQUEST_PHASES.iter().any(|phase| plugin.phases().has(*phase))
}

/// The forwarded request, or the status of a local response.
type RequestOutcome = Result<Vec<String>, u16>;

/// Dry run of the request phases of `plugin`.
fn dry_run(bench: &PluginBench, plugin: &dyn Plugin, request: &str) -> RequestOutcome {
    let mut ex = bench.exchange(request);
    for phase in REQUEST_PHASES {
        if !plugin.phases().has(phase) {
            continue;
        }
        match plugin.dry_run(phase, &mut ex) {
            DryRunResult::Continue | DryRunResult::Note(_) => {}
            DryRunResult::Respond(response) | DryRunResult::Refuse(response, _) => {
                return Err(response.status);
            }
            DryRunResult::Unknown => panic!("{request}: the dry run has no result"),
        }
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let line = |(name, value): (&[u8], &[u8])| format!("{}: {}", text(name), text(value));
    let first = format!("{} {}", text(ex.request.method_name()), text(ex.request.upstream_target()));
    Ok(std::iter::once(first).chain(ex.request.fields.iter().map(line)).collect())
}

fn outcome(reply: TestReply) -> RequestOutcome {
    reply.upstream.ok_or(reply.status)
}

fn bench() -> PluginBench {
    let mut bench = PluginBench::new();
    let alice = bench.add_consumer("alice");
    bench.add_key(&alice, "key-auth", json!({"key": "secret"}), None);
    bench.add_key(&alice, "basic-auth", json!({"username": "alice", "password": "pw"}), None);
    bench
}

/// One plugin, its settings, and requests that exercise it.
struct DryRunCase {
    plugin: &'static str,
    settings: Value,
    requests: &'static [&'static str],
}

impl DryRunCase {
    /// Compares dry run and run of each request. Both have a bench of their own, so neither sees the other's counters.
    fn check(&self) {
        let DryRunCase { plugin: name, settings, requests } = self;
        assert!(!requests.is_empty(), "{name} {settings}");
        for request in *requests {
            let (dry, real) = (bench(), bench());
            let plugin = dry.plugin(name, settings.clone());
            assert!(has_request_phase(&*plugin), "{name} has no phase that a dry run covers");
            let expected = outcome(real.run(&real.plugin(name, settings.clone()), request));
            assert_eq!(dry_run(&dry, &*plugin, request), expected, "{name} {settings} {request}");
        }
    }
}

/// Plugins that identify a client or judge the consumer.
fn authentication_cases() -> Vec<DryRunCase> {
    let mut cases = Vec::new();
    let mut add = |plugin, settings, requests: &'static [&'static str]| {
        cases.push(DryRunCase { plugin, settings, requests })
    };
    add(
        "key-auth",
        json!({"hide_credentials": true}),
        &[
            "GET /a HTTP/1.1",
            "GET /a HTTP/1.1\napikey: secret",
            "GET /a?apikey=secret&b=1 HTTP/1.1",
            "GET /a HTTP/1.1\napikey: wrong",
        ],
    );
    add(
        "basic-auth",
        json!({}),
        &[
            "GET /a HTTP/1.1",
            "GET /a HTTP/1.1\nAuthorization: Basic YWxpY2U6cHc=",
            "GET /a HTTP/1.1\nAuthorization: Basic YWxpY2U6",
        ],
    );
    add("csrf", json!({"key": "k"}), &["GET /a HTTP/1.1", "POST /a HTTP/1.1"]);
    add("hmac-auth", json!({}), &["GET /a HTTP/1.1"]);
    add("jwt-auth", json!({"hide_credentials": true}), &["GET /a HTTP/1.1", "GET /a?jwt=x HTTP/1.1"]);
    add("consumer-restriction", json!({"whitelist": ["alice"]}), &["GET /a HTTP/1.1"]);
    add(
        "jwe-decrypt",
        json!({"header": "Authorization", "forward_header": "Authorization"}),
        &["GET /a HTTP/1.1", "GET /a HTTP/1.1\nAuthorization: a.b"],
    );
    add(
        "openid-connect",
        json!({"client_id": "a", "discovery": "http://idp/.well-known/openid-configuration", "bearer_only": true,
            "use_jwks": true}),
        &["GET /a HTTP/1.1", "GET /a HTTP/1.1\nAuthorization: Bearer x", "GET /a HTTP/1.1\nAuthorization: x"],
    );
    add(
        "wolf-rbac",
        json!({}),
        &["GET /a HTTP/1.1", "GET /a HTTP/1.1\nAuthorization: V1#none#t", "GET /a?rbac_token=V2 HTTP/1.1"],
    );
    add("multi-auth", json!({"auth_plugins": [{"key-auth": {}}, {"basic-auth": {}}]}), &["GET /a HTTP/1.1"]);
    add("acl", json!({"allow_labels": {"team": ["a"]}}), &["GET /a HTTP/1.1"]);
    add("consumer-restriction", json!({"type": "route_id", "whitelist": ["1"]}), &["GET /a HTTP/1.1"]);
    cases
}

/// Plugins that admit or refuse by the request alone.
fn guard_cases() -> Vec<DryRunCase> {
    let mut cases = Vec::new();
    let mut add = |plugin, settings, requests: &'static [&'static str]| {
        cases.push(DryRunCase { plugin, settings, requests })
    };
    add("adaptive-concurrency", json!({}), &["GET /a HTTP/1.1"]);
    add(
        "authz-casdoor",
        json!({
            "endpoint_addr": "http://door.test", "callback_url": "http://shop.test/cb", "client_id": "a",
            "client_secret": "b",
        }),
        &["GET /a HTTP/1.1", "GET /cb?code=a&state=b HTTP/1.1"],
    );
    add(
        "dingtalk-auth",
        json!({"app_key": "a", "app_secret": "b", "secret": "01234567", "redirect_uri": "/login"}),
        &["GET /a HTTP/1.1"],
    );
    add(
        "feishu-auth",
        json!({
            "app_id": "a", "app_secret": "b", "secret": "01234567", "auth_redirect_uri": "http://a/cb",
            "redirect_uri": "/login",
        }),
        &["GET /a HTTP/1.1", "GET /a?code=c HTTP/1.1"],
    );
    add("public-api", json!({}), &["GET /a HTTP/1.1", "GET /apisix/plugin/wolf-rbac/login HTTP/1.1"]);
    add(
        "cas-auth",
        json!({
            "idp_uri": "http://cas.test", "cas_callback_uri": "/cb", "logout_uri": "/out",
            "cookie": {"secret": "0123456789abcdef0123456789abcdef"},
        }),
        &["GET /a HTTP/1.1", "GET /out HTTP/1.1", "GET /cb?ticket=a HTTP/1.1"],
    );
    // The fields for the endpoint are set per attempt, after the phases that a dry run covers.
    add(
        "deadline",
        json!({"tell_upstream": false}),
        &["GET /a HTTP/1.1\nGrpc-Timeout: 1S", "GET /a HTTP/1.1"],
    );
    let model = "[request_definition]\nr = sub, obj, act\n[policy_definition]\np = sub, obj, act\n[policy_effect]\n\
                 e = some(where (p.eft == allow))\n[matchers]\nm = r.sub == p.sub && r.obj == p.obj";
    add(
        "authz-casbin",
        json!({"model": model, "policy": "p, alice, /a, GET", "username": "user"}),
        &["GET /a HTTP/1.1\nuser: alice", "GET /a HTTP/1.1"],
    );
    add("ip-restriction", json!({"blacklist": ["127.0.0.1"]}), &["GET /a HTTP/1.1"]);
    add("ip-restriction", json!({"whitelist": ["127.0.0.1"]}), &["GET /a HTTP/1.1"]);
    add("real-ip", json!({"source": "arg_ip"}), &["GET /a?ip=1.2.3.4 HTTP/1.1"]);
    add("client-control", json!({"max_body_size": 1}), &["GET /a HTTP/1.1", "POST /a HTTP/1.1\n\nabc"]);
    add(
        "referer-restriction",
        json!({"whitelist": ["a.b"]}),
        &["GET /a HTTP/1.1", "GET /a HTTP/1.1\nReferer: http://a.b/"],
    );
    add("ua-restriction", json!({"denylist": ["x"]}), &["GET /a HTTP/1.1", "GET /a HTTP/1.1\nUser-Agent: y"]);
    add("api-breaker", json!({"break_response_code": 502}), &["GET /a HTTP/1.1"]);
    let needs_field = json!({"header_schema": {"type": "object", "required": ["a"]}});
    add("request-validation", needs_field, &["GET /a HTTP/1.1", "GET /a HTTP/1.1\na: b"]);
    add("uri-blocker", json!({"block_rules": ["root"]}), &["GET /root HTTP/1.1", "GET /a HTTP/1.1"]);
    add(
        "cors",
        json!({"answer": "preflight"}),
        &["OPTIONS /a HTTP/1.1", "OPTIONS /a HTTP/1.1\nOrigin: http://a"],
    );
    add("cors", json!({}), &["OPTIONS /a HTTP/1.1\nOrigin: http://a", "GET /a HTTP/1.1\nOrigin: http://a"]);
    cases
}

/// Plugins that rewrite the request or respond to it.
fn rewrite_cases() -> Vec<DryRunCase> {
    let mut cases = Vec::new();
    let mut add = |plugin, settings, requests: &'static [&'static str]| {
        cases.push(DryRunCase { plugin, settings, requests })
    };
    add(
        "proxy-rewrite",
        json!({"regex_uri": ["^/a(.*)", "/b$1"], "method": "POST", "headers": {"X": "$uri"}}),
        &["GET /a/1?q HTTP/1.1", "GET /c HTTP/1.1"],
    );
    add(
        "proxy-rewrite",
        json!({"field_edits": {"rename": {"X": "Y"}, "default": {"Y": "1"}}, "query_edits": {"remove": ["q"]}}),
        &["GET /a?q=1&r HTTP/1.1\nX: 2", "GET /a HTTP/1.1"],
    );
    add("redirect", json!({"uri": "/b"}), &["GET /a HTTP/1.1"]);
    add(
        "redirect",
        json!({"http_to_https": true}),
        &["GET /a HTTP/1.1", "POST /a HTTP/1.1\nX-Forwarded-Proto: https"],
    );
    add(
        "mocking",
        json!({"response_status": 201, "response_example": "x", "delay": 1}),
        &["GET /a HTTP/1.1"],
    );
    add(
        "request-id",
        json!({"algorithm": "nanoid"}),
        &["GET /a HTTP/1.1", "GET /a HTTP/1.1\nX-Request-Id: 1"],
    );
    add(
        "fault-injection",
        json!({"abort": {"http_status": 418, "vars": [[["arg_a", "==", "1"]]]}}),
        &["GET /a?a=1 HTTP/1.1", "GET /a?a=2 HTTP/1.1"],
    );
    add(
        "fault-injection",
        json!({"abort": {"http_status": 418, "vars": [[["post_arg_a", "==", "1"]]]}}),
        &["GET /a HTTP/1.1"],
    );
    add("fault-injection", json!({"delay": {"duration": 1}}), &["GET /a HTTP/1.1"]);
    add(
        "grpc-web",
        json!({}),
        &[
            "OPTIONS /a HTTP/1.1",
            "GET /a HTTP/1.1",
            "POST /a HTTP/1.1\nContent-Type: application/grpc-web+proto\n\nabc",
        ],
    );
    let user = json!({"query": "query { user { id } }", "variables": ["id"]});
    add("degraphql", user, &["GET /a?id=1 HTTP/1.1", "PUT /a HTTP/1.1"]);
    // The bench has no proto object, so every request passes; the tests of the plugin cover transcoding.
    let shop = json!({"proto_id": 1, "service": "a.B", "method": "C"});
    add("grpc-transcode", shop, &["GET /a HTTP/1.1"]);
    let alone = json!({"rules": [{"weighted_upstreams": [{"weight": 1}]}]});
    add("traffic-split", alone, &["GET /a HTTP/1.1"]);
    cases
}

fn dry_run_cases() -> Vec<DryRunCase> {
    [authentication_cases(), guard_cases(), rewrite_cases()].into_iter().flatten().collect()
}

#[test]
fn dry_run_matches_run() {
    for case in dry_run_cases() {
        case.check();
    }
}

/// A plugin with counters: `times` dry runs and runs in turn on one bench, `refused` of them refused.
struct LimitCase {
    plugin: &'static str,
    settings: Value,
    times: usize,
    refused: usize,
}

fn limit_cases() -> Vec<LimitCase> {
    let case = |plugin, settings, times, refused| LimitCase { plugin, settings, times, refused };
    let sliding = json!({"count": 2, "time_window": 60, "window_type": "sliding"});
    let rate = json!({"rate": 1, "burst": 1, "nodelay": true, "key": "remote_addr"});
    let concurrent = json!({"conn": 1, "burst": 1, "default_conn_delay": 0.1, "key": "remote_addr"});
    vec![
        case("limit-count", json!({"count": 3, "time_window": 60, "rejected_code": 429}), 5, 2),
        case("limit-count", sliding, 4, 2),
        case("limit-req", rate, 4, 2),
        case("limit-conn", concurrent, 4, 2),
    ]
}

impl LimitCase {
    fn check(&self) {
        let LimitCase { plugin: name, settings, times, refused } = self;
        let bench = bench();
        let plugin = bench.plugin(name, settings.clone());
        let mut refusals = 0;
        for turn in 0..*times {
            let dry = dry_run(&bench, &*plugin, "GET /a HTTP/1.1");
            assert_eq!(
                dry,
                dry_run(&bench, &*plugin, "GET /a HTTP/1.1"),
                "{name} {settings}: a dry run counts nothing"
            );
            refusals += usize::from(dry.is_err());
            // The exchange is never dropped, so its request stays in flight and keeps its slot.
            let mut ex = bench.exchange("GET /a HTTP/1.1");
            let answer = bench.admit(std::slice::from_ref(&plugin), &mut ex, "GET /a HTTP/1.1");
            assert_eq!(
                dry.err(),
                answer.map(|response| response.status),
                "{name} {settings}, request {turn}"
            );
            if *name == "limit-conn" {
                std::mem::forget(ex);
            }
        }
        assert_eq!(refusals, *refused, "{name} {settings}");
    }
}

#[test]
fn dry_run_of_limits_counts_nothing() {
    for case in limit_cases() {
        case.check();
    }
}

/// A plugin whose result the gateway cannot compute alone describes it.
struct DryRunNoteCase {
    plugin: &'static str,
    settings: Value,
    phase: PhaseSet,
    note: &'static str,
}

fn note_cases() -> [DryRunNoteCase; 9] {
    [
        DryRunNoteCase {
            plugin: "authz-keycloak",
            settings: json!({"client_id": "a", "token_endpoint": "http://kc.test/token"}),
            phase: PhaseSet::ACCESS,
            note: "depends on the decision of http://kc.test/token",
        },
        DryRunNoteCase {
            plugin: "fault-injection",
            settings: json!({"abort": {"http_status": 418, "percentage": 30}, "delay": {"duration": 0.5}}),
            phase: PhaseSet::REWRITE,
            note: "delays 100 % of such requests by 0.5 s; answers 30 % of such requests with 418",
        },
        DryRunNoteCase {
            plugin: "forward-auth",
            settings: json!({"uri": "http://auth.test/x"}),
            phase: PhaseSet::ACCESS,
            note: "depends on the response of http://auth.test/x",
        },
        DryRunNoteCase {
            plugin: "opa",
            settings: json!({"host": "http://opa.test:8181", "policy": "example/http"}),
            phase: PhaseSet::ACCESS,
            note: "depends on the decision of http://opa.test:8181/v1/data/example/http",
        },
        DryRunNoteCase {
            plugin: "ldap-auth",
            settings: json!({"base_dn": "dc=test", "ldap_uri": "ldap.test"}),
            phase: PhaseSet::REWRITE,
            note: "binds as cn=alice,dc=test to ldap://ldap.test:389",
        },
        DryRunNoteCase {
            plugin: "ldap-auth-advanced",
            settings: json!({"base_dn": "dc=test", "ldap_uri": "ldap.test", "header_type": "basic", "use_ldaps": true}),
            phase: PhaseSet::REWRITE,
            note: "searches cn=alice below dc=test in ldaps://ldap.test:636",
        },
        DryRunNoteCase {
            plugin: "proxy-mirror",
            settings: json!({"host": "http://mirror.test", "sample_ratio": 0.25}),
            phase: PhaseSet::REWRITE,
            note: "copies 25 % of such requests to http://mirror.test",
        },
        DryRunNoteCase {
            plugin: "skywalking",
            settings: json!({"sample_ratio": 0.5}),
            phase: PhaseSet::REWRITE,
            note: "records 50 % of traces for http://127.0.0.1:12800",
        },
        DryRunNoteCase {
            plugin: "zipkin",
            settings: json!({"endpoint": "http://zipkin.test/api/v2/spans", "sample_ratio": 1}),
            phase: PhaseSet::REWRITE,
            note: "records all new traces, and those that the caller samples for http://zipkin.test/api/v2/spans",
        },
    ]
}

#[test]
fn dry_run_describes_chance_and_subrequests() {
    for DryRunNoteCase { plugin: name, settings, phase, note } in note_cases() {
        let bench = bench();
        let plugin = bench.plugin(name, settings);
        let authorization = if name.starts_with("ldap") { "Basic YWxpY2U6cHc=" } else { "Bearer a" };
        let mut ex = bench.exchange(&format!("GET /a HTTP/1.1\nAuthorization: {authorization}"));
        let DryRunResult::Note(found) = plugin.dry_run(phase, &mut ex) else { panic!("{name}: no note") };
        assert_eq!(found, note);
        assert!(bench.host.queries.borrow().is_empty(), "{name}: a dry run asks no directory");
        assert!(bench.host.subrequests.borrow().is_empty(), "{name}: a dry run sends no subrequest");
    }
}

/// Every built-in plugin with a request phase is run by a case of this file; the others have no such phase.
#[test]
fn every_plugin_has_a_dry_run_case() {
    let mut exercised: BTreeSet<&str> = dry_run_cases().iter().map(|case| case.plugin).collect();
    exercised.extend(limit_cases().iter().map(|case| case.plugin));
    exercised.extend(note_cases().iter().map(|case| case.plugin));
    let without_request_phase = [
        ("attach-consumer-label", json!({"headers": {"X-Team": "$team"}})),
        ("brotli", json!({})),
        (
            "clickhouse-logger",
            json!({"endpoint_addr": "http://a", "user": "", "password": "", "database": "", "logtable": "t"}),
        ),
        ("data-mask", json!({})),
        ("datadog", json!({})),
        ("elasticsearch-logger", json!({"endpoint_addr": "http://a", "field": {"index": "i"}})),
        ("error-log-logger", json!({})),
        ("file-logger", json!({"path": "/tmp/a"})),
        (
            "google-cloud-logging",
            json!({"auth_config": {"client_email": "a", "private_key": "k", "project_id": "p", "token_uri": "https://a"}}),
        ),
        ("gzip", json!({})),
        ("kafka-logger", json!({"broker_list": {"a": 1}, "kafka_topic": "t"})),
        ("http-logger", json!({"uri": "http://a/"})),
        ("loggly", json!({"customer_token": "t"})),
        ("loki-logger", json!({"endpoint_addrs": ["http://a"]})),
        ("mqtt-proxy", json!({"protocol_name": "MQTT", "protocol_level": 4})),
        // Without metadata.
        ("opentelemetry", json!({})),
        ("prometheus", json!({})),
        ("proxy-buffering", json!({})),
        ("proxy-control", json!({})),
        ("response-rewrite", json!({"body": "x"})),
        ("skywalking-logger", json!({"endpoint_addr": "http://a"})),
        (
            "sls-logger",
            json!({"host": "a", "port": 1, "project": "p", "logstore": "l", "access_key_id": "i", "access_key_secret": "s"}),
        ),
        ("splunk-hec-logging", json!({"endpoint": {"uri": "http://a/", "token": "t"}})),
        ("syslog", json!({"host": "a", "port": 1})),
        ("tcp-logger", json!({"host": "a", "port": 1})),
        (
            "tencent-cloud-cls",
            json!({"cls_host": "a", "cls_topic": "t", "secret_id": "i", "secret_key": "k"}),
        ),
        ("udp-logger", json!({"host": "a", "port": 1})),
        ("zstd", json!({})),
    ];
    let bench = bench();
    for (name, settings) in without_request_phase {
        assert!(!has_request_phase(&*bench.plugin(name, settings)), "{name} needs a case");
        assert!(exercised.insert(name), "{name} has a case");
    }
    let missing: Vec<_> =
        crate::BUILTIN.iter().map(|kind| kind.name).filter(|name| !exercised.contains(name)).collect();
    assert!(missing.is_empty(), "plugins without a case: {missing:?}");
}

/// The paths of all settings without a description, below `path`.
fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if property["description"].as_str().is_none_or(str::is_empty) {
            found.push(path.clone());
        }
        undescribed(property, &path, found);
        undescribed(&property["items"], &path, found);
    }
}

/// The reference shows the doc comment of each setting.
#[test]
fn every_setting_is_described() {
    let registry = yumen_plugin::PluginRegistry::new(crate::BUILTIN);
    let mut found = Vec::new();
    for plugin in registry.iter() {
        let schemas =
            [Some(plugin.schema().clone()), plugin.consumer_schema().cloned(), plugin.metadata_schema()];
        schemas.iter().flatten().for_each(|schema| undescribed(schema, plugin.kind.name, &mut found));
    }
    assert!(found.is_empty(), "settings without a doc comment: {found:?}");
}

#[test]
fn status_of_a_local_response_is_clamped_to_final_statuses() {
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

#[test]
fn empty_credentials_are_refused() {
    let registry = PluginRegistry::new(crate::BUILTIN);
    let samples = [
        ("basic-auth", json!({ "username": "a", "password": "b" })),
        ("hmac-auth", json!({ "key_id": "a", "secret_key": "b" })),
        ("jwe-decrypt", json!({ "key": "a", "secret": "0123456789abcdef0123456789abcdef" })),
        ("jwt-auth", json!({ "key": "a", "secret": "b" })),
        ("key-auth", json!({ "key": "a" })),
        ("ldap-auth", json!({ "user_dn": "cn=a" })),
        ("ldap-auth-advanced", json!({ "user_dn": "cn=a" })),
        ("wolf-rbac", json!({ "appid": "a" })),
    ];
    let with_consumers = registry.iter().filter(|one| one.consumer_schema().is_some());
    let names: Vec<&str> = with_consumers.map(|one| one.kind.name).collect();
    assert_eq!(names, samples.each_ref().map(|(name, _)| *name));
    let bench = bench();
    for (name, settings) in samples {
        let read = |settings: Value| bench.credentials(name, settings);
        assert!(read(settings.clone()).is_ok(), "{name}");
        for field in settings.as_object().unwrap().keys() {
            for value in [json!(""), json!(null)] {
                let mut settings = settings.clone();
                settings[field] = value.clone();
                let refusal = read(settings).err().map(|error| error.path);
                assert_eq!(refusal.as_deref(), Some(&**field), "{name} with {value}");
            }
        }
    }
}
