use serde_json::{Value, json};
use yumen_config::{Kind, Resource, document};
use yumen_plugin::Step;

use crate::testing::{TestWorker, compiler};
use crate::{Compiler, ConfigChange, Snapshot};

fn rule(id: &str, value: Value) -> ConfigChange {
    ConfigChange::Put(Resource::new(Kind::GlobalRules, id, &value))
}

/// What the rules come to for a request: the status of an answer, or the plugins that ran.
fn forwarded(snapshot: &Snapshot, request: &str) -> String {
    let bench = TestWorker::default();
    let mut ex = bench.exchange(request);
    let mut ran = Vec::new();
    for instance in snapshot.global.rewrite() {
        if !ex.admits(instance) {
            continue;
        }
        ran.push(instance.name);
        if let Step::Respond(response) = instance.plugin.rewrite(&mut ex) {
            return response.status.to_string();
        }
    }
    ran.join(" ")
}

fn hint(compiler: &Compiler) -> String {
    compiler.problems().first().and_then(|one| one.hint.clone()).unwrap_or_default()
}

#[test]
fn a_new_broken_rule_keeps_what_can_be_built_and_refuses_for_what_would_have_guarded() {
    let refused = "requests under global rules are answered 503";
    let id = json!({ "header_name": "X" });
    let broken_id = json!({ "header_name": 1 });
    let post_only = json!({ "filter": [["request_method", "==", "POST"]] });
    let off = json!({ "whitelist": 1, "_meta": { "disable": true } });
    for (plugins, expected, message) in [
        // One that guards, for all requests or for some.
        (json!({ "ip-restriction": { "whitelist": ["nowhere"] }, "request-id": id }), "503", refused),
        (json!({ "key-auth": { "header": 1 }, "request-id": id }), "503", refused),
        (json!({ "limit-count": { "count": "many" } }), "503", refused),
        (json!({ "ua-restriction": { "_meta": post_only } }), "", refused),
        (json!({ "ua-restriction": { "_meta": { "filter": [["a"]] } } }), "503", refused),
        // One that does not.
        (
            json!({ "proxy-rewrite": { "uri": 1 }, "request-id": id }),
            "request-id",
            "its other plugins are active; requests pass without proxy-rewrite",
        ),
        (json!({ "request-id": broken_id }), "", "not active: requests pass without it"),
        (
            json!({ "request-ids": {}, "request-id": id }),
            "503",
            "did you mean \"request-id\"? requests under global rules are answered 503",
        ),
        (
            json!({ "key-auht": {} }),
            "503",
            "did you mean \"key-auth\"? requests under global rules are answered 503",
        ),
        (
            json!({ "key-auht": off, "request-id": id }),
            "request-id",
            "did you mean \"key-auth\"? its other plugins",
        ),
        (json!({ "ip-restriction": off, "request-id": broken_id }), "", "its other plugins are active"),
        // Any of these unknown plugins may guard.
        (json!("none"), "503", "they must not pass without its plugins"),
        (json!([{ "key-auth": {} }]), "503", refused),
        (json!(1), "503", refused),
        (json!(null), "", "not active"),
    ] {
        let mut compiler = compiler();
        let compiled = compiler.apply(vec![rule("1", json!({ "plugins": plugins }))], 1);
        assert_eq!(forwarded(&compiled.snapshot, "GET /"), expected, "{plugins}");
        let hint = hint(&compiler);
        assert!(hint.contains(message), "{plugins}: {hint}");
    }
}

#[test]
fn a_rule_with_something_wrong_beside_its_plugins_runs_them() {
    let mut compiler = compiler();
    let compiled = compiler.apply(vec![rule("1", json!({ "plugins": { "request-id": {} }, "odd": 1 }))], 1);
    assert_eq!(forwarded(&compiled.snapshot, "GET /"), "request-id");
    assert_eq!(hint(&compiler), "its plugins are in force all the same");
}

#[test]
fn a_broken_rule_heals_refuses_again_and_goes() {
    let guarded = |list: Value| rule("1", json!({ "plugins": { "ip-restriction": { "whitelist": list } } }));
    let (broken, sound) = (guarded(json!(["nowhere"])), guarded(json!(["10.0.0.1"])));
    let mut compiler = compiler();
    let mut forwarded_after =
        |changes, revision| forwarded(&compiler.apply(changes, revision).snapshot, "GET /");
    assert_eq!(forwarded_after(vec![broken.clone()], 1), "503");
    // What is left of a broken rule is no good version of it.
    assert_eq!(forwarded_after(vec![guarded(json!(["elsewhere"]))], 2), "503");
    assert_eq!(forwarded_after(vec![sound], 3), "");
    assert_eq!(forwarded_after(vec![broken.clone()], 4), "", "its last good version stays");
    assert_eq!(forwarded_after(vec![ConfigChange::Delete(Kind::GlobalRules, "1".into()),], 5), "");
    assert_eq!(forwarded_after(vec![broken], 6), "503");
    assert_eq!(forwarded_after(vec![ConfigChange::Delete(Kind::GlobalRules, "1".into())], 7), "");
    assert!(compiler.problems().is_empty());
}

#[test]
fn a_new_rule_with_a_variable_that_is_not_set_refuses_for_the_plugin_it_is_in() {
    let list = json!({ "whitelist": ["10.0.0.1"] });
    let unset_list = json!({ "whitelist": ["10.0.0.1", "${{UNSET}}"] });
    // Both would do as they are written: the one admits everybody, the other looks at nobody.
    let admits = json!({ "denylist": ["${{UNSET}}"] });
    let looks = json!({ "denylist": ["x"], "_meta": { "filter": [["request_method", "==", "${{UNSET}}"]] } });
    let off = json!({ "denylist": ["${{UNSET}}"], "_meta": { "disable": true } });
    let ua = |settings: &Value| json!({ "plugins": { "ua-restriction": settings, "request-id": {} } });
    for (written, expected) in [
        (json!({ "plugins": { "ip-restriction": unset_list } }), "503"),
        (ua(&admits), "503"),
        (ua(&looks), "503"),
        (ua(&off), "request-id"),
        (json!({ "plugins": { "ip-restriction": list }, "desc": "${{UNSET}}" }), ""),
        (json!({ "plugins": { "request-id": { "header_name": "${{UNSET}}" } } }), ""),
    ] {
        for id in [json!("1"), json!("a b"), json!(null)] {
            let mut written = written.clone();
            written["id"] = id;
            let document = json!({ "global_rules": [written] }).to_string();
            let (resources, _) = document::parse(&document, &|_| None);
            let mut compiler = compiler();
            let compiled = compiler.replace_all(resources, 1);
            assert_eq!(forwarded(&compiled.snapshot, "GET /"), expected, "{document}");
            assert!(!compiler.problems().is_empty(), "{document}");
        }
    }
}

#[test]
fn a_rule_without_an_id_is_in_force_and_one_of_another_s_id_beside_it() {
    let forwarded_after = |rules: Value| {
        let (resources, _) = document::parse(&json!({ "global_rules": rules }).to_string(), &|_| None);
        forwarded(&compiler().replace_all(resources, 1).snapshot, "GET /")
    };
    let bare = json!({ "plugins": { "request-id": {} } });
    assert_eq!(forwarded_after(json!([bare])), "request-id");
    let guard = json!({ "id": 1, "plugins": { "key-auth": { "header": 1 } } });
    assert_eq!(forwarded_after(json!([{ "id": 1, "plugins": {} }, guard])), "503");
}
