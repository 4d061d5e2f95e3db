//! Slow clients, and an overloaded node.

use std::time::Duration;

use crate::harness::upstream::{Gate, respond};
use crate::harness::{Client, Gateway, Options, Upstream, eventually};

fn start(upstream: &Upstream, node: &str) -> Gateway {
    Gateway::with(&upstream.everything(), &Options { node, workers: 1, ..Options::default() })
}

/// Sends single bytes until the other side closes: more often than any read timeout.
fn drip(mut stream: std::net::TcpStream) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        while std::io::Write::write_all(&mut stream, b"x").is_ok() {
            // A slow client.
            std::thread::sleep(Duration::from_millis(50));
        }
    })
}

#[test]
fn a_body_that_nobody_wants_holds_no_place_and_is_not_waited_for_long() {
    let gateway = start(&Upstream::echo("a"), "overload: {exchanges_per_worker: 1}");
    gateway.apply(&serde_json::json!({ "routes": [] }));
    let stream = std::net::TcpStream::connect(gateway.http).unwrap();
    let mut slow = Client::of(stream.try_clone().unwrap());
    slow.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
    assert_eq!(slow.reply().status, 404);
    assert_eq!(gateway.get("/").status, 404, "there is room for another");
    let dripping = drip(stream);
    assert!(slow.is_closed_within(Duration::from_secs(30)), "it is given up");
    dripping.join().unwrap();
    // A body that does arrive is read, and so is the next request.
    let mut quick = Client::connect(gateway.http);
    quick.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(quick.reply().status, 404);
    assert_eq!(quick.send("abc").get("/").status, 404);
}

#[test]
fn a_body_that_comes_too_slowly_is_refused() {
    let upstream = Upstream::echo("a");
    let gateway = start(&upstream, "limits: {body_bytes_per_s: 1000, rate_window_ms: 500}");
    let stream = std::net::TcpStream::connect(gateway.http).unwrap();
    let mut slow = Client::of(stream.try_clone().unwrap());
    slow.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
    let dripping = drip(stream);
    assert_eq!(slow.reply().status, 408);
    drop(slow);
    dripping.join().unwrap();
    let mut quick = Client::connect(gateway.http);
    let body = "y".repeat(100_000);
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    assert_eq!(quick.send(head).send(body).reply().status, 200);
    gateway.assert_metric("yumen_faults_total{fault=\"client_timeout\",side=\"client\"}", 1.0);
}

#[test]
fn an_answer_that_is_taken_too_slowly_is_cut_off() {
    let upstream = Upstream::start(|_, stream| respond(stream, 200, "", &vec![b'x'; 50_000_000]));
    let gateway = start(&upstream, "limits: {answer_bytes_per_s: 1000, rate_window_ms: 500}");
    let mut idle = Client::connect(gateway.http);
    idle.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    eventually("it is cut off", 30, || {
        gateway.metric("yumen_faults_total{fault=\"client_stalled\",side=\"client\"}") == 1.0
    });
    assert_eq!(gateway.get("/").text().len(), 50_000_000);
}

#[test]
fn a_worker_takes_no_more_than_it_should_and_the_status_listener_answers() {
    let gate = Gate::default();
    let upstream = Upstream::gated(&gate, "done");
    let gateway = start(&upstream, "overload: {exchanges_per_worker: 1, spared_paths: [/health]}");
    let mut busy = Client::connect(gateway.http);
    busy.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    eventually("it is at the upstream", 10, || upstream.requests() == 1);
    let mut checking = Client::connect(gateway.http);
    checking.send("GET /healthy HTTP/1.1\r\nHost: x\r\n\r\n");
    eventually("checks pass", 10, || upstream.requests() == 2);
    let reply = gateway.get("/");
    assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
    assert_eq!(gateway.status_text("/status").0, 200);
    gate.open();
    assert_eq!((busy.reply().status, checking.reply().status), (200, 200));
    assert_eq!(busy.get("/").status, 200);
    gateway.assert_metric("yumen_faults_total{fault=\"overloaded\",side=\"local\"}", 1.0);
}

#[test]
fn a_node_without_memory_takes_nothing_and_says_so() {
    let upstream = Upstream::text("x");
    let gateway = start(&upstream, "overload: {memory_bytes: 4096, lag_ms: 60000}");
    assert_eq!(gateway.get("/").json()["error_msg"], "the gateway has too much to do");
    assert_eq!(upstream.requests(), 0);
    assert_eq!((gateway.status_text("/status").0, gateway.metric("yumen_shed_ratio")), (200, 0.0));
}

#[test]
fn a_node_whose_memory_was_full_serves_again_once_its_clients_have_left() {
    let upstream = Upstream::text("x");
    let gateway = start(&upstream, "overload: {memory_bytes: 130000000, lag_ms: 60000}");
    let head = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "y".repeat(60_000));
    // Incomplete heads, which consist of small allocations.
    let begun: Vec<Client> = (0..2500)
        .map(|_| {
            let mut client = Client::connect(gateway.http);
            client.send(&head);
            client
        })
        .collect();
    eventually("memory is full", 20, || gateway.get("/").status == 503);
    drop(begun);
    eventually("it is free again", 20, || gateway.get("/").status == 200);
}
