//! Requests on listeners of the configuration: their scope by host, over HTTP/1 and HTTP/2.

use std::rc::Rc;

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use yumen_config::Kind;
use yumen_plugin::{ClientInfo, ListenerNumber};
use yumen_snapshot::compile::ConfigChange;

use crate::downstream;
use crate::tls::scoped_tls::{
    ScopedTls, TestAuthority, certificate, client, connection, listener, put, run, scope,
};
use crate::transport::tcp::TcpConnection;
use crate::worker::Worker;
use crate::worker::tests::worker;

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// A route of a scope, which responds with its id.
fn route(id: &str, scopes: &[&str]) -> ConfigChange {
    let plugins = json!({ "mocking": { "response_example": id, "content_type": "text/plain" } });
    let mut value = json!({ "uri": "/*", "plugins": plugins });
    if !scopes.is_empty() {
        value["scopes"] = json!(scopes);
    }
    put(Kind::Routes, id, value)
}

/// A gateway with scopes of these hosts on the listeners `web` and `plain`, each with a route of its name.
fn gateway(scopes: &[(&str, &str)]) -> ScopedTls {
    let mut changes = vec![listener("web", "https"), listener("plain", "http"), route("static", &[])];
    for (id, host) in scopes {
        let (secure, open) = (format!("{id}-tls"), format!("{id}-plain"));
        changes.push(scope(&secure, "web", host, json!({})));
        changes.push(scope(&open, "plain", host, json!({})));
        changes.push(certificate(id, &secure));
        changes.push(route(id, &[&secure, &open]));
    }
    ScopedTls::new(changes)
}

fn serve(worker: &Rc<Worker>, tcp: TcpConnection, made: &ScopedTls, listener: ListenerNumber, is_tls: bool) {
    let local = "127.0.0.1:8443".parse().unwrap();
    let client = ClientInfo {
        peer: "127.0.0.1:5000".parse().unwrap(),
        local,
        tls: None,
        connection_id: 1,
        listener,
        mapped_port: 0,
    };
    let tls = is_tls.then(|| Rc::new(made.acceptor.for_listener(listener)));
    let admitted = worker.admit().expect("room");
    tokio::task::spawn_local(downstream::run(worker.clone(), tcp, client, tls, admitted));
}

/// The client's end of a connection to a listener, with a server name for TLS.
async fn connect(
    worker: &Rc<Worker>,
    made: &ScopedTls,
    sni: Option<&str>,
    alpn: Option<&[u8]>,
) -> Box<dyn Stream> {
    let (near, far, _) = connection();
    let listener = made.number(if sni.is_some() { "web" } else { "plain" });
    serve(worker, far, made, listener, sni.is_some());
    match sni {
        None => Box::new(near),
        Some(sni) => {
            Box::new(client(None, alpn).connect(sni.to_owned().try_into().unwrap(), near).await.unwrap())
        }
    }
}

/// Sends a request; returns status and body, and whether the connection ends.
async fn ask(stream: &mut dyn Stream, host: &str) -> (u16, String, bool) {
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await.unwrap();
    let mut received = Vec::new();
    let head_end = loop {
        if let Some(at) = received.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        received.push(stream.read_u8().await.unwrap());
    };
    let head = String::from_utf8(received[..head_end].to_vec()).unwrap().to_ascii_lowercase();
    let status = head[9..12].parse().unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect(&head);
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    let ends = head.contains("connection: close");
    (status, String::from_utf8(body).unwrap(), ends)
}

#[test]
fn a_host_selects_the_scope_and_its_routes_only() {
    let made = gateway(&[("any", ""), ("a", "a.test"), ("wild", "*.wild.test")]);
    run(async {
        let worker = worker(made.publisher.clone());
        let mut stream = connect(&worker, &made, None, None).await;
        for (host, expected) in
            [("a.test", "a"), ("x.wild.test", "wild"), ("wild.test", "any"), ("A.TEST:80", "a")]
        {
            let (status, body, ends) = ask(&mut *stream, host).await;
            assert_eq!((status, body.trim(), ends), (200, expected, false), "{host}");
        }
    });
    let made = gateway(&[("a", "a.test")]);
    run(async {
        let worker = worker(made.publisher.clone());
        let mut stream = connect(&worker, &made, None, None).await;
        let (status, body, ends) = ask(&mut *stream, "b.test").await;
        assert_eq!((status, ends), (404, false), "no scope has the host: {body}");
        assert_eq!(ask(&mut *stream, "a.test").await.0, 200);
    });
}

