//! Hostile HTTP/2 clients: each flood ends its own connection, is counted, and affects no other client.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::http2::{
    self, CONTINUATION, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, Http2Client, Http2Upstream, PING,
    RST_STREAM, RawClient, SETTINGS, WINDOW_UPDATE, frame, request,
};
use crate::harness::upstream::{Gate, respond};
use crate::harness::{Gateway, Options, Upstream, eventually, settles};

/// The error code of a GOAWAY.
fn reason(goaway: &[u8]) -> u32 {
    u32::from_be_bytes(goaway[4..8].try_into().unwrap())
}

const ENHANCE_YOUR_CALM: u32 = 11;

/// Sends pieces until the gateway closes or has received `count`; returns the code of its GOAWAY.
fn flood(gateway: &Gateway, count: usize, piece: impl Fn(u32) -> Vec<u8>) -> Option<u32> {
    let mut client = RawClient::connect(gateway.http);
    for at in 0..count as u32 {
        if !client.send(&piece(at)) {
            break;
        }
    }
    client.wait_for(GOAWAY).map(|goaway| reason(&goaway))
}

/// A piece of a flood by its index.
type Piece = fn(u32) -> Vec<u8>;

#[test]
fn floods_of_frames_end_their_connection_and_are_counted() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&upstream.everything());
    let floods: &[(&str, Piece)] = &[
        ("pings", |_| frame(PING, 0, 0, &[0; 8])),
        ("settings", |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])),
        ("priorities", |at| frame(2, 0, at * 2 + 1, &[0, 0, 0, 0, 1])),
        ("unknown frames", |_| frame(0xfa, 0, 0, b"x")),
        ("requests taken back", |at| {
            let headers = frame(HEADERS, END_HEADERS | END_STREAM, at * 2 + 1, GET);
            [headers, frame(RST_STREAM, 0, at * 2 + 1, &8u32.to_be_bytes())].concat()
        }),
    ];
    for (at, (name, piece)) in floods.iter().enumerate() {
        let reason = flood(&gateway, 100_000, piece);
        // A GOAWAY may be lost if the client continues to send on a closed connection.
        assert!(matches!(reason, None | Some(ENHANCE_YOUR_CALM)), "{name}: {reason:?}");
        eventually(name, 20, || gateway.metric("yumen_http2_floods_total") == (at + 1) as f64);
        assert_eq!(gateway.get("/").status, 200, "{name}");
    }
    gateway.assert_metric("yumen_connection_panics_total", 0.0);
}

#[test]
fn a_flood_on_a_connection_that_is_leaving_ends_it_as_well() {
    let gate = Gate::default();
    let upstream = Upstream::gated(&gate, "x");
    let gateway = Gateway::start(&upstream.everything());
    // The second connection keeps the gateway alive for reading the metric.
    let [mut client, _other] = [(); 2].map(|()| {
        let mut client = RawClient::connect(gateway.http);
        client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, GET));
        client
    });
    eventually("the requests are at the upstream", 10, || upstream.requests() == 2);
    gateway.terminate();
    assert_eq!(client.wait_for(GOAWAY).map(|goaway| reason(&goaway)), Some(0), "it leaves");
    let pings = frame(PING, 0, 0, &[0; 8]).repeat(100);
    let sent = (0..1000).take_while(|_| client.send(&pings)).count();
    let reasons = std::iter::from_fn(|| client.wait_for(GOAWAY).map(|goaway| reason(&goaway)));
    // A GOAWAY may be lost if the client continues to send on a closed connection.
    assert!(sent < 1000 || reasons.into_iter().any(|reason| reason == ENHANCE_YOUR_CALM));
    eventually("it is counted", 10, || gateway.metric("yumen_http2_floods_total") == 1.0);
    gate.open();
}

