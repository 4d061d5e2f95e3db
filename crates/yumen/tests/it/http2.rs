//! HTTP/2 from outside: all combinations of versions, bodies in both directions, and all kinds of ends.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, Response};
use serde_json::json;
use tokio::sync::Notify;

use crate::harness::http2::{
    self, ACK, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, Http2Client, Http2Upstream, PING, RawClient,
    frame, request,
};
use crate::harness::upstream::respond;
use crate::harness::{Client, Gateway, Options, Upstream, eventually, eventually_async, noise, run};

/// Echoes the body.
fn echo_http1() -> Upstream {
    Upstream::start(|request, stream| respond(stream, 200, "X-Version: 1\r\n", &request.body))
}

fn one_worker<'a>() -> Options<'a> {
    Options { workers: 1, ..Options::default() }
}

#[test]
fn a_refused_upload_ends_with_its_status_in_curl() {
    let upstream = echo_http1();
    let blocked = json!({ "ip-restriction": { "blacklist": ["127.0.0.1"] } });
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "1", "uri": "/blocked", "plugins": blocked, "upstream": upstream.alone() },
    ] }));
    let body = format!("@{}", gateway.scratch.write("body", "x".repeat(200_000)));
    // curl 7.88 failed almost each time if the end of the response and the reset of the upload arrived
    // together.
    for (path, status) in [("/blocked", "403"), ("/unknown", "404")].repeat(5) {
        let url = format!("https://{}{path}", gateway.https);
        let sent = ["-sSk", "--http2", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Expect:"];
        let (code, out, err) =
            run("curl", &[&sent[..], &["--data-binary", &body, "-m", "20", &url]].concat());
        assert!(code == 0 && out == status, "{path}: {out}, {err}");
    }
}

#[test]
fn all_combinations_of_versions_carry_bodies_both_ways() {
    let (old, new) = (echo_http1(), Http2Upstream::echo());
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "1", "uri": "/1", "upstream": old.alone() },
        { "id": "2", "uri": "/2", "upstream": new.alone() },
    ] }));
    for (path, version) in [("/1", "1"), ("/2", "2")] {
        for size in [0, 1, 16_385, 300_000] {
            let body = noise(size);
            let mut client = Client::connect(gateway.http);
            client.send(format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"));
            let reply = client.send(&body).reply();
            assert!(reply.status == 200 && reply.body == body, "1.1 to {version}, {size}: {}", reply.head);
            assert_eq!(reply.field("x-version"), Some(version));
            http2::run(async {
                let mut client = Http2Client::connect(gateway.http).await;
                let answer = client.ask(request("POST", path), &body).await.unwrap();
                assert!(answer.status == 200 && answer.body == body, "2 to {version}, {size}");
                assert_eq!(answer.field("x-version"), version);
            });
        }
    }
    // The same for a response without a body.
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let head = client.ask(request("HEAD", "/1"), b"").await.unwrap();
        assert_eq!((head.status, head.body.len(), head.field("content-length")), (200, 0, "0"));
    });
    gateway.assert_metric("yumen_http2_faults_total", 0.0);
}

#[test]
fn a_length_of_nothing_is_the_only_framing_of_what_ends_later() {
    let upstream = Upstream::start(|request, stream| respond(stream, 200, "", request.head.as_bytes()));
    let gateway = Gateway::start(&upstream.everything());
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        for trailers in [false, true] {
            let mut call = request("POST", "/");
            call.headers_mut().insert("content-length", "0".parse().unwrap());
            let (answer, mut stream) = client.begin(call).await;
            // Pacing: the end comes later than the head.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            // The response may be there already, with a reset that ends the upload (RFC 9113 §8.1).
            let _ = match trailers {
                false => http2::send(&mut stream, b"", true).await,
                true => stream.send_trailers(http::HeaderMap::new()),
            };
            let answer = http2::read(answer.await.unwrap()).await.unwrap();
            let head = answer.text().to_lowercase();
            assert!(answer.status == 200 && head.contains("content-length: 0\r\n"), "{head}");
            assert!(!head.contains("transfer-encoding"), "{head}");
        }
        assert_eq!(client.get("/").await.status, 200);
    });
    gateway.assert_metric("yumen_http2_faults_total", 0.0);
}

