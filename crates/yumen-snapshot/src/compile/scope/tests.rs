use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use yumen_config::Kind;
use yumen_plugin::{ListenerNumber, TlsInfo};

use super::super::tests::{found, put};
use crate::compile::{CompileOutput, Compiler, ConfigChange};
use crate::scope::CompiledScope;
use crate::snapshot::ScopeOfRequest;
use crate::streams::StreamLookup;
use crate::testing::{TestWorker, compiler};
use crate::{RouteTarget, Snapshot};

fn listener(id: &str, protocol: &str, port: u16) -> ConfigChange {
    let value = json!({ "address": format!("0.0.0.0:{port}"), "protocol": protocol });
    put(Kind::Listeners, id, value)
}

/// A scope of a listener; `hosts` is a list of words.
fn scope(id: &str, listener: &str, hosts: &str) -> ConfigChange {
    scope_with(id, listener, hosts, json!({}))
}

fn scope_with(id: &str, listener: &str, hosts: &str, more: Value) -> ConfigChange {
    let mut value = json!({ "listeners": [listener] });
    let hosts: Vec<&str> = hosts.split_whitespace().collect();
    if !hosts.is_empty() {
        value["hosts"] = json!(hosts);
    }
    value.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    put(Kind::Scopes, id, value)
}

fn route(id: &str, scopes: &[&str], hosts: &[&str]) -> ConfigChange {
    let mut value = json!({ "uri": "/*", "plugins": {} });
    if !scopes.is_empty() {
        value["scopes"] = json!(scopes);
    }
    if !hosts.is_empty() {
        value["hosts"] = json!(hosts);
    }
    put(Kind::Routes, id, value)
}

fn number(snapshot: &Snapshot, id: &str) -> ListenerNumber {
    snapshot.listeners().find(|one| *one.id == *id).expect("a listener").number
}

/// The route of a request on a listener; `-` without one.
fn routed_on(snapshot: &Snapshot, number: ListenerNumber, host: &str) -> String {
    let mut worker = TestWorker::default();
    worker.client.listener = number;
    let mut ex = worker.exchange(&format!("GET /\nHost: {host}"));
    snapshot.find(&mut ex).map_or("-".to_owned(), |route| route.info.id.to_string())
}

fn routed(snapshot: &Snapshot, listener: &str, host: &str) -> String {
    routed_on(snapshot, number(snapshot, listener), host)
}

fn scope_of<'s>(snapshot: &'s Snapshot, listener: &str, host: &str) -> Option<&'s str> {
    let scope: &CompiledScope = snapshot.scope_of(number(snapshot, listener), host.as_bytes())?;
    Some(&scope.id)
}

fn compiled(changes: impl IntoIterator<Item = ConfigChange>) -> (Compiler, Arc<Snapshot>) {
    let mut compiler = compiler();
    let CompileOutput { snapshot, problems } = compiler.apply(changes.into_iter().collect(), 1);
    assert_eq!(found(&problems), [""; 0]);
    assert_eq!(found(&compiler.problems()), [""; 0]);
    (compiler, snapshot)
}

/// The four listeners of the Gateway API's example of isolation, each with a route.
fn isolated() -> Vec<ConfigChange> {
    let hosts = [
        ("empty", ""),
        ("wildcard", "*.example.com"),
        ("wildcard-foo", "*.foo.example.com"),
        ("exact", "abc.foo.example.com"),
    ];
    let scopes = hosts.map(|(id, hosts)| scope(id, "web", hosts));
    let routes = hosts.map(|(id, _)| route(&format!("of-{id}"), &[id], &[]));
    [listener("web", "http", 8080)].into_iter().chain(scopes).chain(routes).collect()
}

#[test]
fn a_request_gets_to_the_routes_of_the_most_specific_listener_only() {
    let (_, snapshot) = compiled(isolated());
    let check = |host: &str, expected: &str| assert_eq!(routed(&snapshot, "web", host), expected, "{host}");
    check("bar.com", "of-empty");
    check("bar.example.com", "of-wildcard");
    check("bar.foo.example.com", "of-wildcard-foo");
    check("abc.foo.example.com", "of-exact");
    check("ABC.foo.example.com:8080", "of-exact");
    check("x.abc.foo.example.com", "of-wildcard-foo");
    check("example.com", "of-empty");
}

