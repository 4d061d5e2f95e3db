//! Native actions in chains, in explanations, and with upstreams that come and go.

use std::sync::Arc;

use serde_json::{Value, json};
use yumen_config::{Kind, Resource};
use yumen_plugin::Now;

use super::super::{Compiler, ConfigChange};
use crate::explain::outcome;
use crate::testing::{TestWorker, compiler};
use crate::{Question, RouteTarget, Snapshot};

fn put(kind: Kind, id: &str, value: Value) -> ConfigChange {
    ConfigChange::Put(Resource::new(kind, id, &value))
}

/// Applies changes; gives the problems as `path: message`.
fn apply(compiler: &mut Compiler, changes: Vec<ConfigChange>) -> (Arc<Snapshot>, Vec<String>) {
    let compiled = compiler.apply(changes, 1);
    let text = |one: &yumen_base::Problem| format!("{}: {}", one.path, one.message);
    (compiled.snapshot, compiled.problems.iter().map(text).collect())
}

/// The names of the plugins of the route for `/`, in order.
fn chain(snapshot: &Snapshot) -> Vec<&'static str> {
    let worker = TestWorker::default();
    let mut ex = worker.exchange("GET /");
    let route = snapshot.find(&mut ex).expect("a route");
    route.chain.all().iter().map(|instance| instance.name).collect()
}

#[test]
fn actions_are_at_the_ends_of_the_merged_chain() {
    let route = json!({
        "uri": "/*", "service_id": "s", "plugin_config_id": "c",
        "plugins": { "key-auth": {}, "proxy-rewrite": { "method": "PUT" } },
        "actions": { "cors": {}, "request_fields": { "remove": ["A"] } },
        "upstream": { "nodes": { "10.0.0.1:80": 1 } },
    });
    let changes = vec![
        put(Kind::Services, "s", json!({ "plugins": { "real-ip": { "source": "http_x" } } })),
        put(Kind::PluginConfigs, "c", json!({ "plugins": { "request-id": {} } })),
        put(Kind::Routes, "1", route),
    ];
    let (snapshot, problems) = apply(&mut compiler(), changes);
    assert_eq!(problems, Vec::<String>::new());
    let expected = ["actions-arrival", "real-ip", "request-id", "key-auth", "proxy-rewrite", "actions"];
    assert_eq!(chain(&snapshot), expected);
}

#[test]
fn a_route_has_only_the_instances_that_it_needs() {
    for (actions, expected) in [
        (json!({ "response_fields": { "remove": ["A"] } }), &["actions"][..]),
        (json!({ "redirect": { "host": "b" } }), &["actions"]),
        (json!({ "redirect": { "host": "b", "stage": "first" } }), &["actions-arrival"]),
        (json!({ "cors": {}, "respond": { "status": 204 } }), &["actions-arrival", "actions"]),
    ] {
        let route = json!({ "uri": "/*", "actions": actions });
        let (snapshot, _) = apply(&mut compiler(), vec![put(Kind::Routes, "1", route)]);
        assert_eq!(chain(&snapshot), expected, "{actions}");
    }
}

#[test]
fn a_mirror_begins_when_its_upstream_appears() {
    let mut compiler = compiler();
    let route = json!({
        "uri": "/*", "actions": { "mirrors": [{ "upstream_id": "m" }] },
        "upstream": { "nodes": { "10.0.0.1:80": 1 } },
    });
    let (snapshot, problems) = apply(&mut compiler, vec![put(Kind::Routes, "1", route)]);
    let missing =
        "actions.mirrors[0].upstream_id: upstream m does not exist or is broken: no copies are sent";
    assert_eq!(problems, [missing]);
    assert_eq!(mirrored(&snapshot), [None]);
    let upstream = put(Kind::Upstreams, "m", json!({ "nodes": { "10.0.0.2:80": 1 } }));
    let (snapshot, problems) = apply(&mut compiler, vec![upstream]);
    assert_eq!((problems, mirrored(&snapshot).len()), (Vec::new(), 1));
    assert!(mirrored(&snapshot)[0].is_some());
}

