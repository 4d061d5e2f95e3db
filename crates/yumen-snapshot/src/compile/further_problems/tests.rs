use serde_json::json;
use yumen_config::Kind;

use super::super::tests::{compiler, found, put, route};

#[test]
fn all_that_is_wrong_with_an_object_is_told_at_once() {
    let plugins = json!({ "first": { "text": 5 }, "second": { "text": "x" }, "thrid": {} });
    let broken = json!({ "priority": "x", "status": 3, "methods": ["NOPE"], "plugins": plugins });
    let compiled = compiler().apply(vec![route("a", broken)], 1);
    let mut reported = found(&compiled.problems);
    reported.sort();
    let paths = ["methods[0]", "plugins.first.text", "plugins.thrid", "priority", "status"];
    assert_eq!(reported, paths.map(|path| format!("error routes/a at {path}")));
    // What remains says no more where what is left out is needed.
    let compiled =
        compiler().apply(vec![put(Kind::Consumers, "b", json!({ "username": 5, "plugins": {} }))], 1);
    assert_eq!(found(&compiled.problems), ["error consumers/b at username"]);
}

#[test]
fn conditions_and_plugins_are_looked_at_whatever_else_is_wrong() {
    let reported = |change| {
        let mut reported = found(&compiler().apply(vec![change], 1).problems);
        reported.sort();
        reported
    };
    let vars = json!([["arg_a", "=!", 1]]);
    let plugins = json!({ "first": { "text": 5 } });
    let upstream = json!({ "type": "foo", "retries": "x", "nodes": { "10.0.0.1:80": -1 } });
    let broken =
        json!({ "vars": vars, "remote_addr": "300.1.1.1", "plugins": plugins, "upstream": upstream });
    let paths = [
        "plugins.first.text",
        "remote_addr",
        "upstream.nodes.10.0.0.1:80",
        "upstream.retries",
        "upstream.type",
        "vars",
    ];
    assert_eq!(reported(route("a", broken)), paths.map(|path| format!("error routes/a at {path}")));
    let both = json!({ "first": { "text": 5 }, "second": { "text": 5 } });
    let consumer = put(Kind::Consumers, "b", json!({ "username": "x y", "group_id": "?", "plugins": both }));
    let paths = ["group_id", "plugins.first.text", "plugins.second.text", "username"];
    assert_eq!(reported(consumer), paths.map(|path| format!("error consumers/b at {path}")));
}

#[test]
fn every_setting_of_a_plugin_is_looked_at() {
    let broken = |settings| {
        let rule = json!({ "plugins": { "limit-count": settings } });
        let compiled = crate::testing::compiler().apply(vec![put(Kind::GlobalRules, "a", rule)], 1);
        let reported = compiled.problems.into_iter().map(|one| one.path.replace("plugins.limit-count.", ""));
        reported.collect::<Vec<_>>()
    };
    let settings =
        json!({ "count": 1.5, "time_window": true, "rejected_code": 1, "_meta": { "priority": 1 } });
    assert_eq!(broken(settings), ["count", "time_window", "rejected_code"]);
    // A reference is judged by what it leads to.
    assert_eq!(
        broken(json!({ "count": 0, "time_window": 1, "rejected_code": "$env://NONE" })),
        ["rejected_code", "count"]
    );
}
