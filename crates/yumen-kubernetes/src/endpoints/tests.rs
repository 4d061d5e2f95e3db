use serde_json::{Value, json};

use super::*;
use crate::model::{ClusterKind, ObjectBody, decode};

const WEB: EndpointQuery<'_> = EndpointQuery { port_name: "web", is_udp: false, zone: None, is_ipv6: None };

/// A slice with the ports `web` 8080 and `dns` 53/UDP.
fn slice(family: &str, endpoints: Value) -> Arc<EndpointSliceObject> {
    let value = json!({
        "metadata": { "name": "s", "namespace": "n" },
        "addressType": family,
        "ports": [{ "name": "web", "port": 8080 }, { "name": "dns", "port": 53, "protocol": "UDP" }],
        "endpoints": endpoints,
    });
    match decode(ClusterKind::EndpointSlice, value.to_string().as_bytes()).unwrap().body {
        ObjectBody::EndpointSlice(slice) => slice,
        _ => panic!("not a slice"),
    }
}

/// An endpoint; `state` has `r`eady, `s`erving, `t`erminating.
fn endpoint(address: &str, state: &str) -> Value {
    json!({
        "addresses": [address],
        "conditions": {
            "ready": state.contains('r'),
            "serving": state.contains('s'),
            "terminating": state.contains('t'),
        },
    })
}

fn hinted(address: &str, zones: &[&str]) -> Value {
    let hints: Vec<Value> = zones.iter().map(|zone| json!({ "name": zone })).collect();
    json!({ "addresses": [address], "hints": { "forZones": hints } })
}

/// Compares with `address:port=weight`.
fn check(slices: &[Arc<EndpointSliceObject>], query: EndpointQuery<'_>, expected: &[&str]) {
    let slices: Vec<&Arc<EndpointSliceObject>> = slices.iter().collect();
    let nodes = select_endpoints(&slices, query);
    let found: Vec<String> =
        nodes.iter().map(|node| format!("{}:{}={}", node.address, node.port, node.weight)).collect();
    assert_eq!(found, expected);
}

#[test]
fn terminating_endpoints_serve_if_none_is_ready() {
    let some = |states: &[&str]| {
        let endpoints = states.iter().enumerate().map(|(at, state)| endpoint(&format!("10.0.0.{at}"), state));
        [slice("IPv4", endpoints.collect())]
    };
    check(&some(&["rs", "st", "t", ""]), WEB, &["10.0.0.0:8080=1", "10.0.0.1:8080=0"]);
    check(&some(&["st", "t", "s"]), WEB, &["10.0.0.0:8080=1"]);
    check(&some(&["t", ""]), WEB, &[]);
}

#[test]
fn an_endpoint_of_two_slices_is_ready_if_either_has_it_so() {
    let slices = [
        slice("IPv4", json!([endpoint("10.0.0.1", "")])),
        slice("IPv4", json!([endpoint("10.0.0.1", "rs")])),
    ];
    check(&slices, WEB, &["10.0.0.1:8080=1"]);
    check(&[slices[1].clone(), slices[0].clone()], WEB, &["10.0.0.1:8080=1"]);
}

#[test]
fn ports_are_chosen_by_name_and_protocol() {
    let slices = [slice("IPv4", json!([{ "addresses": ["10.0.0.1", "10.0.0.2"] }]))];
    check(&slices, WEB, &["10.0.0.1:8080=1"]);
    check(&slices, EndpointQuery { port_name: "dns", is_udp: true, ..WEB }, &["10.0.0.1:53=1"]);
    check(&slices, EndpointQuery { port_name: "dns", ..WEB }, &[]);
    check(&slices, EndpointQuery { port_name: "", ..WEB }, &[]);
}

#[test]
fn one_family_of_two_is_used() {
    let both =
        [slice("IPv4", json!([hinted("10.0.0.1", &[])])), slice("IPv6", json!([hinted("fd00::1", &[])]))];
    check(&both, WEB, &["10.0.0.1:8080=1"]);
    check(&both, EndpointQuery { is_ipv6: Some(true), ..WEB }, &["fd00::1:8080=1"]);
    check(&both[1..], EndpointQuery { is_ipv6: Some(false), ..WEB }, &["fd00::1:8080=1"]);
    check(&[slice("FQDN", json!([hinted("example.com", &[])]))], WEB, &[]);
}

#[test]
fn zone_hints_count_while_every_endpoint_has_them() {
    let a = EndpointQuery { zone: Some("a"), ..WEB };
    let hints = |first: &[&str], second: &[&str]| {
        [slice("IPv4", json!([hinted("10.0.0.1", first), hinted("10.0.0.2", second)]))]
    };
    let all = &["10.0.0.1:8080=1", "10.0.0.2:8080=1"];
    check(&hints(&["a"], &["b"]), a, &all[..1]);
    check(&hints(&["a"], &["b", "a"]), a, all);
    check(&hints(&["a"], &[]), a, all);
    check(&hints(&["b"], &["c"]), a, all);
    check(&hints(&["a"], &["b"]), WEB, all);
}
