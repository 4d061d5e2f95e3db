use std::sync::Arc;

use serde_json::{Value, json};
use yumen_config::{Kind, Resource};

use super::super::{Compiler, ConfigChange};
use crate::testing::{TestWorker, compiler};
use crate::{RouteTarget, Snapshot, UpstreamSlotId};

fn put(kind: Kind, id: &str, value: Value) -> ConfigChange {
    ConfigChange::Put(Resource::new(kind, id, &value))
}

fn split(rules: Value) -> Value {
    json!({ "uri": "/a", "plugins": { "traffic-split": { "rules": rules } } })
}

fn to(address: &str) -> Value {
    json!({ "nodes": { address: 1 } })
}

/// Applies changes; gives what is wrong, an object and its message each.
fn apply(compiler: &mut Compiler, changes: Vec<ConfigChange>) -> (Arc<Snapshot>, Vec<String>) {
    let compiled = compiler.apply(changes, 1);
    let problems = compiled.problems.iter();
    let problems_text = problems.map(|one| format!("{} {}: {}", one.object, one.path, one.message)).collect();
    (compiled.snapshot, problems_text)
}

/// Where a request for `/a` goes: the endpoint, or why nowhere.
fn goes(snapshot: &Snapshot) -> String {
    let bench = TestWorker::default();
    let mut ex = bench.exchange("GET /a");
    let Some(route) = snapshot.find(&mut ex) else { return "no route".to_owned() };
    if let RouteTarget::Refuse { status, .. } = route.target {
        return status.to_string();
    }
    for instance in route.chain.access() {
        assert!(matches!(instance.plugin.access(&mut ex), yumen_plugin::Step::Continue));
    }
    let slot = match (ex.upstream.slot, &route.target) {
        (Some(slot), _) => UpstreamSlotId(slot),
        (None, RouteTarget::Upstream(slot)) => *slot,
        _ => return "no upstream".to_owned(),
    };
    match snapshot.upstream(slot) {
        Some(upstream) => upstream.endpoints.first().map_or("no endpoint".into(), |one| one.addr.to_string()),
        None => "empty slot".to_owned(),
    }
}

#[test]
fn a_route_heals_when_the_upstream_its_plugin_names_appears() {
    let mut compiler = compiler();
    let route = put(Kind::Routes, "1", split(json!([{ "weighted_upstreams": [{ "upstream_id": "u" }] }])));
    let (snapshot, problems) = apply(&mut compiler, vec![route]);
    let missing = "routes/1 plugins.traffic-split.rules[0].weighted_upstreams[0].upstream_id: \
                   upstream u does not exist or is broken";
    assert_eq!(problems, [missing]);
    assert_eq!(goes(&snapshot), "503");
    let (snapshot, problems) = apply(&mut compiler, vec![put(Kind::Upstreams, "u", to("127.0.0.1:1"))]);
    assert_eq!((goes(&snapshot).as_str(), problems.len()), ("127.0.0.1:1", 0));
    let (snapshot, _) = apply(&mut compiler, vec![put(Kind::Upstreams, "u", to("127.0.0.1:2"))]);
    assert_eq!(goes(&snapshot), "127.0.0.1:2");
}

