//! Clients that hold or request more resources than there are: each attack is bounded, counted and survived.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use crate::harness::http2::{Http2Client, run};
use crate::harness::http3::request;
use crate::harness::upstream::{Gate, respond};
use crate::harness::{Client, Gateway, Options, Upstream, eventually};
use crate::http3::World;

/// Largest growth of the gateway under each attack in KiB. All clients together could hold far more.
const GROWTH_KIB_MAX: u64 = 64 * 1024;

const HASTY: &str = "timeouts: {head_ms: 700, body_ms: 700, idle_ms: 700, send_ms: 700}";

fn hasty(document: &Value) -> Gateway {
    Gateway::with(document, &Options { node: HASTY, ..Options::default() })
}

fn mock() -> Value {
    let mocking = json!({ "mocking": { "response_status": 200, "response_example": "mock" } });
    json!({ "routes": [{ "id": "mock", "uri": "/mock", "plugins": mocking }] })
}

fn faults(gateway: &Gateway, side: &str, fault: &str) -> f64 {
    gateway.metric(&format!("yumen_faults_total{{fault=\"{fault}\",side=\"{side}\"}}"))
}

/// Opens connections that send these bytes and then nothing.
fn open(gateway: &Gateway, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = TcpStream::connect(gateway.http).unwrap();
        let _ = stream.write_all(bytes);
        stream
    };
    (0..count).map(connect).collect()
}

/// The connections are closed with this status and counted, while others are served.
fn check_timed_out(bytes: &[u8], count: usize) {
    let upstream = Upstream::text("x");
    let gateway = hasty(&upstream.everything());
    let before = gateway.resident_kib();
    let streams = open(&gateway, count, bytes);
    assert_eq!(gateway.get("/").status, 200);
    let grown = gateway.resident_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    for stream in streams {
        assert_eq!(Client::of(stream).reply().status, 408);
    }
    // An exchange is counted at its end, after the client has its response.
    eventually("all are gone", 10, || gateway.metric("yumen_connections") == 0.0);
    assert_eq!(faults(&gateway, "client", "client_timeout"), count as f64);
}

#[test]
fn slow_heads_are_let_go() {
    check_timed_out(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow:", 300);
}

#[test]
fn slow_bodies_are_let_go() {
    check_timed_out(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc", 100);
    check_timed_out(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", 100);
}

#[test]
fn huge_heads_that_never_end_hold_a_buffer_each_and_no_more() {
    let mut head = b"GET / HTTP/1.1\r\nHost: x\r\nX-Huge: ".to_vec();
    head.resize(60_000, b'x');
    check_timed_out(&head, 200);
}

#[test]
fn heads_beyond_every_bound_are_refused_and_counted() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&upstream.everything());
    let before = gateway.resident_kib();
    let mut refused = 0.0;
    for _ in 0..20 {
        for (head, status) in [
            (format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(1 << 20)), 431),
            (format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "y".repeat(1 << 20)), 414),
            (format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(8000)), 431),
            ("\r\n".repeat(100_000), 400),
            ("y".repeat(1 << 20), 414),
        ] {
            let mut client = Client::connect(gateway.http);
            assert_eq!(client.send(&head).reply().status, status, "{:?}", &head[..40]);
            assert!(client.is_closed_within(Duration::from_secs(5)));
            refused += 1.0;
        }
    }
    assert_eq!(faults(&gateway, "client", "client_head"), refused);
    let grown = gateway.resident_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    assert_eq!(upstream.requests(), 0);
}

