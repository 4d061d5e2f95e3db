//! Establishing HTTP/2 upstream connections: many exchanges share one attempt, and none waits longer than
//! alone.

use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::harness::http2::{Http2Client, Http2Upstream};
use crate::harness::{Client, Gateway, Options, Upstream, certs, eventually, eventually_async};
use crate::l4::server;

/// A proxy that starts forwarding after a delay.
struct LateProxy {
    address: SocketAddr,
    /// The number of accepted connections.
    accepted: Arc<AtomicUsize>,
}

impl LateProxy {
    fn start(to: SocketAddr, delay: Duration) -> LateProxy {
        let accepted = Arc::<AtomicUsize>::default();
        let counted = accepted.clone();
        let address = server(move |from: TcpStream| {
            counted.fetch_add(1, Ordering::AcqRel);
            std::thread::sleep(delay);
            let to = TcpStream::connect(to).unwrap();
            let (mut from_back, mut to_back) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let back = std::thread::spawn(move || pass(&mut to_back, &mut from_back));
            pass(&mut from.try_clone().unwrap(), &mut to.try_clone().unwrap());
            back.join().unwrap();
        });
        LateProxy { address, accepted }
    }
}

fn pass(from: &mut TcpStream, to: &mut TcpStream) {
    let _ = std::io::copy(from, to);
    let _ = to.shutdown(Shutdown::Write);
}

fn gateway(address: SocketAddr, more: &Value) -> Gateway {
    let mut upstream = json!({ "nodes": { address.to_string(): 1 }, "http_version": "2",
        "timeout": { "connect": 1, "send": 20, "read": 20 } });
    upstream.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let document = json!({ "routes": [{ "id": "all", "uri": "/*", "upstream": upstream }] });
    Gateway::with(&document, &Options { workers: 1, ..Options::default() })
}

/// Statuses of `count` concurrent requests, and the duration of the slowest.
fn ask_at_once(gateway: &Gateway, count: usize) -> (Vec<u16>, Duration) {
    let (http, begun) = (gateway.http, Instant::now());
    let statuses = std::thread::scope(|scope| {
        let ask = || Client::connect(http).get("/").status;
        let requests: Vec<_> = (0..count).map(|_| scope.spawn(ask)).collect();
        requests.into_iter().map(|one| one.join().unwrap()).collect()
    });
    (statuses, begun.elapsed())
}

