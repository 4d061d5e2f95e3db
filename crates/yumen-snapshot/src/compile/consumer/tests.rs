use serde_json::{Value, json};
use yumen_config::Kind;

use super::super::ConfigChange;
use super::super::tests::{compiler, found, put};

#[test]
fn plugin_disabled_by_a_consumer_or_group_is_off_for_it() {
    let off = json!({ "text": "", "_meta": { "disable": true } });
    let consumer = |name: &str, mut plugins: Value| {
        plugins["key-auth"] = json!({ "key": name });
        put(Kind::Consumers, name, json!({ "username": name, "plugins": plugins, "group_id": "g" }))
    };
    let group = json!({ "plugins": { "first": off, "second": { "text": "" }, "key-auth": off } });
    let compiled = compiler().apply(
        vec![
            put(Kind::ConsumerGroups, "g", group),
            consumer("grouped", json!({})),
            consumer("own", json!({ "first": { "text": "" }, "second": off })),
        ],
        1,
    );
    let check = |name: &str, expected: (&[&str], &[&str])| {
        let consumer = &compiled.snapshot.consumers.find("key-auth", name.as_bytes()).expect(name).consumer;
        let plugins: Vec<_> = consumer.plugins.iter().map(|plugin| plugin.name).collect();
        let switched_off: Vec<_> = consumer.switched_off.iter().map(|name| &**name).collect();
        assert_eq!((&*plugins, &*switched_off), expected, "{name}");
    };
    check("grouped", (&["second"], &["first"]));
    check("own", (&["first"], &["second"]));
}

#[test]
fn a_consumer_and_its_own_credential_may_have_the_same_key() {
    let mut compiler = compiler();
    let keyed = json!({ "key-auth": { "key": "k" } });
    let consumer = |name: &str| put(Kind::Consumers, name, json!({ "username": name, "plugins": keyed }));
    let credential = |id: &str| put(Kind::Credentials, id, json!({ "plugins": keyed }));
    let compiled = compiler.apply(vec![consumer("bob"), credential("bob/credentials/c")], 1);
    let identity = compiled.snapshot.consumers.find("key-auth", b"k").unwrap();
    assert_eq!((&*identity.consumer.username, identity.credential_id.as_deref()), ("bob", None));
    assert_eq!(found(&compiler.problems()), [""; 0]);
    // another's is told to both, and no longer when that is gone
    compiler.apply(vec![consumer("alice")], 2);
    let problems = [
        "error consumers/bob at plugins.key-auth",
        "error credentials/bob/credentials/c at plugins.key-auth",
    ];
    assert_eq!(found(&compiler.problems()), problems);
    compiler.apply(vec![ConfigChange::Delete(Kind::Consumers, "alice".into())], 3);
    assert_eq!(found(&compiler.problems()), [""; 0]);
}

#[test]
fn an_empty_key_identifies_no_client() {
    for key in ["", "$env://EMPTY"] {
        let mut compiler = compiler();
        let value = json!({ "username": "bob", "plugins": { "key-auth": { "key": key } } });
        let compiled = compiler.apply(vec![put(Kind::Consumers, "bob", value)], 1);
        assert!(compiled.snapshot.consumers.find("key-auth", b"").is_none(), "{key}");
        assert_eq!(found(&compiler.problems()), ["error consumers/bob at plugins.key-auth.key"]);
        let message = "\"key\" must not be empty: it would identify every client";
        assert_eq!(compiler.problems()[0].message, message, "{key}");
    }
}