#[test]
fn routes_of_one_scope_do_not_serve_the_hosts_of_another() {
    let mut changes = isolated();
    // A route with all hosts, attached to one scope: only the intersection is served.
    let hosts = ["bar.com", "*.example.com", "*.foo.example.com", "abc.foo.example.com"];
    for id in ["empty", "wildcard", "wildcard-foo", "exact"] {
        let is_route =
            |change: &ConfigChange| matches!(change, ConfigChange::Put(one) if one.kind == Kind::Routes);
        let alone = changes.iter().filter(|change| !is_route(change)).cloned();
        let (_, snapshot) = compiled(alone.chain([route("only", &[id], &hosts)]));
        let served = hosts.map(|host| routed(&snapshot, "web", &host.replace('*', "x")) == "only");
        let expected = ["empty", "wildcard", "wildcard-foo", "exact"].map(|of| of == id);
        assert_eq!(served, expected, "{id}");
    }
    // In every scope with all of them, each host is served.
    changes.push(route("a-everywhere", &["empty", "wildcard", "wildcard-foo", "exact"], &hosts));
    let (_, snapshot) = compiled(changes);
    for host in hosts {
        assert_eq!(routed(&snapshot, "web", &host.replace('*', "x")), "a-everywhere");
    }
}

#[test]
fn routes_with_scopes_and_without_are_apart() {
    let all = [
        listener("web", "http", 8080),
        listener("bare", "http", 8081),
        scope("all", "web", ""),
        route("scoped", &["all"], &[]),
        route("plain", &[], &[]),
    ];
    let (_, snapshot) = compiled(all);
    assert_eq!(routed_on(&snapshot, ListenerNumber::STATIC, "a.test"), "plain");
    assert_eq!(routed(&snapshot, "web", "a.test"), "scoped");
    assert_eq!(routed(&snapshot, "bare", "a.test"), "-", "a listener without scopes");
    assert_eq!(snapshot.routes().into_keys().collect::<Vec<_>>(), ["plain", "scoped"]);
    assert_eq!(snapshot.router.len(), 1);
}

#[test]
fn connections_of_a_closed_listener_find_nothing() {
    let (mut compiler, snapshot) =
        compiled([listener("a", "http", 8080), scope("all", "a", ""), route("r", &["all"], &[])]);
    let old = number(&snapshot, "a");
    assert_eq!(routed_on(&snapshot, old, "a.test"), "r");
    let gone = compiler.apply(vec![ConfigChange::Delete(Kind::Listeners, "a".into())], 2);
    assert_eq!(found(&gone.problems), ["warning scopes/all at listeners[0]"]);
    assert!(gone.snapshot.listener(old).is_none());
    assert_eq!(routed_on(&gone.snapshot, old, "a.test"), "-");
    // Another listener gets the slot, with the scope of the same hosts.
    let next = compiler.apply(vec![listener("b", "http", 8080), scope("all", "b", "")], 3);
    assert_eq!(found(&next.problems), [""; 0]);
    let new = number(&next.snapshot, "b");
    assert_eq!((new.slot, new.epoch), (old.slot, old.epoch + 1));
    assert_eq!([old, new].map(|number| routed_on(&next.snapshot, number, "a.test")), ["-", "r"]);
}

#[test]
fn order_of_arrival_does_not_matter() {
    let mut changes = isolated();
    changes.reverse();
    let mut compiler = compiler();
    let mut snapshot = compiler.apply(Vec::new(), 1).snapshot;
    for change in changes {
        snapshot = compiler.apply(vec![change], 1).snapshot;
    }
    assert_eq!(found(&compiler.problems()), [""; 0]);
    for (host, expected) in [("x", "of-empty"), ("x.foo.example.com", "of-wildcard-foo")] {
        assert_eq!(routed(&snapshot, "web", host), expected);
    }
}

