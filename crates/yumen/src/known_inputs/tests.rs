use std::net::IpAddr;

use serde_json::{Value, json};
use yumen_snapshot::compile::DiscoveryQuery;

use super::KnownInputs;
use crate::dns::HostAddresses;

fn known() -> KnownInputs {
    let addresses: Vec<IpAddr> =
        ["10.0.0.2", "fd00::1", "10.0.0.1"].iter().map(|one| one.parse().unwrap()).collect();
    let service =
        DiscoveryQuery { source: "consul".into(), name: "web".into(), args: r#"{"tag":"v1"}"#.into() };
    let node = json!({ "host": "10.0.0.3", "port": 80, "weight": 2, "metadata": { "zone": "a" } });
    KnownInputs {
        names: [("a.test".into(), HostAddresses::of(addresses))].into(),
        services: [(service, vec![serde_json::from_value(node).unwrap()])].into(),
    }
}

#[test]
fn what_is_told_is_known_again() {
    assert_eq!(KnownInputs::of(&known().told()), known());
}

#[test]
fn what_another_version_tells_otherwise_is_passed_over() {
    for told in [Value::Null, json!(7), json!({ "names": [1], "services": { "a": 1 } })] {
        assert_eq!(KnownInputs::of(&told), KnownInputs::default(), "{told}");
    }
    let mut told = known().told();
    told["names"]["b.test"] = json!("10.0.0.9");
    told["names"]["c.test"] = json!([]);
    told["services"].as_array_mut().unwrap().push(json!({ "source": "consul", "name": "b" }));
    told["more"] = json!(1);
    assert_eq!(KnownInputs::of(&told), known());
}

#[test]
fn the_compiler_is_told_of_a_name_once_and_of_ipv4_alone_where_there_is_any() {
    let mut known = known();
    let change = known.take_name("a.test").unwrap();
    assert_eq!(format!("{change:?}"), r#"Resolved { host: "a.test", addrs: [10.0.0.1, 10.0.0.2] }"#);
    assert!(known.take_name("a.test").is_none());
}
