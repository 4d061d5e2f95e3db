//! Services as an input; and what becomes of endpoints and routes that change.

use std::sync::Arc;

use serde_json::{Value, json};
use yumen_config::resource::UpstreamNode;
use yumen_config::{Kind, Resource};

use super::{DiscoveryQuery, DiscoveryResult};
use crate::compile::{CompileOutput, ConfigChange};
use crate::testing::{TestWorker, compiler};
use crate::upstream::EndpointState;
use crate::{RouteLifetime, RouteTarget, Upstream};

fn put(kind: Kind, id: &str, value: Value) -> ConfigChange {
    ConfigChange::Put(Resource::new(kind, id, &value))
}

/// A route `/id` with members of its own.
fn route(id: &str, mut value: Value) -> ConfigChange {
    value["uri"] = json!(format!("/{id}"));
    put(Kind::Routes, id, value)
}

fn service(name: &str, args: &str) -> Arc<DiscoveryQuery> {
    Arc::new(DiscoveryQuery { source: "consul".into(), name: name.into(), args: args.into() })
}

fn result(service: &Arc<DiscoveryQuery>, nodes: Option<Value>, error: Option<&str>) -> ConfigChange {
    let nodes = nodes.map(|nodes| serde_json::from_value::<Vec<UpstreamNode>>(nodes).unwrap());
    ConfigChange::Discovered(service.clone(), DiscoveryResult { nodes, error: error.map(Box::from) })
}

/// The upstream behind a path and the life of its route.
fn upstream_of<T>(
    compiled: &CompileOutput,
    path: &str,
    see: impl FnOnce(&Upstream, &Arc<RouteLifetime>) -> T,
) -> T {
    let bench = TestWorker::default();
    let mut ex = bench.exchange(&format!("GET {path}"));
    let route = compiled.snapshot.find(&mut ex).expect("a route");
    let RouteTarget::Upstream(slot) = route.target else { panic!("{:?}", route.target) };
    see(compiled.snapshot.upstream(slot).expect("an upstream"), &route.life)
}

fn endpoints(compiled: &CompileOutput, path: &str) -> Vec<String> {
    upstream_of(compiled, path, |upstream, _| {
        upstream.endpoints.iter().map(|one| format!("{} {}", one.addr, one.authority)).collect()
    })
}

fn states(compiled: &CompileOutput, path: &str) -> Vec<Arc<EndpointState>> {
    upstream_of(compiled, path, |upstream, _| {
        upstream.endpoints.iter().map(|one| one.state.clone()).collect()
    })
}

#[test]
fn services_are_wanted_as_long_as_somebody_names_them() {
    let mut compiler = compiler();
    let route_of = |name: &str| json!({ "upstream": { "service_name": name, "discovery_type": "consul" } });
    let mut with_args = route_of("a");
    with_args["upstream"]["discovery_args"] = json!({ "tag": "blue" });
    compiler.apply(vec![route("1", route_of("a")), route("2", route_of("a")), route("3", with_args)], 1);
    let required = |compiler: &crate::Compiler| {
        compiler.services().map(|(one, _)| format!("{} {}", one.name, one.args)).collect::<Vec<_>>()
    };
    assert_eq!(required(&compiler), ["a ", "a {\"tag\":\"blue\"}"]);
    compiler.apply(vec![route("1", route_of("b")), ConfigChange::Delete(Kind::Routes, "3".into())], 2);
    assert_eq!(required(&compiler), ["a ", "b "]);
    compiler.apply(vec![route("2", json!({ "upstream": { "nodes": { "10.0.0.1:80": 1 } } }))], 3);
    assert_eq!(required(&compiler), ["b "]);
    assert_eq!(compiler.problems().len(), 0);
}