#[test]
fn an_endpoint_sees_the_request_as_it_came() {
    let upstream = Http2Upstream::echo();
    let gateway = Gateway::start(&upstream.everything());
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let answer = client.get("/a/b?c=%20d").await;
        assert_eq!(answer.field("x-target"), "/a/b?c=%20d");
        assert_eq!((answer.field("x-authority"), answer.field("x-method")), ("test", "GET"));
        assert_eq!(answer.field("server"), "yumen");
    });
}

#[test]
fn an_endpoint_gets_the_path_that_the_route_was_chosen_by() {
    let upstream = Http2Upstream::echo();
    let guard = json!({ "ip-restriction": { "whitelist": ["10.0.0.1"] } });
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "open", "uri": "/pub/*", "upstream": upstream.alone() },
        { "id": "guarded", "uri": "/admin/*", "plugins": guard, "upstream": upstream.alone() },
    ] }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        for path in ["/admin/../pub/y", "/admin/%2e%2e/pub/y", "/admin/x%2F..%2F..%2Fpub/y"] {
            assert_eq!(client.get(path).await.field("x-target"), "/pub/y", "{path}");
        }
        for path in ["/pub/..;/admin/x", "/pub/..%5cadmin/x"] {
            assert_eq!(client.get(path).await.status, 403, "{path}");
        }
        let refused = client.ask(request("TRACE", "/pub/y"), b"").await.unwrap();
        assert_eq!(refused.status, 405);
        assert!(refused.field("allow").contains("GET"));
    });
}

#[test]
fn trailers_of_answers_go_between_all_versions_and_those_of_requests_nowhere() {
    let old = Upstream::start(|request, stream| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        let _ = write!(stream, "{:x}\r\n", request.body.len());
        let _ = stream.write_all(&request.body);
        stream.write_all(b"\r\n0\r\nX-Sum: 7\r\n\r\n").is_ok()
    });
    let new = Http2Upstream::echo();
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "1", "uri": "/1", "upstream": old.alone() },
        { "id": "2", "uri": "/2", "upstream": new.alone() },
    ] }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let answer = client.ask(request("POST", "/1"), b"abc").await.unwrap();
        assert_eq!((answer.text().as_str(), &answer.trailers["x-sum"]), ("abc", &"7".parse().unwrap()));
        let (answer, mut stream) = client.begin(request("POST", "/2")).await;
        http2::send(&mut stream, b"abc", false).await.unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "8".parse().unwrap());
        stream.send_trailers(trailers).unwrap();
        let answer = http2::read(answer.await.unwrap()).await.unwrap();
        assert_eq!((answer.text().as_str(), answer.trailers.len()), ("abc", 0));
    });
    let mut client = Client::connect(gateway.http);
    client.send("POST /2 HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("3\r\nabc\r\n0\r\nX-Sum: 9\r\n\r\n");
    let reply = client.head().unwrap();
    assert!(reply.to_lowercase().contains("x-te: trailers"), "{reply}");
    let mut body = Vec::new();
    while client.chunk(&mut body).unwrap() {}
    assert_eq!(body, b"abc");
}

#[test]
fn a_request_that_ends_with_trailers_is_repeated_whole() {
    let refuses = Http2Upstream::start(|request, mut respond| async move {
        // The gateway has read the whole request by then.
        let mut body = request.into_body();
        http2::read_body(&mut body).await?;
        respond.send_reset(h2::Reason::REFUSED_STREAM);
        Ok(())
    });
    let takes = Http2Upstream::echo();
    let node = |upstream: &Http2Upstream, priority: i32| json!({ "host": "127.0.0.1", "port": upstream.address.port(), "weight": 1, "priority": priority });
    let upstream = json!({ "nodes": [node(&refuses, 1), node(&takes, 0)], "http_version": "2" });
    let gateway = Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let (answer, mut stream) = client.begin(request("PUT", "/")).await;
        // No await from here on: only a body that arrives together with its head is sent again.
        stream.send_data(Bytes::from_static(b"abc"), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "8".parse().unwrap());
        stream.send_trailers(trailers).unwrap();
        let answer = http2::read(answer.await.unwrap()).await.unwrap();
        assert_eq!((refuses.requests(), answer.text().as_str()), (1, "abc"));
        assert!(answer.trailers.is_empty());
    });
}

