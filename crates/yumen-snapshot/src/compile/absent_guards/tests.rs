use serde_json::{Value, json};
use yumen_config::{Kind, Resource, document};

use super::super::tests::{compiler, get, nodes, put, route};
use super::super::{CompileOutput, Compiler, ConfigChange};
use crate::RouteTarget;

/// Settings of the guard that cannot be built.
const UNRESOLVED: [&str; 4] =
    ["$secret://vault/1/a/b", "$SECRET://vault/1/a/b", "$env://UNSET", "$env://KEYS/nothing"];

fn key(key: &str) -> Value {
    json!({ "key-auth": { "key": key } })
}

/// An open object of every kind that may have plugins, and credentials that are in use.
fn open_objects(compiler: &mut Compiler) -> CompileOutput {
    let consumer = |plugins: Value| json!({ "username": "c", "plugins": plugins });
    let changes = vec![
        put(Kind::Services, "s", json!({ "plugins": {}, "upstream": nodes("10.0.0.1") })),
        put(Kind::PluginConfigs, "p", json!({ "plugins": {} })),
        put(Kind::ConsumerGroups, "g", json!({ "plugins": {} })),
        put(Kind::GlobalRules, "1", json!({ "plugins": {} })),
        put(Kind::Consumers, "c", consumer(key("old"))),
        put(Kind::Consumers, "m", json!({ "username": "m", "group_id": "g" })),
        put(Kind::Credentials, "m/credentials/1", json!({ "plugins": key("old of m") })),
        route("r", json!({ "upstream": nodes("10.0.0.1") })),
        route("s", json!({ "service_id": "s" })),
        route("p", json!({ "plugin_config_id": "p", "upstream": nodes("10.0.0.1") })),
    ];
    compiler.apply(changes, 1)
}

/// The answers to the three routes, then to the owners of the two keys, and whether a global rule refuses.
fn effect(compiled: &CompileOutput) -> ([String; 3], [String; 2], bool) {
    let snapshot = &compiled.snapshot;
    let owner = |key: &str| match snapshot.consumers.find("key-auth", key.as_bytes()) {
        None => "nobody".to_owned(),
        Some(identity) => {
            let is_refused = identity.consumer.plugins.iter().any(|one| one.plugin.is_stand_in());
            format!("{}{}", identity.consumer.username, if is_refused { " 503" } else { "" })
        }
    };
    let refuses = snapshot.global.all().iter().any(|one| one.plugin.is_stand_in());
    (["/r", "/s", "/p"].map(|path| get(compiled, path)), ["old", "old of m"].map(owner), refuses)
}

fn check(change: ConfigChange, routes: [&str; 3], owners: [&str; 2], refuses: bool) {
    let mut compiler = compiler();
    open_objects(&mut compiler);
    for _ in 0..2 {
        let compiled = compiler.apply(vec![change.clone()], 2);
        let expected = (routes.map(str::to_owned), owners.map(str::to_owned), refuses);
        assert_eq!(effect(&compiled), expected, "{change:?}");
        assert_eq!(compiler.last_good().count(), 0, "{change:?}");
        assert!(compiler.problems().iter().all(|one| !one.last_good), "{change:?}");
    }
    open_objects(&mut compiler);
    assert!(compiler.problems().is_empty(), "{:?}", compiler.problems());
}

const OPEN: [&str; 3] = ["r 10.0.0.1:80", "s 10.0.0.1:80", "p 10.0.0.1:80"];
const KEYS: [&str; 2] = ["c", "m"];

#[test]
fn no_last_good_version_serves_in_place_of_an_unresolved_guard() {
    let [r, s, p] = OPEN;
    for text in UNRESOLVED {
        let guarded = || json!({ "plugins": key(text), "upstream": nodes("10.0.0.1") });
        let set = || json!({ "plugins": key(text) });
        check(route("r", guarded()), ["r 503", s, p], KEYS, false);
        check(put(Kind::Services, "s", guarded()), [r, "s 404", p], KEYS, false);
        check(put(Kind::PluginConfigs, "p", set()), [r, s, "p 503"], KEYS, false);
        check(put(Kind::ConsumerGroups, "g", set()), OPEN, ["c", "m 503"], false);
        check(put(Kind::GlobalRules, "1", set()), OPEN, KEYS, true);
    }
}

#[test]
fn no_key_serves_in_place_of_an_unresolved_one() {
    for text in UNRESOLVED {
        let consumer = json!({ "username": "c", "plugins": key(text) });
        check(put(Kind::Consumers, "c", consumer), OPEN, ["nobody", "m"], false);
        let credential = json!({ "plugins": key(text) });
        check(put(Kind::Credentials, "m/credentials/1", credential), OPEN, ["c", "nobody"], false);
    }
}