#[test]
fn clients_that_do_not_read_are_let_go_and_counted() {
    const BODY: usize = 64 << 20;
    let upstream = Upstream::start(|_, stream| {
        let mut sent =
            stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n").as_bytes());
        let piece = vec![b'x'; 64 * 1024];
        for _ in 0..BODY / piece.len() {
            sent = sent.and_then(|()| stream.write_all(&piece));
        }
        sent.is_ok()
    });
    let gateway = hasty(&upstream.everything());
    let before = gateway.resident_kib();
    let streams = open(&gateway, 60, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    eventually("all are let go", 60, || faults(&gateway, "client", "client_stalled") == 60.0);
    let grown = gateway.resident_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    eventually("all are gone", 10, || gateway.metric("yumen_connections") == 0.0);
    // No client takes its partial response for a complete one.
    for mut stream in streams {
        let mut got = Vec::new();
        let end = stream.read_to_end(&mut got);
        assert!(end.is_err() || got.len() < BODY, "{end:?}");
    }
}

#[test]
fn requests_whose_answers_nobody_reads_pile_up_nowhere() {
    let gateway = hasty(&mock());
    let before = gateway.resident_kib();
    let requests = b"GET /mock HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2000);
    let writers: Vec<_> = (0..20)
        .map(|_| {
            let (mut stream, requests) = (TcpStream::connect(gateway.http).unwrap(), requests.clone());
            // Ends when the gateway closes the connection.
            std::thread::spawn(move || while stream.write_all(&requests).is_ok() {})
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let grown = gateway.resident_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    eventually("all are gone", 10, || gateway.metric("yumen_connections") == 0.0);
}

#[test]
fn handshakes_that_do_not_end_are_let_go_and_counted() {
    let gateway = Gateway::with(&mock(), &Options { node: "tls: {handshake_ms: 700}", ..Options::default() });
    // The first bytes of a ClientHello that announces more.
    let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc];
    let mut streams: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(gateway.https).unwrap()).collect();
    for stream in &mut streams {
        stream.write_all(&hello).unwrap();
    }
    eventually("all are counted", 30, || {
        gateway.metric("yumen_tls_handshake_failures_total") == 200.0
            && gateway.metric("yumen_connections") == 0.0
    });
    for stream in streams {
        assert!(Client::of(stream).is_closed_within(Duration::from_secs(5)));
    }
    assert_eq!(gateway.get("/mock").status, 200);
}

#[test]
fn connections_beyond_the_limit_are_closed_and_counted() {
    let node = "limits: {connections_per_worker: 50}";
    let gateway = Gateway::with(&mock(), &Options { node, workers: 1, ..Options::default() });
    let mut idle: Vec<Client> = (0..50).map(|_| Client::connect(gateway.http)).collect();
    for client in &mut idle {
        assert_eq!(client.get("/mock").status, 200);
        // A client that has begun a request is not idle, at any speed.
        client.send("GET /mock HTTP/1.1\r\n");
    }
    let flood = open(&gateway, 500, b"GET /mock HTTP/1.1\r\nHost: x\r\n\r\n");
    eventually("all are refused", 30, || gateway.metric("yumen_connections_refused_total") == 500.0);
    for client in &mut idle {
        assert_eq!(client.send("Host: x\r\n\r\n").reply().status, 200);
    }
    gateway.assert_metric("yumen_connections", 50.0);
    drop((flood, idle));
    eventually("there is room", 10, || gateway.metric("yumen_connections") == 0.0);
    assert_eq!(gateway.get("/mock").status, 200);
}

#[test]
fn idle_connections_give_way_where_there_are_as_many_as_may_be() {
    let node = "limits: {connections_per_worker: 50}";
    let gateway = Gateway::with(&mock(), &Options { node, workers: 1, ..Options::default() });
    let mut idle: Vec<Client> = (0..50).map(|_| Client::connect(gateway.http)).collect();
    for client in &mut idle {
        assert_eq!(client.get("/mock").status, 200);
    }
    eventually("somebody new is served", 10, || {
        // Pacing: each attempt may have the gateway close more idle connections.
        std::thread::sleep(Duration::from_millis(200));
        let reply =
            Client::connect(gateway.http).send("GET /mock HTTP/1.1\r\nHost: x\r\n\r\n").try_reply(false);
        reply.is_ok_and(|reply| reply.status == 200)
    });
    // Long before the idle timeout, and only some of them.
    let left = gateway.metric("yumen_connections");
    assert!((20.0..50.0).contains(&left), "{left}");
}

/// Only idle connections are evicted, even if more connections wait for something else with earlier
/// deadlines.
#[test]
fn idle_connections_give_way_beside_as_many_that_are_busy() {
    let gate = Gate::default();
    let opened = gate.clone();
    let upstream = Upstream::start(move |_, stream| {
        opened.pass();
        respond(stream, 200, "", b"late")
    });
    let mut document = mock();
    let target = json!({ "nodes": upstream.nodes() });
    document["routes"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "id": "up", "uri": "/slow", "upstream": target }));
    let node = "limits: {connections_per_worker: 50}";
    let gateway = Gateway::with(&document, &Options { node, workers: 1, ..Options::default() });
    let mut busy: Vec<Client> = (0..30).map(|_| Client::connect(gateway.http)).collect();
    for client in &mut busy {
        client.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    run(async {
        let mut idle = Vec::new();
        for _ in 0..20 {
            let mut client = Http2Client::connect(gateway.http).await;
            let request = http::Request::get("http://x/mock").body(()).unwrap();
            assert_eq!(client.ask(request, b"").await.unwrap().status, 200);
            idle.push(client);
        }
        let http = gateway.http;
        let new = move || {
            let mut client = Client::connect(http);
            client.send("GET /mock HTTP/1.1\r\nHost: x\r\n\r\n");
            client.try_reply(false).is_ok_and(|reply| reply.status == 200)
        };
        let begun = std::time::Instant::now();
        while !tokio::task::spawn_blocking(new).await.unwrap() {
            assert!(begun.elapsed() < Duration::from_secs(20), "nobody new is served");
            // Pacing, as above.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    gate.open();
    busy.iter_mut().for_each(|client| assert_eq!(client.reply().text(), "late"));
}

/// Each client gets a GOAWAY (RFC 9114 §5.2), and exchanges in flight continue.
#[test]
fn idle_connections_of_http3_give_way_where_there_are_as_many_as_may_be() {
    let gate = Gate::default();
    let upstream = Upstream::gated(&gate, "late");
    let mut routes = mock()["routes"].take();
    routes.as_array_mut().unwrap().push(json!({ "id": "up", "uri": "/slow", "upstream": upstream.alone() }));
    let world = World::start(routes, 1, "limits: {connections_per_worker: 50}");
    run(async {
        let (mut busy, mut idle) = (Vec::new(), Vec::new());
        for _ in 0..50 {
            let client = world.client().await;
            assert_eq!(client.get("/mock").await.status, 200);
            idle.push(client);
        }
        for client in idle.split_off(45) {
            let mut stream = client.begin(request("GET", "/slow")).await;
            stream.finish().await.unwrap();
            busy.push((client, stream));
        }
        let begun = std::time::Instant::now();
        loop {
            if let Ok(client) = world.try_client().await
                && client.try_ask(request("GET", "/mock")).await
            {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "nobody new is served");
            // Pacing, as above.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let ends: Vec<_> = idle.iter().filter_map(|client| client.quic.close_reason()).collect();
        assert!((1..45).contains(&ends.len()), "{}", ends.len());
        for end in ends {
            let quinn::ConnectionError::ApplicationClosed(close) = end else { panic!("{end}") };
            assert_eq!(close.error_code.into_inner(), h3::error::Code::H3_NO_ERROR.value());
        }
        gate.open();
        for (_client, mut stream) in busy {
            assert_eq!(stream.recv_response().await.expect("it goes on").status(), 200);
        }
    });
    world.gateway.assert_metric("yumen_http3_faults_total", 0.0);
}

/// Other clients are served between the requests of the flood, although each of its responses and next
/// requests are ready at once.
#[test]
fn who_asks_ahead_without_end_does_not_keep_the_worker_to_himself() {
    let gateway = Gateway::with(&mock(), &Options { workers: 1, ..Options::default() });
    let (is_enough, has_begun) = (AtomicBool::new(false), AtomicBool::new(false));
    let begun = std::time::Instant::now();
    let mut flood = TcpStream::connect(gateway.http).unwrap();
    std::thread::scope(|scope| {
        let mut answers = flood.try_clone().unwrap();
        scope.spawn(move || {
            let mut room = vec![0; 1 << 20];
            while answers.read(&mut room).is_ok_and(|count| count > 0) {}
        });
        scope.spawn(|| {
            let requests = b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n".repeat(10_000);
            while !is_enough.load(Relaxed) && begun.elapsed() < Duration::from_secs(6) {
                flood.write_all(&requests).unwrap();
                has_begun.store(true, Relaxed);
            }
            is_enough.store(true, Relaxed);
            flood.shutdown(Shutdown::Both).unwrap();
        });
        eventually("the flood has begun", 5, || has_begun.load(Relaxed));
        assert_eq!(gateway.get("/mock").status, 200);
        assert!(!is_enough.swap(true, Relaxed), "answered only when the flood was over");
    });
}

fn open_files(gateway: &Gateway) -> u64 {
    std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count() as u64
}

/// Limits the open files of the gateway; open descriptors are not affected.
fn limit_files(gateway: &Gateway, files: u64) {
    let pid = Pid::from_raw(gateway.pid() as i32);
    let before = prlimit(pid, Resource::Nofile, Rlimit { current: Some(files), maximum: Some(1 << 20) });
    // The hard limit may be lower than that.
    if before.is_err() {
        let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
        prlimit(pid, Resource::Nofile, Rlimit { current: Some(files), maximum }).unwrap();
    }
}

#[test]
fn accepting_goes_on_at_the_file_limit_as_files_become_free() {
    let gateway = Gateway::with(&mock(), &Options { workers: 1, ..Options::default() });
    assert_eq!(gateway.get("/mock").status, 200);
    let limit = open_files(&gateway) + 30;
    limit_files(&gateway, limit);
    let mut clients: Vec<Client> = (0..100).map(|_| Client::connect(gateway.http)).collect();
    for client in &mut clients {
        client.send("GET /mock HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    eventually("it cannot accept", 30, || gateway.log().contains("accept failed"));
    // Accepted clients are served, and waiting ones as soon as another leaves.
    for mut client in clients {
        assert_eq!(client.reply().text(), "mock");
    }
    assert!(gateway.metric("yumen_accept_failures_total") >= 1.0);
    let failure_lines = gateway.log().matches("accept failed").count();
    let failures = gateway.metric("yumen_accept_failures_total") as usize;
    assert!(failure_lines <= failures, "{failure_lines} lines of {failures} failures");
    assert_eq!(gateway.get("/mock").status, 200);
}

#[test]
fn an_endpoint_is_not_blamed_for_want_of_files() {
    let upstream = Upstream::text("x");
    let passive = json!({ "passive": { "unhealthy": { "tcp_failures": 1 } }, "active": { "http_path": "/", "healthy": { "interval": 3600 }, "unhealthy": { "interval": 3600 } } });
    let target = json!({ "nodes": upstream.nodes(), "checks": passive, "retries": 0 });
    let mut document = mock();
    document["routes"].as_array_mut().unwrap().push(json!({ "id": "up", "uri": "/*", "upstream": target }));
    let gateway = Gateway::with(&document, &Options { workers: 1, ..Options::default() });
    let mut client = Client::connect(gateway.http);
    assert_eq!(client.get("/mock").status, 200);
    limit_files(&gateway, 4);
    let reply = client.get("/");
    assert_eq!(reply.status, 503, "{reply:?}");
    limit_files(&gateway, 4096);
    assert_eq!(client.get("/").text(), "x");
    assert_eq!(faults(&gateway, "local", "exhausted"), 1.0);
}

/// The connection with the latest request is evicted last, even if it is the oldest.
#[test]
fn a_connection_of_http3_that_is_used_stays_beside_others_that_idle() {
    let world = World::start(mock()["routes"].take(), 1, "limits: {connections_per_worker: 50}");
    run(async {
        let used = world.client().await;
        assert_eq!(used.get("/mock").await.status, 200);
        // Pacing: the order of the requests shows on the clock of the gateway.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut idle: Vec<Client> = (0..40).map(|_| Client::connect(world.gateway.http)).collect();
        for client in &mut idle {
            assert_eq!(client.get("/mock").status, 200);
        }
        // Pacing, as above.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(used.get("/mock").await.status, 200);
        // The scenario: all have been idle for longer than the second that protects them from eviction.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let mut new: Vec<Client> = (0..8).map(|_| Client::connect(world.gateway.http)).collect();
        for client in &mut new {
            assert_eq!(client.get("/mock").status, 200);
        }
        eventually("some give way", 10, || world.gateway.metric("yumen_connections") < 41.0);
        // A negative check: after a GOAWAY the client would have some time to leave.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(used.quic.close_reason().is_none(), "{:?}", used.quic.close_reason());
    });
}
