//! Limits and timeouts: each has its status, a JSON body, and closes the connection.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::upstream::respond;
use crate::harness::{Client, Gateway, Options, Reply, Upstream};

const NODE: &str = "
limits: {head_bytes: 4096, target_bytes: 1000, fields: 20, body_bytes: 10000}
timeouts: {head_ms: 400, body_ms: 400, idle_ms: 400, send_ms: 2000}
";

fn gateway(upstream: &Upstream) -> Gateway {
    let timeout = json!({ "connect": 1, "send": 1, "read": 0.3 });
    let document = json!({ "routes": [
        { "id": "all", "uri": "/*", "upstream": upstream.alone() },
        { "id": "hasty", "uri": "/hasty", "timeout": timeout, "upstream": upstream.alone() },
    ] });
    Gateway::with(&document, &Options { node: NODE, ..Options::default() })
}

fn check_refusal(reply: &Reply, status: u16) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert!(reply.field("content-type").unwrap().starts_with("application/json"), "{reply:?}");
    assert!(!reply.json()["error_msg"].as_str().unwrap().is_empty());
}

/// Sends a request and expects a refusal, after which nothing is read.
fn check(gateway: &Gateway, request: &str, status: u16) {
    let mut client = Client::connect(gateway.http);
    check_refusal(&client.send(request).reply(), status);
    assert!(client.is_closed_within(Duration::from_secs(3)), "still open after {status}");
}

#[test]
fn heads_and_bodies_beyond_the_limits_are_refused() {
    let upstream = Upstream::text("x");
    let gateway = gateway(&upstream);
    check(&gateway, &format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(5000)), 431);
    check(&gateway, &format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(25)), 431);
    // The read buffer holds at most the largest head, with or without leading empty lines.
    let largest = Gateway::start(&upstream.everything());
    for lines in ["", "\r\n", "\r\n\r\n"] {
        check(&largest, &format!("{lines}GET / HTTP/1.1\r\nHost: x\r\nX: {}", "y".repeat(70_000)), 431);
    }
    check(&gateway, &format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "y".repeat(1500)), 414);
    check(&gateway, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10001\r\n\r\n", 413);
    let chunk = format!("{:x}\r\n{}\r\n", 6000, "y".repeat(6000));
    check(
        &gateway,
        &format!("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"),
        413,
    );
    assert_eq!(upstream.requests(), 0);
    // Exactly at the limit.
    let body = "y".repeat(10_000);
    let request =
        format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\nConnection: close\r\n\r\n{body}");
    assert_eq!(gateway.send(request).status, 200);
}

#[test]
fn a_route_may_have_a_bound_of_its_own_on_bodies() {
    let upstream = Upstream::text("x");
    let route = |id: &str, bytes: u64| {
        let plugins = json!({ "client-control": { "max_body_size": bytes } });
        json!({ "id": id, "uri": format!("/{id}"), "plugins": plugins, "upstream": upstream.alone() })
    };
    let document = json!({ "routes": [
        { "id": "all", "uri": "/*", "upstream": upstream.alone() },
        route("less", 10), route("more", 20_000), route("unbounded", 0),
    ] });
    let gateway = Gateway::with(&document, &Options { node: NODE, ..Options::default() });
    for (path, bytes, status) in [
        ("/less", 10, 200),
        ("/less", 11, 413),
        ("/other", 10_000, 200),
        ("/other", 10_001, 413),
        ("/more", 20_000, 200),
        ("/more", 20_001, 413),
        ("/unbounded", 100_000, 200),
    ] {
        let body = "y".repeat(bytes);
        let close = "Host: x\r\nConnection: close";
        let length = format!("POST {path} HTTP/1.1\r\n{close}\r\nContent-Length: {bytes}\r\n\r\n{body}");
        let chunked = format!(
            "POST {path} HTTP/1.1\r\n{close}\r\nTransfer-Encoding: chunked\r\n\r\n{bytes:x}\r\n{body}\r\n0\r\n\r\n"
        );
        assert_eq!(gateway.send(length).status, status, "{path} {bytes}");
        assert_eq!(gateway.send(chunked).status, status, "{path} {bytes} in chunks");
    }
}

#[test]
fn a_client_that_asks_first_is_told_that_its_body_is_too_long() {
    let upstream = Upstream::text("x");
    let plugins = json!({
        "client-control": { "max_body_size": 10 },
        // Needs the body, so that it is buffered before an attempt.
        "request-validation": { "body_schema": { "type": "object" } },
    });
    let route = json!({ "id": "1", "uri": "/*", "plugins": plugins, "upstream": upstream.alone() });
    let gateway = Gateway::start(&json!({ "routes": [route] }));
    let ask = |length: usize| {
        format!("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n")
    };
    let mut client = Client::connect(gateway.http);
    let refused = client.send(ask(11)).reply();
    assert_eq!((refused.status, refused.field("connection")), (413, Some("close")));
    let mut client = Client::connect(gateway.http);
    assert_eq!(client.send(ask(2)).reply().status, 100);
    assert_eq!(client.send("{}").reply().status, 200);
}

