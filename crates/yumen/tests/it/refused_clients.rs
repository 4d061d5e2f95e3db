//! Clients that are refused on a reused connection because of their certificate can connect again.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Request;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};

use crate::harness::certs::{self, Authority, Pair};
use crate::harness::http2::{self, Http2Client};
use crate::harness::http3::{self, Http3Client};
use crate::harness::tls::client_config;
use crate::harness::upstream::Gate;
use crate::harness::{Gateway, Options, Upstream, eventually_async};

/// A gateway that serves `www.open.test` to all clients and `closed.open.test` with a client certificate,
/// both under one wildcard certificate.
struct World {
    gateway: Gateway,
    upstream: Upstream,
    gate: Gate,
    authority: Authority,
    people: Authority,
    ada: Pair,
    own: Pair,
}

impl World {
    /// With client certificates for `closed.open.test`, or without.
    fn start(requests_certificates: bool) -> World {
        let (authority, people, gate) = (Authority::new("known"), Authority::new("people"), Gate::default());
        let upstream = Upstream::gated(&gate, "slow");
        let own = authority.sign("own", &["*.open.test"], certs::ecdsa());
        let ada = people.issue_client("ada", 1, 2100);
        let document = document(&own, &upstream, requests_certificates.then_some(&people));
        let any = "address: '127.0.0.1:0'";
        let node = format!("listen: [{{{any}}}, {{{any}, tls: true, http3: true}}]\n");
        let options = Options { node: &node, own_listeners: true, workers: 1, ..Options::default() };
        World { gateway: Gateway::with(&document, &options), upstream, gate, authority, people, ada, own }
    }

    /// Requires client certificates from now on.
    fn close(&self) {
        self.gateway.apply(&document(&self.own, &self.upstream, Some(&self.people)));
    }

    fn http1(&self, name: &str) -> Http1 {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let config = Arc::new(client_config(&self.authority.cert, Some(&self.ada)));
        let tcp = TcpStream::connect(self.gateway.https).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Http1(BufReader::new(StreamOwned::new(ClientConnection::new(config, name).unwrap(), tcp)))
    }

    async fn http2(&self, name: &str) -> Http2Client {
        let config = client_config(&self.authority.cert, Some(&self.ada));
        Http2Client::over_tls(self.gateway.https, name, config).await
    }

    async fn http3(&self, name: &str) -> Http3Client {
        let (authority, client) = (&self.authority.cert, Some(&self.ada));
        Http3Client::connect(self.gateway.https, name, authority, client).await.expect("a handshake")
    }
}

fn document(own: &Pair, upstream: &Upstream, people: Option<&Authority>) -> Value {
    let ssl = |id: &str, name: &str| json!({ "id": id, "cert": own.cert, "key": own.key, "snis": [name] });
    let mut closed = ssl("closed", "closed.open.test");
    if let Some(people) = people {
        closed["client"] = json!({ "ca": people.cert });
    }
    let mocking = json!({ "mocking": { "response_example": "x" } });
    json!({
        "routes": [
            { "id": "1", "uri": "/*", "plugins": mocking },
            { "id": "2", "uri": "/slow", "upstream": upstream.alone() },
        ],
        "ssls": [ssl("open", "*.open.test"), closed],
    })
}

fn get(host: &str, path: &str) -> Request<()> {
    Request::get(format!("https://{host}{path}")).body(()).unwrap()
}

