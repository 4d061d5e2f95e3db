use std::sync::Arc;

use serde_json::{Value, json};
use yumen_base::ProblemLevel;
use yumen_config::Kind;
use yumen_plugin::{Exchange, PluginChain, Step};

use super::super::tests::{compiler, found, nodes, put, route};
use super::super::{Compiler, ConfigChange};
use crate::testing::TestWorker;
use crate::{RouteTarget, Snapshot};

/// The status of the first answer of a chain's plugins.
fn first_answer(ex: &mut Exchange<'_>, chain: &PluginChain) -> Option<u16> {
    let rewrite = chain.rewrite().iter().map(|one| (one, true));
    let access = chain.access().iter().map(|one| (one, false));
    for (instance, is_rewrite) in rewrite.chain(access) {
        if !ex.admits(instance) {
            continue;
        }
        let step = if is_rewrite { instance.plugin.rewrite(ex) } else { instance.plugin.access(ex) };
        if let Step::Respond(response) = step {
            return Some(response.status);
        }
    }
    None
}

/// What a request of a consumer, or of nobody, comes to: 200 where it goes to an upstream.
fn status_as(snapshot: &Snapshot, request: &str, consumer: Option<&str>) -> u16 {
    let bench = TestWorker::default();
    let mut ex = bench.exchange(request);
    let Some(route) = snapshot.router.find(&mut ex, &mut ()) else { return 404 };
    if let RouteTarget::Refuse { status, .. } = &route.target {
        return *status;
    }
    let rules = first_answer(&mut ex, snapshot.global_rules(Some(route)));
    let consumer = consumer.and_then(|name| snapshot.consumers.named(name));
    let merged = consumer.map(|consumer| route.chain.with_consumer(consumer));
    let answer = rules.or_else(|| first_answer(&mut ex, merged.as_ref().unwrap_or(&route.chain)));
    answer.unwrap_or(200)
}

fn status(snapshot: &Snapshot, request: &str) -> u16 {
    status_as(snapshot, request, None)
}

fn guarded(plugins: Value) -> Value {
    json!({ "plugins": plugins, "upstream": nodes("10.0.0.1:80") })
}

fn apply(compiler: &mut Compiler, changes: Vec<ConfigChange>) -> Arc<Snapshot> {
    compiler.apply(changes, 1).snapshot
}

#[test]
fn a_missing_plugin_closes_its_route_where_it_guards() {
    let filter = |condition: Value| json!({ "_meta": { "filter": [condition] } });
    for (plugins, expected) in [
        (json!({ "gate": {} }), 503),
        (json!({ "login": { "client_secret": "$secret://vault/1/a/b" } }), 503),
        (json!({ "later": {}, "first": { "text": "a" } }), 200),
        // Only the requests that it would see.
        (json!({ "gate": filter(json!(["arg_a", "==", "1"])) }), 503),
        (json!({ "gate": filter(json!(["arg_a", "==", "2"])) }), 200),
        // A filter that holds at the end of an exchange, if at all.
        (json!({ "gate": filter(json!(["status", "==", "200"])) }), 503),
        (json!({ "gate": filter(json!(["sent_http_x", "==", "1"])) }), 503),
        (json!({ "gate": filter(json!(["no_such_variable", "==", "1"])) }), 503),
        (json!({ "gate": { "_meta": { "disable": true } } }), 200),
    ] {
        let mut compiler = compiler();
        let snapshot = apply(&mut compiler, vec![route("r", guarded(plugins.clone()))]);
        assert_eq!(status(&snapshot, "GET /r?a=1"), expected, "{plugins}");
    }
}

