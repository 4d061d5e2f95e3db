//! Endless and unread bodies: tunnels, event streams, back-pressure.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::http2::Http2Upstream;
use crate::harness::{Client, Gateway, Upstream, eventually, settles};

/// Accepts an upgrade, then echoes every byte.
fn tunnel_echo() -> Upstream {
    Upstream::start(|request, stream| {
        if request.field("upgrade") != Some("websocket") {
            return crate::harness::upstream::respond(stream, 426, "", b"no upgrade");
        }
        let accept = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        let _ = stream.write_all(accept.as_bytes());
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            if stream.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        false
    })
}

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[test]
fn websocket_frames_go_both_ways_where_the_route_allows_it() {
    let upstream = tunnel_echo();
    let route = json!({ "id": "1", "uri": "/ws", "enable_websocket": true, "upstream": upstream.alone() });
    let gateway = Gateway::start(&json!({ "routes": [route] }));
    let mut client = Client::connect(gateway.http);
    let reply = client.send(UPGRADE).reply();
    assert_eq!(reply.status, 101);
    assert_eq!(reply.field("upgrade"), Some("websocket"));
    assert_eq!(reply.field("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    for size in [1, 125, 60_000] {
        let frame = crate::harness::noise(size);
        let mut writer = frame.clone();
        writer.rotate_left(0);
        client.send(&frame);
        assert!(client.bytes(size) == frame, "{size}");
    }
    client.finish_sending();
    assert!(client.is_closed_within(Duration::from_secs(5)));
}

#[test]
fn a_websocket_to_an_upstream_of_http2_goes_over_http1() {
    let upstream = tunnel_echo();
    let to = json!({ "http_version": "2", "nodes": upstream.nodes() });
    let route = json!({ "id": "1", "uri": "/ws", "enable_websocket": true, "upstream": to });
    let gateway = Gateway::start(&json!({ "routes": [route] }));
    let mut client = Client::connect(gateway.http);
    assert_eq!(client.send(UPGRADE).reply().status, 101);
    client.send("through");
    assert_eq!(client.bytes(7), b"through");
}

#[test]
fn a_websocket_to_an_endpoint_that_speaks_http2_alone_is_answered_502() {
    let upstream = Http2Upstream::start(|_, mut respond| async move {
        respond.send_response(http::Response::new(()), true).map(drop)
    });
    let to = json!({ "http_version": "2", "nodes": { upstream.address.to_string(): 1 } });
    let route = json!({ "id": "1", "uri": "/ws", "enable_websocket": true, "upstream": to });
    let gateway = Gateway::start(&json!({ "routes": [route] }));
    assert_eq!(gateway.send("GET /ws HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
    assert_eq!(gateway.send(UPGRADE).status, 502);
}

#[test]
fn an_upgrade_is_not_asked_for_where_the_route_does_not_allow_it() {
    let upstream = tunnel_echo();
    let route = json!({ "id": "1", "uri": "/ws", "upstream": upstream.alone() });
    let gateway = Gateway::start(&json!({ "routes": [route] }));
    assert_eq!(gateway.send(UPGRADE).status, 426);
}

#[test]
fn no_tunnel_is_opened_for_requests_of_another_version() {
    let upstream = tunnel_echo();
    let route = json!({ "id": "1", "uri": "/ws", "enable_websocket": true, "upstream": upstream.alone() });
    let gateway = Gateway::start(&json!({ "routes": [route] }));
    assert_eq!(gateway.send(UPGRADE.replace("websocket", "h2c")).status, 426);
    assert_eq!(gateway.send(UPGRADE.replace("websocket", "chat/1, H2C")).status, 426);
}

#[test]
fn server_sent_events_arrive_one_by_one() {
    let (next, turn) = std::sync::mpsc::channel::<()>();
    let turn = std::sync::Mutex::new(turn);
    let upstream = Upstream::start(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        let turn = turn.lock().unwrap();
        // Each event is sent only after the previous one has arrived: any buffering would stall the test.
        for i in 0..5 {
            let event = format!("data: {i}\n\n");
            let _ = stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes());
            let _ = turn.recv_timeout(Duration::from_secs(60));
        }
        stream.write_all(b"0\r\n\r\n").is_ok()
    });
    let gateway = Gateway::start(&upstream.everything());
    let mut client = Client::connect(gateway.http);
    client.send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
    client.head().unwrap();
    let started = Instant::now();
    for i in 0..5 {
        let mut event = Vec::new();
        assert!(client.chunk(&mut event).unwrap());
        assert_eq!(String::from_utf8(event).unwrap(), format!("data: {i}\n\n"));
        next.send(()).unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(50), "{:?}", started.elapsed());
}

#[test]
fn fifty_stalled_clients_of_large_bodies_cost_bounded_memory() {
    const BODY: usize = 100 * 1024 * 1024;
    let written = Arc::<AtomicUsize>::default();
    let counted = written.clone();
    let upstream = Upstream::start(move |_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n");
        let piece = vec![b'x'; 64 * 1024];
        stream.write_all(head.as_bytes()).is_ok()
            && (0..BODY / piece.len()).all(|_| {
                let is_sent = stream.write_all(&piece).is_ok();
                counted.fetch_add(piece.len(), Ordering::AcqRel);
                is_sent
            })
    });
    let gateway = Gateway::start(&upstream.everything());
    let stalled: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(gateway.http).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            stream
        })
        .collect();
    eventually("all are asked", 10, || upstream.requests() == 50);
    eventually("all buffers are full", 20, settles(|| written.load(Ordering::Acquire)));
    let resident = gateway.resident_kib();
    assert!(resident < 20 * 1024, "{resident} KiB");
    assert_eq!(upstream.requests(), 50);
    // One of them resumes and still gets everything.
    let mut stream = stalled.into_iter().next().unwrap();
    let mut buffer = vec![0; 256 * 1024];
    let mut read = 0;
    while read < BODY {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "cut after {read}");
        read += count;
    }
}

#[test]
fn a_stalled_upstream_costs_bounded_memory_and_no_byte() {
    const BODY: usize = 20 * 1024 * 1024;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        // Scripted: stalled while the client sends.
        std::thread::sleep(Duration::from_millis(700));
        let (mut buffer, mut read, mut sum) = (vec![0; 65536], 0, 0_u64);
        let mut skip = None;
        while skip.is_none_or(|skip| read < BODY + skip) {
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "cut after {read}");
            if skip.is_none() {
                skip = buffer.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
            }
            let body = if read == 0 { skip.unwrap_or(0).min(count) } else { 0 };
            sum += buffer[body..count].iter().map(|byte| u64::from(*byte)).sum::<u64>();
            read += count;
        }
        crate::harness::upstream::respond(&mut stream, 200, "", sum.to_string().as_bytes());
    });
    let route = json!({ "id": "1", "uri": "/*", "upstream": { "nodes": { address: 1 } } });
    let gateway = Gateway::start(&json!({ "routes": [route] }));
    let body = crate::harness::noise(BODY);
    let expected: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
    let mut client = Client::connect(gateway.http);
    client.send(format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {BODY}\r\n\r\n")).send(body);
    assert_eq!(client.reply().text(), expected.to_string());
    assert!(gateway.resident_kib() < 20 * 1024, "{} KiB", gateway.resident_kib());
    server.join().unwrap();
}
