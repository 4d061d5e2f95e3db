//! Responses without a length that break off while the client still sends: no client may take them for
//! complete.

use std::io::ErrorKind::{self, BrokenPipe, ConnectionReset};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::harness::http2::{self, Http2Client, request};
use crate::harness::tls::{TlsPeer, TlsUpstream};
use crate::harness::{Gateway, certs};
use crate::l4::server;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nwhat came of it";
/// Whether a write or a read fails first is a matter of timing.
const ROUNDS: usize = 10;

fn reset(stream: &TcpStream) {
    // Scripted: the gateway reads the bytes before the reset.
    std::thread::sleep(Duration::from_millis(50));
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Responds after a part of the body, then resets the connection.
fn breaking() -> SocketAddr {
    server(|mut stream| {
        let begun = stream.read(&mut [0; 1024]).is_ok_and(|count| count > 0);
        let _ = begun.then(|| stream.write_all(ANSWER));
        reset(&stream);
    })
}

fn gateway(upstream: &Value) -> Gateway {
    let gzip = json!({ "gzip": { "types": "*", "min_length": 1 } });
    Gateway::start(&json!({ "routes": [
        { "id": "1", "uri": "/*", "upstream": upstream },
        { "id": "2", "uri": "/gzip", "upstream": upstream, "plugins": gzip },
    ] }))
}

/// The response to a client that sends as fast as it can, and how the connection ends.
fn flood(gateway: &Gateway, head: &str, piece: &[u8]) -> (Vec<u8>, Option<ErrorKind>) {
    let mut client = TcpStream::connect(gateway.http).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.write_all(head.as_bytes()).unwrap();
    let (mut sender, piece) = (client.try_clone().unwrap(), piece.to_vec());
    let sending = std::thread::spawn(move || {
        loop {
            if let Err(error) = sender.write_all(&piece) {
                return error.kind();
            }
        }
    });
    let mut seen = Vec::new();
    let read = client.read_to_end(&mut seen).map_err(|error| error.kind());
    let _ = client.shutdown(Shutdown::Both);
    // Only one of the two sees the reset; a write after the end is a broken pipe.
    let sent =
        Err(sending.join().unwrap()).or_else(|kind| if kind == BrokenPipe { Ok(0) } else { Err(kind) });
    (seen, read.and(sent).err())
}

/// Requests by version and by framing of the body, which determine the code path.
fn floods(gateway: &Gateway, path: &str, version: &str) -> Vec<(Vec<u8>, Option<ErrorKind>)> {
    let head = |framing: &str| {
        format!("POST {path} HTTP/{version}\r\nHost: a\r\nAccept-Encoding: gzip\r\n{framing}\r\n\r\n")
    };
    let long = (head("Content-Length: 1000000000"), vec![b'x'; 16 << 10]);
    let chunked =
        (head("Transfer-Encoding: chunked"), [&b"4000\r\n"[..], &[b'x'; 16 << 10], b"\r\n"].concat());
    let bodies = if version == "1.0" { vec![long] } else { vec![long, chunked] };
    let rounds = bodies.iter().cycle().take(ROUNDS);
    rounds.map(|(head, piece)| flood(gateway, head, piece)).collect()
}

#[test]
fn an_answer_up_to_the_close_that_is_reset_does_not_look_whole() {
    let gateway = gateway(&json!({ "nodes": { breaking().to_string(): 1 } }));
    for path in ["/", "/gzip"] {
        for (seen, _) in floods(&gateway, path, "1.1") {
            let text = String::from_utf8_lossy(&seen);
            assert!(text.contains("Transfer-Encoding: chunked"), "{text}");
            assert_eq!(text.contains("Content-Encoding: gzip"), path == "/gzip", "{text}");
            assert!(!seen.ends_with(b"0\r\n\r\n"), "{path}: {text}");
        }
        for (seen, end) in floods(&gateway, path, "1.0") {
            let text = String::from_utf8_lossy(&seen);
            assert_eq!(end, Some(ConnectionReset), "{path}: {text}");
        }
    }
    let fault = "yumen_faults_total{fault=\"upstream_closed\",side=\"upstream\"}";
    gateway.assert_metric(fault, 4.0 * ROUNDS as f64);
    http2::run(async {
        for _ in 0..ROUNDS {
            let mut client = Http2Client::connect(gateway.http).await;
            let (answer, mut body) = client.begin(request("POST", "/")).await;
            let sending = async {
                while http2::send(&mut body, &[b'x'; 16 << 10], false).await.is_ok() {
                    tokio::task::yield_now().await;
                }
            };
            let reading = async { http2::read(answer.await?).await };
            let read = tokio::select! {
                read = reading => read,
                () = async { sending.await; std::future::pending().await } => unreachable!(),
            };
            assert!(read.is_err(), "{:?}", read.map(|answer| Bytes::from(answer.body)));
        }
    });
}

/// A TLS endpoint that resets the connection after these bytes.
fn tls(pair: &certs::Pair, respond: impl Fn(&mut TlsPeer) -> Vec<u8> + Send + Sync + 'static) -> TlsUpstream {
    TlsUpstream::start(pair, move |peer, _| {
        let begun = rustls::Stream::new(&mut peer.session, &mut peer.tcp).read(&mut [0; 1024]);
        begun.ok().filter(|count| *count > 0)?;
        let respond = respond(peer);
        peer.tcp.write_all(&respond).ok()?;
        reset(&peer.tcp);
        None
    })
}

#[test]
fn over_tls_its_goodbye_is_what_tells_the_end_of_an_answer_and_not_a_reset_behind_it() {
    let pair = certs::simple("b", &["b.test"]);
    let to = |endpoint: &TlsUpstream| {
        gateway(&json!({ "scheme": "https", "nodes": { endpoint.address.to_string(): 1 } }))
    };
    let cut = tls(&pair, |peer| peer.records(ANSWER));
    for (seen, _) in floods(&to(&cut), "/", "1.1") {
        assert!(!seen.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&seen));
    }
    let whole = tls(&pair, |peer| [peer.records(ANSWER), peer.goodbye()].concat());
    for (seen, _) in floods(&to(&whole), "/", "1.1") {
        assert!(seen.ends_with(b"what came of it\r\n0\r\n\r\n"), "{}", String::from_utf8_lossy(&seen));
    }
}