#[test]
fn a_client_whose_body_is_too_long_to_be_read_in_vain_is_told_that_its_connection_ends() {
    let refused = json!({ "id": "1", "uri": "/no", "plugins": { "fault-injection": { "abort": { "http_status": 401 } } } });
    let gateway = Gateway::start(&json!({ "routes": [refused] }));
    for (path, status) in [("/no", 401), ("/nowhere", 404)] {
        for (length, connection) in [(262_144, None), (262_145, Some("close"))] {
            let mut client = Client::connect(gateway.http);
            client.send(format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"));
            let reply = client.reply();
            assert_eq!((reply.status, reply.field("connection")), (status, connection), "{path}, {length}");
            client.send(vec![b'x'; length]);
            match connection {
                Some(_) => assert!(client.is_closed_within(Duration::from_secs(30))),
                None => assert_eq!(client.get(path).status, status),
            }
        }
    }
}

#[test]
fn a_head_or_body_that_does_not_come_is_answered_408() {
    let upstream = Upstream::text("x");
    let gateway = gateway(&upstream);
    let started = Instant::now();
    check(&gateway, "GET / HTTP/1.1\r\nHost", 408);
    check(&gateway, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc", 408);
    let elapsed = started.elapsed();
    assert!(elapsed > Duration::from_millis(700) && elapsed < Duration::from_secs(60), "{elapsed:?}");
}

#[test]
fn a_head_sent_byte_by_byte_has_one_deadline() {
    let upstream = Upstream::text("x");
    let gateway = gateway(&upstream);
    let mut stream = std::net::TcpStream::connect(gateway.http).unwrap();
    let started = Instant::now();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").unwrap();
    let mut writer = stream.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        for _ in 0..600 {
            // A slow client.
            std::thread::sleep(Duration::from_millis(100));
            if writer.write_all(b"A").is_err() {
                return;
            }
        }
    });
    let reply = Client::of(stream).reply();
    assert_eq!(reply.status, 408);
    assert!(started.elapsed() < Duration::from_secs(45), "{:?}", started.elapsed());
    drip.join().unwrap();
}

#[test]
fn idle_connections_are_closed_without_a_word() {
    let upstream = Upstream::text("x");
    let gateway = gateway(&upstream);
    let mut client = Client::connect(gateway.http);
    assert_eq!(client.get("/").status, 200);
    let started = Instant::now();
    assert!(client.is_closed_within(Duration::from_secs(5)));
    assert!(started.elapsed() > Duration::from_millis(300), "{:?}", started.elapsed());
    assert_eq!(upstream.requests(), 1);
}

#[test]
fn an_upstream_that_does_not_answer_costs_504() {
    let upstream = Upstream::start(|request, stream| {
        let delay_ms = if request.target == "/hasty" { 60_000 } else { 1200 };
        // Scripted.
        std::thread::sleep(Duration::from_millis(delay_ms));
        respond(stream, 200, "", b"late")
    });
    let gateway = gateway(&upstream);
    let started = Instant::now();
    check_refusal(&gateway.send("POST /hasty HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"), 504);
    assert!(started.elapsed() < Duration::from_secs(45), "{:?}", started.elapsed());
    assert_eq!(gateway.get("/patient").text(), "late");
}

#[test]
fn an_upstream_that_talks_nonsense_costs_502() {
    let answers = [
        "nonsense\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nBad Name: 1\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        "",
    ];
    let upstream = Upstream::start(move |request, stream| {
        let which: usize = request.target[1..].parse().unwrap();
        let _ = stream.write_all(answers[which].as_bytes());
        false
    });
    let gateway = gateway(&upstream);
    for (which, answer) in answers.iter().enumerate() {
        let reply = gateway.get(&format!("/{which}"));
        assert_eq!(reply.status, 502, "{answer:?}");
        assert!(reply.json()["error_msg"].is_string());
    }
}

#[test]
fn connections_beyond_the_limit_wait_or_are_closed_and_the_rest_is_served() {
    let upstream = Upstream::text("x");
    let node = "limits: {connections_per_worker: 10}";
    let gateway = Gateway::with(&upstream.everything(), &Options { node, workers: 1, ..Options::default() });
    let mut open: Vec<Client> = (0..10).map(|_| Client::connect(gateway.http)).collect();
    for client in &mut open {
        assert_eq!(client.get("/").status, 200);
    }
    let mut eleventh = Client::connect(gateway.http);
    eleventh.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    // A negative check: the others go on while it waits or is closed.
    std::thread::sleep(Duration::from_millis(100));
    for client in &mut open {
        assert_eq!(client.get("/").status, 200);
    }
    drop(eleventh);
    drop(open);
    crate::harness::eventually("there is room again", 5, || {
        let reply = Client::connect(gateway.http).send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").try_reply(false);
        reply.is_ok_and(|reply| reply.status == 200)
    });
}