#[test]
fn a_missing_scope_or_listener_is_reported_until_it_appears() {
    let mut compiler = compiler();
    let ssl = json!({ "cert": "cert", "key": "key", "snis": ["*"], "scopes": ["s"] });
    let stream = json!({ "upstream": { "nodes": { "127.0.0.1:1": 1 } }, "scopes": ["s"] });
    let alone =
        vec![route("r", &["s"], &[]), put(Kind::Ssls, "c", ssl), put(Kind::StreamRoutes, "t", stream)];
    let missing = [
        "warning routes/r at scopes[0]",
        "warning ssls/c at scopes[0]",
        "warning stream_routes/t at scopes[0]",
    ];
    let mut problems = found(&compiler.apply(alone, 1).problems);
    problems.sort();
    assert_eq!(problems, missing);
    let mut all = found(&compiler.problems());
    all.sort();
    assert_eq!(all, missing);
    let appeared = compiler.apply(vec![scope("s", "web", "")], 2);
    assert_eq!(found(&appeared.problems), ["warning scopes/s at listeners[0]"]);
    assert_eq!(found(&compiler.problems()), ["warning scopes/s at listeners[0]"]);
    assert_eq!(found(&compiler.apply(vec![listener("web", "http", 1)], 3).problems), [""; 0]);
    assert_eq!(found(&compiler.problems()), [""; 0]);
    compiler.apply(vec![ConfigChange::Delete(Kind::Scopes, "s".into())], 4);
    assert_eq!(compiler.problems().len(), 3);
    compiler.apply(
        vec![ConfigChange::Delete(Kind::Routes, "r".into()), ConfigChange::Delete(Kind::Ssls, "c".into())],
        5,
    );
    assert_eq!(found(&compiler.problems()), [missing[2]]);
}

#[test]
fn the_older_of_two_scopes_has_a_host_and_the_other_is_reported() {
    let aged =
        |id: &str, created: i64, hosts: &str| scope_with(id, "web", hosts, json!({ "create_time": created }));
    let routes = ["old", "new"].map(|id| route(id, &[id], &[]));
    let mut compiler = compiler();
    let all = [listener("web", "http", 1), aged("new", 20, "a.test b.test"), aged("old", 10, "A.test")];
    let output = compiler.apply(all.into_iter().chain(routes).collect(), 1);
    assert_eq!(found(&output.problems), ["error scopes/new at hosts[0]"]);
    assert_eq!(found(&compiler.problems()), ["error scopes/new at hosts[0]"]);
    assert_eq!(output.problems[0].message, "listener web serves a.test by scopes/old, which is older");
    let served = |snapshot: &Snapshot| ["a.test", "b.test"].map(|host| routed(snapshot, "web", host));
    assert_eq!(served(&output.snapshot), ["old", "new"]);
    // The other takes over at once.
    let output = compiler.apply(vec![ConfigChange::Delete(Kind::Scopes, "old".into())], 2);
    assert_eq!(served(&output.snapshot), ["new", "new"]);
    assert_eq!(found(&output.problems), ["warning routes/old at scopes[0]"]);
    // Of the same age, the lower id.
    let output = compiler.apply(vec![aged("old", 20, "b.test")], 3);
    assert_eq!(served(&output.snapshot), ["new", "new"]);
    assert_eq!(found(&output.problems), ["error scopes/old at hosts[0]"]);
}

#[test]
fn two_scopes_without_hosts_on_one_listener_are_reported() {
    let mut compiler = compiler();
    let output = compiler.apply(vec![listener("t", "tcp", 1), scope("a", "t", ""), scope("b", "t", "")], 1);
    assert_eq!(found(&output.problems), ["error scopes/b at hosts"]);
    assert_eq!(scope_of(&output.snapshot, "t", ""), Some("a"));
}

#[test]
fn settings_of_a_scope_without_effect_are_reported() {
    #[track_caller]
    fn check(protocol: &str, hosts: &str, more: Value, expected: &[&str]) {
        let mut compiler = compiler();
        let output = compiler.apply(vec![scope_with("s", "l", hosts, more), listener("l", protocol, 1)], 1);
        let messages: Vec<String> = output.problems.iter().map(|one| one.message.clone()).collect();
        assert_eq!(messages, expected);
    }
    let passthrough = || json!({ "tls": { "mode": "passthrough" } });
    check("tls", "a.test", passthrough(), &[]);
    check("https", "a.test", passthrough(), &[]);
    check(
        "http",
        "a.test",
        passthrough(),
        &["tls has no effect on listener l: its connections are not encrypted"],
    );
    check("tcp", "", passthrough(), &["tls has no effect on listener l: its connections are not encrypted"]);
    check(
        "udp",
        "a.test",
        json!({}),
        &[
            "hosts has no effect on listener l: its connections carry no host name: no connection gets to the scope",
        ],
    );
}

