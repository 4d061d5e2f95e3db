//! Whom nothing is said any more.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use yumen_plugin::Client;
use yumen_snapshot::Publisher;

use super::*;
use crate::connection::Peer;
use crate::serve::refuse;
use crate::stream::Stream;
use crate::worker::tests::worker;

/// What a client hears of a fault, and how its connection goes on; its deadline may have passed as well.
fn told(kind: Kind, is_late: bool) -> (String, Poll<After>) {
    let worker = worker(Arc::new(Publisher::default()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut at_client = TcpStream::connect(address).unwrap();
    let stream = Stream::Tcp(Tcp::fresh(listener.accept().unwrap().0));
    let client = Client { peer: address, local: address, tls: None, connection: 1 };
    let peer = Rc::new(Peer::new(&worker, client));
    let mut conn = Connection::of(worker, peer, stream);
    if is_late {
        conn.timer.cap(clock::now().mono_ms());
    }
    let after = pin!(refuse(&mut conn, kind, None)).poll(&mut Context::from_waker(Waker::noop()));
    drop(conn);
    let mut told = String::new();
    at_client.read_to_string(&mut told).unwrap();
    (told, after)
}

#[test]
fn nothing_is_said_behind_half_of_an_interim_answer() {
    for kind in [Kind::ClientGone, Kind::ClientStalled] {
        for is_late in [false, true] {
            assert_eq!(told(kind, is_late), (String::new(), Poll::Ready(After::Close)));
        }
    }
    assert!(told(Kind::ClientTimeout, false).0.starts_with("HTTP/1.1 408 "));
    assert!(told(Kind::ClientTimeout, true).0.starts_with("HTTP/1.1 504 "));
}
