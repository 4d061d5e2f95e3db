//! TLS streams on listeners of the configuration: ended or passed through by the scope of the server name.

use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use yumen_config::Kind;
use yumen_plugin::ClientInfo;

use super::*;
use crate::l4;
use crate::tls::scoped_tls::{ScopedTls, certificate, client, connection, listener, put, run, scope};
use crate::worker::tests::worker;

/// An endpoint, and the route of a scope to it.
fn endpoint(id: &str, scope: &str) -> (tokio::net::TcpListener, yumen_snapshot::compile::ConfigChange) {
    let bound = TcpListener::bind("127.0.0.1:0").unwrap();
    bound.set_nonblocking(true).unwrap();
    let nodes = json!({ bound.local_addr().unwrap().to_string(): 1 });
    let route = json!({ "upstream": { "nodes": nodes }, "scopes": [scope] });
    (tokio::net::TcpListener::from_std(bound).unwrap(), put(Kind::StreamRoutes, id, route))
}

#[test]
fn one_listener_ends_tls_of_some_names_and_passes_that_of_others_through() {
    run(async {
        let (mut ended, of_end) = endpoint("1", "end");
        let (mut passed, of_pass) = endpoint("2", "pass");
        let made = ScopedTls::new(vec![
            listener("tls", "tls"),
            scope("end", "tls", "end.test", json!({})),
            scope("pass", "tls", "*.pass.test", json!({ "mode": "passthrough" })),
            certificate("c", "end"),
            of_end,
            of_pass,
        ]);
        let worker = worker(made.publisher.clone());
        let acceptor = Rc::new(made.acceptor.for_streams().for_listener(made.number("tls")));
        let open = |far: TcpConnection| {
            let address: SocketAddr = "127.0.0.1:8443".parse().unwrap();
            let client = ClientInfo {
                peer: address,
                local: address,
                tls: None,
                connection_id: 1,
                listener: made.number("tls"),
                mapped_port: 0,
            };
            let stream = l4::run(worker.clone(), far, client, StreamProtocol::Tls, Some(acceptor.clone()));
            tokio::task::spawn_local(stream)
        };
        // The gateway ends TLS: the endpoint receives the plain bytes.
        let (near, far, _) = connection();
        drop(open(far));
        let name = "end.test".to_owned().try_into().unwrap();
        let mut stream = client(None, None).connect(name, near).await.unwrap();
        stream.write_all(b"plain").await.unwrap();
        let mut received = [0; 5];
        ended_by(&mut ended).await.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"plain");
        // The ClientHello arrives in pieces, and reaches the endpoint whole.
        let hello = hello_of("a.pass.test");
        let (mut near, far, _) = connection();
        drop(open(far));
        let (first, rest) = hello.split_at(hello.len() / 2);
        near.write_all(first).await.unwrap();
        tokio::task::yield_now().await;
        near.write_all(rest).await.unwrap();
        let mut received = vec![0; hello.len()];
        ended_by(&mut passed).await.read_exact(&mut received).await.unwrap();
        assert_eq!(received, hello);
        // No scope has the name, and the first bytes are no TLS.
        for bytes in [hello_of("other.test"), b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
            let (mut near, far, _) = connection();
            let stream = open(far);
            near.write_all(&bytes).await.unwrap();
            stream.await.unwrap();
            let mut rest = Vec::new();
            // An alert, or nothing; then the end.
            let _ = near.read_to_end(&mut rest).await;
            assert!(rest.is_empty() || rest[0] == 21, "{rest:?}");
        }
    });
}

async fn ended_by(listener: &mut tokio::net::TcpListener) -> tokio::net::TcpStream {
    listener.accept().await.unwrap().0
}

/// The ClientHello of a handshake for a server name.
fn hello_of(name: &str) -> Vec<u8> {
    let config = client(None, None).config().clone();
    let name = name.to_owned().try_into().unwrap();
    let mut connection = rustls::ClientConnection::new(config, name).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    hello
}