#[test]
fn a_misdirected_request_is_answered_421_and_the_connection_goes_on() {
    let made = gateway(&[("any", ""), ("a", "a.test"), ("b", "b.test")]);
    // Server name, host, status.
    let table = [
        ("a.test", "a.test", 200),
        ("a.test", "b.test", 421),
        ("a.test", "unknown.test", 421),
        ("b.test", "a.test", 421),
        ("unknown.test", "unknown.test", 200),
        ("unknown.test", "other.test", 200),
        ("unknown.test", "a.test", 421),
    ];
    run(async {
        let worker = worker(made.publisher.clone());
        for (sni, host, expected) in table {
            let mut stream = connect(&worker, &made, Some(sni), None).await;
            let (status, _, ends) = ask(&mut *stream, host).await;
            assert_eq!((status, ends), (expected, false), "HTTP/1.1, {sni}, {host}");
            assert_eq!(ask(&mut *stream, sni).await.0, 200, "the same connection serves its own host");
            let stream = connect(&worker, &made, Some(sni), Some(b"h2")).await;
            let (mut requests, driver) = h2::client::handshake(stream).await.unwrap();
            tokio::task::spawn_local(driver);
            for (host, expected) in [(host, expected), (sni, 200)] {
                let request = http::Request::get(format!("https://{host}/")).body(()).unwrap();
                let response = requests.send_request(request, true).unwrap().0.await.unwrap();
                assert_eq!(response.status(), expected, "HTTP/2, {sni}, {host}");
            }
        }
    });
}

#[test]
fn a_request_on_a_closed_listener_is_answered_404_and_the_connection_ends() {
    let mut made = gateway(&[("any", "")]);
    run(async {
        let worker = worker(made.publisher.clone());
        let mut plain = connect(&worker, &made, None, None).await;
        let mut secure = connect(&worker, &made, Some("a.test"), None).await;
        let stream = connect(&worker, &made, Some("a.test"), Some(b"h2")).await;
        let (mut requests, driver) = h2::client::handshake(stream).await.unwrap();
        let driver = tokio::task::spawn_local(driver);
        assert_eq!(ask(&mut *plain, "a.test").await.0, 200);
        assert_eq!(ask(&mut *secure, "a.test").await.0, 200);
        let gone = |id: &str| ConfigChange::Delete(Kind::Listeners, id.into());
        made.apply(vec![gone("web"), gone("plain")]);
        // Other listeners take the slots.
        made.apply(vec![listener("next", "http"), listener("other", "https")]);
        for stream in [&mut plain, &mut secure] {
            let (status, _, ends) = ask(&mut **stream, "a.test").await;
            assert_eq!((status, ends), (404, true));
            assert_eq!(stream.read_u8().await.map_err(|_| "closed"), Err("closed"));
        }
        let request = http::Request::get("https://a.test/").body(()).unwrap();
        let response = requests.send_request(request, true).unwrap().0.await.unwrap();
        assert_eq!(response.status(), 404);
        driver.await.unwrap().expect("the connection ends by GOAWAY");
    });
}

#[test]
fn a_broken_scope_answers_503() {
    let mut made = gateway(&[("any", "")]);
    let broken = json!({ "listeners": ["plain"], "hosts": ["a.test"], "tls": { "mode": "open" } });
    made.apply(vec![put(Kind::Scopes, "broken", broken)]);
    run(async {
        let worker = worker(made.publisher.clone());
        let mut stream = connect(&worker, &made, None, None).await;
        let found = [ask(&mut *stream, "a.test").await.0, ask(&mut *stream, "b.test").await.0];
        assert_eq!(found, [503, 200]);
    });
}

#[test]
fn a_scope_refuses_requests_by_its_mode_and_its_newest_rules() {
    let (known, other) = (TestAuthority::new("known"), TestAuthority::new("other"));
    let tls =
        |authority: &TestAuthority, mode: &str| json!({ "client": { "ca": authority.pem, "mode": mode } });
    // The mode; the status without a certificate, with a valid one, with an invalid one; 0 is a failed handshake.
    let modes = [
        ("optional", [200, 200, 400]),
        ("optional_no_ca", [200, 200, 200]),
        ("allow_insecure_fallback", [200, 200, 200]),
    ];
    run(async {
        for (mode, expected) in modes {
            let mut made = gateway(&[("any", "")]);
            made.apply(vec![scope("any-tls", "web", "", tls(&known, mode))]);
            let worker = worker(made.publisher.clone());
            let identities = [None, Some(known.issue()), Some(other.issue())];
            for (at, identity) in identities.into_iter().enumerate() {
                let (near, far, _) = connection();
                serve(&worker, far, &made, made.number("web"), true);
                let name = "a.test".to_owned().try_into().unwrap();
                let mut stream = client(identity, None).connect(name, near).await.unwrap();
                assert_eq!(ask(&mut stream, "a.test").await.0, expected[at], "{mode}, client {at}");
            }
        }
        // The authorities of the scope change while a connection is open.
        let mut made = gateway(&[("any", "")]);
        made.apply(vec![scope("any-tls", "web", "", tls(&known, "require"))]);
        let worker = worker(made.publisher.clone());
        let (near, far, _) = connection();
        serve(&worker, far, &made, made.number("web"), true);
        let name = "a.test".to_owned().try_into().unwrap();
        let mut stream = client(Some(known.issue()), None).connect(name, near).await.unwrap();
        assert_eq!(ask(&mut stream, "a.test").await.0, 200);
        made.apply(vec![scope("any-tls", "web", "", tls(&other, "require"))]);
        let (status, body, ends) = ask(&mut stream, "a.test").await;
        assert_eq!((status, ends), (400, true), "{body}");
    });
}
