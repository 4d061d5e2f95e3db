//! Stream routes to what connections come to: references, quarantine, healing, plugins.

use serde_json::{Value, json};
use yumen_config::{Kind, Resource};

use crate::streams::StreamLookup;
use crate::testing::{TestWorker, compiler};
use crate::upstream::TriedEndpoints;
use crate::{CompileOutput, Compiler, ConfigChange, RouteTarget, Snapshot};

fn put(kind: Kind, id: &str, value: Value) -> ConfigChange {
    ConfigChange::Put(Resource::new(kind, id, &value))
}

fn delete(kind: Kind, id: &str) -> ConfigChange {
    ConfigChange::Delete(kind, id.into())
}

fn nodes(address: &str) -> Value {
    json!({ "nodes": { address: 1 }, "scheme": "tcp" })
}

/// What a connection to a port comes to: the route, where it goes, and its plugins.
fn answer(snapshot: &Snapshot, port: u16) -> String {
    let server = ([10, 0, 0, 1], port).into();
    let ask = StreamLookup { remote: [192, 0, 2, 1].into(), server, sni: None };
    let Some(route) = snapshot.streams.find(&ask) else { return "-".into() };
    let goes = match &route.target {
        RouteTarget::Refuse { message, .. } => message.to_string(),
        RouteTarget::None => "nowhere".into(),
        RouteTarget::Weighted(of) => format!("{} backends", of.targets.len()),
        RouteTarget::Upstream(slot) => {
            let upstream = snapshot.shared_upstream(*slot).expect("a slot in use is filled");
            let bench = TestWorker::default();
            let picked = upstream.pick(&bench.exchange("GET /"), &TriedEndpoints::default());
            picked.map_or("empty".into(), |index| upstream.endpoints[index].addr.to_string())
        }
    };
    let plugins: Vec<String> =
        route.chain.all().iter().map(|one| format!("{}@{}", one.name, one.origin)).collect();
    format!("{} {goes} {}", route.info.id, plugins.join(" ")).trim_end().to_owned()
}

/// Applies each step and looks at port 9100.
fn check(steps: Vec<(Vec<ConfigChange>, &str, &[&str])>) {
    let mut compiler: Compiler = compiler();
    for (number, (changes, expected, problems)) in steps.into_iter().enumerate() {
        let CompileOutput { snapshot, problems: messages } = compiler.apply(changes, number as u64);
        assert_eq!(answer(&snapshot, 9100), expected, "step {number}");
        let messages: Vec<String> =
            messages.iter().map(|one| format!("{} at {}: {}", one.object, one.path, one.message)).collect();
        assert_eq!(messages, problems, "step {number}");
    }
}

fn stream(value: Value) -> ConfigChange {
    put(Kind::StreamRoutes, "s", value)
}

#[test]
fn a_stream_route_follows_its_upstream_and_service() {
    let limit = json!({"conn": 1, "burst": 0, "default_conn_delay": 1, "key": "remote_addr"});
    let missing = "stream_routes/s at upstream_id: upstream u does not exist or is broken";
    check(vec![
        (vec![stream(json!({"server_port": 9100, "upstream": nodes("10.1.0.1:1")}))], "s 10.1.0.1:1", &[]),
        (
            vec![stream(json!({"server_port": 9100, "upstream_id": "u"}))],
            "s an object that the stream route refers to is missing",
            &[missing],
        ),
        (vec![put(Kind::Upstreams, "u", nodes("10.1.0.2:2"))], "s 10.1.0.2:2", &[]),
        (vec![put(Kind::Upstreams, "u", nodes("10.1.0.3:3"))], "s 10.1.0.3:3", &[]),
        (
            vec![
                put(
                    Kind::Services,
                    "v",
                    json!({"upstream_id": "u", "plugins": {"cors": {}, "limit-conn": limit, "ip-restriction": {"blacklist": ["10.0.0.1"]}}}),
                ),
                stream(json!({"server_port": 9100, "service_id": "v", "plugins": {"limit-conn": limit}})),
            ],
            "s 10.1.0.3:3 ip-restriction@services/v limit-conn@stream_routes/s",
            &[],
        ),
        (
            vec![delete(Kind::Services, "v")],
            "s an object that the stream route refers to is missing limit-conn@stream_routes/s",
            &["stream_routes/s at service_id: service v does not exist or is broken"],
        ),
        (vec![delete(Kind::StreamRoutes, "s")], "-", &[]),
    ]);
}

