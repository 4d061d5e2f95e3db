//! An incomplete message looks incomplete to its receiver, and affects no other message.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Response;
use serde_json::json;

use crate::harness::http2::{self, Http2Client, Http2Upstream, request};
use crate::harness::{Client, Gateway, Options, Upstream, eventually};

const OPENED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n";
const ASKED: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n";

fn reset(stream: &TcpStream) {
    // A close without linger sends a reset.
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Reads the head that opens a tunnel.
fn read_head(stream: &mut TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
}

/// The end of a tunnel as one side sees it, after the head of the upgrade.
fn end_of(stream: &mut TcpStream) -> Result<Vec<u8>, ErrorKind> {
    let mut seen = Vec::new();
    stream.read_to_end(&mut seen).map(|_| seen).map_err(|error| error.kind())
}

#[test]
fn a_tunnel_that_breaks_does_not_look_finished() {
    let route = |upstream: &Upstream, read_s: f64| {
        let mut to = upstream.alone();
        to["timeout"] = json!({ "connect": 5, "send": 5, "read": read_s });
        json!({ "routes": [{ "id": "1", "uri": "/*", "enable_websocket": true, "upstream": to }] })
    };
    let open = |gateway: &Gateway| {
        let mut client = TcpStream::connect(gateway.http).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        client.write_all(ASKED.as_bytes()).unwrap();
        client
    };
    let (broken, gateway) = (TcpListener::bind("127.0.0.1:0").unwrap(), Gateway::start(&json!({})));
    let to = json!({ "nodes": { broken.local_addr().unwrap().to_string(): 1 } });
    let all = json!({ "id": "1", "uri": "/*", "enable_websocket": true, "upstream": to });
    gateway.apply(&json!({ "routes": [all] }));
    let (tell, is_open) = channel();
    std::thread::spawn(move || {
        let (mut stream, _) = broken.accept().unwrap();
        stream.write_all(OPENED).unwrap();
        is_open.recv().unwrap();
        reset(&stream);
    });
    let mut client = open(&gateway);
    read_head(&mut client);
    tell.send(()).unwrap();
    assert_eq!(end_of(&mut client), Err(ErrorKind::ConnectionReset), "the endpoint broke off");
    let silent = Upstream::start(|_, stream| {
        stream.write_all(OPENED).unwrap();
        // Scripted: silent for much longer than the read timeout.
        std::thread::sleep(Duration::from_secs(5));
        false
    });
    let gateway = Gateway::start(&route(&silent, 0.3));
    assert_eq!(end_of(&mut open(&gateway)), Err(ErrorKind::ConnectionReset), "nothing moved for long");
    let ends = Upstream::start(|_, stream| {
        stream.write_all(OPENED).unwrap();
        stream.write_all(b"bye").unwrap();
        false
    });
    let gateway = Gateway::start(&route(&ends, 60.0));
    let mut client = open(&gateway);
    client.shutdown(Shutdown::Write).unwrap();
    assert!(end_of(&mut client).unwrap().ends_with(b"\r\n\r\nbye"));
}

#[test]
fn an_answer_that_breaks_off_takes_none_before_it_along() {
    const BIG: usize = 3_000_000;
    let upstream = Upstream::start(|request, stream| {
        let (sent, length) = if request.target == "/big" { (BIG, BIG) } else { (50, 100) };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), &vec![b'x'; sent]].concat()).is_ok() && sent == length
    });
    let gateway = Gateway::start(&upstream.everything());
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    // With a small receive buffer, most of the response stays in the gateway.
    socket.set_recv_buffer_size(8192).unwrap();
    socket.connect(&gateway.http.into()).unwrap();
    let mut client = Client::of(socket.into());
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(get("/big") + &get("/broken"));
    eventually("the first request is at the upstream", 5, || upstream.requests() >= 1);
    client.send(get("/big"));
    // A slow client: much is still buffered when the connection breaks.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.reply().body.len(), BIG);
    assert!(client.try_reply(false).is_err());
}

#[test]
fn an_endpoint_of_http2_that_has_fallen_silent_is_asked_on_another_connection() {
    let upstream = Http2Upstream::start(|request, mut respond| async move {
        if request.uri().path() == "/never" {
            std::future::pending::<()>().await;
        }
        respond.send_response(Response::new(()), true).map(drop)
    });
    let mut to = upstream.alone();
    to["timeout"] = json!({ "connect": 5, "send": 5, "read": 0.4 });
    let resources = json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": to }] });
    let gateway = Gateway::with(&resources, &Options { workers: 1, ..Options::default() });
    assert_eq!([gateway.get("/").status, gateway.get("/").status], [200, 200]);
    assert_eq!(upstream.connections(), 1);
    assert_eq!(gateway.get("/never").status, 504);
    assert_eq!((gateway.get("/").status, upstream.connections()), (200, 2), "nothing was heard meanwhile");
    let asked = upstream.requests();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| gateway.get("/never").status);
        eventually("it waits at the endpoint", 5, || upstream.requests() > asked);
        assert_eq!(gateway.get("/").status, 200);
        assert_eq!(waiting.join().unwrap(), 504);
    });
    assert_eq!((gateway.get("/").status, upstream.connections()), (200, 2), "it answers others");
    std::thread::scope(|scope| {
        let never = || scope.spawn(|| gateway.get("/never").status);
        let first = never();
        // Pacing: the first reaches its read timeout while the second still waits.
        std::thread::sleep(Duration::from_millis(250));
        let second = never();
        assert_eq!(first.join().unwrap(), 504);
        assert_eq!((gateway.get("/").status, upstream.connections()), (200, 3), "another still waits there");
        assert_eq!(second.join().unwrap(), 504);
    });
}

