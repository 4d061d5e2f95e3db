//! A tunnel whose task panics.

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use yumen_snapshot::Publisher;

use super::*;
use crate::worker::tests::worker;

/// One connection of the tunnel, and its peer.
fn side() -> (TransportStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (TransportStream::Tcp(TcpConnection::fresh(listener.accept().unwrap().0)), peer)
}

#[test]
fn panic_is_counted_and_resets_both_sides() {
    let worker = worker(Arc::new(Publisher::default()));
    let ((client, mut at_client), (endpoint, mut at_endpoint)) = (side(), side());
    let tunnel = Tunnel {
        client,
        endpoint,
        timer: worker.timers.timer(),
        worker: worker.clone(),
        opening: Transfer::new(Framing::None, BodyEncoding::Known, Vec::new(), 0),
        is_open: true,
        pair: BidirectionalCopy::new(Inbox::default(), Inbox::default(), 1000),
        bound: None,
    };
    let mut task = Box::pin(async move {
        poll_fn(|_| -> Poll<()> { panic!("a test does this") }).await;
        drop(tunnel);
    });
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx).is_ready())).is_err());
    assert_eq!(worker.counters.runtime.panics.get(), 1);
    for peer in [&mut at_client, &mut at_endpoint] {
        let end = peer.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(end, Err(ErrorKind::ConnectionReset));
    }
    drop(task);
    assert_eq!(worker.counters.runtime.panics.get(), 1, "once");
}
