use serde_json::{Value, json};
use yumen_config::{Kind, Resource};
use yumen_plugin::ClientInfo;

use crate::compile::{Compiler, ConfigChange};
use crate::testing::{TestWorker, compiler};
use crate::{CompileOutput, Snapshot};

fn put(kind: Kind, id: &str, value: Value) -> ConfigChange {
    ConfigChange::Put(Resource::new(kind, id, &value))
}

/// Two listeners of the configuration with one scope each.
fn listeners() -> Vec<ConfigChange> {
    let listener = |id: &str, port: u16| {
        put(Kind::Listeners, id, json!({ "address": format!("0.0.0.0:{port}"), "protocol": "http" }))
    };
    let scope = |id: &str, listener: &str| put(Kind::Scopes, id, json!({ "listeners": [listener] }));
    vec![listener("la", 80), listener("lb", 81), scope("a", "la"), scope("b", "lb")]
}

fn rule(id: &str, header: &str, scopes: Value) -> ConfigChange {
    let mut value = json!({ "plugins": { "request-id": { "header_name": header } } });
    if !scopes.is_null() {
        value["scopes"] = scopes;
    }
    put(Kind::GlobalRules, id, value)
}

fn consumer(name: &str, key: &str, scopes: Value) -> ConfigChange {
    let mut value = json!({ "username": name, "plugins": { "key-auth": { "key": key } } });
    if !scopes.is_null() {
        value["scopes"] = scopes;
    }
    put(Kind::Consumers, name, value)
}

fn client(snapshot: &Snapshot, listener: Option<&str>) -> ClientInfo {
    let mut client = TestWorker::default().client;
    if let Some(id) = listener {
        client.listener = snapshot.listeners().find(|one| *one.id == *id).expect("a listener").number;
    }
    client
}

/// The global rules of a listener, and the consumer that has the key `k` there.
fn check(snapshot: &Snapshot, listener: Option<&str>, rules: &str, consumer: &str) {
    let client = client(snapshot, listener);
    let (chain, consumers) = snapshot.terms_of_request(&client, b"x.example.com");
    let found: Vec<&str> =
        chain.all().iter().map(|one| one.origin.trim_start_matches("global_rules/")).collect();
    assert_eq!(found.join(" "), rules, "{listener:?}");
    let identity = consumers.find("key-auth", b"k");
    let username = identity.map_or("", |identity| &identity.consumer.username);
    assert_eq!(username, consumer, "{listener:?}");
    assert_eq!(consumers.named(consumer).is_some(), !consumer.is_empty(), "{listener:?}");
}

fn apply(compiler: &mut Compiler, changes: Vec<ConfigChange>) -> CompileOutput {
    let output = compiler.apply(changes, 1);
    let problems: Vec<String> = compiler.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems, [""; 0]);
    output
}

#[test]
fn rules_and_consumers_of_scopes_reach_no_other_request() {
    let mut compiler = compiler();
    let mut changes = listeners();
    changes.extend([
        rule("1", "X-All", Value::Null),
        rule("2", "X-A", json!(["a"])),
        rule("3", "X-Node", json!([])),
        consumer("of_a", "k", json!(["a"])),
        consumer("of_node", "k", json!([])),
    ]);
    let snapshot = apply(&mut compiler, changes).snapshot;
    check(&snapshot, None, "1 3", "of_node");
    check(&snapshot, Some("la"), "1 2", "of_a");
    check(&snapshot, Some("lb"), "1", "");
    // A consumer of all requests, and scopes that change.
    let changes = vec![
        rule("2", "X-A", json!(["b"])),
        consumer("of_a", "k", json!(["b"])),
        consumer("all", "k", json!(null)),
    ];
    let snapshot = apply(&mut compiler, changes).snapshot;
    check(&snapshot, None, "1 3", "of_node");
    check(&snapshot, Some("la"), "1", "all");
    check(&snapshot, Some("lb"), "1 2", "of_a");
    let gone = |kind: Kind, id: &str| ConfigChange::Delete(kind, id.into());
    let changes = vec![
        gone(Kind::GlobalRules, "1"),
        gone(Kind::GlobalRules, "2"),
        gone(Kind::Consumers, "of_node"),
        gone(Kind::Consumers, "all"),
    ];
    let snapshot = apply(&mut compiler, changes).snapshot;
    check(&snapshot, None, "3", "");
    check(&snapshot, Some("la"), "", "");
    check(&snapshot, Some("lb"), "", "of_a");
}

#[test]
fn broken_guard_of_a_scope_refuses_its_requests_only() {
    let mut compiler = compiler();
    let mut changes = listeners();
    let broken = json!({ "plugins": { "key-auth": { "header": 1 } }, "scopes": ["a"] });
    changes.push(put(Kind::GlobalRules, "1", broken));
    let snapshot = compiler.apply(changes, 1).snapshot;
    let count = |listener: Option<&str>| {
        let client = client(&snapshot, listener);
        snapshot.terms_of_request(&client, b"x").0.all().len()
    };
    assert_eq!((count(None), count(Some("la")), count(Some("lb"))), (0, 1, 0));
}
