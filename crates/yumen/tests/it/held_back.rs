//! Ends of bodies that a TLS session buffers while its socket is full: they are sent, however late the peer
//! reads.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::tls::{TlsPeer, TlsUpstream, answer, over_tls, trusting};
use crate::harness::upstream::respond;
use crate::harness::{Client, Gateway, Options, Upstream, certs, noise};

const SIZE_MAX: usize = 5_000_000;
static ALL: LazyLock<Vec<u8>> = LazyLock::new(|| noise(SIZE_MAX));

/// A TLS session buffers 64 KiB. At one of these sizes the socket is full, whatever the socket buffers of the
/// system.
fn sizes() -> impl Iterator<Item = usize> {
    (200_000..SIZE_MAX).step_by(48 << 10)
}

fn gateway(upstream: &Value, ssls: &Value) -> Gateway {
    let document = json!({ "ssls": ssls, "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] });
    Gateway::with(&document, &Options { workers: 1, ..Options::default() })
}

/// The results for all sizes, requested concurrently.
fn each<T: Send>(fetch: impl Fn(usize) -> T + Sync) -> Vec<(usize, T)> {
    LazyLock::force(&ALL);
    let fetch = &fetch;
    std::thread::scope(|scope| {
        let running: Vec<_> = sizes().map(|size| (size, scope.spawn(move || fetch(size)))).collect();
        running.into_iter().map(|(size, thread)| (size, thread.join().unwrap())).collect()
    })
}

/// Reads a request late; `None` if it is incomplete.
fn read_late(peer: &mut TlsPeer) -> Option<()> {
    // Scripted.
    std::thread::sleep(Duration::from_millis(500));
    let mut stream = rustls::Stream::new(&mut peer.session, &mut peer.tcp);
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let mut body = vec![0; crate::harness::client::field(&head, "content-length")?.parse().unwrap()];
    stream.read_exact(&mut body).ok()?;
    (body == ALL[..body.len()]).then_some(())
}

#[test]
fn the_end_of_an_upload_reaches_an_endpoint_that_reads_late() {
    let upstream = TlsUpstream::start(&certs::simple("shop", &["shop.test"]), |peer, _| {
        read_late(peer)?;
        let answer = peer.records(&answer("whole"));
        peer.tcp.write_all(&answer).ok()
    });
    let nodes = json!({ upstream.address.to_string(): 1 });
    let gateway = gateway(
        &json!({ "scheme": "https", "nodes": nodes, "retries": 0,
                                   "timeout": { "connect": 60, "send": 60, "read": 10 } }),
        &json!([]),
    );
    let answers = each(|size| {
        let head = format!("POST / HTTP/1.1\r\nHost: shop.test\r\nContent-Length: {size}\r\n\r\n");
        Client::connect(gateway.http).send(head).send(&ALL[..size]).reply().text()
    });
    let lost: Vec<_> = answers.iter().filter(|(_, text)| text != "whole").collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn a_client_of_tls_that_reads_late_is_no_silence_of_the_endpoint() {
    let upstream = Upstream::start(|request, stream| {
        let size: usize = request.target.trim_start_matches('/').parse().unwrap();
        respond(stream, 200, "", &ALL[..size])
    });
    let authority = certs::Authority::new("front");
    let pair = authority.sign("a", &["a.test"], certs::ecdsa());
    let gateway = gateway(
        &json!({ "nodes": { upstream.address.to_string(): 1 },
                 "timeout": { "connect": 60, "send": 60, "read": 1 } }),
        &json!([{ "id": "1", "cert": pair.cert, "key": pair.key, "snis": ["a.test"] }]),
    );
    let trust = trusting(&authority.cert);
    let answers = each(|size| {
        let mut client = over_tls(TcpStream::connect(gateway.https).unwrap(), &trust);
        let fetch = format!("GET /{size} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        client.write_all(fetch.as_bytes()).unwrap();
        client.read_exact(&mut [0]).unwrap();
        // A slow client: longer than the read timeout of the upstream.
        std::thread::sleep(Duration::from_secs(4));
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).is_ok() && rest.ends_with(&ALL[..size])
    });
    let lost: Vec<_> = answers.iter().filter(|(_, is_whole)| !is_whole).collect();
    assert!(lost.is_empty(), "{lost:?}");
    gateway.assert_metric("yumen_faults_total{fault=\"read_timeout\",side=\"upstream\"}", 0.0);
}