#[test]
fn nodes_of_a_service_go_where_it_is_named_and_nowhere_else() {
    let mut compiler = compiler();
    let discovered = json!({ "upstream": { "service_name": "a", "discovery_type": "consul" } });
    let other = json!({ "upstream": { "nodes": { "10.0.0.9:80": 1 } } });
    let first = compiler.apply(vec![route("1", discovered.clone()), route("2", other)], 1);
    let unresolved = |compiled: &CompileOutput| {
        upstream_of(compiled, "/1", |upstream, _| {
            upstream.unresolved.iter().map(ToString::to_string).collect::<Vec<_>>()
        })
    };
    assert_eq!(unresolved(&first), ["the service a (consul)"]);
    let a = service("a", "");
    let nodes = json!([{ "host": "10.0.0.1", "port": 8080, "weight": 1 }, { "host": "10.0.0.2", "weight": 1 },
        { "host": "[fd00::1]", "port": 80, "weight": 1 }, { "host": "x.local", "port": 81, "weight": 1 }]);
    let before = compiler.apply(vec![], 2);
    let compiled = compiler.apply(vec![result(&a, Some(nodes), None)], 3);
    let known = ["10.0.0.1:8080 10.0.0.1:8080", "10.0.0.2:80 10.0.0.2", "[fd00::1]:80 [fd00::1]"];
    assert_eq!(endpoints(&compiled, "/1"), known);
    assert_eq!(unresolved(&compiled), ["x.local"]);
    // Names among them are resolved like any other.
    assert_eq!(compiler.hosts().map(|(host, _)| host).collect::<Vec<_>>(), ["x.local"]);
    let pointer = |compiled: &CompileOutput| {
        upstream_of(compiled, "/2", |upstream, _| std::ptr::from_ref(upstream) as usize)
    };
    assert_eq!(pointer(&before), pointer(&compiled), "what names no service is left alone");

    let failed = compiler.apply(vec![result(&a, None, Some("gone"))], 4);
    assert_eq!(endpoints(&failed, "/1"), known, "a failure takes nothing away");
    let shown = |problems: &[yumen_base::Problem]| {
        problems.iter().map(|one| format!("{} {}: {}", one.object, one.path, one.message)).collect::<Vec<_>>()
    };
    assert_eq!(shown(&failed.problems), ["routes/1 service_name: consul: gone"]);
    assert_eq!(shown(&compiler.problems()), ["routes/1 service_name: consul: gone"]);
    // What is known stays known while its user is written anew, and comes back with its user otherwise.
    let mut renamed = discovered;
    renamed["desc"] = json!("x");
    assert_eq!(endpoints(&compiler.apply(vec![route("1", renamed)], 5), "/1"), known);
    let empty = compiler.apply(vec![result(&a, Some(json!([])), None)], 6);
    assert_eq!((endpoints(&empty, "/1").len(), compiler.problems().len()), (0, 0));
    let unreferenced =
        result(&service("b", ""), Some(json!([{ "host": "10.0.0.3", "weight": 1 }])), Some("x"));
    assert_eq!(endpoints(&compiler.apply(vec![unreferenced], 7), "/1").len(), 0);
}

#[test]
fn a_node_without_a_port_has_none_where_the_scheme_has_none() {
    let mut compiler = compiler();
    let upstream = json!({ "service_name": "a", "discovery_type": "consul", "scheme": "tcp" });
    compiler.apply(vec![route("1", json!({ "upstream": upstream }))], 1);
    let nodes = json!([{ "host": "10.0.0.1", "weight": 1 }, { "host": "10.0.0.1", "port": 81, "weight": 1 }]);
    let compiled = compiler.apply(vec![result(&service("a", ""), Some(nodes), None)], 2);
    assert_eq!(endpoints(&compiled, "/1"), ["10.0.0.1:81 10.0.0.1:81"]);
}

#[test]
fn an_endpoint_has_departed_when_no_upstream_names_it() {
    let mut compiler = compiler();
    let nodes = |hosts: &[&str]| {
        let nodes: Vec<Value> =
            hosts.iter().map(|host| json!({ "host": host, "port": 80, "weight": 1 })).collect();
        json!({ "upstream": { "nodes": nodes } })
    };
    let first = compiler
        .apply(vec![route("1", nodes(&["10.0.0.1", "10.0.0.2"])), route("2", nodes(&["10.0.0.2"]))], 1);
    let states = states(&first, "/1");
    let departed = || states.iter().map(|state| state.has_departed()).collect::<Vec<_>>();
    assert_eq!(departed(), [false, false]);
    compiler.apply(vec![route("1", nodes(&["10.0.0.3"]))], 2);
    assert_eq!(departed(), [true, false], "another upstream has the second");
    compiler.apply(vec![route("1", nodes(&["10.0.0.1"]))], 3);
    assert_eq!(departed(), [false, false], "it is back");
    compiler.apply(
        vec![ConfigChange::Delete(Kind::Routes, "1".into()), ConfigChange::Delete(Kind::Routes, "2".into())],
        4,
    );
    assert_eq!(departed(), [true, true]);
}