#[test]
fn a_broken_text_leaves_the_last_good_version_and_a_new_one_refuses() {
    let broken = "stream_routes/s at plugins.cors: unknown plugin [cors]";
    let with_cors = json!({"server_port": 9100, "upstream": nodes("10.1.0.9:9"), "plugins": {"cors": {}}});
    check(vec![
        (vec![stream(with_cors.clone())], "s the stream route is misconfigured", &[broken]),
        (vec![stream(json!({"server_port": 9100, "upstream": nodes("10.1.0.1:1")}))], "s 10.1.0.1:1", &[]),
        (vec![stream(with_cors)], "s 10.1.0.1:1", &[broken]),
        (
            vec![stream(json!({"server_port": 9100, "remote_addr": "nobody"}))],
            "s 10.1.0.1:1",
            &["stream_routes/s at remote_addr: \"nobody\" is neither an address nor a network"],
        ),
        (
            vec![stream(json!({"server_port": 9100}))],
            "s the stream route has no upstream",
            &["stream_routes/s at upstream: no upstream: connections are closed"],
        ),
    ]);
}

#[test]
fn of_two_equal_stream_routes_the_older_gets_the_connections() {
    let aged = |id: &str, created: Value| {
        put(Kind::StreamRoutes, id, json!({"upstream": nodes("10.1.0.1:1"), "create_time": created}))
    };
    check(vec![
        (vec![aged("a", json!(20)), aged("b", json!(10))], "b 10.1.0.1:1", &[]),
        (vec![aged("a", json!(10))], "a 10.1.0.1:1", &[]),
        (vec![aged("b", json!(9))], "b 10.1.0.1:1", &[]),
    ]);
}

#[test]
fn a_broken_stream_route_keeps_its_place_among_equal_ones() {
    let broken = |created: Value| {
        let value = json!({"upstream": nodes("10.1.0.9:9"), "plugins": {"cors": {}}, "create_time": created});
        put(Kind::StreamRoutes, "a", value)
    };
    let problem = "stream_routes/a at plugins.cors: unknown plugin [cors]";
    let other = json!({"upstream": nodes("10.1.0.1:1"), "create_time": 10});
    check(vec![
        (vec![put(Kind::StreamRoutes, "b", other), broken(json!(20))], "b 10.1.0.1:1", &[problem]),
        (vec![broken(json!(5))], "a the stream route is misconfigured", &[problem]),
    ]);
}

#[test]
fn a_broken_text_that_may_be_narrower_than_understood_takes_nothing_from_others() {
    for (broken, expected) in [
        (json!({"server_addr": "10.0.0.1", "upstream": nodes("10.1.0.9:9"), "plugins": {"cors": {}}}), "s "),
        (json!({"server_addr": "10.0.0.1", "desc": 1}), "s "),
        (json!({"server_prot": 1883, "upstream": nodes("10.1.0.9:9")}), "all "),
        (json!({"server_addr": "10.0.0.1", "snis": "a.example"}), "all "),
        (json!({"port": 1883}), "all "),
        (json!({"remote_addr": "nobody"}), "all "),
    ] {
        let mut compiler: Compiler = compiler();
        let all = put(Kind::StreamRoutes, "all", json!({"upstream": nodes("10.1.0.1:1")}));
        let compiled = compiler.apply(vec![all, stream(broken.clone())], 1);
        assert!(answer(&compiled.snapshot, 9100).starts_with(expected), "{broken}");
        let hint = compiled.problems[0].hint.as_deref().unwrap_or_default();
        let is_open = hint.contains("go to other stream routes");
        assert_eq!(is_open, expected == "all ", "{broken}: {hint}");
    }
}