#[test]
fn a_missing_guard_is_an_error_and_other_missing_plugins_are_warnings() {
    let mut compiler = compiler();
    let plugins = json!({ "gate": {}, "later": {} });
    apply(&mut compiler, vec![route("r", guarded(plugins))]);
    let problems = compiler.problems();
    assert_eq!(found(&problems), ["warning routes/r at plugins.later", "error routes/r at plugins.gate"]);
    let gate = &problems[1];
    assert_eq!(gate.message, "plugin gate is not available in this version, and access depends on it");
    let hint = gate.hint.as_deref().unwrap_or_default();
    assert!(
        hint.starts_with("requests are answered 503: ") && hint.contains("plugins.allow_missing"),
        "{hint}"
    );
    assert!(!gate.last_good);
}

#[test]
fn every_object_with_a_missing_guard_closes_what_it_is_for() {
    let gate = json!({ "plugins": { "gate": {} } });
    for (kind, on_route) in [
        (Kind::Services, json!({ "service_id": "x", "upstream": nodes("10.0.0.1:80") })),
        (Kind::PluginConfigs, json!({ "plugin_config_id": "x", "upstream": nodes("10.0.0.1:80") })),
        (Kind::GlobalRules, guarded(json!({}))),
    ] {
        let mut compiler = compiler();
        let snapshot = apply(&mut compiler, vec![put(kind, "x", gate.clone()), route("r", on_route)]);
        assert_eq!(status(&snapshot, "GET /r"), 503, "{kind:?}");
        let errors: Vec<String> = found(&compiler.problems());
        assert_eq!(errors, [format!("error {}/x at plugins.gate", kind.name())]);
    }
}

#[test]
fn a_route_switches_off_the_missing_guard_of_its_service() {
    let mut compiler = compiler();
    let off = json!({ "gate": { "_meta": { "disable": true } } });
    let service = put(Kind::Services, "s", guarded(json!({ "gate": {} })));
    let own = route("r", json!({ "service_id": "s", "plugins": off }));
    let snapshot = apply(&mut compiler, vec![service, own, route("other", json!({ "service_id": "s" }))]);
    assert_eq!((status(&snapshot, "GET /r"), status(&snapshot, "GET /other")), (200, 503));
}

#[test]
fn a_route_that_gets_a_missing_guard_closes_and_opens_without_it() {
    let mut compiler = compiler();
    let open = || route("r", guarded(json!({})));
    assert_eq!(status(&apply(&mut compiler, vec![open()]), "GET /r"), 200);
    let closed = apply(&mut compiler, vec![route("r", guarded(json!({ "gate": {} })))]);
    assert_eq!(status(&closed, "GET /r"), 503);
    assert_eq!(compiler.last_good().count(), 0);
    // A broken text keeps the last version that was in force, which is closed.
    let broken = apply(&mut compiler, vec![route("r", guarded(json!({ "first": { "text": "bad" } })))]);
    assert_eq!(status(&broken, "GET /r"), 503);
    assert_eq!(status(&apply(&mut compiler, vec![open()]), "GET /r"), 200);
    assert!(compiler.problems().is_empty());
}

/// The routes of every object that may name the missing guard, open, and a wider one.
fn open_objects(compiler: &mut Compiler) {
    let changes = vec![
        put(Kind::Services, "s", guarded(json!({}))),
        put(Kind::PluginConfigs, "p", json!({ "plugins": {} })),
        put(Kind::ConsumerGroups, "g", json!({ "plugins": {} })),
        put(Kind::Consumers, "c", json!({ "username": "c" })),
        put(Kind::Consumers, "m", json!({ "username": "m", "group_id": "g" })),
        put(Kind::GlobalRules, "1", json!({ "plugins": {} })),
        route("r", guarded(json!({}))),
        route("s", json!({ "service_id": "s" })),
        route("p", json!({ "plugin_config_id": "p", "upstream": nodes("10.0.0.1:80") })),
        put(Kind::Routes, "wide", json!({ "uri": "/*", "upstream": nodes("10.0.0.1:80") })),
    ];
    apply(compiler, changes);
}

