//! Targets and whether they pass.

use serde_json::json;

use crate::testing::PluginBench;

fn check(settings: serde_json::Value, target: &str, status: u16, body: &str) {
    let bench = PluginBench::new();
    let plugin = bench.plugin("uri-blocker", settings);
    let reply = bench.run(&plugin, &format!("GET {target} HTTP/1.1"));
    assert_eq!((reply.status, reply.body.as_str()), (status, body), "{target}");
}

#[test]
fn targets_that_match_a_rule_are_refused() {
    let rules = json!({"block_rules": ["aa", "^/select.*from"]});
    check(rules.clone(), "/hello?aa=1", 403, "");
    check(rules.clone(), "/select?x=from", 403, "");
    check(rules.clone(), "/x/select?x=from", 200, "ok\n");
    check(rules, "/hello?AA=1", 200, "ok\n");
}

#[test]
fn no_spelling_of_a_path_goes_around_a_rule() {
    let rules = json!({"block_rules": ["^/internal/", "root\\.exe", "<script"]});
    for target in [
        "/internal/x",
        "//internal/x",
        "/%69nternal/x",
        "/./internal/x",
        "/a/../internal/x",
        "http://h.test//internal/x",
        "/x/root%2eexe",
        "/%3Cscript%3E",
    ] {
        check(rules.clone(), target, 403, "");
    }
    check(rules, "/x?to=/internal/", 200, "ok\n");
}

#[test]
fn the_refusal_is_as_configured() {
    let settings = json!({"block_rules": ["aa"], "rejected_code": 451, "rejected_msg": "access denied",
        "case_insensitive": true});
    check(settings, "/AA", 451, "{\"error_msg\":\"access denied\"}\n");
}

#[test]
fn no_rule_blocks_everything_as_in_apisix() {
    check(json!({"block_rules": []}), "/", 403, "");
}

#[test]
fn a_broken_rule_is_refused_with_its_place() {
    let error = PluginBench::new().build("uri-blocker", json!({"block_rules": ["ok", ".+("]}));
    assert_eq!(error.err().expect("refused").path, "block_rules.1");
}
