//! Dials through a proxy.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;

use yumen_snapshot::UpstreamTunnel;
use yumen_snapshot::upstream::EndpointState;

use super::EndpointDial;
use crate::fault::FaultKind;

/// The request of a dial through a proxy that responds with `response`, and its result.
async fn dial(response: &'static [u8]) -> (String, Result<(), FaultKind>) {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = proxy.accept().unwrap();
        let mut request = String::new();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while !request.ends_with("\r\n\r\n") {
            reader.read_line(&mut request).unwrap();
        }
        // The client may close early.
        let _ = stream.write_all(response);
        request
    });
    let tunnel =
        UpstreamTunnel { authority: "idp.test:8443".into(), authorization: Some("Basic dTpw".into()) };
    let dial = EndpointDial {
        address,
        opening: Vec::new(),
        tunnel: Some(Arc::new(tunnel)),
        handshake: None,
        timeout_ms: 0,
        endpoint: Arc::new(EndpointState::new()),
    };
    let result = dial.connect().await.map(drop);
    (server.join().unwrap(), result)
}

#[tokio::test]
async fn proxy_is_asked_for_a_tunnel() {
    let (request, result) = dial(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n").await;
    let expected =
        "CONNECT idp.test:8443 HTTP/1.1\r\nHost: idp.test:8443\r\nProxy-Authorization: Basic dTpw\r\n\r\n";
    assert_eq!((request.as_str(), result), (expected, Ok(())));
}

#[tokio::test]
async fn refused_tunnel_is_a_failed_connection() {
    const ENDLESS: &[u8] = &[b'a'; 16 * 1024];
    for response in [
        &b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"[..],
        b"HTTP/1.1 302 Found\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"no HTTP\r\n\r\n",
        b"",
        ENDLESS,
    ] {
        let (_, result) = dial(response).await;
        assert!(result.is_err(), "{}", String::from_utf8_lossy(&response[..response.len().min(40)]));
    }
}