#[test]
fn a_handshake_that_never_ends_fails_all_who_wait_for_it_at_once() {
    let silent = server(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let gateway = gateway(silent, &json!({ "scheme": "https" }));
    let (statuses, took) = ask_at_once(&gateway, 12);
    assert_eq!(statuses, [504; 12]);
    // Sequential attempts would take a second each.
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[test]
fn an_endpoint_that_closes_before_it_says_anything_fails_all_who_wait_for_it_at_once() {
    // Scripted: a close without a byte, after a while.
    let closing = server(|_| std::thread::sleep(Duration::from_millis(500)));
    let gateway = gateway(closing, &json!({}));
    let (statuses, took) = ask_at_once(&gateway, 16);
    assert_eq!(statuses, [502; 16]);
    // Sequential attempts would take half a second each.
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_connection_is_finished_though_whoever_began_it_has_given_up() {
    let pair = certs::simple("b", &["b.test"]);
    let endpoint = Http2Upstream::tls(&pair, |_, mut respond| async move {
        let answer = http::Response::builder().header("content-type", "application/grpc");
        let mut sender = respond.send_response(answer.body(()).unwrap(), false)?;
        sender.send_trailers([("grpc-status", "0")].into_iter().map(field).collect())
    });
    let proxy = LateProxy::start(endpoint.address, Duration::from_millis(700));
    let gateway = gateway(proxy.address, &json!({ "scheme": "grpcs" }));
    crate::harness::http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let call = || {
            let call = http::Request::post("http://test/s/m").header("content-type", "application/grpc");
            call.header("te", "trailers").header("grpc-timeout", "300m").body(()).unwrap()
        };
        let hasty = client.ask(call(), b"").await.unwrap();
        assert_eq!(hasty.field("grpc-status"), "4", "its deadline passes before there is a connection");
        let idle = || gateway.metric("yumen_upstream_idle_connections");
        eventually_async("the connection is there", 20, || idle() == 1.0).await;
        let later = client.ask(call(), b"").await.unwrap();
        assert_eq!(later.trailers.get("grpc-status").unwrap(), "0");
        assert_eq!(endpoint.connections(), 1);
    });
}

fn field((name, value): (&'static str, &'static str)) -> (http::HeaderName, http::HeaderValue) {
    (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
}

#[test]
fn more_requests_than_a_connection_carries_have_several_made_at_once() {
    let pair = certs::simple("b", &["b.test"]);
    let mut few = h2::server::Builder::new();
    few.max_concurrent_streams(4);
    let endpoint = Http2Upstream::tls_of(few, &pair, |_, mut respond| async move {
        // Scripted: every stream of a connection stays busy.
        tokio::time::sleep(Duration::from_secs(4)).await;
        respond.send_response(http::Response::new(()), true).map(drop)
    });
    let address = LateProxy::start(endpoint.address, Duration::from_millis(600)).address;
    let patient = json!({ "connect": 20, "send": 20, "read": 20 });
    let pool = json!({ "size": 3, "idle_timeout": 60, "requests": 1000 });
    let gateway = gateway(address, &json!({ "scheme": "https", "timeout": patient, "keepalive_pool": pool }));
    let (statuses, took) = ask_at_once(&gateway, 40);
    assert_eq!(statuses, [200; 40]);
    // With sequential connections the last response would come after 8.5 s.
    assert!(took < Duration::from_millis(7500), "{took:?}");
    eventually("no more idle than may", 10, || gateway.metric("yumen_upstream_idle_connections") == 3.0);
    let made = endpoint.connections();
    assert_eq!((ask_at_once(&gateway, 12).0, endpoint.connections()), (vec![200; 12], made));
}

#[test]
fn whoever_has_time_left_waits_on_for_what_took_too_long_for_others() {
    let pair = certs::simple("b", &["b.test"]);
    let endpoint = Http2Upstream::tls(&pair, |_, mut respond| async move {
        respond.send_response(http::Response::new(()), true).map(drop)
    });
    let proxy = LateProxy::start(endpoint.address, Duration::from_millis(800));
    let timeout = |connect: f64| json!({ "connect": connect, "send": 20, "read": 20 });
    let document = json!({
        "upstreams": [{ "id": "u", "nodes": { proxy.address.to_string(): 1 }, "http_version": "2",
                        "scheme": "https", "retries": 0 }],
        "routes": [{ "id": "a", "uri": "/a", "upstream_id": "u", "timeout": timeout(0.3) },
                   { "id": "b", "uri": "/b", "upstream_id": "u", "timeout": timeout(10.0) }] });
    let gateway = Gateway::with(&document, &Options { workers: 1, ..Options::default() });
    std::thread::scope(|scope| {
        let hasty = scope.spawn(|| gateway.get("/a").status);
        eventually("the connection is begun", 5, || proxy.accepted.load(Ordering::Acquire) > 0);
        let patient = scope.spawn(|| gateway.get("/b").status);
        assert_eq!((hasty.join().unwrap(), patient.join().unwrap()), (504, 200));
    });
}

#[test]
fn a_connection_that_fails_is_one_failure_of_its_endpoint_however_many_waited() {
    // Scripted: a close without a byte, after a while.
    let closing = server(|_| std::thread::sleep(Duration::from_millis(500)));
    let checks = json!({ "active": { "type": "tcp", "healthy": { "interval": 3600 },
                                     "unhealthy": { "interval": 3600 } },
                         "passive": { "unhealthy": { "tcp_failures": 2 } } });
    let gateway = gateway(closing, &json!({ "scheme": "https", "pass_host": "node", "checks": checks }));
    let is_down = || gateway.status_json("/v1/healthcheck").to_string().contains("\"unhealthy\"");
    assert_eq!(ask_at_once(&gateway, 8).0, [502; 8]);
    assert!(!is_down());
    ask_at_once(&gateway, 8);
    assert!(is_down());
}

/// An exchange that reaches its own deadline is no failure of the endpoint, and each upstream records
/// failures separately.
#[test]
fn a_connection_that_fails_is_told_to_every_upstream_whoever_gave_up_before() {
    let silent = server(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let upstream = |id: &str, timeouts: u32| {
        let active = json!({ "type": "tcp", "healthy": { "interval": 3600 },
                             "unhealthy": { "interval": 3600 } });
        let checks = json!({ "active": active, "passive": { "unhealthy": { "timeouts": timeouts } } });
        json!({ "id": id, "nodes": { silent.to_string(): 1 }, "http_version": "2", "scheme": "https",
                "pass_host": "node", "retries": 0, "checks": checks })
    };
    let route = |id: &str, upstream: &str, more: Value| {
        let mut timeout = json!({ "connect": 1, "send": 20, "read": 20 });
        timeout.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "id": id, "uri": format!("/{id}"), "upstream_id": upstream, "timeout": timeout })
    };
    let document = json!({
        "upstreams": [upstream("u", 1), upstream("v", 2)],
        "routes": [route("hasty", "u", json!({ "total": 0.3 })), route("u", "u", json!({})),
                   route("v", "v", json!({}))] });
    let gateway = Gateway::with(&document, &Options { workers: 1, ..Options::default() });
    let ask = |path: &'static str| (path, gateway.get(path).status);
    for _ in 0..2 {
        std::thread::scope(|scope| {
            let first = scope.spawn(|| ask("/u"));
            // Pacing: the others come while the connection is being established, which takes a second.
            std::thread::sleep(Duration::from_millis(100));
            let others = ["/hasty", "/v"].map(|path| scope.spawn(move || ask(path)));
            assert_eq!(first.join().unwrap(), ("/u", 504));
            others.into_iter().for_each(|one| assert_eq!(one.join().unwrap().1, 504));
        });
    }
    let report = gateway.status_json("/v1/healthcheck").to_string();
    assert_eq!(report.matches("\"unhealthy\"").count(), 2, "{report}");
}

/// A listener with a full backlog, as on an overloaded machine: connections are never established.
fn full() -> (Socket, Vec<Socket>) {
    let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let listener = socket();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let waiting = (0..4).map(|_| {
        let one = socket();
        one.set_nonblocking(true).unwrap();
        let _ = one.connect(&address);
        one
    });
    let waiting = waiting.collect();
    (listener, waiting)
}

/// Copies of `proxy-mirror` are requests of the gateway itself over HTTP/2.
#[test]
fn what_the_gateway_asks_by_itself_waits_no_longer_for_a_connection_than_may_be_connected() {
    let silent = server(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let (listener, _waiting) = full();
    let full = listener.local_addr().unwrap().as_socket().unwrap();
    for mirror in [format!("grpcs://{silent}"), format!("grpc://{full}")] {
        let main = Upstream::text("main");
        let plugins = json!({ "proxy-mirror": { "host": mirror } });
        let document =
            json!({ "routes": [{ "id": "1", "uri": "/*", "plugins": plugins, "upstream": main.alone() }] });
        let node = "timeouts: {upstream_connect_ms: 1000}";
        let gateway = Gateway::with(&document, &Options { node, workers: 1, ..Options::default() });
        let begun = Instant::now();
        assert_eq!(ask_at_once(&gateway, 12).0, [200; 12]);
        let failed = "yumen_mirrored_requests_total{outcome=\"failed\"}";
        eventually("all of them are given up", 20, || gateway.metric(failed) == 12.0);
        // A copy may take a minute in total.
        let took = begun.elapsed();
        assert!((1..6).contains(&took.as_secs()), "{mirror}: {took:?}");
        assert_eq!(gateway.get("/").status, 200);
        eventually("so is one that comes later", 20, || gateway.metric(failed) == 13.0);
    }
}