#[test]
fn no_last_good_version_serves_in_place_of_a_missing_guard() {
    let with = |mut value: Value, more: Value| {
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        value
    };
    let gate = || guarded(json!({ "gate": {} }));
    let set = json!({ "plugins": { "gate": {}, "gatee": {} } });
    let of_consumer = json!({ "username": "c", "plugins": { "gate": {} }, "zzz": 1 });
    for (change, path, consumer, expected) in [
        (route("r", with(gate(), json!({ "zzz": 1 }))), "/r", None, 503),
        (route("r", with(gate(), json!({ "vars": [["a"]] }))), "/r", None, 503),
        (route("r", with(gate(), json!({ "hostt": "a.test" }))), "/r", None, 503),
        (route("r", guarded(json!({ "gate": {}, "first": { "text": "bad" } }))), "/r", None, 503),
        (
            put(Kind::Services, "s", with(set.clone(), json!({ "upstream": nodes("10.0.0.1:80") }))),
            "/s",
            None,
            404,
        ),
        (put(Kind::PluginConfigs, "p", set.clone()), "/p", None, 503),
        (put(Kind::ConsumerGroups, "g", set.clone()), "/wide", Some("m"), 503),
        (put(Kind::GlobalRules, "1", set.clone()), "/wide", None, 503),
        (put(Kind::Consumers, "c", of_consumer), "/wide", Some("c"), 0),
    ] {
        let mut compiler = compiler();
        open_objects(&mut compiler);
        for round in 0..2 {
            let snapshot = apply(&mut compiler, vec![change.clone()]);
            assert_eq!(compiler.last_good().count(), 0, "{change:?}");
            match consumer {
                Some("c") => assert!(snapshot.consumers.named("c").is_none()),
                _ => assert_eq!(
                    status_as(&snapshot, &format!("GET {path}"), consumer),
                    expected,
                    "{round} {change:?}"
                ),
            }
            let problems = compiler.problems();
            let promises = |hint: &str| hint.starts_with("requests are answered 503");
            assert!(!problems.iter().any(|one| one.last_good || one.hint.as_deref().is_some_and(promises)));
        }
        open_objects(&mut compiler);
        assert!(compiler.problems().is_empty(), "{:?}", compiler.problems());
    }
}

#[test]
fn a_guard_of_a_route_whose_predicates_cannot_be_read_is_told_to_be_missing() {
    let mut compiler = compiler();
    let value =
        json!({ "uri": "/r", "vars": [["a"]], "plugins": { "gate": {} }, "upstream": nodes("10.0.0.1:80") });
    apply(&mut compiler, vec![put(Kind::Routes, "r", value)]);
    let hints: Vec<_> = compiler.problems().into_iter().map(|one| one.hint).collect();
    assert_eq!(hints, [Some("matching requests go to other routes until it is fixed".to_owned()), None]);
}

#[test]
fn a_stream_route_with_a_missing_guard_and_another_mistake_is_closed() {
    let stream = |value: Value| put(Kind::StreamRoutes, "1", value);
    for more in [json!({ "zzz": 1 }), json!({ "remote_addr": "nowhere" })] {
        let mut compiler = compiler();
        apply(&mut compiler, vec![stream(guarded(json!({})))]);
        let mut broken = guarded(json!({ "gate": {} }));
        broken.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let snapshot = apply(&mut compiler, vec![stream(broken)]);
        let route = snapshot.streams.all().next().expect("a stream route");
        assert!(matches!(route.target, RouteTarget::Refuse { .. }), "{more}");
        assert_eq!(compiler.last_good().count(), 0);
        let snapshot = apply(&mut compiler, vec![stream(guarded(json!({})))]);
        assert!(matches!(snapshot.streams.all().next().unwrap().target, RouteTarget::Upstream(_)));
    }
}

#[test]
fn a_service_with_a_missing_guard_closes_its_stream_routes() {
    let mut compiler = compiler();
    let service = put(Kind::Services, "s", guarded(json!({ "login": {} })));
    let snapshot =
        apply(&mut compiler, vec![service, put(Kind::StreamRoutes, "1", json!({ "service_id": "s" }))]);
    let route = snapshot.streams.all().next().expect("a stream route");
    assert!(matches!(route.target, RouteTarget::Refuse { .. }));
}