#[test]
fn what_an_endpoint_that_says_goodbye_still_reads_goes_on() {
    const LENGTH: usize = 48 << 20;
    let mut builder = h2::server::Builder::new();
    // Windows larger than the body, so that a stalled endpoint does not stop the upload.
    builder.initial_window_size(64 << 20).initial_connection_window_size(64 << 20);
    let upstream = Http2Upstream::of(builder, |request, mut respond| async move {
        let path = request.uri().path().to_owned();
        if path == "/stall" {
            // Scripted: stalls all connections of the endpoint.
            std::thread::sleep(Duration::from_millis(800));
        }
        let (data, _) = http2::read_body(&mut request.into_body()).await?;
        let answer = Response::builder().header("x-length", data.len()).body(()).unwrap();
        respond.send_response(answer, true).map(drop)
    });
    let options = Options { workers: 1, ..Options::default() };
    let gateway = Gateway::with(&upstream.everything(), &options);
    let mut client = Client::connect(gateway.http);
    client.send(
        format!("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n") + &"b".repeat(1 << 20),
    );
    eventually("the upload has begun", 5, || upstream.requests() == 1);
    assert_eq!(gateway.get("/goodbye").status, 200);
    // Pacing: the last GOAWAY follows a round trip (RFC 9113 §6.8), and nothing outside shows it.
    std::thread::sleep(Duration::from_millis(100));
    std::thread::scope(|scope| {
        let stalled = scope.spawn(|| gateway.get("/stall").status);
        eventually("the endpoint stalls", 5, || upstream.requests() == 3);
        client.send("b".repeat(LENGTH - (1 << 20)));
        assert_eq!(client.reply().field("x-length"), Some(LENGTH.to_string().as_str()));
        assert_eq!(stalled.join().unwrap(), 200);
    });
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn a_request_passes_by_every_connection_that_was_said_goodbye_to() {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(2);
    let upstream = Http2Upstream::of(builder, |request, mut respond| async move {
        let lasts_ms = request.uri().path()[1..].parse().unwrap_or(0);
        // Scripted: the path is the time that the response takes.
        tokio::time::sleep(Duration::from_millis(lasts_ms)).await;
        respond.send_response(Response::new(()), true).map(drop)
    });
    let options = Options { workers: 1, ..Options::default() };
    let gateway = Gateway::with(&upstream.everything(), &options);
    assert_eq!(gateway.get("/0").status, 200);
    std::thread::scope(|scope| {
        let ask = |path: &'static str| {
            let before = upstream.requests();
            let running_call = scope.spawn(|| gateway.get(path).status);
            eventually("it is at the endpoint", 5, || upstream.requests() > before);
            running_call
        };
        // Two on the first connection, one on the second, which is the first with a free stream.
        let short = ask("/1000");
        let running = [ask("/4000"), ask("/4000")];
        assert_eq!(ask("/goodbye").join().unwrap(), 200);
        // The first connection has a free stream again.
        assert_eq!(short.join().unwrap(), 200);
        assert_eq!(ask("/goodbye").join().unwrap(), 200);
        // Pacing, as above: the last GOAWAY of this connection.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(upstream.connections(), 2);
        let mut client = Client::connect(gateway.http);
        client.send("POST /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!((client.reply().status, upstream.connections()), (200, 3));
        assert!(running.into_iter().all(|running_call| running_call.join().unwrap() == 200));
    });
}

#[test]
fn a_message_of_http2_whose_trailers_are_too_large_breaks_off() {
    let details = |size: usize| {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-details", "v".repeat(size).parse().unwrap());
        trailers.insert("grpc-status", "5".parse().unwrap());
        trailers
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let upstream = Http2Upstream::start(move |request, mut respond| {
        let log = log.clone();
        async move {
            let size = request.uri().path().trim_start_matches('/').parse().unwrap_or(0);
            let received = http2::read_body(&mut request.into_body()).await;
            log.lock().unwrap().push(received.map(|(_, trailers)| trailers.len()).map_err(drop));
            let mut sender = respond.send_response(Response::new(()), false)?;
            http2::send(&mut sender, b"abc", false).await?;
            sender.send_trailers(details(size))
        }
    });
    let gateway = Gateway::start(&upstream.everything());
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let answer = client.get("/40000").await;
        assert_eq!((answer.text().as_str(), answer.trailers.len()), ("abc", 2));
        for size in [65_600, 70_000, 110_000] {
            let broken = client.ask(request("GET", &format!("/{size}")), b"").await;
            assert!(
                broken.as_ref().is_err_and(h2::Error::is_reset),
                "{size}: {:?}",
                broken.map(|answer| answer.status)
            );
            let (answer, mut stream) = client.begin(request("POST", "/0")).await;
            http2::send(&mut stream, b"abc", false).await.unwrap();
            stream.send_trailers(details(size)).unwrap();
            let answer = answer.await;
            assert!(answer.as_ref().map_or(true, |answer| answer.status() == 400), "{size}: {answer:?}");
        }
        assert_eq!(client.get("/40000").await.status, 200);
    });
    let mut client = Client::connect(gateway.http);
    client.send("GET /70000 HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n");
    let head = client.head().unwrap();
    assert!(head.to_lowercase().contains("transfer-encoding: chunked"), "{head}");
    let mut body = Vec::new();
    while let Ok(true) = client.chunk(&mut body) {}
    assert!(client.is_closed_within(Duration::from_secs(5)), "it is cut off");
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|received| matches!(received, Ok(0) | Err(()))), "{seen:?}");
    assert_eq!(seen.iter().filter(|received| received.is_err()).count(), 3, "{seen:?}");
}