#[test]
fn interim_answers_pass() {
    let upstream = Upstream::start(|_, stream| {
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
        let _ = stream.write_all(hints.as_bytes());
        respond(stream, 200, "", b"done")
    });
    let gateway = Gateway::start(&upstream.everything());
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let mut sender = client.sender.clone().ready().await.unwrap();
        let (mut answer, _) = sender.send_request(request("GET", "/"), true).unwrap();
        let hints = poll_fn(|cx| answer.poll_informational(cx)).await.unwrap().unwrap();
        assert_eq!((hints.status().as_u16(), &hints.headers()["link"]), (103, &"</a.css>".parse().unwrap()));
        assert_eq!(http2::read(answer.await.unwrap()).await.unwrap().text(), "done");
        assert_eq!(client.get("/").await.text(), "done");
    });
}

#[test]
fn many_requests_share_one_connection_to_the_endpoint() {
    let (arrived, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let upstream = Http2Upstream::start(move |_, mut respond| {
        let (arrived, all) = (arrived.clone(), all.clone());
        async move {
            // Responds only after all requests have arrived.
            let notified = all.notified();
            if arrived.fetch_add(1, Ordering::AcqRel) + 1 < 50 {
                notified.await;
            } else {
                all.notify_waiters();
            }
            respond.send_response(Response::new(()), true).map(drop)
        }
    });
    let gateway = Gateway::with(&upstream.everything(), &one_worker());
    http2::run(async {
        let mut clients = tokio::task::JoinSet::new();
        let mut many = Http2Client::connect(gateway.http).await;
        for _ in 0..50 {
            let mut sender = many.sender.clone().ready().await.unwrap();
            let (answer, _) = sender.send_request(request("GET", "/"), true).unwrap();
            clients.spawn(answer);
        }
        while let Some(answer) = clients.join_next().await {
            assert_eq!(answer.unwrap().unwrap().status(), 200);
        }
        many.get("/").await;
    });
    assert_eq!((upstream.connections(), upstream.requests()), (1, 51));
    gateway.assert_metric("yumen_upstream_connects_total", 1.0);
}

#[test]
fn a_connection_that_carried_what_the_pool_allows_is_closed_with_its_last_stream() {
    let upstream = Http2Upstream::echo();
    let mut settings = upstream.alone();
    settings["keepalive_pool"] = json!({ "size": 4, "idle_timeout": 60, "requests": 5 });
    let routes = json!({ "routes": [{ "id": "all", "uri": "/*", "upstream": settings }] });
    let gateway = Gateway::with(&routes, &one_worker());
    let mut client = Client::connect(gateway.http);
    for _ in 0..23 {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!((upstream.requests(), upstream.connections()), (23, 5));
    eventually("only the last one stays", 10, || upstream.open_connections() == 1);
}

#[test]
fn a_burst_waits_for_an_endpoint_that_allows_few_streams() {
    const STREAMS_MAX: usize = 3;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut builder = h2::server::Builder::new();
    // It refuses streams beyond this, even before its settings could be read.
    builder.max_concurrent_streams(STREAMS_MAX as u32);
    let (counted, seen) = (running.clone(), most.clone());
    let upstream = Http2Upstream::of(builder, move |_, mut respond| {
        let (counted, seen) = (counted.clone(), seen.clone());
        async move {
            seen.fetch_max(counted.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
            tokio::task::yield_now().await;
            counted.fetch_sub(1, Ordering::AcqRel);
            respond.send_response(Response::new(()), true).map(drop)
        }
    });
    let gateway = Gateway::with(&upstream.everything(), &one_worker());
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        for round in 0..2 {
            let mut answers = tokio::task::JoinSet::new();
            for _ in 0..40 {
                let mut sender = client.sender.clone().ready().await.unwrap();
                answers.spawn(sender.send_request(request("POST", "/"), true).unwrap().0);
            }
            while let Some(answer) = answers.join_next().await {
                assert_eq!(answer.unwrap().unwrap().status(), 200, "round {round}");
            }
        }
        client.get("/").await;
    });
    assert_eq!(upstream.requests(), 81, "none was sent twice");
    assert!(most.load(Ordering::Acquire) > 1, "they ran beside each other");
}

#[test]
fn a_request_taken_back_is_taken_back_from_the_endpoint() {
    let resets = Arc::new(Mutex::new(Vec::new()));
    let counter = resets.clone();
    let upstream = Http2Upstream::start(move |_, mut respond| {
        let counter = counter.clone();
        async move {
            let reason = poll_fn(|cx| respond.poll_reset(cx)).await?;
            counter.lock().unwrap().push(reason);
            Ok(())
        }
    });
    let gateway = Gateway::start(&upstream.everything());
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let (answer, mut stream) = client.begin(request("POST", "/")).await;
        eventually_async("it is at the upstream", 10, || upstream.requests() == 1).await;
        stream.send_reset(Reason::CANCEL);
        drop(answer);
        eventually_async("the reset is at the upstream", 10, || !resets.lock().unwrap().is_empty()).await;
    });
    assert_eq!(*resets.lock().unwrap(), [Reason::CANCEL]);
}

