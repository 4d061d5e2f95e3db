use serde_json::{Value, json};

use super::meta::parse_time;
use super::*;

fn object(kind: ClusterKind, value: &Value) -> Result<ClusterObject, DecodeError> {
    decode(kind, value.to_string().as_bytes())
}

#[test]
fn durations_have_units_and_bounds() {
    let cases = [
        ("0s", Some(0)),
        ("500ms", Some(500)),
        ("1h2m3s4ms", Some(3_723_004)),
        ("99999h", Some(359_996_400_000)),
        ("", None),
        ("1", None),
        ("1d", None),
        ("100000s", None),
        ("1s1s1s1s1s", None),
        ("-1s", None),
        ("1.5s", None),
    ];
    for (text, expected) in cases {
        assert_eq!(parse_duration_ms(text), expected, "{text}");
    }
}

#[test]
fn times_are_seconds_since_1970() {
    let cases = [
        ("1970-01-01T00:00:00Z", Some(0)),
        ("2026-11-21T13:40:12Z", Some(1_795_268_412)),
        ("2000-02-29T23:59:59.5Z", Some(951_868_799)),
        ("2026-11-21", None),
        ("2026-1x-21T13:40:12Z", None),
    ];
    for (text, expected) in cases {
        assert_eq!(parse_time(text), expected, "{text}");
    }
}

#[test]
fn nulls_count_as_absent() {
    let slice = json!({
        "metadata": { "name": "a", "namespace": "n", "creationTimestamp": null, "labels": null },
        "addressType": "IPv4", "endpoints": null, "ports": [{ "name": null, "port": 80 }],
    });
    let object = object(ClusterKind::EndpointSlice, &slice).unwrap();
    assert_eq!(object.key().to_string(), "EndpointSlice/n/a");
    let ObjectBody::EndpointSlice(slice) = object.body else { panic!("not a slice") };
    assert!(slice.endpoints.is_empty());
    assert_eq!(slice.ports[0].port, Some(80));
}

#[test]
fn status_and_version_do_not_count_as_changes() {
    let with = |version: &str, status: Value, port: u16| {
        let listeners = json!([{ "name": "http", "port": port, "protocol": "HTTP" }]);
        let value = json!({
            "metadata": { "name": "g", "namespace": "n", "resourceVersion": version },
            "spec": { "gatewayClassName": "yumen", "listeners": listeners },
            "status": status,
        });
        object(ClusterKind::Gateway, &value).unwrap()
    };
    let first = with("1", json!({}), 80);
    let second = with("2", json!({ "addresses": [] }), 80);
    assert_eq!(first, second);
    assert_eq!(first.meta().status, None);
    assert_eq!(second.meta().status.as_deref(), Some(r#"{"addresses":[]}"#));
    assert_ne!(first, with("1", json!({}), 81));
}

#[test]
fn undecodable_objects_are_named() {
    let spec = json!({ "listeners": [{ "port": 70000 }] });
    let broken =
        object(ClusterKind::Gateway, &json!({ "metadata": { "name": "g", "namespace": "n" }, "spec": spec }));
    let error = broken.unwrap_err();
    assert_eq!(error.key.as_ref().unwrap().to_string(), "Gateway/n/g");
    assert!(error.to_string().starts_with("Gateway/n/g: invalid value: integer `70000`"), "{error}");
    assert_eq!(decode(ClusterKind::Pod, b"{").unwrap_err().key, None);
    assert_eq!(decode(ClusterKind::Pod, b"{}").unwrap_err().message, "Pod without metadata.name");
}

#[test]
fn kinds_are_in_order_of_their_rows() {
    for kind in ClusterKind::all() {
        assert_eq!(kind.api().kind, kind);
        assert_eq!(ClusterKind::find(kind.api().group, kind.name()), Some(kind));
    }
}

#[test]
fn selectors_need_all_requirements() {
    let labels = LabelMap::from([("app".into(), "cart".into()), ("tier".into(), "web".into())]);
    let check = |selector: Value, expected: bool| {
        let selector: LabelSelector = serde_json::from_value(selector).unwrap();
        assert_eq!(selector.matches(&labels), expected, "{selector:?}");
    };
    check(json!({}), true);
    check(json!({ "matchLabels": { "app": "cart" } }), true);
    check(json!({ "matchLabels": { "app": "cart", "tier": "db" } }), false);
    check(
        json!({ "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["web", "db"] }] }),
        true,
    );
    check(json!({ "matchExpressions": [{ "key": "tier", "operator": "NotIn", "values": ["web"] }] }), false);
    check(json!({ "matchExpressions": [{ "key": "zone", "operator": "NotIn", "values": ["a"] }] }), true);
    check(json!({ "matchExpressions": [{ "key": "zone", "operator": "Exists" }] }), false);
    check(json!({ "matchExpressions": [{ "key": "zone", "operator": "DoesNotExist" }] }), true);
    check(json!({ "matchExpressions": [{ "key": "app", "operator": "Near", "values": ["cart"] }] }), false);
}
