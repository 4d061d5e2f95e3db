//! Upgrades under load: every request gets a response, and long exchanges are not cut.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use serde_json::json;

use super::{start, start_with};
use crate::harness::http2::{self, Answer, Http2Client};
use crate::harness::http3::{self, Http3Client};
use crate::harness::tls::{over_tls, trusting};
use crate::harness::upstream::respond;
use crate::harness::{Client, Options, Upstream, certs, eventually};

/// Echoes the bytes of tunnels, and responds to all other requests.
fn upstream() -> Upstream {
    Upstream::start(|request, stream| {
        if request.field("upgrade") != Some("websocket") {
            return respond(stream, 200, "", b"done");
        }
        let _ = stream.write_all(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            if stream.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        false
    })
}

/// The observations of the clients.
#[derive(Default)]
struct Seen {
    answers: AtomicUsize,
    failures: AtomicUsize,
    is_over: AtomicBool,
    /// The distinct errors.
    errors: Mutex<BTreeSet<String>>,
}

impl Seen {
    fn note(&self, answered: bool) {
        if answered { &self.answers } else { &self.failures }.fetch_add(1, Relaxed);
    }

    fn report(&self, failure: String) {
        self.errors.lock().unwrap().insert(failure);
    }

    fn is_running(&self) -> bool {
        !self.is_over.load(Relaxed)
    }

    /// Waits for `more` further responses, from any process.
    fn wait_for(&self, more: usize) {
        let target = self.answers.load(Relaxed) + more;
        eventually("clients are answered", 60, || self.answers.load(Relaxed) >= target);
    }
}

/// Sends requests, on one connection until a response announces its end.
fn request_repeatedly<S: Read + Write>(connect: impl Fn() -> S, seen: &Seen) {
    while seen.is_running() {
        let mut stream = BufReader::new(connect());
        while seen.is_running() {
            let written = stream.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n");
            let answer = written.and_then(|()| answer(&mut stream));
            if let Err(error) = &answer {
                seen.report(format!("{error:?}"));
            }
            seen.note(answer.is_ok());
            if !matches!(answer, Ok(false)) {
                break;
            }
        }
    }
}

/// Reads a response; returns whether it is the last of its connection.
fn answer(stream: &mut impl BufRead) -> std::io::Result<bool> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let mut body = [0; 4];
    stream.read_exact(&mut body)?;
    let is_right = head.starts_with("HTTP/1.1 200") && &body == b"done";
    is_right
        .then(|| head.to_ascii_lowercase().contains("connection: close"))
        .ok_or(std::io::ErrorKind::Other.into())
}