#[test]
fn other_plugins_with_an_unset_variable_keep_the_last_good_version() {
    let mut compiler = compiler();
    open_objects(&mut compiler);
    let off = json!({ "key": "$env://UNSET", "_meta": { "disable": true } });
    for (plugins, is_kept) in [
        (json!({ "first": { "text": "$env://UNSET" } }), true),
        (json!({ "first": { "text": "bad" }, "key-auth": off }), true),
        (json!({ "first": { "text": "bad" }, "key-auth": { "key": "$env://UNSET" } }), false),
    ] {
        let change = route("r", json!({ "plugins": plugins, "upstream": nodes("10.0.0.1") }));
        let expected = if is_kept { "r 10.0.0.1:80" } else { "r 503" };
        assert_eq!(get(&compiler.apply(vec![change], 2), "/r"), expected, "{plugins}");
    }
}

#[test]
fn a_guard_with_an_unset_variable_of_the_document_closes_its_route() {
    let with = |plugins: &str| {
        format!(
            "routes: [{{id: r, uri: /r, plugins: {plugins}, upstream: {{nodes: {{\"10.0.0.1:80\": 1}}}}}}]\n"
        )
    };
    for (plugins, expected) in [
        ("{key-auth: {key: \"${{UNSET}}\"}}", "r 503"),
        ("{key-auth: {key: ${{UNSET}}}}", "r 503"),
        ("{key-auth: {${{UNSET}}: a}}", "r 503"),
        ("${{UNSET}}", "r 503"),
        ("{first: {text: \"${{UNSET}}\"}}", "r 10.0.0.1:80"),
        ("{first: {text: \"${{UNSET}}\"}, key-auth: {}}", "r 10.0.0.1:80"),
    ] {
        let mut compiler = compiler();
        for (text, expected) in [(with("{}"), "r 10.0.0.1:80"), (with(plugins), expected)] {
            let (resources, problems) = document::parse(&text, &|_| None);
            assert_eq!(problems, [], "{text}");
            assert_eq!(get(&compiler.replace_all(resources, 1), "/r"), expected, "{text}");
        }
    }
}

#[test]
fn a_certificate_that_begins_to_require_client_certificates_never_stays_open() {
    let pem = |text: &str| format!("{text:x<128}");
    let ssl = |key: &str, client: Value| {
        let value = json!({ "cert": pem("cert"), "key": key, "sni": "a.test", "client": client });
        let mut value = value;
        if value["client"].is_null() {
            value.as_object_mut().unwrap().remove("client");
        }
        put(Kind::Ssls, "1", value)
    };
    let required = || json!({ "ca": pem("ca") });
    let unset = "$env://UNSET";
    for (before, now, requires, stays) in [
        (Value::Null, required(), true, false),
        // The last good version is no more open than the text.
        (required(), required(), true, true),
        (Value::Null, Value::Null, false, true),
    ] {
        let mut compiler = compiler();
        compiler.apply(vec![ssl(&pem("key"), before)], 1);
        let compiled = compiler.apply(vec![ssl(unset, now)], 2);
        assert_eq!(compiled.snapshot.requests_client_certificates, requires);
        assert_eq!(compiler.last_good().count(), usize::from(stays));
    }
}

#[test]
fn the_text_of_the_predecessor_does_not_serve_in_place_of_an_unresolved_guard() {
    let written = |plugins: Value| json!({ "uri": "/r", "plugins": plugins, "upstream": nodes("10.0.0.1") });
    let mut compiler = compiler();
    compiler.begin_from(vec![Resource::new(Kind::Routes, "r", &written(json!({})))]);
    let compiled = compiler.apply(vec![put(Kind::Routes, "r", written(key("$env://UNSET")))], 1);
    assert_eq!(get(&compiled, "/r"), "r 503");
}

#[test]
fn a_last_good_version_with_the_same_guard_stays() {
    let guarded = |plugins: Value| route("r", json!({ "plugins": plugins, "upstream": nodes("10.0.0.1") }));
    let off = json!({ "key-auth": { "_meta": { "disable": true } } });
    for (good, expected, kept) in [
        (json!({ "key-auth": {} }), "r 10.0.0.1:80 key-auth@routes/r", 1),
        (off, "r 503", 0),
        (json!({}), "r 503", 0),
    ] {
        let mut compiler = compiler();
        compiler.apply(vec![guarded(good.clone())], 1);
        let compiled = compiler.apply(vec![guarded(key("$env://UNSET"))], 2);
        assert_eq!(get(&compiled, "/r"), expected, "{good}");
        assert_eq!(compiler.last_good().count(), kept, "{good}");
    }
}

#[test]
fn a_stream_route_with_an_unresolved_guard_is_closed() {
    for list in ["$env://UNSET", "$secret://vault/1/a/b"] {
        let mut compiler = crate::testing::compiler();
        let mut closes = |plugins: Value| {
            let value = json!({ "plugins": plugins, "upstream": nodes("10.0.0.1") });
            let compiled = compiler.apply(vec![put(Kind::StreamRoutes, "1", value)], 1);
            let route = compiled.snapshot.streams.all().next().expect("a stream route");
            matches!(route.target, RouteTarget::Refuse { .. })
        };
        assert!(!closes(json!({})));
        assert!(closes(json!({ "ip-restriction": { "whitelist": [list] } })), "{list}");
        assert!(!closes(json!({})));
    }
}