/// The slots that get copies of a request.
fn mirrored(snapshot: &Snapshot) -> Vec<Option<u32>> {
    let worker = TestWorker::default();
    let mut ex = worker.exchange("GET /");
    let route = snapshot.find(&mut ex).expect("a route");
    for instance in route.chain.access() {
        assert!(matches!(instance.plugin.access(&mut ex), yumen_plugin::Step::Continue));
    }
    ex.upstream.mirrors.iter().map(|mirror| mirror.upstream.get()).collect()
}

#[test]
fn a_response_to_every_request_is_explained_and_its_idle_parts_are_reported() {
    let route = json!({
        "uri": "/*",
        "actions": { "redirect": { "status": 301 }, "request_fields": { "remove": ["A"] } },
    });
    let (snapshot, problems) = apply(&mut compiler(), vec![put(Kind::Routes, "1", route)]);
    assert_eq!(problems, ["actions.request_fields: no effect: `redirect` answers every request"]);
    let question = Question { method: "GET".into(), url: "http://a/".into(), ..Question::default() };
    let result = outcome(&snapshot, &question, Now::default()).unwrap();
    assert_eq!((result.status, result.plugin), (Some(301), Some("actions")));
}

#[test]
fn a_broken_pattern_keeps_the_last_good_version() {
    let mut compiler = compiler();
    let route = |pattern: &str| {
        let path = json!({ "regex": { "pattern": pattern, "to": "/x" } });
        let upstream = json!({ "nodes": { "10.0.0.1:80": 1 } });
        put(
            Kind::Routes,
            "1",
            json!({ "uri": "/*", "actions": { "rewrite": { "path": path } }, "upstream": upstream }),
        )
    };
    apply(&mut compiler, vec![route("/a")]);
    let (snapshot, problems) = apply(&mut compiler, vec![route("/(")]);
    assert!(problems[0].starts_with("actions.rewrite.path.regex.pattern: "), "{problems:?}");
    assert_eq!(chain(&snapshot), ["actions"]);
}

#[test]
fn backends_share_the_requests_of_a_route() {
    let mut compiler = compiler();
    let upstream = |id: &str| put(Kind::Upstreams, id, json!({ "nodes": { "10.0.0.1:80": 1 } }));
    let route = |backends: Value| put(Kind::Routes, "1", json!({ "uri": "/*", "backends": backends }));
    let target = |snapshot: &Snapshot| {
        let worker = TestWorker::default();
        let mut ex = worker.exchange("GET /");
        snapshot.find(&mut ex).expect("a route").target.clone()
    };
    apply(&mut compiler, vec![upstream("a"), upstream("b")]);
    // One live upstream needs no choice.
    let alone = json!([{ "upstream_id": "a", "weight": 3 }, { "upstream_id": "b", "weight": 0 }]);
    let (snapshot, _) = apply(&mut compiler, vec![route(alone)]);
    assert!(matches!(target(&snapshot), RouteTarget::Upstream(_)));
    let shares = json!([{ "upstream_id": "a", "weight": 2 }, { "upstream_id": "gone" }, { "status": 500 }]);
    let (snapshot, problems) = apply(&mut compiler, vec![route(shares)]);
    assert_eq!(problems, ["backends[1].upstream_id: upstream gone does not exist or is broken"]);
    let RouteTarget::Weighted(targets) = target(&snapshot) else { panic!("no backends") };
    let picked = |random| targets.pick(random).map(|one| (one.slot.is_some(), one.status));
    assert_eq!(
        [0, 1, 2, 3, 4].map(picked),
        [Some((true, 503)), Some((true, 503)), Some((false, 503)), Some((false, 500)), Some((true, 503)),]
    );
    let (snapshot, _) = apply(&mut compiler, vec![route(json!([]))]);
    let RouteTarget::Weighted(targets) = target(&snapshot) else { panic!("no backends") };
    assert!(targets.pick(7).is_none());
}