#[test]
fn an_answer_that_breaks_off_is_not_taken_for_whole_and_others_live_on() {
    let old = Upstream::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        false
    });
    let new = Http2Upstream::start(|request, mut respond| async move {
        let mut sender = respond.send_response(Response::new(()), false)?;
        http2::send(&mut sender, b"half", false).await?;
        if request.uri().path() == "/2" {
            // The client signals that it has received the first half.
            let mut incoming = request.into_body();
            incoming.data().await;
            sender.send_reset(Reason::INTERNAL_ERROR);
        } else {
            sender.send_data(Bytes::new(), true)?;
        }
        Ok(())
    });
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "1", "uri": "/1", "upstream": old.alone() },
        { "id": "2", "uri": "/*", "upstream": new.alone() },
    ] }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        for _ in 0..2 {
            let broken = client.ask(request("GET", "/1"), b"").await.unwrap_err();
            assert!(broken.is_reset() && broken.is_remote(), "{broken}");
            let (answer, mut stream) = client.begin(request("POST", "/2")).await;
            let mut incoming = answer.await.unwrap().into_body();
            assert_eq!(incoming.data().await.unwrap().unwrap(), "half");
            stream.send_data(Bytes::from_static(b"go on"), true).unwrap();
            let broken = http2::read_body(&mut incoming).await.unwrap_err();
            assert!(broken.is_reset() && broken.is_remote(), "{broken}");
            assert_eq!(client.get("/3").await.text(), "half");
        }
    });
    let mut client = Client::connect(gateway.http);
    client.send("POST /2 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n");
    client.head().unwrap();
    let mut body = Vec::new();
    assert!(client.chunk(&mut body).unwrap());
    client.send("go");
    assert!(client.chunk(&mut body).is_err(), "a body without its last chunk");
}

#[test]
fn a_client_that_does_not_read_holds_its_endpoint_back_and_nobody_else() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    const LARGE: usize = 32 * 1024 * 1024;
    let upstream = Http2Upstream::start(move |request, mut respond| {
        let counted = counted.clone();
        async move {
            let mut sender = respond.send_response(Response::new(()), false)?;
            if request.uri().path() == "/large" {
                for _ in 0..LARGE / 8192 {
                    http2::send(&mut sender, &[b'x'; 8192], false).await?;
                    counted.fetch_add(8192, Ordering::AcqRel);
                }
            }
            sender.send_data(Bytes::from_static(b"end"), true)
        }
    });
    let gateway = Gateway::with(&upstream.everything(), &one_worker());
    http2::run(async {
        // With a connection window that leaves room for other streams.
        let mut builder = h2::client::Builder::new();
        let mut client = Http2Client::of(builder.initial_connection_window_size(1 << 20), gateway.http).await;
        let mut sender = client.sender.clone().ready().await.unwrap();
        let (answer, _) = sender.send_request(request("GET", "/large"), true).unwrap();
        let answer = answer.await.unwrap();
        // Other streams on the same two connections are served while this one is not read.
        for _ in 0..20 {
            assert_eq!(client.get("/small").await.text(), "end");
        }
        let mut before = usize::MAX;
        while sent.load(Ordering::Acquire) != before {
            before = sent.load(Ordering::Acquire);
            client.get("/small").await;
            // The interval of the samples.
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        assert!(before < 2 * 1024 * 1024, "{before} bytes wait for a client that does not read");
        assert_eq!(http2::read(answer).await.unwrap().body.len(), LARGE + 3);
    });
}

#[test]
fn an_endpoint_that_says_goodbye_is_asked_on_a_new_connection() {
    let upstream = Http2Upstream::echo();
    let gateway = Gateway::with(&upstream.everything(), &one_worker());
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        for round in 1..=3 {
            assert_eq!(client.get("/").await.status, 200);
            assert_eq!(client.get("/goodbye").await.status, 200);
            for _ in 0..3 {
                assert_eq!(client.get("/").await.status, 200, "round {round}");
            }
        }
    });
    assert!(upstream.connections() >= 3, "{}", upstream.connections());
}

