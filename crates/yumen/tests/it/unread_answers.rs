//! Bodies that a peer does not read: the buffered memory is bounded, visible, and released.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::harness::http2::{
    self, END_HEADERS, END_STREAM, GET, HEADERS, POST, RawClient, RawUpstream, SETTINGS, WINDOW_UPDATE, frame,
};
use crate::harness::http3::{Http3Client, request};
use crate::harness::{Gateway, Options, Upstream, eventually};
use crate::http3::World;

const STREAMS: u32 = 128;
const BODY: usize = 3_000_000;
/// The bound, and the further growth that is allowed for the exchanges themselves.
const BACKLOG_MIB: u64 = 16;
const EXCHANGES_MIB: u64 = 56;
const NODE: &str = "limits: {backlog_bytes_per_worker: 16777216}";

/// Serializes the tests with thousands of connections, whose endpoints are in this process: together they
/// would exceed the descriptor limit.
static DESCRIPTORS: Mutex<()> = Mutex::new(());

/// Waits for the other such tests, and raises the descriptor limit to its maximum.
fn reserve_descriptors() -> MutexGuard<'static, ()> {
    let reserved = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    reserved
}

/// Send buffer of an endpoint, in bytes. By default the unread responses of a test fill gigabytes of socket buffers.
/// Above `net.ipv4.tcp_mem`, the kernel resets connections that are closed before all their data is acknowledged,
/// among them those of clients that read.
const ENDPOINT_SEND_BUFFER: usize = 32 * 1024;

/// Responds from one buffer that its thousands of threads share.
fn large_answers() -> Upstream {
    let piece = [b'x'; 30_000];
    Upstream::start(move |_, stream| {
        set_socket_send_buffer_size(&*stream, ENDPOINT_SEND_BUFFER).expect("a socket option");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n");
        stream.write_all(head.as_bytes()).is_ok()
            && (0..BODY / piece.len()).all(|_| stream.write_all(&piece).is_ok())
    })
}

fn start(upstream: &Upstream) -> Gateway {
    Gateway::with(&upstream.everything(), &Options { node: NODE, workers: 1, ..Options::default() })
}

/// A client with this window for each stream and the largest window for the connection.
fn client(gateway: &Gateway, window_bytes: u32) -> RawClient {
    let mut client = RawClient::connect(gateway.http);
    // Setting 4 is SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 §6.5.2).
    client.send(&frame(SETTINGS, 0, 0, &[&[0, 4], &window_bytes.to_be_bytes()[..]].concat()));
    client.send(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000u32.to_be_bytes()));
    client
}

fn ask_on_all_streams(client: &mut RawClient) {
    for at in 0..STREAMS {
        client.send(&frame(HEADERS, END_HEADERS | END_STREAM, at * 2 + 1, GET));
    }
}

/// Largest growth of the gateway in MiB within some seconds, while others are served.
fn peak_mib(gateway: &Gateway, before_kib: u64, seconds: u64) -> u64 {
    let (begun, mut peak_kib) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(seconds) {
        peak_kib = peak_kib.max(gateway.resident_kib().saturating_sub(before_kib));
        // The interval of the samples.
        std::thread::sleep(Duration::from_millis(50));
    }
    peak_kib / 1024
}

fn backlog_mib(gateway: &Gateway) -> f64 {
    gateway.metric("yumen_body_backlog_bytes") / f64::from(1 << 20)
}

/// Checks that the memory was returned to the system.
fn check_given_back(gateway: &Gateway, before_kib: u64) {
    eventually("the backlog is empty", 20, || backlog_mib(gateway) == 0.0);
    eventually("the memory is given back", 20, || gateway.resident_kib() < before_kib + 24 * 1024);
}

/// Checks 20 HTTP/2 clients with this window for each stream that read nothing.
fn check_unread_over_http2(window_bytes: u32) {
    let _reserved = reserve_descriptors();
    let upstream = large_answers();
    let gateway = start(&upstream);
    // The allocations of the first request must not count.
    assert_eq!(gateway.get("/warm").body.len(), BODY);
    let before_kib = gateway.resident_kib();
    let mut clients: Vec<RawClient> = (0..20).map(|_| client(&gateway, window_bytes)).collect();
    clients.iter_mut().for_each(ask_on_all_streams);
    let peak = peak_mib(&gateway, before_kib, 4);
    assert_eq!(gateway.get("/other").body.len(), BODY, "others are served");
    gateway.assert_metric("yumen_body_backlog_limit_bytes", f64::from(16 << 20));
    eventually("those that stalled longest are reset", 30, || backlog_mib(&gateway) <= BACKLOG_MIB as f64);
    assert!(peak < BACKLOG_MIB + EXCHANGES_MIB, "{peak} MiB");
    drop(clients);
    check_given_back(&gateway, before_kib);
}

#[test]
fn answers_whose_windows_are_held_back_over_http2_are_bounded_for_a_worker() {
    check_unread_over_http2(0);
}

#[test]
fn answers_that_wait_for_sockets_over_http2_are_bounded_for_a_worker() {
    check_unread_over_http2(0x7fff_0000);
}

