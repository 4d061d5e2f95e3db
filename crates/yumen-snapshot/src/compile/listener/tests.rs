use serde_json::{Value, json};
use yumen_config::{Kind, Resource};

use crate::testing::compiler;
use crate::{Compiler, ConfigChange, Snapshot};

fn put(compiler: &mut Compiler, id: &str, value: &Value) -> (std::sync::Arc<Snapshot>, Vec<String>) {
    let output = compiler.apply(vec![ConfigChange::Put(Resource::new(Kind::Listeners, id, value))], 1);
    let problems = output.problems.iter().map(|one| format!("{}: {}", one.path, one.message)).collect();
    (output.snapshot, problems)
}

fn ports(snapshot: &Snapshot) -> Vec<(String, u16, u16)> {
    let row = |one: &std::sync::Arc<crate::scope::CompiledListener>| {
        (one.id.to_string(), one.settings.address.port(), one.settings.port)
    };
    snapshot.listeners().map(row).collect()
}

#[test]
fn listeners_appear_change_and_disappear_in_the_snapshot() {
    let mut compiler = compiler();
    let (snapshot, problems) =
        put(&mut compiler, "a", &json!({ "address": "0.0.0.0:8080", "protocol": "http" }));
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(ports(&snapshot), [("a".to_owned(), 8080, 8080)]);
    let changed = json!({ "address": "[::]:8081", "protocol": "tcp", "port": 81 });
    assert_eq!(ports(&put(&mut compiler, "a", &changed).0), [("a".to_owned(), 8081, 81)]);
    let disabled = json!({ "address": "[::]:8081", "protocol": "tcp", "status": 0 });
    assert_eq!(ports(&put(&mut compiler, "a", &disabled).0), []);
    put(&mut compiler, "a", &changed);
    let output = compiler.apply(vec![ConfigChange::Delete(Kind::Listeners, "a".into())], 2);
    assert_eq!(ports(&output.snapshot), []);
}

#[test]
fn a_broken_text_keeps_the_last_good_listener() {
    let mut compiler = compiler();
    put(&mut compiler, "a", &json!({ "address": "0.0.0.0:8080", "protocol": "http" }));
    let (snapshot, problems) = put(&mut compiler, "a", &json!({ "address": "8080", "protocol": "http" }));
    assert_eq!(ports(&snapshot), [("a".to_owned(), 8080, 8080)]);
    assert!(problems[0].starts_with("address: \"8080\" is no address with a port"), "{problems:?}");
}

#[test]
fn settings_without_effect_are_refused() {
    #[track_caller]
    fn check(extra: Value, expected: &str) {
        let mut text = json!({ "address": "0.0.0.0:8080", "protocol": "udp" });
        text.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let (_, problems) = put(&mut compiler(), "a", &text);
        assert_eq!(problems.first().map(String::as_str), Some(expected));
    }
    check(json!({ "http3": true }), "http3: only a listener of protocol https serves HTTP/3");
    check(
        json!({ "proxy_protocol_from": ["10.0.0.0/8"] }),
        "proxy_protocol_from: a udp listener reads no PROXY protocol header",
    );
    check(json!({ "address": "0.0.0.0:0" }), "address: the port must be from 1 to 65535");
    check(
        json!({ "protocol": "tcp", "proxy_protocol_from": ["10.0.0.0/8", "x"] }),
        "proxy_protocol_from[1]: \"x\" is no address or network, such as 10.0.0.0/8",
    );
    let real_ip = |from: &str| json!({ "from": [from] });
    check(
        json!({ "real_ip": real_ip("::1") }),
        "real_ip: only requests have fields: use it with http or https",
    );
    check(
        json!({ "protocol": "http", "real_ip": real_ip("lb") }),
        "real_ip.from[0]: \"lb\" is no address or network, such as 10.0.0.0/8",
    );
}