/// An HTTP/1.1 connection of a client.
struct Http1(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Http1 {
    /// The status of a response, and whether the connection ends with it.
    fn get(&mut self, host: &str) -> (u16, bool) {
        write!(self.0.get_mut(), "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(self.0.read_line(&mut head).unwrap(), 0, "{head}");
        }
        let head = head.to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        self.0.read_exact(&mut vec![0; length.unwrap().parse().unwrap()]).unwrap();
        (head[9..12].parse().unwrap(), head.contains("\r\nconnection: close\r\n"))
    }

    fn has_ended(&mut self) -> bool {
        self.0.read(&mut [0]).is_ok_and(|count| count == 0)
    }
}

const CLOSED: &str = "closed.open.test";
const OPEN: &str = "www.open.test";

#[test]
fn a_connection_from_before_certificates_were_asked_for_ends_with_its_refusal() {
    let world = World::start(false);
    let mut connection = world.http1(CLOSED);
    assert_eq!(connection.get(CLOSED), (200, false));
    world.close();
    assert_eq!(connection.get(CLOSED), (400, true));
    assert!(connection.has_ended());
    assert_eq!(world.http1(CLOSED).get(CLOSED), (200, false));
}

#[test]
fn a_connection_of_http2_is_left_after_a_refusal_and_its_other_streams_finish() {
    let world = World::start(false);
    http2::run(async {
        let mut connection = world.http2(CLOSED).await;
        assert_eq!(connection.ask(get(CLOSED, "/"), b"").await.unwrap().status, 200);
        let mut sender = connection.sender.clone().ready().await.unwrap();
        let (slow, _) = sender.send_request(get(CLOSED, "/slow"), true).unwrap();
        eventually_async("it is at the upstream", 10, || world.upstream.requests() == 1).await;
        world.close();
        let started = Instant::now();
        assert_eq!(connection.ask(get(CLOSED, "/"), b"").await.unwrap().status, 400);
        while connection.sender.clone().ready().await.is_ok() {
            assert!(started.elapsed() < Duration::from_secs(20), "no goodbye");
            // The interval of looks at an asynchronous state.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        world.gate.open();
        assert_eq!(http2::read(slow.await.unwrap()).await.unwrap().text(), "slow");
        assert!(connection.connection.await.unwrap().is_ok());
        assert!(started.elapsed() < Duration::from_secs(20), "it idles");
        let mut other = world.http2(CLOSED).await;
        assert_eq!(other.ask(get(CLOSED, "/"), b"").await.unwrap().status, 200);
    });
}

#[test]
fn a_connection_of_http3_is_left_after_a_refusal_and_its_other_streams_finish() {
    let world = World::start(false);
    http2::run(async {
        let connection = world.http3(CLOSED).await;
        assert_eq!(connection.ask(get(CLOSED, "/"), b"").await.status, 200);
        let slow = connection.begin(get(CLOSED, "/slow")).await;
        let slow = tokio::spawn(http3::exchange(slow, b"", None));
        eventually_async("it is at the upstream", 10, || world.upstream.requests() == 1).await;
        world.close();
        let started = Instant::now();
        assert_eq!(connection.ask(get(CLOSED, "/"), b"").await.status, 400);
        while connection.sender.clone().send_request(get(CLOSED, "/")).await.is_ok() {
            assert!(started.elapsed() < Duration::from_secs(20), "no goodbye");
            // Pacing: each look is a request.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        world.gate.open();
        assert_eq!(slow.await.unwrap().unwrap().text(), "slow");
        assert!(connection.driver.await.unwrap().is_h3_no_error());
        assert!(started.elapsed() < Duration::from_secs(20), "it idles");
        assert_eq!(world.http3(CLOSED).await.ask(get(CLOSED, "/"), b"").await.status, 200);
    });
}

#[test]
fn who_asks_under_another_name_than_connected_for_is_told_to_connect_anew() {
    let world = World::start(true);
    // HTTP/1.1 clients do not reuse a connection for another name by accident.
    let mut old = world.http1(OPEN);
    assert_eq!((old.get(OPEN), old.get(CLOSED)), ((200, false), (400, true)));
    assert!(old.has_ended());
    http2::run(async {
        let mut client = world.http2(OPEN).await;
        let newest = world.http3(OPEN).await;
        for (host, status) in [(OPEN, 200), (CLOSED, 421), (OPEN, 200), (CLOSED, 421), (OPEN, 200)] {
            let answer = client.ask(get(host, "/"), b"").await.unwrap();
            assert_eq!((answer.status, newest.ask(get(host, "/"), b"").await.status), (status, status));
        }
        // A negative check: both connections remain usable for their own name.
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(client.sender.clone().ready().await.is_ok());
        assert_eq!(newest.ask(get(OPEN, "/"), b"").await.status, 200);
        let mut other = world.http2(CLOSED).await;
        assert_eq!(other.ask(get(CLOSED, "/"), b"").await.unwrap().status, 200);
    });
}