#[test]
fn a_refused_request_is_repeated_whatever_its_method() {
    let refusals = Arc::new(AtomicUsize::new(0));
    let counted = refusals.clone();
    let fickle = Http2Upstream::start(move |request, mut respond| {
        let counted = counted.clone();
        async move {
            // A retry is only allowed on a connection that was used before.
            if request.uri().path() == "/first" || counted.fetch_add(1, Ordering::AcqRel) > 0 {
                return respond.send_response(Response::new(()), true).map(drop);
            }
            respond.send_reset(Reason::REFUSED_STREAM);
            Ok(())
        }
    });
    let gateway = Gateway::with(&fickle.everything(), &one_worker());
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        assert_eq!(client.get("/first").await.status, 200);
        let answer = client.ask(request("POST", "/then"), b"").await.unwrap();
        assert_eq!(answer.status, 200);
    });
    assert_eq!(refusals.load(Ordering::Acquire), 2);
}

#[test]
fn a_draining_gateway_says_goodbye_and_finishes_what_runs() {
    let gate = crate::harness::upstream::Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::start(move |request, stream| {
        if request.target == "/slow" {
            waits.pass();
        }
        respond(stream, 200, "", b"done")
    });
    let mut gateway = Gateway::start(&upstream.everything());
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        assert_eq!(client.get("/").await.text(), "done");
        let mut sender = client.sender.clone().ready().await.unwrap();
        let (answer, _) = sender.send_request(request("GET", "/slow"), true).unwrap();
        eventually_async("it is at the upstream", 10, || upstream.requests() == 2).await;
        gateway.terminate();
        // After the GOAWAY no further stream is opened.
        while client.sender.clone().ready().await.is_ok() {
            // The interval of looks at an asynchronous state.
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        gate.open();
        assert_eq!(http2::read(answer.await.unwrap()).await.unwrap().text(), "done");
        assert!(client.connection.await.unwrap().is_ok());
    });
    assert_eq!(gateway.wait(60).code(), Some(0));
}

#[test]
fn what_was_asked_before_the_goodbye_was_read_is_served() {
    let upstream = Upstream::text("x");
    let mut gateway = Gateway::start(&upstream.everything());
    let mut client = RawClient::connect(gateway.http);
    let ask = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, GET);
    let last = |goaway: Vec<u8>| u32::from_be_bytes(goaway[..4].try_into().unwrap());
    client.send(&ask(1));
    assert!(client.wait_for(HEADERS).is_some());
    gateway.terminate();
    assert_eq!(client.wait_for(GOAWAY).map(last), Some(u32::MAX >> 1), "any stream may still be the last");
    // A client may acknowledge the PING before its next request arrives.
    if let Some(ping) = client.take_frame(PING) {
        client.send(&frame(PING, ACK, 0, &ping));
    }
    client.send(&ask(3));
    assert!(client.wait_for(HEADERS).is_some(), "it is served");
    let ping = client.wait_for(PING).expect("a question for a round trip");
    client.send(&frame(PING, ACK, 0, &ping));
    assert_eq!(client.wait_for(GOAWAY).map(last), Some(3));
    assert_eq!(client.wait_for(HEADERS), None, "it ends");
    assert_eq!(gateway.wait(60).code(), Some(0));
}