#[test]
fn a_route_lives_on_while_it_says_the_same() {
    // Each change, with whether the life before it is over afterwards.
    let drains = json!({ "on_change": { "drain": 5 }, "upstream": { "nodes": { "10.0.0.1:80": 1 } } });
    let with = |change: Value| {
        let mut value = drains.clone();
        for (name, member) in change.as_object().unwrap() {
            value[name.as_str()] = member.clone();
        }
        value.as_object_mut().unwrap().retain(|_, member| !member.is_null());
        value
    };
    let cases = [
        (json!({ "upstream": { "nodes": { "10.0.0.2:80": 1 } }, "update_time": 7, "desc": "x" }), false),
        (json!({ "on_change": "close" }), true),
        (json!({ "enable_websocket": true }), true),
        (json!({ "plugins": { "cors": {} } }), true),
        (json!({ "status": 0 }), true),
        (json!({ "methods": ["GET"] }), true),
        (json!({ "upstream": null, "upstream_id": "u" }), true),
        (json!({ "upstream": null, "service_id": "s" }), true),
    ];
    for (change, ends) in cases {
        let mut compiler = compiler();
        let nodes = json!({ "nodes": { "10.0.0.1:80": 1 } });
        let others = [
            put(Kind::Upstreams, "u", nodes.clone()),
            put(Kind::Services, "s", json!({ "upstream": nodes })),
        ];
        let first = compiler.apply([route("1", drains.clone())].into_iter().chain(others).collect(), 1);
        let life = upstream_of(&first, "/1", |_, life| life.clone());
        let after = compiler.apply(vec![route("1", with(change.clone()))], 2);
        assert_eq!(after.problems, [], "{change}");
        assert_eq!(life.is_over(), ends, "{change}");
        compiler.apply(vec![ConfigChange::Delete(Kind::Routes, "1".into())], 3);
        assert!(life.is_over());
    }
}

#[test]
fn a_route_whose_upstream_alone_ties_tunnels_ends_with_what_it_says() {
    let nodes = || json!({ "nodes": { "10.0.0.1:80": 1 } });
    let closes = || json!({ "nodes": { "10.0.0.1:80": 1 }, "on_change": "close" });
    let split = json!({ "traffic-split": { "rules": [{ "weighted_upstreams": [{ "upstream_id": "u" }] }] } });
    for binding in [
        json!({ "upstream": closes() }),
        json!({ "upstream_id": "u" }),
        json!({ "service_id": "s" }),
        json!({ "service_id": "named" }),
        json!({ "upstream": nodes(), "plugins": split }),
    ] {
        for (change, ends) in [
            (json!({ "name": "x", "labels": { "a": "b" }, "update_time": 7 }), false),
            (json!({ "status": 0 }), true),
            (json!({ "methods": ["GET"] }), true),
            (json!({ "enable_websocket": true }), true),
            (json!({ "plugins": { "cors": {} } }), true),
        ] {
            let mut compiler = compiler();
            let others = vec![
                put(Kind::Upstreams, "u", closes()),
                put(Kind::Services, "s", json!({ "upstream": closes() })),
                put(Kind::Services, "named", json!({ "upstream_id": "u" })),
            ];
            compiler.apply(others, 1);
            let life = upstream_of(&compiler.apply(vec![route("1", binding.clone())], 2), "/1", |_, life| {
                life.clone()
            });
            let mut after = binding.clone();
            after.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            let after = compiler.apply(vec![route("1", after)], 3);
            assert_eq!(after.problems, [], "{binding} {change}");
            assert_eq!(life.is_over(), ends, "{binding} {change}");
            compiler.apply(vec![ConfigChange::Delete(Kind::Routes, "1".into())], 4);
            assert!(life.is_over());
        }
    }
}

