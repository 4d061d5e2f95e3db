use std::net::IpAddr;

use serde_json::{Value, json};
use yumen_snapshot::compile::DiscoveryQuery;

use super::{HostAddresses, KnownDocument, KnownInputs};

fn known() -> KnownInputs {
    let addresses: Vec<IpAddr> =
        ["10.0.0.2", "fd00::1", "10.0.0.1"].iter().map(|one| one.parse().unwrap()).collect();
    let service =
        DiscoveryQuery { source: "consul".into(), name: "web".into(), args: r#"{"tag":"v1"}"#.into() };
    let node = json!({ "host": "10.0.0.3", "port": 80, "weight": 2, "metadata": { "zone": "a" } });
    KnownInputs {
        names: [("a.test".into(), HostAddresses::of(addresses))].into(),
        services: [(service, vec![serde_json::from_value(node).unwrap()])].into(),
        documents: [("d".to_owned(), KnownDocument { bytes: b"\xff{}".to_vec(), fetched_ms: 3 })].into(),
    }
}

#[test]
fn exported_inputs_are_parsed() {
    assert_eq!(KnownInputs::parse(&known().export()), known());
}

#[test]
fn entries_of_another_format_are_skipped() {
    for exported in [Value::Null, json!(7), json!({ "names": [1], "services": { "a": 1 } })] {
        assert_eq!(KnownInputs::parse(&exported), KnownInputs::default(), "{exported}");
    }
    let mut exported = known().export();
    exported["names"]["b.test"] = json!("10.0.0.9");
    exported["names"]["c.test"] = json!([]);
    exported["services"].as_array_mut().unwrap().push(json!({ "source": "consul", "name": "b" }));
    exported["documents"]["e"] = json!({ "body": "?" });
    exported["more"] = json!(1);
    assert_eq!(KnownInputs::parse(&exported), known());
}

#[test]
fn a_name_is_taken_once_and_ipv4_is_preferred() {
    let mut known = known();
    let change = known.take_name("a.test").unwrap();
    assert_eq!(format!("{change:?}"), r#"Resolved { host: "a.test", addrs: [10.0.0.1, 10.0.0.2] }"#);
    assert!(known.take_name("a.test").is_none());
}
