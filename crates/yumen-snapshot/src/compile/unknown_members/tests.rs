//! Objects to warnings about members without effect.

use serde_json::{Value, json};
use yumen_base::ProblemLevel;
use yumen_config::Kind;

use crate::compile::tests::{compiler, nodes, put, route};

/// Checks the problems of one object: level, path, message and hint.
fn check(kind: Kind, id: &str, object: Value, expected: &[&str]) {
    let problems = compiler().apply(vec![put(kind, id, object)], 1).problems;
    let lines: Vec<String> = problems
        .iter()
        .map(|one| {
            let level = if one.level == ProblemLevel::Error { "error" } else { "warning" };
            let hint = one.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
            format!("{level} {}: {}{hint}", one.path, one.message)
        })
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn misspelt_members_are_reported_at_their_path() {
    let upstream = json!({
        "nodes": [{ "host": "10.0.0.1", "port": 80, "weight": 1, "wieght": 2 }],
        "timeout": { "connect": 1, "send": 1, "read": 1, "reed": 2 },
        "keepalive_pool": { "sise": 5 },
        "tls": { "verfy": true },
        "checks": { "active": { "http_pth": "/", "healthy": { "intervall": 2 } }, "pasive": {} },
    });
    let nested = [
        "warning nodes[0].wieght: unknown member \"wieght\" has no effect (did you mean \"weight\"?)",
        "warning timeout.reed: unknown member \"reed\" has no effect (did you mean \"read\"?)",
        "warning keepalive_pool.sise: unknown member \"sise\" has no effect (did you mean \"size\"?)",
        "warning tls.verfy: unknown member \"verfy\" has no effect (did you mean \"verify\"?)",
        "warning checks.active.http_pth: unknown member \"http_pth\" has no effect (did you mean \"http_path\"?)",
        "warning checks.active.healthy.intervall: unknown member \"intervall\" has no effect (did you mean \"interval\"?)",
        "warning checks.pasive: unknown member \"pasive\" has no effect (did you mean \"passive\"?)",
    ];
    check(Kind::Upstreams, "u", upstream, &nested);
    let plugins = json!({ "first": { "text": "a", "txet": 1, "_meta": { "disabled": true } } });
    let of_plugins = [
        "warning plugins.first._meta.disabled: unknown member \"disabled\" has no effect (did you mean \"disable\"?)",
        "warning plugins.first.txet: unknown member \"txet\" has no effect (did you mean \"text\"?)",
    ];
    check(Kind::GlobalRules, "1", json!({ "plugins": plugins }), &of_plugins);
    let key = json!({ "username": "bob", "plugins": { "key-auth": { "key": "k", "kee": "l" } } });
    let of_key =
        ["warning plugins.key-auth.kee: unknown member \"kee\" has no effect (did you mean \"key\"?)"];
    check(Kind::Consumers, "bob", key, &of_key);
    let vault = json!({ "uri": "http://v", "prefix": "p", "token": "t", "namespac": "n" });
    let of_vault =
        ["warning namespac: unknown member \"namespac\" has no effect (did you mean \"namespace\"?)"];
    check(Kind::Secrets, "vault/1", vault, &of_vault);
    let metadata = ["warning text: \"text\" has no effect: the plugin has no metadata"];
    check(Kind::PluginMetadata, "second", json!({ "id": "second", "text": "a" }), &metadata);
}

#[test]
fn misspelt_member_is_the_error_in_place_of_the_missing_one() {
    let settings = json!({ "uri": "/", "plugins": { "first": { "texd": "a" } } });
    let expected = [
        "error plugins.first.texd: unknown member \"texd\" (did you mean \"text\"? matching requests are answered 503 until it is fixed)",
    ];
    check(Kind::Routes, "1", settings, &expected);
}

#[test]
fn forbidden_members_have_a_hint() {
    let route = json!({ "uri": "/", "hostz": ["a"], "upstream": nodes("10.0.0.1") });
    let problems = compiler().apply(vec![put(Kind::Routes, "1", route)], 1).problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].allowed.as_deref(), Some("did you mean \"hosts\"?"));
    assert_eq!(problems[0].hint.as_deref(), Some("matching requests go to other routes until it is fixed"));
}

#[test]
fn objects_without_unknown_members_have_no_warning() {
    let upstream =
        json!({ "nodes": { "10.0.0.1:80": 1 }, "checks": { "active": {} }, "labels": { "any": "x" } });
    check(Kind::Upstreams, "u", upstream, &[]);
    let off = json!({ "first": { "txet": 1, "_meta": { "disable": true } } });
    check(Kind::GlobalRules, "1", json!({ "plugins": off }), &[]);
    assert_eq!(compiler().apply(vec![route("1", json!({ "upstream": nodes("10.0.0.1") }))], 1).problems, []);
}
