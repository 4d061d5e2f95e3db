//! Endpoints that appear, disappear, die and change under traffic.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use yumen_load::{ErrorTotals, LoadLimits, LoadPlan, LoadProtocol, LoadSummary, RequestPlan};

use crate::harness::http2::Http2Upstream;
use crate::harness::upstream::respond;
use crate::harness::{Client, Gateway, Options, Scratch, Upstream, eventually};

/// A load on all endpoints for this time.
fn plan(gateway: &Gateway, protocol: LoadProtocol, duration_ms: u64) -> LoadPlan {
    LoadPlan {
        request: RequestPlan::get(gateway.url("/")),
        connections: 8,
        streams: if protocol == LoadProtocol::Http2 { 4 } else { 1 },
        protocol,
        limits: LoadLimits::duration_ms(duration_ms),
        // A slow machine must not count as a failure.
        response_timeout_ms: 60_000,
        connect_timeout_ms: 60_000,
        ..LoadPlan::default()
    }
}

fn load(plan: &LoadPlan) -> LoadSummary {
    yumen_load::run(plan, |_| {}).expect("the load can be made")
}

/// Fails unless every response has status 200.
fn check_all_good(summary: &LoadSummary, what: &str) {
    assert_eq!(summary.errors, ErrorTotals::default(), "{what}");
    assert_eq!(summary.statuses.keys().collect::<Vec<_>>(), [&200], "{what}");
    assert!(summary.totals.responses > 100, "{what}: {}", summary.totals.responses);
}

fn admin(gateway: &Gateway, key: &str, method: &str, path: &str, body: &Value) {
    let body = body.to_string();
    let request = format!(
        "{method} /apisix/admin/{path}?wait=applied HTTP/1.1\r\nHost: admin\r\nX-API-KEY: {key}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let reply = Client::connect(gateway.admin).send(request).reply();
    assert!(matches!(reply.status, 200 | 201), "{method} {path}: {}", reply.text());
}

/// A gateway with one route to the upstream `u` with these nodes.
fn serving(upstream: Value) -> (Gateway, String) {
    serving_with(&Options::default(), &upstream)
}

fn serving_with(options: &Options<'_>, upstream: &Value) -> (Gateway, String) {
    let gateway = Gateway::launch(Scratch::new(), options, &["--data-dir", "data"]);
    let key = gateway.admin_key().expect("a first start prints the admin key");
    admin(&gateway, &key, "PUT", "upstreams/u", upstream);
    admin(&gateway, &key, "PUT", "routes/all", &json!({ "uri": "/*", "upstream_id": "u", "priority": 9 }));
    (gateway, key)
}

#[test]
fn endpoints_that_come_and_go_every_100_ms_fail_no_request() {
    let all: Vec<Upstream> = (0..7).map(|_| Upstream::text("ok")).collect();
    let address = |at: usize| all[at].address.to_string();
    let nodes: serde_json::Map<String, Value> = (0..5).map(|at| (address(at), json!(1))).collect();
    let (gateway, key) = serving(json!({ "nodes": nodes }));
    for protocol in [LoadProtocol::Http1, LoadProtocol::Http2] {
        let over = AtomicBool::new(false);
        let summary = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut grows = true;
                while !over.load(Ordering::Acquire) {
                    let weight = if grows { json!(1) } else { Value::Null };
                    let change = json!({ "nodes": { address(5): weight, address(6): weight } });
                    admin(&gateway, &key, "PATCH", "upstreams/u", &change);
                    grows = !grows;
                    // Pacing of the changes.
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
            let summary = load(&plan(&gateway, protocol, 4000));
            over.store(true, Ordering::Release);
            summary
        });
        check_all_good(&summary, &format!("{protocol:?}"));
    }
    assert!(all.iter().all(|one| one.requests() > 0), "every endpoint was asked");
    // The last patch may have added these.
    admin(
        &gateway,
        &key,
        "PATCH",
        "upstreams/u",
        &json!({ "nodes": { address(5): null, address(6): null } }),
    );
    eventually("idle connections to those that went are closed", 10, || {
        gateway.metric("yumen_upstream_departed_connections_total") > 0.0
    });
}

/// An upstream that can be killed with its connections.
struct Mortal {
    upstream: Option<Upstream>,
    address: SocketAddr,
    streams: Arc<Mutex<HashMap<SocketAddr, TcpStream>>>,
}