#[test]
fn a_broken_scope_refuses_its_traffic_unless_it_was_valid_once() {
    let mut compiler = compiler();
    let broken = |hosts: &str| scope_with("a", "web", hosts, json!({ "tls": { "mode": "open" } }));
    let base = [listener("web", "https", 1), scope("any", "web", ""), route("r", &["any", "a"], &[])];
    let output = compiler.apply(base.into_iter().chain([broken("a.test")]).collect(), 1);
    assert_eq!(found(&output.problems)[0], "error scopes/a at tls.mode");
    let hint = output.problems[0].hint.as_deref().unwrap_or_default();
    assert!(hint.contains("answered 503"), "{hint}");
    let of_host = output.snapshot.scope_of(number(&output.snapshot, "web"), b"a.test").expect("a scope");
    assert!(of_host.is_broken() && of_host.tls().is_none() && &*of_host.id == "a");
    // Repaired, then broken again: the last good version stays.
    let good = compiler.apply(vec![scope("a", "web", "a.test")], 2);
    assert_eq!(found(&good.problems), [""; 0]);
    let output = compiler.apply(vec![broken("b.test")], 3);
    let served = ["a.test", "b.test"].map(|host| scope_of(&output.snapshot, "web", host).map(str::to_owned));
    assert_eq!(served, [Some("a".to_owned()), Some("any".to_owned())]);
    assert!(output.snapshot.scopes().all(|scope| !scope.is_broken()));
}

#[test]
fn a_scope_that_begins_to_require_client_certificates_is_not_served_without() {
    let client = |mode: &str, depth: Value| {
        let client = json!({ "ca": "ca", "mode": mode, "depth": depth });
        scope_with("a", "web", "a.test", json!({ "tls": { "client": client } }))
    };
    #[track_caller]
    fn check(first: ConfigChange, then: ConfigChange, is_closed: bool) {
        let mut compiler = compiler();
        compiler.apply(vec![listener("web", "https", 1), first], 1);
        let snapshot = compiler.apply(vec![then], 2).snapshot;
        let scope = snapshot.scope_of(number(&snapshot, "web"), b"a.test").expect("a scope");
        assert_eq!(scope.is_broken(), is_closed);
    }
    let broken = || json!("deep");
    check(scope("a", "web", "a.test"), client("require", broken()), true);
    check(client("allow_insecure_fallback", json!(1)), client("require", broken()), true);
    check(client("require", json!(1)), client("require", broken()), false);
    check(scope("a", "web", "a.test"), client("optional_no_ca", broken()), false);
}

#[test]
fn a_changed_route_compiles_its_scopes_again_and_no_other() {
    let ids: Vec<String> = (0..10).map(|at| format!("s{at}")).collect();
    let mut changes = vec![listener("web", "http", 1)];
    changes.extend(ids.iter().map(|id| scope(id, "web", &format!("{id}.test"))));
    changes.extend((0..200).map(|at| {
        let scopes = [ids[at % 10].as_str(), ids[(at + 1) % 10].as_str()];
        route(&format!("r{at}"), &scopes, &[])
    }));
    let (mut compiler, first) = compiled(changes);
    let rebuilt = |before: &Snapshot, after: &Snapshot| {
        let pairs = before.scopes().zip(after.scopes());
        pairs
            .filter(|(one, other)| !Arc::ptr_eq(one, other))
            .map(|(one, _)| one.id.to_string())
            .collect::<Vec<_>>()
    };
    let second = compiler.apply(vec![route("r3", &["s3", "s4"], &["s3.test"])], 2).snapshot;
    assert_eq!(rebuilt(&first, &second), ["s3", "s4"]);
    let third = compiler.apply(vec![route("r3", &["s5"], &[])], 3).snapshot;
    assert_eq!(rebuilt(&second, &third), ["s3", "s4", "s5"]);
    let nodes = json!({ "nodes": { "127.0.0.1:1": 1 } });
    let fourth = compiler.apply(vec![put(Kind::Upstreams, "u", nodes)], 4).snapshot;
    assert_eq!(rebuilt(&third, &fourth), [""; 0]);
    let fifth =
        compiler.apply(vec![listener("web", "http", 2), scope("s0", "web", "other.test")], 5).snapshot;
    assert_eq!(rebuilt(&fourth, &fifth), ["s0"]);
}