#[test]
fn what_a_protocol_inside_would_route_gets_no_connection() {
    let upstream = nodes("10.1.0.1:1");
    check(vec![
        (
            vec![stream(json!({"server_port": 9100, "upstream": upstream, "protocol": {"name": "redis"}}))],
            "s 10.1.0.1:1",
            &[
                "stream_routes/s at protocol: the protocol inside is not looked at in this version: bytes pass as they are",
            ],
        ),
        (
            vec![stream(json!({"upstream": upstream, "protocol": {"name": "redis", "superior_id": "1"}}))],
            "-",
            &[
                "stream_routes/s at protocol: calls inside a protocol are not routed in this version: the stream route gets no connection",
            ],
        ),
    ]);
}

#[test]
fn an_upstream_keeps_what_streams_need() {
    let upstream = json!({
        "nodes": {"10.1.0.1:1": 1}, "scheme": "tls", "proxy_protocol": "v2",
        "timeout": {"connect": 1, "send": 2, "read": 30},
    });
    let compiled = compiler().apply(vec![put(Kind::Upstreams, "u", upstream)], 1);
    let (_, upstream) = compiled.snapshot.upstreams().next().expect("the upstream");
    assert!(upstream.protocol.scheme.is_tls());
    assert_eq!(upstream.streams.idle_ms, Some(30_000));
    assert_eq!(upstream.streams.proxy_protocol, Some(yumen_http::proxy_protocol::ProxyVersion::V2));
}

#[test]
fn checks_begin_with_a_header_where_all_connections_to_an_endpoint_do() {
    use yumen_http::proxy_protocol::ProxyVersion::V2;
    for (kind, scheme, expected) in [
        (Kind::Upstreams, "tcp", Some(V2)),
        (Kind::Upstreams, "tls", Some(V2)),
        (Kind::Upstreams, "http", None),
        (Kind::Upstreams, "https", None),
        (Kind::Upstreams, "grpc", None),
        (Kind::Upstreams, "udp", None),
        // None but streams use it.
        (Kind::StreamRoutes, "http", Some(V2)),
    ] {
        let upstream = json!({"nodes": {"10.1.0.1:1": 1}, "scheme": scheme, "proxy_protocol": "v2",
            "checks": {"active": {"type": "tcp"}}});
        let value = if kind == Kind::Upstreams { upstream } else { json!({ "upstream": upstream }) };
        let compiled = compiler().apply(vec![put(kind, "u", value)], 1);
        let (_, upstream) = compiled.snapshot.upstreams().next().expect("the upstream");
        let checks = upstream.checks.as_ref().expect("its checks");
        assert_eq!(checks.active.proxy_protocol, expected, "{} {scheme}", kind.name());
    }
}

#[test]
fn that_endpoints_of_datagrams_are_not_told_of_the_client_is_said() {
    let upstream =
        |scheme: &str| json!({"nodes": {"10.1.0.1:1": 1}, "scheme": scheme, "proxy_protocol": "v2"});
    let message = "a PROXY header is not sent to UDP endpoints";
    for (kind, value, path) in [
        (Kind::Upstreams, upstream("udp"), Some("proxy_protocol")),
        (Kind::Services, json!({"upstream": upstream("udp")}), Some("upstream.proxy_protocol")),
        (Kind::StreamRoutes, json!({"upstream": upstream("udp")}), Some("upstream.proxy_protocol")),
        (Kind::StreamRoutes, json!({"upstream": upstream("tcp")}), None),
    ] {
        let compiled = compiler().apply(vec![put(kind, "x", value)], 1);
        let found: Vec<_> = compiled
            .problems
            .iter()
            .map(|one| (one.object.clone(), one.path.clone(), one.message.clone()))
            .collect();
        let expected = path.map(|path| (format!("{}/x", kind.name()), path.to_owned(), message.to_owned()));
        assert_eq!(found, Vec::from_iter(expected));
    }
}