#[test]
fn websockets_run_over_a_stream() {
    let upstream = Upstream::start(|request, stream| {
        if request.target == "/fine" {
            return respond(stream, 200, "", b"hello");
        }
        if request.field("upgrade") != Some("websocket") || request.field("sec-websocket-key").is_none() {
            return respond(stream, 426, "", b"no upgrade");
        }
        let accept = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: chat\r\n\r\n";
        let _ = stream.write_all(accept.as_bytes());
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            if stream.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        false
    });
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "1", "uri": "/ws", "enable_websocket": true, "upstream": upstream.alone() },
        { "id": "2", "uri": "/plain", "upstream": upstream.alone() },
        { "id": "3", "uri": "/fine", "enable_websocket": true, "upstream": upstream.alone() },
    ] }));
    let open = |path: &str| {
        let mut open = request("CONNECT", path);
        open.headers_mut().insert("sec-websocket-version", "13".parse().unwrap());
        open.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
        open
    };
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        // The client must receive the settings of the gateway first.
        client.get("/plain").await;
        assert!(client.sender.is_extended_connect_protocol_enabled());
        let (answer, mut stream) = client.begin(open("/ws")).await;
        let (parts, mut incoming) = answer.await.unwrap().into_parts();
        assert_eq!(
            (parts.status.as_u16(), &parts.headers["sec-websocket-protocol"]),
            (200, &"chat".parse().unwrap())
        );
        assert!(!parts.headers.contains_key("sec-websocket-accept"));
        for size in [1, 125, 60_000] {
            let bytes = noise(size);
            http2::send(&mut stream, &bytes, false).await.unwrap();
            let mut back = Vec::new();
            while back.len() < size {
                let data = incoming.data().await.unwrap().unwrap();
                incoming.flow_control().release_capacity(data.len()).unwrap();
                back.extend_from_slice(&data);
            }
            assert!(back == bytes, "{size}");
        }
        stream.send_data(Bytes::new(), true).unwrap();
        let (rest, _) = http2::read_body(&mut incoming).await.unwrap();
        assert!(rest.is_empty(), "the end is passed on and comes back");
        // The upstream gets no request that the route does not allow.
        let before = upstream.requests();
        let (answer, _stream) = client.begin(open("/plain")).await;
        assert_eq!(answer.await.unwrap().status(), 405);
        let mut long = open("/ws");
        long.headers_mut().insert("content-length", "43".parse().unwrap());
        let (answer, _stream) = client.begin(long).await;
        assert_eq!(answer.await.unwrap().status(), 400);
        assert_eq!(upstream.requests(), before);
        // Any success status would open the tunnel.
        let (answer, _stream) = client.begin(open("/fine")).await;
        assert_eq!(answer.await.unwrap().status(), 502);
        let is_counted = || gateway.metric("yumen_requests_total{class=\"5xx\"}") == 1.0;
        eventually("the report is recorded", 5, is_counted);
        // CONNECT to arbitrary targets is refused.
        let connect = http::Request::builder().method("CONNECT").uri("test:80").body(()).unwrap();
        let (answer, _stream) = client.begin(connect).await;
        assert_eq!(answer.await.unwrap().status(), 405);
    });
}

#[test]
fn a_websocket_that_has_to_end_ends_its_stream_in_order() {
    let upstream = Upstream::start(|_, stream| {
        let accept = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let _ = stream.write_all(accept.as_bytes());
        while matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
        false
    });
    let route = json!({ "id": "1", "uri": "/ws", "enable_websocket": true, "on_change": "close", "upstream": upstream.alone() });
    let gateway = Gateway::start(&json!({ "routes": [route] }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        client.get("/plain").await;
        let mut open = request("CONNECT", "/ws");
        open.headers_mut().insert("sec-websocket-version", "13".parse().unwrap());
        open.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
        let (answer, _stream) = client.begin(open).await;
        let (parts, mut incoming) = answer.await.unwrap().into_parts();
        assert_eq!(parts.status, 200);
        gateway.apply(&json!({ "routes": [] }));
        let (last, _) = http2::read_body(&mut incoming).await.expect("an end in order");
        assert_eq!(last, [0x88, 2, 0x03, 0xe9], "going away");
    });
}

#[test]
fn tls_settles_the_version_and_a_node_may_do_without() {
    let upstream = Upstream::text("x");
    let version = |gateway: &Gateway, args: &[&str]| {
        let url = format!("https://{}/", gateway.https);
        let always = ["-sk", "-o", "/dev/null", "-w", "%{http_version} %{http_code}"];
        crate::harness::run("curl", &[&always, args, &[&url]].concat()).1
    };
    let gateway = Gateway::start(&upstream.everything());
    assert_eq!(version(&gateway, &["--http2"]), "2 200");
    assert_eq!(version(&gateway, &["--http1.1"]), "1.1 200");
    let without = Options { node: "http2: { enabled: false }", ..Options::default() };
    let gateway = Gateway::with(&upstream.everything(), &without);
    assert_eq!(version(&gateway, &["--http2"]), "1.1 200");
    let reply = gateway.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(reply.status, 505);
    eventually("nobody spoke it", 10, || gateway.metric("yumen_http2_connections_total") == 0.0);
}