impl Mortal {
    fn start() -> Mortal {
        let streams = Arc::<Mutex<HashMap<SocketAddr, TcpStream>>>::default();
        let open_streams = streams.clone();
        let upstream = Upstream::start(move |_, stream| {
            let peer = stream.peer_addr().unwrap();
            open_streams.lock().unwrap().entry(peer).or_insert_with(|| stream.try_clone().unwrap());
            respond(stream, 200, "", b"ok")
        });
        Mortal { address: upstream.address, upstream: Some(upstream), streams }
    }

    fn kill(&mut self) {
        drop(self.upstream.take());
        for stream in self.streams.lock().unwrap().values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn an_endpoint_that_dies_takes_only_what_was_under_way_on_it() {
    for (method, failed_max) in [("GET", 0), ("POST", 8)] {
        let mut all: Vec<Mortal> = (0..3).map(|_| Mortal::start()).collect();
        let nodes: serde_json::Map<String, Value> =
            all.iter().map(|one| (one.address.to_string(), json!(1))).collect();
        let (gateway, _) = serving(json!({ "nodes": nodes }));
        let body = b"hello".to_vec();
        let mut plan = plan(&gateway, LoadProtocol::Http1, 2000);
        plan.request.method = method.into();
        plan.request.body_bytes = body.len() as u64;
        plan.request.body = if method == "POST" { body } else { Vec::new() };
        let dying = all.pop().unwrap();
        let dying = Mutex::new(dying);
        let summary = std::thread::scope(|scope| {
            scope.spawn(|| {
                // The endpoint dies in the middle of the load.
                std::thread::sleep(Duration::from_millis(700));
                dying.lock().unwrap().kill();
            });
            load(&plan)
        });
        let failed: u64 = summary.statuses.iter().filter(|(status, _)| **status != 200).map(|(_, n)| n).sum();
        assert!(failed <= failed_max, "{method}: {:?}", summary.statuses);
        assert!(summary.statuses.keys().all(|status| [200, 502].contains(status)), "{:?}", summary.statuses);
        let broken = &summary.errors;
        assert_eq!((broken.connect, broken.connect_timeout), (0, 0), "{broken:?}");
        // An endpoint that refuses connections is skipped for every method.
        let summary = load(&LoadPlan { limits: LoadLimits::duration_ms(1000), ..plan });
        check_all_good(&summary, method);
        assert!(gateway.metric("yumen_upstream_retries_total") > 0.0);
    }
}

/// An upstream that responds once per connection, then records whether the connection was closed.
fn watching() -> (Upstream, Arc<AtomicBool>, Arc<AtomicBool>) {
    let (closed, requested) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let flags = (closed.clone(), requested.clone());
    let upstream = Upstream::start(move |_, stream| {
        // Before the client can have the response.
        requested.store(true, Ordering::Release);
        respond(stream, 200, "", b"goes");
        // Blocks until the connection closes.
        closed.store(matches!(stream.read(&mut [0]), Ok(0)), Ordering::Release);
        false
    });
    (upstream, flags.0, flags.1)
}

#[test]
fn a_connection_of_a_mirror_that_went_is_closed_once_idle() {
    let main = Upstream::text("main");
    let (ends, closed, requested) = watching();
    let (gateway, key) = serving(main.alone());
    let route =
        |plugins: Value| json!({ "uri": "/m", "upstream_id": "u", "priority": 10, "plugins": plugins });
    let mirrored = json!({ "proxy-mirror": { "host": format!("http://{}", ends.address) } });
    admin(&gateway, &key, "PUT", "routes/m", &route(mirrored));
    assert_eq!(gateway.get("/m").text(), "main");
    eventually("the copy came", 10, || requested.load(Ordering::Acquire));
    admin(&gateway, &key, "PUT", "routes/m", &route(json!({})));
    eventually("its connection is closed", 10, || closed.load(Ordering::Acquire));
    gateway.assert_metric("yumen_upstream_connects_total", 2.0);
}

#[test]
fn a_connection_that_may_carry_no_more_after_a_change_is_closed() {
    let shared = Http2Upstream::echo();
    let upstream = |requests: u64| {
        let mut upstream = shared.alone();
        upstream["keepalive_pool"] = json!({ "size": 4, "idle_timeout": 60, "requests": requests });
        upstream
    };
    // Each worker has its own connections.
    let (gateway, key) = serving_with(&Options { workers: 1, ..Options::default() }, &upstream(100));
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!((shared.connections(), shared.open_connections()), (1, 1));
    admin(&gateway, &key, "PUT", "upstreams/u", &upstream(1));
    assert_eq!(gateway.get("/").status, 200);
    eventually("both have carried what they may", 10, || shared.open_connections() == 0);
    assert_eq!(shared.connections(), 2);
}

#[test]
fn a_connection_to_an_endpoint_that_went_is_closed_once_idle() {
    let stays = Upstream::text("stays");
    let (ends, closed, requested) = watching();
    let (gateway, key) = serving(ends.alone());
    assert_eq!(gateway.get("/").text(), "goes");
    assert!(requested.load(Ordering::Acquire) && !closed.load(Ordering::Acquire));
    admin(&gateway, &key, "PUT", "upstreams/u", &stays.alone());
    eventually("the connection is closed", 10, || closed.load(Ordering::Acquire));
    // The counter changes after the close.
    eventually("the connection is counted", 10, || {
        gateway.metric("yumen_upstream_departed_connections_total") == 1.0
    });
    assert_eq!(gateway.get("/").text(), "stays");

    // The same for multiplexed connections.
    let shared = Http2Upstream::echo();
    let mut http2 = shared.alone();
    http2["http_version"] = json!("2");
    admin(&gateway, &key, "PUT", "upstreams/u", &http2);
    assert_eq!(gateway.get("/").status, 200);
    admin(&gateway, &key, "PUT", "upstreams/u", &stays.alone());
    eventually("that one is closed too", 10, || {
        gateway.metric("yumen_upstream_departed_connections_total") >= 2.0
    });
    let idle = || gateway.metric("yumen_upstream_idle_connections");
    assert_eq!(gateway.get("/").text(), "stays");
    eventually("one connection is left idle", 10, || idle() <= 2.0);
}

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Switches protocols, then echoes every byte.
fn echoing() -> Upstream {
    Upstream::start(|_, stream| {
        let accept = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        let _ = stream.write_all(accept.as_bytes());
        let mut bytes = [0; 512];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            if stream.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        false
    })
}

struct Tunnel(TcpStream);

impl Tunnel {
    fn open(gateway: &Gateway) -> Tunnel {
        Tunnel::through(TcpStream::connect(gateway.http).unwrap())
    }

    fn through(mut stream: TcpStream) -> Tunnel {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(UPGRADE.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&head));
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
        Tunnel(stream)
    }

    /// Whether a ping returns.
    fn works(&mut self) -> bool {
        let frame = [0x89, 0x80, 0, 0, 0, 0];
        let mut back = [0; 6];
        self.0.write_all(&frame).is_ok() && self.0.read_exact(&mut back).is_ok() && back == frame
    }

    /// All bytes until the other side closes.
    fn rest(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        rest
    }
}

#[test]
fn tunnels_go_on_or_end_when_their_route_or_endpoint_goes_as_it_says() {
    let (upstream, other) = (echoing(), echoing());
    let route = |on_change: Value, to: &Upstream| {
        let mut route = json!({ "id": "1", "uri": "/ws", "enable_websocket": true, "upstream": to.alone() });
        if !on_change.is_null() {
            route["on_change"] = on_change;
        }
        json!({ "routes": [route] })
    };
    let by_upstream = |on_change: Value| {
        let mut document = route(Value::Null, &upstream);
        document["routes"][0]["upstream"]["on_change"] = on_change;
        document
    };
    let mut off = by_upstream(json!("close"));
    off["routes"][0]["status"] = json!(0);
    let nothing = json!({ "routes": [] });
    // First document, second document, whether the tunnel survives.
    let cases = [
        (route(Value::Null, &upstream), nothing.clone(), true),
        (route(json!("keep"), &upstream), route(json!("keep"), &other), true),
        (route(json!("close"), &upstream), nothing.clone(), false),
        (route(json!("close"), &upstream), route(json!("close"), &other), false),
        (route(json!({ "drain": 0.2 }), &upstream), nothing.clone(), false),
        (by_upstream(json!("close")), route(Value::Null, &other), false),
        (by_upstream(json!("close")), off, false),
    ];
    let gateway = Gateway::with(&nothing, &Options { workers: 1, ..Options::default() });
    for (at, (before, after, survives)) in cases.iter().enumerate() {
        gateway.apply(before);
        let mut tunnel = Tunnel::open(&gateway);
        assert!(tunnel.works(), "case {at}");
        let ended = gateway.metric("yumen_tunnels_ended_total");
        gateway.apply(after);
        if *survives {
            // A negative check: longer than the gateway needs to notice.
            for _ in 0..15 {
                std::thread::sleep(Duration::from_millis(100));
                assert!(tunnel.works(), "case {at}");
            }
            assert_eq!(gateway.metric("yumen_tunnels_ended_total"), ended, "case {at}");
        } else {
            assert_eq!(tunnel.rest(), [0x88, 2, 0x03, 0xe9], "case {at}: going away, and nothing more");
            assert_eq!(gateway.metric("yumen_tunnels_ended_total"), ended + 1.0, "case {at}");
        }
        if after == &nothing {
            continue;
        }
        gateway.apply(&nothing);
    }
}

#[test]
fn tunnels_of_a_split_depend_on_the_upstream_they_go_to() {
    let (upstream, other) = (echoing(), echoing());
    let named = json!({ "upstream_id": "b", "weight": 1 });
    let inline = |to: &Upstream| json!({ "upstream": to.alone(), "weight": 1 });
    // The upstream of the route, the choice of the split, and the address of `b`.
    let document = |own: &Value, choice: &Value, b: &Upstream| {
        let split = json!({ "rules": [{ "weighted_upstreams": [choice] }] });
        let mut route = json!({ "id": "1", "uri": "/ws", "enable_websocket": true, "on_change": "close",
            "plugins": { "traffic-split": split } });
        route.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        let mut b = b.alone();
        b["id"] = json!("b");
        let mut a = other.alone();
        a["id"] = json!("a");
        json!({ "routes": [route], "upstreams": [a, b] })
    };
    let gateway = Gateway::with(&json!({}), &Options { workers: 1, ..Options::default() });
    for own in [json!({ "upstream_id": "a" }), json!({})] {
        for choice in [named.clone(), inline(&upstream)] {
            gateway.apply(&document(&own, &choice, &upstream));
            let mut tunnel = Tunnel::open(&gateway);
            // A negative check: longer than the gateway needs to notice.
            for _ in 0..15 {
                std::thread::sleep(Duration::from_millis(100));
                assert!(tunnel.works(), "{own}, {choice}: nothing changed");
            }
            let moved = if choice == named { named.clone() } else { inline(&other) };
            gateway.apply(&document(&own, &moved, &other));
            assert_eq!(tunnel.rest(), [0x88, 2, 0x03, 0xe9], "{own}, {choice}: going away");
            gateway.apply(&json!({}));
        }
    }
}

#[test]
fn a_new_endpoint_starts_slowly_where_that_is_asked_for() {
    let (old, new) = (Upstream::text("old"), Upstream::text("new"));
    let document = |nodes: &[&Upstream]| {
        let nodes: serde_json::Map<String, Value> =
            nodes.iter().map(|one| (one.address.to_string(), json!(1))).collect();
        json!({ "routes": [{ "id": "all", "uri": "/*",
            "upstream": { "slow_start_ms": 3_600_000, "nodes": nodes } }] })
    };
    let gateway = Gateway::with(&document(&[&old]), &Options { workers: 1, ..Options::default() });
    gateway.get("/");
    gateway.apply(&document(&[&old, &new]));
    let before = old.requests();
    for _ in 0..400 {
        assert_eq!(gateway.get("/").status, 200);
    }
    // Randomly a tenth of the other's share, about 36.
    let (by_old, by_new) = (old.requests() - before, new.requests());
    assert_eq!(by_old + by_new, 400);
    assert!((5..120).contains(&by_new), "{by_new}");
}

#[test]
fn a_stream_whose_endpoint_goes_is_cut_off_where_its_upstream_says_so() {
    let (upstream, other) = (echoing(), echoing());
    let stream_to = |on_change: Value, to: &Upstream| {
        let mut upstream = to.alone();
        upstream["scheme"] = json!("tcp");
        upstream["on_change"] = on_change;
        json!({ "stream_routes": [{ "id": "1", "upstream": upstream }] })
    };
    let node = "stream_listen: [{address: '127.0.0.1:0'}]\n";
    for (on_change, survives) in [("keep", true), ("close", false)] {
        let options = Options { node, workers: 1, ..Options::default() };
        let gateway = Gateway::with(&stream_to(json!(on_change), &upstream), &options);
        let lines = gateway.lines();
        let address =
            lines.iter().find_map(|line| line.split_once("tcp ")?.1.trim().parse::<SocketAddr>().ok());
        let mut tunnel =
            Tunnel::through(TcpStream::connect(address.expect("a listener for streams")).unwrap());
        assert!(tunnel.works());
        gateway.apply(&stream_to(json!(on_change), &other));
        if survives {
            // A negative check: longer than the gateway needs to notice.
            for _ in 0..15 {
                std::thread::sleep(Duration::from_millis(100));
                assert!(tunnel.works());
            }
        } else {
            assert_eq!(tunnel.rest(), [0u8; 0]);
            eventually("it is counted", 10, || {
                gateway.metric("yumen_stream_faults_total{fault=\"changed\"}") == 1.0
            });
        }
    }
}
