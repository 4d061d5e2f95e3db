//! Shutdown: no accepted request is lost.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::upstream::{Gate, respond};
use crate::harness::{Client, Gateway, Options, Upstream, eventually};

/// Responds after a delay, except to `/quick`.
fn slow(delay_ms: u64) -> Upstream {
    Upstream::start(move |request, stream| {
        if request.target != "/quick" {
            // Scripted.
            std::thread::sleep(Duration::from_millis(delay_ms));
        }
        respond(stream, 200, "", b"done")
    })
}

#[test]
fn requests_in_flight_are_answered_and_new_connections_refused() {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::start(move |request, stream| {
        if request.target != "/quick" {
            waits.pass();
        }
        respond(stream, 200, "", b"done")
    });
    let mut gateway = Gateway::start(&upstream.everything());
    let address = gateway.http;
    let mut busy: Vec<Client> = (0..50).map(|_| Client::connect(address)).collect();
    for client in &mut busy {
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    let mut idle = Client::connect(address);
    assert_eq!(idle.get("/quick").status, 200);
    eventually("all are at the upstream", 5, || upstream.requests() == 51);
    gateway.terminate();
    eventually("new connections are refused", 5, || TcpStream::connect(address).is_err());
    // The requests in flight still wait meanwhile.
    let (status, body) = gateway.status_text("/status/ready");
    assert!(status == 503 && body.contains("the gateway is shutting down"), "{status} {body}");
    assert!(idle.is_closed_within(Duration::from_secs(2)));
    gate.open();
    for client in &mut busy {
        let reply = client.reply();
        assert_eq!((reply.status, reply.text().as_str()), (200, "done"));
        assert_eq!(reply.field("connection"), Some("close"));
        assert!(client.is_closed_within(Duration::from_secs(2)));
    }
    assert_eq!(gateway.wait(60).code(), Some(0));
    assert!(gateway.log().contains("stopped"));
}

#[test]
fn idle_connections_do_not_hold_the_end_up() {
    let upstream = slow(0);
    let mut gateway = Gateway::start(&upstream.everything());
    let mut idle: Vec<Client> = (0..20).map(|_| Client::connect(gateway.http)).collect();
    for client in &mut idle {
        assert_eq!(client.get("/").status, 200);
    }
    let started = Instant::now();
    gateway.terminate();
    assert_eq!(gateway.wait(60).code(), Some(0));
    // Long before the drain timeout.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    for client in &mut idle {
        assert!(client.is_closed_within(Duration::from_secs(1)));
    }
}

#[test]
fn requests_sent_while_it_ends_are_answered_or_never_accepted() {
    let upstream = slow(2);
    let mut gateway = Gateway::start(&upstream.everything());
    let address = gateway.http;
    let lost: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(move || lost_requests(address))).collect();
        // The load runs for a while before the gateway ends.
        std::thread::sleep(Duration::from_millis(300));
        gateway.terminate();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(lost, 0);
    assert_eq!(gateway.wait(60).code(), Some(0));
}

/// Sends requests on separate connections until none is accepted; returns the number that were accepted
/// without a response.
fn lost_requests(address: std::net::SocketAddr) -> usize {
    let mut lost = 0;
    while let Ok(stream) = TcpStream::connect(address) {
        let mut client = Client::of(stream);
        let reply = client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").try_reply(false);
        match reply {
            Ok(reply) => assert_eq!(reply.status, 200),
            // The kernel resets connections that no process accepted.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return lost,
            Err(_) => lost += 1,
        }
    }
    lost
}

#[test]
fn request_during_shutdown_is_answered() {
    let upstream = slow(0);
    // Repeated, because a busy machine may miss the moment.
    let is_answered = (0..20).any(|_| {
        let mut gateway = Gateway::start(&upstream.everything());
        assert_eq!(gateway.get("/").status, 200);
        let mut waiting = Client::connect(gateway.http);
        gateway.terminate();
        eventually("it drains", 5, || gateway.log().contains("draining"));
        // The scenario: the client asks shortly after the drain has begun.
        std::thread::sleep(Duration::from_millis(30));
        let reply = waiting.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").try_reply(false);
        let (status, connection) =
            reply.map_or((0, None), |reply| (reply.status, reply.field("connection").map(str::to_owned)));
        assert_eq!(gateway.wait(60).code(), Some(0));
        status == 200 && connection.as_deref() == Some("close")
    });
    assert!(is_answered);
}

#[test]
fn draining_ends_when_it_has_taken_too_long() {
    let upstream = slow(120_000);
    let options = Options { node: "timeouts: {drain_ms: 500}", ..Options::default() };
    let mut gateway = Gateway::with(&upstream.everything(), &options);
    let mut client = Client::connect(gateway.http);
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    eventually("it is at the upstream", 5, || upstream.requests() == 1);
    let started = Instant::now();
    gateway.terminate();
    assert_eq!(gateway.wait(60).code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

#[test]
fn sighup_loses_no_request() {
    let upstream = slow(300);
    let gateway = Gateway::start(&upstream.everything());
    let mut client = Client::connect(gateway.http);
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    eventually("it is at the upstream", 5, || upstream.requests() == 1);
    gateway.hang_up();
    eventually("the line is logged", 5, || gateway.log().contains("SIGHUP"));
    assert_eq!(client.reply().status, 200);
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn sigusr1_loses_no_request() {
    let upstream = slow(300);
    let gateway = Gateway::start(&upstream.everything());
    let mut client = Client::connect(gateway.http);
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    eventually("it is at the upstream", 5, || upstream.requests() == 1);
    gateway.ask_to_reopen_logs();
    eventually("the line is logged", 5, || gateway.log().contains("SIGUSR1"));
    assert_eq!(client.reply().status, 200);
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let upstream = slow(120_000);
    let mut gateway = Gateway::start(&upstream.everything());
    Client::connect(gateway.http).send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut client = Client::connect(gateway.http);
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    eventually("it is at the upstream", 5, || upstream.requests() >= 1);
    gateway.terminate();
    eventually("it drains", 5, || gateway.log().contains("draining"));
    gateway.terminate();
    assert_eq!(gateway.wait(60).code(), Some(1));
}
