//! Hostile clients: crowds, garbage, ambiguous requests.

use std::time::Duration;

use crate::harness::{Client, Gateway, Upstream, eventually, noise};

#[test]
fn two_thousand_connections_at_once_are_all_served() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&upstream.everything());
    // File descriptors of the test process are limited too.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let mut clients: Vec<Client> = (0..2000).map(|_| Client::connect(gateway.http)).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.reply().status, 200);
    }
    // The connections are kept and usable.
    gateway.assert_metric("yumen_connections", 2000.0);
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    drop(clients);
    eventually("all are gone", 10, || gateway.metric("yumen_connections") == 0.0);
}

#[test]
fn garbage_is_refused_and_others_are_served() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&upstream.everything());
    let noise = noise(200_000);
    for (i, piece) in noise.chunks(4000).enumerate() {
        let mut client = Client::connect(gateway.http);
        let reply = client.send(piece).send("\r\n\r\n").try_reply(false);
        if let Ok(reply) = reply {
            assert!((400..=505).contains(&reply.status), "{i}: {reply:?}");
        }
        assert!(client.is_closed_within(Duration::from_secs(5)), "{i}");
    }
    assert_eq!(upstream.requests(), 0);
    assert_eq!(gateway.get("/").status, 200);
    gateway.assert_metric("yumen_connection_panics_total", 0.0);
}

#[test]
fn what_could_be_read_two_ways_is_refused_and_the_connection_closed() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&upstream.everything());
    let table = [
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4, 5\r\n\r\nabcde",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x4\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 4\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        "GET / HTTP/1.1\nHost: x\n\n",
        "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x y\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / x HTTP/1.1\r\nHost: x\r\n\r\n",
        "G\0T / HTTP/1.1\r\nHost: x\r\n\r\n",
    ];
    for request in table {
        check_refused(&gateway, request, 400);
    }
    // An unknown transfer coding or version is not a syntax error.
    for coding in ["gzip, chunked", "chunked, identity", "gzip"] {
        let request = format!("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {coding}\r\n\r\n0\r\n\r\n");
        check_refused(&gateway, &request, 501);
    }
    check_refused(&gateway, "GET / HTTP/3.0\r\nHost: x\r\n\r\n", 505);
    assert_eq!(upstream.requests(), 0, "something was smuggled");
}

/// The request and everything after it on its connection is refused.
fn check_refused(gateway: &Gateway, request: &str, status: u16) {
    let mut client = Client::connect(gateway.http);
    // The request that would be smuggled.
    client.send(request).send("GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n");
    let reply = client.reply();
    assert_eq!(reply.status, status, "{request:?}: {reply:?}");
    assert!(reply.json()["error_msg"].is_string());
    assert!(client.is_closed_within(Duration::from_secs(5)), "{request:?}");
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let upstream = Upstream::start(|_, stream| {
        // Scripted: the client has left by then.
        std::thread::sleep(Duration::from_millis(50));
        crate::harness::upstream::respond(stream, 200, "", &[b'x'; 100_000])
    });
    let gateway = Gateway::start(&upstream.everything());
    for round in 0..100 {
        let mut client = Client::connect(gateway.http);
        match round % 4 {
            0 => drop(client.send("GET / HTT")),
            1 => drop(client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")),
            2 => drop(client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\nabc")),
            _ => drop(client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")),
        }
    }
    eventually("all are gone", 10, || gateway.metric("yumen_connections") == 0.0);
    assert_eq!(gateway.get("/").body.len(), 100_000);
    gateway.assert_metric("yumen_connection_panics_total", 0.0);
}