#[test]
fn consumers_with_a_missing_guard_are_refused() {
    let consumer = |name: &str, plugins: Value| {
        put(Kind::Consumers, name, json!({ "username": name, "plugins": plugins }))
    };
    let key = json!({ "key": "k" });
    let mut compiler = compiler();
    let snapshot = apply(
        &mut compiler,
        vec![
            consumer("held", json!({ "key-auth": key })),
            consumer("at-login", json!({ "key-auth": { "key": "l" }, "login": {} })),
            consumer("gated", json!({ "gate": {} })),
            consumer("off", json!({ "login": { "_meta": { "disable": true } } })),
            put(Kind::ConsumerGroups, "g", json!({ "plugins": { "gate": {} } })),
            put(Kind::Consumers, "member", json!({ "username": "member", "group_id": "g" })),
            route("open", guarded(json!({}))),
            route("login", guarded(json!({ "login": {} }))),
        ],
    );
    for (path, consumer, expected) in [
        ("/open", "held", 200),
        ("/open", "at-login", 503),
        ("/open", "gated", 503),
        ("/open", "off", 200),
        ("/open", "member", 503),
        // What a consumer holds or switches off does not take the guard away.
        ("/login", "held", 503),
        ("/login", "off", 503),
    ] {
        assert!(snapshot.consumers.named(consumer).is_some(), "{consumer} is in force");
        let status = status_as(&snapshot, &format!("GET {path}"), Some(consumer));
        assert_eq!(status, expected, "{consumer} at {path}");
    }
    let errors = compiler.problems().into_iter().filter(|one| one.level == ProblemLevel::Error);
    let mut objects: Vec<String> = errors.map(|one| one.object).collect();
    objects.sort();
    assert_eq!(objects, ["consumer_groups/g", "consumers/at-login", "consumers/gated", "routes/login"]);
}

#[test]
fn a_node_that_allows_a_plugin_to_be_missing_runs_without_it() {
    let mut compiler = compiler();
    compiler.context.env.missing = compiler.context.env.missing.clone().allowing(&["gate", "our-own"]);
    let plugins = json!({ "gate": {}, "our-own": { "a": 1 } });
    let snapshot =
        apply(&mut compiler, vec![route("r", guarded(plugins)), route("s", guarded(json!({ "login": {} })))]);
    assert_eq!((status(&snapshot, "GET /r"), status(&snapshot, "GET /s")), (200, 503));
    let expected = [
        "warning routes/r at plugins.gate",
        "warning routes/r at plugins.our-own",
        "error routes/s at plugins.login",
    ];
    assert_eq!(found(&compiler.problems()), expected);
}

#[test]
fn stream_routes_with_a_missing_guard_close_connections() {
    let stream = |id: &str, value: Value| put(Kind::StreamRoutes, id, value);
    let service = put(Kind::Services, "s", guarded(json!({ "second": { "text": "a" } })));
    let mut compiler = compiler();
    let snapshot = apply(
        &mut compiler,
        vec![
            service,
            stream("own", guarded(json!({ "gate": {} }))),
            stream("observed", guarded(json!({ "later": {} }))),
            stream("inherited", json!({ "service_id": "s" })),
        ],
    );
    for (id, refuses) in [("own", true), ("observed", false), ("inherited", true)] {
        let route = snapshot.streams.all().find(|one| &*one.info.id == id).expect("a stream route");
        let bench = TestWorker::default();
        let mut ex = bench.exchange("GET /");
        let is_closed = matches!(route.target, RouteTarget::Refuse { .. });
        assert_eq!(is_closed || first_answer(&mut ex, &route.chain).is_some(), refuses, "{id}");
    }
    let problems = found(&compiler.problems());
    let expected = [
        "error stream_routes/inherited at service_id",
        "warning stream_routes/observed at plugins.later",
        "error stream_routes/own at plugins.gate",
    ];
    assert_eq!(problems, expected);
}