#[test]
fn what_stood_in_a_slot_is_never_taken_for_another() {
    let mut compiler = compiler();
    let route = put(Kind::Routes, "1", split(json!([{ "weighted_upstreams": [{ "upstream_id": "u" }] }])));
    apply(&mut compiler, vec![put(Kind::Upstreams, "u", to("127.0.0.1:1")), route]);
    let deleted = ConfigChange::Delete(Kind::Upstreams, "u".into());
    let (snapshot, problems) =
        apply(&mut compiler, vec![deleted, put(Kind::Upstreams, "v", to("127.0.0.1:2"))]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(goes(&snapshot), "empty slot", "the last good version stays, and has no upstream");
    let (snapshot, _) = apply(&mut compiler, vec![put(Kind::Upstreams, "u", to("127.0.0.1:3"))]);
    assert_eq!(goes(&snapshot), "127.0.0.1:3");
}

#[test]
fn an_upstream_in_settings_lives_as_long_as_they_do() {
    let mut compiler = compiler();
    let inline = |address: &str| {
        let rules = json!([{ "weighted_upstreams": [{ "upstream": to(address) }] }]);
        put(Kind::Routes, "1", split(rules))
    };
    let (snapshot, problems) = apply(&mut compiler, vec![inline("127.0.0.1:1")]);
    assert_eq!((goes(&snapshot).as_str(), problems.len()), ("127.0.0.1:1", 0));
    let origin = snapshot.upstreams().next().expect("it is an upstream").1.origin.clone();
    assert_eq!(&*origin, "routes/1/plugins.traffic-split.rules[0].weighted_upstreams[0].upstream");
    let (snapshot, _) = apply(&mut compiler, vec![inline("127.0.0.1:2")]);
    assert_eq!((goes(&snapshot).as_str(), snapshot.upstreams().count()), ("127.0.0.1:2", 1));
    // One that cannot be made leaves the last good one.
    let (snapshot, problems) = apply(
        &mut compiler,
        vec![put(
            Kind::Routes,
            "1",
            split(json!([{ "weighted_upstreams": [{ "upstream": {
                "nodes": { "127.0.0.1:4": 1 }, "tls": { "client_cert_id": "none" } } }] }])),
        )],
    );
    let path = "routes/1 plugins.traffic-split.rules[0].weighted_upstreams[0].upstream.tls.client_cert_id";
    assert_eq!(problems, [format!("{path}: ssl object none does not exist")]);
    assert_eq!(goes(&snapshot), "127.0.0.1:2");
    let (snapshot, _) =
        apply(&mut compiler, vec![put(Kind::Routes, "1", json!({ "uri": "/a", "plugins": {} }))]);
    assert_eq!((goes(&snapshot).as_str(), snapshot.upstreams().count()), ("no upstream", 0));
    let (snapshot, _) = apply(&mut compiler, vec![inline("127.0.0.1:5")]);
    assert_eq!(snapshot.upstreams().count(), 1);
    let (snapshot, _) = apply(&mut compiler, vec![ConfigChange::Delete(Kind::Routes, "1".into())]);
    assert_eq!(snapshot.upstreams().count(), 0);
}

#[test]
fn names_in_such_an_upstream_are_resolved() {
    let mut compiler = compiler();
    let rules = json!([{ "weighted_upstreams": [{ "upstream": to("svc.test:80") }] }]);
    let (snapshot, problems) = apply(&mut compiler, vec![put(Kind::Routes, "1", split(rules))]);
    assert_eq!((goes(&snapshot).as_str(), problems.len()), ("no endpoint", 0));
    assert_eq!(compiler.hosts().map(|(host, _)| host).collect::<Vec<_>>(), ["svc.test"]);
    let addrs = vec!["10.0.0.1".parse().unwrap()];
    let (snapshot, _) = apply(&mut compiler, vec![ConfigChange::Resolved { host: "svc.test".into(), addrs }]);
    assert_eq!(goes(&snapshot), "10.0.0.1:80");
}

const SHOP: &str =
    "syntax = \"proto3\";\npackage shop;\nmessage A {}\nservice Shop { rpc Buy (A) returns (A); }\n";

#[test]
fn a_broken_proto_is_told_with_its_line_and_leaves_the_last_good_one() {
    let mut compiler = compiler();
    let proto = |content: &str| put(Kind::Protos, "1", json!({ "content": content }));
    let transcode = json!({ "proto_id": "1", "service": "shop.Shop", "method": "Buy" });
    let route =
        json!({ "uri": "/a", "plugins": { "grpc-transcode": transcode }, "upstream": to("127.0.0.1:1") });
    let (snapshot, problems) = apply(&mut compiler, vec![put(Kind::Routes, "1", route)]);
    assert_eq!(problems, ["routes/1 plugins.grpc-transcode.proto_id: proto 1 does not exist or is broken"]);
    assert_eq!(goes(&snapshot), "503");
    let (snapshot, problems) = apply(&mut compiler, vec![proto(SHOP)]);
    assert_eq!((goes(&snapshot).as_str(), problems.len()), ("127.0.0.1:1", 0));
    let (snapshot, problems) = apply(&mut compiler, vec![proto(&SHOP.replace("{}", "{ x }"))]);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("protos/1 content: line 3, column "), "{problems:?}");
    assert_eq!(goes(&snapshot), "127.0.0.1:1");
    let (_, problems) = apply(&mut compiler, vec![proto(&SHOP.replace("Buy", "Sell"))]);
    let missing =
        "routes/1 plugins.grpc-transcode.method: service shop.Shop has no method \"Buy\"; it has: Sell";
    assert_eq!(problems, [missing]);
}

#[test]
fn a_group_of_limits_changes_one_by_one_and_whoever_differs_meanwhile_is_told() {
    let mut compiler = compiler();
    let limited = |id: &str, count: u64| {
        let settings = json!({ "count": count, "time_window": 60, "group": "g" });
        put(Kind::Routes, id, json!({ "uri": format!("/{id}"), "plugins": { "limit-count": settings } }))
    };
    let differs = |id: &str, other: &str| {
        format!(
            "routes/{id} plugins.limit-count.group: group \"g\" has other settings in routes/{other}: those that \
             differ count apart"
        )
    };
    let none: [&str; 0] = [];
    // The limit a route answers with, which tells the settings in force.
    let limit = |snapshot: &Snapshot, id: &str| {
        let bench = TestWorker::default();
        let mut ex = bench.exchange(&format!("GET /{id}"));
        let route = snapshot.find(&mut ex).expect("a route");
        assert!(!matches!(route.target, RouteTarget::Refuse { .. }));
        assert!(matches!(route.chain.access()[0].plugin.access(&mut ex), yumen_plugin::Step::Continue));
        ex.response.fields.get("X-RateLimit-Limit").map(|value| String::from_utf8_lossy(value).into_owned())
    };
    let (_, problems) = apply(&mut compiler, vec![limited("a", 2), limited("b", 2)]);
    assert_eq!(problems, none);
    let (snapshot, problems) = apply(&mut compiler, vec![limited("a", 3)]);
    assert_eq!(problems, [differs("a", "b"), differs("b", "a")]);
    assert_eq!([limit(&snapshot, "a"), limit(&snapshot, "b")].map(Option::unwrap), ["3", "2"]);
    assert_eq!(compiler.problems().len(), 2);
    let (snapshot, problems) = apply(&mut compiler, vec![limited("b", 3)]);
    assert_eq!((problems, compiler.problems().len()), (vec![], 0));
    assert_eq!(limit(&snapshot, "b").as_deref(), Some("3"));
    // All at once, and one that goes.
    assert_eq!(apply(&mut compiler, vec![limited("a", 4), limited("b", 4)]).1, none);
    assert_eq!(apply(&mut compiler, vec![limited("a", 5)]).1.len(), 2);
    assert_eq!(apply(&mut compiler, vec![ConfigChange::Delete(Kind::Routes, "b".into())]).1, none);
    assert!(compiler.problems().is_empty());
}
