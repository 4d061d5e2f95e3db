use serde_json::{Value, json};
use yumen_config::Kind;

use super::super::tests::{compiler, put};

#[test]
fn what_a_consumer_or_its_group_switches_off_is_off_for_it() {
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