#[test]
fn a_window_that_opens_byte_by_byte_does_not_hold_memory_for_ever() {
    let _reserved = reserve_descriptors();
    let upstream = large_answers();
    let gateway = start(&upstream);
    let mut clients: Vec<RawClient> = (0..8).map(|_| client(&gateway, 40_000)).collect();
    clients.iter_mut().for_each(ask_on_all_streams);
    let resets = || gateway.metric("yumen_body_backlog_resets_total");
    let begun = Instant::now();
    while resets() == 0.0 && begun.elapsed() < Duration::from_secs(20) {
        for client in &mut clients {
            for at in 0..STREAMS {
                client.send(&frame(WINDOW_UPDATE, 0, at * 2 + 1, &1u32.to_be_bytes()));
            }
        }
        // Pacing of the attack: a byte for each stream twice a second.
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(resets() > 0.0 || backlog_mib(&gateway) < BACKLOG_MIB as f64);
    eventually("it is within its bound", 20, || backlog_mib(&gateway) <= BACKLOG_MIB as f64);
}

#[test]
fn a_client_that_reads_gets_all_of_its_answer_beside_many_that_do_not() {
    let _reserved = reserve_descriptors();
    let upstream = large_answers();
    let gateway = start(&upstream);
    let mut deaf: Vec<RawClient> = (0..20).map(|_| client(&gateway, 0x7fff_0000)).collect();
    deaf.iter_mut().for_each(ask_on_all_streams);
    let begun = Instant::now();
    let mut whole = 0;
    while begun.elapsed() < Duration::from_secs(12) {
        let mut reader = client(&gateway, 0x7fff_0000);
        for at in 0..8 {
            reader.send(&frame(HEADERS, END_HEADERS | END_STREAM, at * 2 + 1, GET));
        }
        assert_eq!(reader.data_of(8), 8 * BODY);
        whole += 1;
    }
    assert!(whole > 0);
}

#[test]
fn answers_whose_windows_are_held_back_over_http3_are_bounded_for_a_worker() {
    let _reserved = reserve_descriptors();
    let upstream = large_answers();
    let world = World::start(json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]), 1, NODE);
    let gateway = &world.gateway;
    assert_eq!(gateway.get("/warm").body.len(), BODY);
    let before_kib = gateway.resident_kib();
    http2::run(async {
        let mut clients: Vec<Http3Client> = Vec::new();
        let mut streams = Vec::new();
        for _ in 0..20 {
            let client = world.client_with_window(1000).await;
            for _ in 0..100 {
                let mut stream = client.begin(request("GET", "/")).await;
                stream.finish().await.unwrap();
                streams.push(stream);
            }
            clients.push(client);
        }
        let peak = peak_mib(gateway, before_kib, 4);
        assert_eq!(gateway.get("/other").body.len(), BODY, "others are served");
        eventually("those that stalled longest are reset", 30, || backlog_mib(gateway) <= BACKLOG_MIB as f64);
        assert!(peak < BACKLOG_MIB + EXCHANGES_MIB + 40, "{peak} MiB");
        clients.iter().for_each(|client| client.quic.close(0u32.into(), b""));
        for client in &clients {
            // The close is sent before the runtime ends; without it the gateway would wait for an idle
            // timeout.
            client.endpoint.wait_idle().await;
        }
    });
    eventually("the backlog is empty", 20, || backlog_mib(gateway) == 0.0);
    eventually("all are gone", 20, || gateway.metric("yumen_connections") == 0.0);
}

#[test]
fn a_large_answer_of_the_gateway_is_not_copied_for_each_client_that_does_not_read() {
    let mocking = json!({ "response_example": "x".repeat(8_000_000), "content_type": "text/plain" });
    let document = json!({ "routes": [{ "id": "1", "uri": "/*", "plugins": { "mocking": mocking } }] });
    let gateway = Gateway::with(&document, &Options { node: NODE, workers: 1, ..Options::default() });
    assert_eq!(gateway.get("/warm").body.len(), 8_000_000);
    let before_kib = gateway.resident_kib();
    let mut clients: Vec<RawClient> = (0..4).map(|_| client(&gateway, 0)).collect();
    clients.iter_mut().for_each(ask_on_all_streams);
    let peak = peak_mib(&gateway, before_kib, 3);
    assert!(peak < BACKLOG_MIB + EXCHANGES_MIB, "{peak} MiB");
    assert_eq!(gateway.get("/other").body.len(), 8_000_000);
}

#[test]
fn uploads_that_an_endpoint_does_not_take_are_bounded_for_a_worker() {
    let _reserved = reserve_descriptors();
    let (deaf, echo) = (RawUpstream::start(|_| Vec::new()), Upstream::text("x"));
    let document = json!({ "routes": [
        { "id": "1", "uri": "/", "methods": ["POST"], "upstream": deaf.alone() },
        { "id": "2", "uri": "/other", "upstream": echo.alone() },
    ] });
    let gateway = Gateway::with(&document, &Options { node: NODE, workers: 1, ..Options::default() });
    assert_eq!(gateway.get("/other").text(), "x");
    let before_kib = gateway.resident_kib();
    let mut clients: Vec<RawClient> = (0..10).map(|_| client(&gateway, 65_535)).collect();
    let piece = vec![b'x'; 16_000];
    for client in &mut clients {
        for at in 0..STREAMS {
            client.send(&frame(HEADERS, END_HEADERS, at * 2 + 1, POST));
            (0..4).all(|_| client.send(&frame(0, 0, at * 2 + 1, &piece)));
        }
    }
    // Granted windows may be filled for about a second beyond the bound: 8 MiB per connection.
    let peak = peak_mib(&gateway, before_kib, 1);
    assert!(peak < BACKLOG_MIB + 10 * 8 + EXCHANGES_MIB, "{peak} MiB");
    eventually("those that stalled longest are reset", 30, || backlog_mib(&gateway) <= BACKLOG_MIB as f64);
    assert_eq!(gateway.get("/other").text(), "x");
    drop(clients);
    check_given_back(&gateway, before_kib);
}