#[test]
fn a_broken_text_and_one_written_in_another_order_end_no_route() {
    let mut compiler = compiler();
    let text =
        |json: &str| ConfigChange::Put(Resource { kind: Kind::Routes, id: "1".into(), json: json.into() });
    let first = text(r#"{"uri": "/1", "status": 1, "upstream": {"nodes": {"10.0.0.1:80": 1}}}"#);
    let life = upstream_of(&compiler.apply(vec![first], 1), "/1", |_, life| life.clone());
    compiler.apply(vec![text(r#"{"uri": 5}"#)], 2);
    assert!(!life.is_over(), "the last good version stays");
    compiler.apply(vec![text(r#"{"status":1,"uri":"/1","upstream":{"nodes":{"10.0.0.2:80":1}}}"#)], 3);
    assert!(!life.is_over());
    compiler.apply(vec![text(r#"{"status":1,"uri":"/2","upstream":{"nodes":{"10.0.0.2:80":1}}}"#)], 4);
    assert!(life.is_over());
}

#[test]
fn probes_are_shared_by_those_who_ask_the_same_in_the_same_way() {
    let upstream = |probe: &str, ca: &str| {
        json!({ "scheme": "https", "nodes": { "10.0.0.1:443": 1 }, "tls": { "verify": true, "ca": ca.repeat(128) },
            "checks": { "active": { "type": probe } } })
    };
    let compiled = compiler().apply(
        vec![
            route("https-a", json!({ "upstream": upstream("https", "a") })),
            route("https-a2", json!({ "upstream": upstream("https", "a") })),
            route("https-b", json!({ "upstream": upstream("https", "b") })),
            route("tcp-a", json!({ "upstream": upstream("tcp", "a") })),
            route("tcp-b", json!({ "upstream": upstream("tcp", "b") })),
        ],
        1,
    );
    let problems: Vec<String> = compiled.problems.iter().map(|one| one.to_string()).collect();
    assert_eq!(problems, [""; 0]);
    let health = |path: &str| {
        upstream_of(&compiled, path, |upstream, _| upstream.endpoints[0].health.clone().unwrap())
    };
    assert!(Arc::ptr_eq(&health("/https-a"), &health("/https-a2")));
    assert!(!Arc::ptr_eq(&health("/https-a"), &health("/https-b")), "another CA trusts others");
    assert!(Arc::ptr_eq(&health("/tcp-a"), &health("/tcp-b")), "a connection is one whatever is trusted");
}

#[test]
fn an_idle_timeout_of_nothing_is_for_ever() {
    let pooled = |seconds: f64| json!({ "nodes": { "10.0.0.1:80": 1 }, "keepalive_pool": { "idle_timeout": seconds } });
    let compiled = compiler().apply(
        vec![
            route("ever", json!({ "upstream": pooled(0.0) })),
            route("short", json!({ "upstream": pooled(0.5) })),
        ],
        1,
    );
    let idle_ms = |path: &str| upstream_of(&compiled, path, |upstream, _| upstream.keepalive.idle_timeout_ms);
    assert_eq!([idle_ms("/ever"), idle_ms("/short")], [u64::MAX, 500]);
}

#[test]
fn an_upstream_goes_on_to_its_endpoints_until_it_is_known_where_the_new_ones_are() {
    let named = |host: &str| json!({ "upstream": { "nodes": { host: 1 }, "pass_host": "node" } });
    let route_of = |name: &str| json!({ "upstream": { "service_name": name, "discovery_type": "consul" } });
    let resolved = |host: &str, addrs: &[&str]| ConfigChange::Resolved {
        host: host.into(),
        addrs: addrs.iter().map(|text| text.parse().unwrap()).collect(),
    };
    let nodes = |host: &str| Some(json!([{ "host": host, "port": 80, "weight": 1 }]));
    let mut compiler = compiler();
    let steps = [
        (route("1", named("a.local")), ""),
        (resolved("a.local", &["10.0.0.1"]), "10.0.0.1:80 a.local"),
        (route("1", named("b.local:81")), "10.0.0.1:80 a.local"),
        (resolved("b.local", &[]), "10.0.0.1:80 a.local"),
        (resolved("b.local", &["10.0.0.2"]), "10.0.0.2:81 b.local:81"),
        (route("1", route_of("a")), "10.0.0.2:81 b.local:81"),
        (result(&service("a", ""), None, Some("cannot be reached")), "10.0.0.2:81 b.local:81"),
        (result(&service("a", ""), nodes("10.0.0.3"), None), "10.0.0.3:80 10.0.0.3"),
        (route("1", route_of("b")), "10.0.0.3:80 10.0.0.3"),
        (result(&service("b", ""), nodes("c.local"), None), "10.0.0.3:80 10.0.0.3"),
        (resolved("c.local", &["10.0.0.4"]), "10.0.0.4:80 c.local"),
        (route("1", route_of("c")), "10.0.0.4:80 c.local"),
        // Nobody is an answer, too.
        (result(&service("c", ""), Some(json!([])), None), ""),
    ];
    for (number, (change, expected)) in steps.into_iter().enumerate() {
        let compiled = compiler.apply(vec![change], number as u64);
        assert_eq!(endpoints(&compiled, "/1").join(" "), expected, "step {number}");
    }
}

#[test]
fn other_checks_begin_with_what_the_checks_before_knew() {
    let checked = |path: &str| {
        let checks = json!({ "active": { "type": "http", "http_path": path } });
        json!({ "upstream": { "nodes": { "10.0.0.1:80": 1, "10.0.0.2:80": 1 }, "checks": checks } })
    };
    let mut compiler = compiler();
    let health = |compiled: &CompileOutput| {
        upstream_of(compiled, "/1", |upstream, _| {
            upstream
                .endpoints
                .iter()
                .map(|one| one.health.clone().expect("it has checks"))
                .collect::<Vec<_>>()
        })
    };
    let before = health(&compiler.apply(vec![route("1", checked("/a"))], 1));
    before[1].set(false);
    let after = health(&compiler.apply(vec![route("1", checked("/b"))], 2));
    assert!(!Arc::ptr_eq(&before[0], &after[0]), "other checks count by themselves");
    assert_eq!(after.iter().map(|one| one.is_up()).collect::<Vec<_>>(), [true, false]);
    let unchecked = json!({ "upstream": { "nodes": { "10.0.0.1:80": 1, "10.0.0.2:80": 1 } } });
    compiler.apply(vec![route("1", unchecked)], 3);
    let anew = health(&compiler.apply(vec![route("1", checked("/c"))], 4));
    assert_eq!(anew.iter().map(|one| one.is_up()).collect::<Vec<_>>(), [true, true]);
}