#[test]
fn a_header_block_without_end_is_not_collected() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&upstream.everything());
    let filler = [&[0x00, 0x01, b'a', 0x7f, 0x81, 0x7f][..], &[b'v'; 256]].concat();
    let mut client = RawClient::connect(gateway.http);
    client.send(&frame(HEADERS, END_STREAM, 1, GET));
    let mut sent = 0;
    while sent < 64 << 20 && client.send(&frame(CONTINUATION, 0, 1, &filler)) {
        sent += filler.len();
    }
    assert!(sent < 64 << 20, "the connection ends before the client does");
    assert_eq!(upstream.requests(), 0);
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn a_head_that_is_too_large_is_answered_431() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&upstream.everything());
    http2::run(async {
        for (count, size) in [(1, 70_000), (101, 10)] {
            let mut client = Http2Client::connect(gateway.http).await;
            let mut large = request("GET", "/");
            for at in 0..count {
                let name = http::HeaderName::from_bytes(format!("x-{at}").as_bytes()).unwrap();
                large.headers_mut().append(name, "v".repeat(size).parse().unwrap());
            }
            // The client does not know the limit from the settings; otherwise it would refuse by itself.
            let answer = client.ask(large, b"").await;
            match answer {
                Ok(answer) => assert_eq!(answer.status, 431, "{count} of {size}"),
                Err(error) => panic!("{count} of {size}: {error}"),
            }
        }
    });
    assert_eq!(upstream.requests(), 0);
}

#[test]
fn more_streams_than_allowed_are_refused() {
    let upstream = Http2Upstream::start(|_, respond| async move {
        let _held = respond;
        std::future::pending().await
    });
    let node = Options { node: "http2: { streams: 3 }", ..Options::default() };
    let gateway = Gateway::with(&upstream.everything(), &node);
    let mut client = RawClient::connect(gateway.http);
    for stream in [1, 3, 5, 7] {
        client.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, GET));
    }
    let reset = client.wait_for(RST_STREAM).expect("a refusal");
    assert_eq!(reset, 7u32.to_be_bytes(), "REFUSED_STREAM");
    eventually("the others are served", 10, || upstream.requests() == 3);
}

#[test]
fn a_client_that_is_silent_or_does_not_read_is_let_go() {
    let large =
        Upstream::start(|_, stream| crate::harness::upstream::respond(stream, 200, "", &vec![b'x'; 4 << 20]));
    let node =
        Options { node: "timeouts: { idle_ms: 300, send_ms: 300, head_ms: 300 }", ..Options::default() };
    let gateway = Gateway::with(&large.everything(), &node);
    // Silent: gets a GOAWAY, then the connection closes.
    let mut silent = RawClient::connect(gateway.http);
    assert_eq!(silent.wait_for(GOAWAY).map(|goaway| reason(&goaway)), Some(0));
    // Requests a large body without opening its window: the stream is reset.
    let mut deaf = RawClient::connect(gateway.http);
    deaf.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, GET));
    assert!(deaf.wait_for(RST_STREAM).is_some());
    // Begins the preface and stops.
    let mut halting = std::net::TcpStream::connect(gateway.http).unwrap();
    halting.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    std::io::Write::write_all(&mut halting, b"PRI * HTTP/2.0\r\n\r\nSM").unwrap();
    let ended = std::io::Read::read_to_end(&mut halting, &mut Vec::new());
    assert!(ended.is_ok_and(|count| count < 200), "some settings, then the end");
    eventually("all are gone", 20, || gateway.metric("yumen_connections") == 0.0);
}