fn plain(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the gateway accepts");
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Like [`request_repeatedly`], with concurrent requests on a connection.
fn request_concurrently<C>(
    seen: &Seen,
    connect: impl AsyncFn() -> C,
    ask: impl AsyncFn(&C) -> Option<Result<Answer, String>>,
) {
    http2::run(async {
        while seen.is_running() {
            let client = connect().await;
            let mut is_over = false;
            while seen.is_running() && !is_over {
                for written in futures((0..8).map(|_| ask(&client))).await {
                    let Some(answer) = written else {
                        is_over = true;
                        continue;
                    };
                    if let Err(error) = &answer {
                        seen.report(error.clone());
                    }
                    seen.note(answer.is_ok_and(|answer| answer.status == 200 && answer.body == b"done"));
                }
            }
        }
    });
}

/// The response; `None` if the connection accepts no more requests.
async fn ask_http2(client: &Http2Client) -> Option<Result<Answer, String>> {
    let mut sender = client.sender.clone().ready().await.ok()?;
    let (answer, _) = sender.send_request(http2::request("GET", "/"), true).ok()?;
    let read = async { http2::read(answer.await?).await };
    Some(read.await.map_err(|error| format!("HTTP/2: {error:?}")))
}

/// Like [`ask_http2`].
async fn ask_http3(client: &Http3Client) -> Option<Result<Answer, String>> {
    let stream = client.sender.clone().send_request(http3::request("GET", "/")).await.ok()?;
    Some(http3::exchange(stream, b"", None).await.map_err(|error| format!("HTTP/3: {error:?}")))
}

/// Runs all futures concurrently in one task.
async fn futures<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|cx| {
        for (one, done) in all.iter_mut().filter(|(_, done)| done.is_none()) {
            if let std::task::Poll::Ready(value) = one.as_mut().poll(cx) {
                *done = Some(value);
            }
        }
        match all.iter().all(|(_, done)| done.is_some()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    all.into_iter().filter_map(|(_, done)| done).collect()
}

const OPEN: &str = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn open_tunnels(address: SocketAddr, count: usize) -> Vec<Client> {
    let open = |_| {
        let mut client = Client::connect(address);
        assert_eq!(client.send(OPEN).reply().status, 101);
        client
    };
    (0..count).map(open).collect()
}

fn talk(tunnels: &mut [Client], text: &str) {
    for tunnel in &mut *tunnels {
        tunnel.send(text);
    }
    for tunnel in tunnels {
        assert_eq!(tunnel.bytes(text.len()), text.as_bytes());
    }
}

#[test]
fn no_request_fails_and_no_websocket_is_cut() {
    let upstream = upstream();
    let authority = certs::Authority::new("test authority");
    let pair = authority.sign("a.test", &["a.test"], certs::ecdsa());
    let route = json!({"id": "1", "uri": "/*", "enable_websocket": true, "upstream": upstream.alone()});
    let ssl = json!({"id": "1", "snis": ["a.test"], "cert": pair.cert, "key": pair.key});
    let any = "address: '127.0.0.1:0'";
    let node = format!("listen: [{{{any}}}, {{{any}, tls: true, http3: true}}]\n");
    let options = Options { node: &node, own_listeners: true, ..Options::default() };
    let mut line = start_with(&json!({"routes": [route], "ssls": [ssl]}), &options);
    let (http, https) = (line.gateway.http, line.gateway.https);
    let tls = trusting(&authority.cert);
    let connect_http2 = || Http2Client::connect(http);
    let connect_http3 = async || Http3Client::connect(https, "a.test", &authority.cert, None).await.unwrap();
    let mut early = open_tunnels(http, 30);
    let seen = Seen::default();
    let first = line.serving();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| request_repeatedly(|| plain(http), &seen));
        }
        for _ in 0..2 {
            scope.spawn(|| request_repeatedly(|| over_tls(plain(https), &tls), &seen));
            scope.spawn(|| request_concurrently(&seen, connect_http2, ask_http2));
            scope.spawn(|| request_concurrently(&seen, connect_http3, ask_http3));
        }
        let upgrades = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            seen.wait_for(100);
            line.upgrade();
            seen.wait_for(200);
            talk(&mut early, "after one");
            assert!(super::runs(first), "WebSockets live on in the process they began in");
            drop(early);
            let mut late = open_tunnels(http, 30);
            line.upgrade();
            seen.wait_for(200);
            talk(&mut late, "after two");
            drop(late);
        }));
        seen.is_over.store(true, Relaxed);
        upgrades.unwrap();
    });
    let (answers, errors) = (seen.answers.load(Relaxed), seen.errors.lock().unwrap());
    assert_eq!(seen.failures.load(Relaxed), 0, "of {answers}: {errors:?}");
    line.wait_for_end_of(first);
}

#[test]
fn tunnels_are_closed_at_the_drain_deadline() {
    let upstream = upstream();
    let route = json!({"id": "1", "uri": "/*", "enable_websocket": true, "upstream": upstream.alone()});
    let mut line = start(&json!({"routes": [route]}), "upgrade: {drain_s: 1}");
    let first = line.serving();
    let mut tunnels = open_tunnels(line.gateway.http, 2);
    talk(&mut tunnels, "hello");
    line.upgrade();
    line.wait_for_end_of(first);
    assert!(tunnels.iter_mut().all(|tunnel| tunnel.is_closed_within(Duration::from_secs(30))));
    assert_eq!(line.gateway.get("/").status, 200);
}

#[test]
fn a_connection_that_idles_is_answered_however_late_it_asks() {
    let upstream = upstream();
    let mut line = start(&upstream.everything(), "");
    let first = line.serving();
    let mut idle: Vec<Client> = (0..10).map(|_| Client::connect(line.gateway.http)).collect();
    for client in &mut idle {
        assert_eq!(client.get("/").status, 200);
    }
    line.upgrade();
    // The scenario: idle for longer than an ending gateway waits for requests in flight.
    std::thread::sleep(Duration::from_millis(600));
    for client in &mut idle {
        let reply = client.get("/");
        assert_eq!((reply.status, reply.field("connection")), (200, Some("close")));
    }
    line.wait_for_end_of(first);
}