#[test]
fn certificates_belong_to_their_scopes() {
    let ssl = |id: &str, name: &str, scopes: &[&str]| {
        let mut value = json!({ "cert": id, "key": "key", "snis": [name] });
        if !scopes.is_empty() {
            value["scopes"] = json!(scopes);
        }
        put(Kind::Ssls, id, value)
    };
    let (mut compiler, snapshot) = compiled([
        listener("web", "https", 1),
        scope("a", "web", "*.a.test"),
        scope("b", "web", ""),
        ssl("1", "*", &["a"]),
        ssl("2", "x.a.test", &["a", "b"]),
        ssl("3", "x.a.test", &[]),
    ]);
    let shown = |snapshot: &Snapshot, scope: &str, sni: &str| {
        let of_scope = snapshot.scopes().find(|one| *one.id == *scope).expect("a scope");
        of_scope.certificate_by_name(sni).map_or("-".to_owned(), |(_, one)| one.id.to_string())
    };
    assert_eq!(["a", "b"].map(|scope| shown(&snapshot, scope, "X.a.test")), ["2", "2"]);
    assert_eq!(["a", "b"].map(|scope| shown(&snapshot, scope, "y.a.test")), ["1", "-"]);
    assert_eq!(snapshot.certificate("x.a.test").map(|one| &*one.id), Some("3"));
    assert!(snapshot.certificate("y.a.test").is_none(), "a certificate of a scope serves no static listener");
    assert_eq!(snapshot.certificates().count(), 4);
    let moved = compiler.apply(vec![ssl("2", "x.a.test", &[])], 2);
    assert_eq!(["a", "b"].map(|scope| shown(&moved.snapshot, scope, "x.a.test")), ["1", "-"]);
    assert_eq!(found(&moved.problems), ["warning ssls/2 at snis"]);
    assert_eq!(found(&compiler.problems()), ["warning ssls/2 at snis"]);
    let gone = compiler.apply(vec![ConfigChange::Delete(Kind::Ssls, "1".into())], 3);
    assert_eq!(shown(&gone.snapshot, "a", "y.a.test"), "-");
}

#[test]
fn rules_of_certificates_in_scopes_are_refused() {
    #[track_caller]
    fn check(more: Value, path: &str) {
        let mut value = json!({ "cert": "cert", "key": "key", "snis": ["a.test"], "scopes": ["s"] });
        value.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        let output = compiler().apply(vec![put(Kind::Ssls, "1", value)], 1);
        assert_eq!(found(&output.problems)[0], format!("error ssls/1 at {path}"));
        assert!(output.snapshot.certificate("a.test").is_none(), "not served on other listeners");
    }
    check(json!({ "client": { "ca": "ca" } }), "client");
    check(json!({ "ssl_protocols": ["TLSv1.3"] }), "ssl_protocols");
    check(json!({ "ssl_ciphers": ["ECDHE-RSA-AES128-GCM-SHA256"] }), "ssl_ciphers");
    check(json!({ "type": "client" }), "type");
}

#[test]
fn streams_are_routed_in_the_scope_of_their_server_name() {
    let stream = |id: &str, scopes: &[&str], sni: Option<&str>| {
        let mut value = json!({ "upstream": { "nodes": { "127.0.0.1:1": 1 } }, "scopes": scopes });
        if let Some(sni) = sni {
            value["sni"] = json!(sni);
        }
        put(Kind::StreamRoutes, id, value)
    };
    let (_, snapshot) = compiled([
        listener("tls", "tls", 1),
        listener("tcp", "tcp", 2),
        listener("udp", "udp", 3),
        scope_with("pass", "tls", "*.pass.test", json!({ "tls": { "mode": "passthrough" } })),
        scope("end", "tls", "end.test"),
        scope("plain", "tcp", ""),
        scope("datagrams", "udp", ""),
        stream("1", &["pass"], Some("a.pass.test")),
        stream("2", &["end"], None),
        stream("3", &["plain"], None),
        stream("4", &["datagrams"], None),
    ]);
    let check = |listener: &str, sni: Option<&str>, expected: &str| {
        let address: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let ask = StreamLookup { remote: address.ip(), server: address, sni };
        let streams = snapshot.streams_of(number(&snapshot, listener), sni);
        let route = streams.and_then(|streams| streams.find(&ask));
        let found = route.map_or("-", |route| &*route.info.id);
        assert_eq!(found, expected, "{listener} {sni:?}");
        assert!(route.is_none_or(|route| matches!(route.target, RouteTarget::Upstream(_))));
    };
    check("tls", Some("a.pass.test"), "1");
    check("tls", Some("b.pass.test"), "-");
    check("tls", Some("end.test"), "2");
    check("tls", Some("other.test"), "-");
    check("tls", None, "-");
    check("tcp", None, "3");
    check("udp", None, "4");
    assert!(snapshot.streams.is_empty());
    let needs_sni = |id: &str| snapshot.listener(number(&snapshot, id)).unwrap().needs_sni;
    assert_eq!(["tls", "tcp", "udp"].map(needs_sni), [true, false, false]);
}