#[test]
fn a_head_that_is_not_whole_in_time_ends_its_connection_and_is_counted() {
    let upstream = Upstream::text("x");
    let node = Options { node: "timeouts: { idle_ms: 30000, head_ms: 500 }", ..Options::default() };
    let gateway = Gateway::with(&upstream.everything(), &node);
    let begun = frame(HEADERS, 0, 1, GET);
    let beginnings: [&[u8]; 3] = [&begun, &begun[..7], &begun[..12]];
    for (at, beginning) in beginnings.into_iter().enumerate() {
        let started = std::time::Instant::now();
        let mut client = RawClient::connect(gateway.http);
        client.send(beginning);
        let goodbye = client.wait_for(GOAWAY).map(|goaway| reason(&goaway));
        assert_eq!(goodbye, Some(ENHANCE_YOUR_CALM), "{beginning:02x?}");
        assert!(started.elapsed().as_secs() < 15, "long before it idles");
        let count = || gateway.metric("yumen_faults_total{fault=\"client_timeout\",side=\"client\"}");
        eventually("it is counted", 10, || count() == (at + 1) as f64);
    }
    // A slow head has the same deadline.
    let mut dripping = RawClient::connect(gateway.http);
    dripping.send(&begun);
    let started = std::time::Instant::now();
    while dripping.send(&frame(CONTINUATION, 0, 1, b"\x88")) && started.elapsed().as_secs() < 15 {
        // A slow client: each frame comes long before any timeout.
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(started.elapsed().as_secs() < 15, "the end of a head came too late");
    // A body may be slow, and a connection may be idle.
    let mut patient = RawClient::connect(gateway.http);
    patient.send(&frame(HEADERS, END_HEADERS, 1, GET));
    // A slow client: longer than `head_ms`.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    patient.send(&frame(0, END_STREAM, 1, b"x"));
    assert!(patient.wait_for(HEADERS).is_some());
    gateway.assert_metric("yumen_http2_floods_total", 0.0);
}

#[test]
fn interim_answers_without_end_do_not_queue_for_a_client_that_does_not_read() {
    let upstream = Upstream::start(|request, stream| {
        if request.target == "/warm" {
            return respond(stream, 200, "", b"");
        }
        let hints = format!("HTTP/1.1 103 Early Hints\r\nLink: <{}>\r\n\r\n", "x".repeat(8000));
        (0..20_000).all(|_| stream.write_all(hints.as_bytes()).is_ok())
    });
    let gateway = Gateway::start(&upstream.everything());
    assert_eq!(gateway.get("/warm").status, 200);
    let before = gateway.resident_kib();
    let mut client = RawClient::connect(gateway.http);
    client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, GET));
    let faults = || gateway.metric("yumen_faults_total{fault=\"upstream_head\",side=\"upstream\"}");
    eventually("the endpoint is given up", 10, || faults() == 1.0);
    let grown = gateway.resident_kib().saturating_sub(before);
    assert!(grown < 16 * 1024, "{grown} KiB");
}

#[test]
fn what_is_queued_for_a_client_that_does_not_read_is_bounded_for_its_connection() {
    const BODY: usize = 3_000_000;
    let written = Arc::<AtomicUsize>::default();
    let counted = written.clone();
    let upstream = Upstream::start(move |_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n");
        let piece = [b'x'; 30_000];
        stream.write_all(head.as_bytes()).is_ok()
            && (0..BODY / piece.len()).all(|_| {
                let is_sent = stream.write_all(&piece).is_ok();
                counted.fetch_add(piece.len(), Ordering::AcqRel);
                is_sent
            })
    });
    let options = Options { workers: 1, ..Options::default() };
    let gateway = Gateway::with(&upstream.everything(), &options);
    assert_eq!(gateway.get("/warm").status, 200);
    let before = gateway.resident_kib();
    let room = 0x7fff_0000u32.to_be_bytes();
    let mut clients: Vec<RawClient> = (0..4)
        .map(|_| {
            let mut client = RawClient::connect(gateway.http);
            client.send(&frame(SETTINGS, 0, 0, &[&[0, 4], &room[..]].concat()));
            client.send(&frame(WINDOW_UPDATE, 0, 0, &room));
            for at in 0..125 {
                client.send(&frame(HEADERS, END_HEADERS | END_STREAM, at * 2 + 1, GET));
            }
            client
        })
        .collect();
    eventually("all are asked for", 20, || upstream.requests() == 501);
    eventually("all buffers are full", 20, settles(|| written.load(Ordering::Acquire)));
    // A buffer of 64 KiB per stream, and 1 MiB per connection.
    let grown = gateway.resident_kib().saturating_sub(before);
    assert!(grown < 52 * 1024, "{grown} KiB");
    // Every stream completes once the client reads: none was forgotten while it waited for a window.
    assert_eq!(clients[0].data_of(125), 125 * BODY);
}
