//! Faults after which the gateway sends no response.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use yumen_plugin::ClientInfo;
use yumen_snapshot::Publisher;

use super::*;
use crate::exchange::connection::DownstreamPeer;
use crate::exchange::serve::refuse;
use crate::transport::stream::TransportStream;
use crate::worker::tests::worker;

/// Returns the bytes that the client receives for a fault, and the end of its connection. With `is_late`, the
/// deadline has passed as well.
fn refused(kind: FaultKind, is_late: bool) -> (String, Poll<After>) {
    let worker = worker(Arc::new(Publisher::default()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut at_client = TcpStream::connect(address).unwrap();
    let stream = TransportStream::Tcp(TcpConnection::fresh(listener.accept().unwrap().0));
    let client = ClientInfo {
        peer: address,
        local: address,
        tls: None,
        connection_id: 1,
        listener: yumen_plugin::ListenerNumber::STATIC,
        mapped_port: 0,
    };
    let peer = Rc::new(DownstreamPeer::new(&worker, client));
    let mut conn = DownstreamConnection::of(worker, peer, stream);
    if is_late {
        conn.timer.cap(clock::now().mono_ms());
    }
    let after = pin!(refuse(&mut conn, kind, None)).poll(&mut Context::from_waker(Waker::noop()));
    drop(conn);
    let mut refused = String::new();
    at_client.read_to_string(&mut refused).unwrap();
    (refused, after)
}

#[test]
fn no_response_follows_a_partial_interim_response() {
    for kind in [FaultKind::ClientGone, FaultKind::ClientStalled] {
        for is_late in [false, true] {
            assert_eq!(refused(kind, is_late), (String::new(), Poll::Ready(After::Close)));
        }
    }
    assert!(refused(FaultKind::ClientTimeout, false).0.starts_with("HTTP/1.1 408 "));
    assert!(refused(FaultKind::ClientTimeout, true).0.starts_with("HTTP/1.1 504 "));
}