/// The scope of a request, `421`, or `404`.
fn answer(snapshot: &Snapshot, sni: Option<&str>, host: &str) -> String {
    let mut worker = TestWorker::default();
    worker.client.listener = number(snapshot, "web");
    worker.client.tls = Some(TlsInfo { sni: sni.map(Box::from), ..TlsInfo::default() });
    match snapshot.scope_of_request(&worker.client, host.as_bytes()) {
        ScopeOfRequest::Found(Some(scope)) => scope.id.to_string(),
        ScopeOfRequest::Found(None) => "404".to_owned(),
        ScopeOfRequest::Misdirected => "421".to_owned(),
    }
}

#[test]
fn a_request_whose_host_is_of_another_scope_than_its_handshake_is_misdirected() {
    let named = [("https-1", "example.org"), ("https-2", "second-example.org"), ("https-w", "*.wild.org")];
    let scopes = || named.map(|(id, hosts)| scope(id, "web", hosts));
    let (_, with_any) =
        compiled([listener("web", "https", 1), scope("https", "web", "")].into_iter().chain(scopes()));
    let check = |sni: &str, host: &str, expected: &str| {
        assert_eq!(answer(&with_any, Some(sni), host), expected, "{sni} {host}");
    };
    check("example.org", "example.org", "https-1");
    check("example.org", "second-example.org", "421");
    check("example.org", "unknown-example.org", "421");
    check("second-example.org", "example.org", "421");
    check("second-example.org", "second-example.org", "https-2");
    check("second-example.org", "unknown-example.org", "421");
    check("unknown-example.org", "example.org", "421");
    check("unknown-example.org", "second-example.org", "421");
    check("unknown-example.org", "unknown-example.org", "https");
    check("unknown-example.org", "another.org", "https");
    check("a.wild.org", "b.wild.org", "https-w");
    check("a.wild.org", "wild.org", "421");
    check("EXAMPLE.org", "example.org", "https-1");
    check("example.org", "", "https-1");
    assert_eq!(answer(&with_any, None, "unknown-example.org"), "https");
    assert_eq!(answer(&with_any, None, "example.org"), "421");
    // No scope has the host, so no other connection would serve it.
    let (_, named_only) = compiled([listener("web", "https", 1)].into_iter().chain(scopes()));
    assert_eq!(answer(&named_only, Some("example.org"), "unknown-example.org"), "404");
    assert_eq!(answer(&named_only, Some("example.org"), "second-example.org"), "421");
    // The scope of the handshake is gone.
    assert_eq!(answer(&named_only, Some("unknown-example.org"), "example.org"), "421");
}

#[test]
fn a_scope_may_serve_requests_of_connections_with_another_server_name() {
    let lax = |id: &str, hosts: &str, tls: Value| scope_with(id, "web", hosts, json!({ "tls": tls }));
    let client = json!({ "any_server_name": true, "client": { "ca": "ca", "mode": "optional" } });
    let (_, snapshot) = compiled([
        listener("web", "https", 1),
        lax("any", "", json!({ "any_server_name": true })),
        lax("a", "a.test", json!({ "any_server_name": true })),
        lax("strict", "strict.test", json!({})),
        lax("client", "client.test", client),
    ]);
    let check = |sni: Option<&str>, host: &str, expected: &str| {
        assert_eq!(answer(&snapshot, sni, host), expected, "{sni:?} {host}");
    };
    check(None, "a.test", "a");
    check(Some("strict.test"), "a.test", "a");
    check(Some("a.test"), "other.test", "any");
    check(Some("a.test"), "strict.test", "421");
    check(None, "client.test", "421");
    check(Some("client.test"), "client.test", "client");
}
