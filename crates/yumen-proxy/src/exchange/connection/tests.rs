//! A response of the gateway to a client beside a full backlog.

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::task::Waker;

use yumen_snapshot::Publisher;

use super::*;
use crate::worker::tests::worker_with;

/// Longer than the response that a peer far above the bound may stall.
const PAUSE_US: u64 = 600_000;

/// Reads all that has arrived; returns the number of bytes.
fn read_all(client: &mut TcpStream) -> usize {
    let (mut room, mut sum) = (vec![0; 1 << 20], 0);
    loop {
        match client.read(&mut room) {
            Ok(count) => sum += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return sum,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_client_that_reads_without_pause_is_not_stalled() {
    let mut settings = WorkerSettings::default();
    settings.limits.backlog_bytes_max = 1;
    let worker = worker_with(settings, Arc::new(Publisher::default()));
    let backlog = worker.buffers.backlog.clone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.set_nonblocking(true).unwrap();
    let accepted = listener.accept().unwrap().0;
    accepted.set_nonblocking(true).unwrap();
    let stream = TransportStream::Tcp(TcpConnection::fresh(accepted));
    let info = ClientInfo { peer: address, local: address, tls: None, connection_id: 1 };
    let peer = Rc::new(DownstreamPeer::new(&worker, info));
    let mut conn = DownstreamConnection::of(worker, peer, stream);
    let mut cx = Context::from_waker(Waker::noop());
    let mut now_us = 10_000_000;
    clock::simulate(now_us);
    let mut written = pin!(conn.write_text(Vec::new(), vec![b'x'; 64 << 20].into()));
    while backlog.bytes() == 0 {
        assert!(written.as_mut().poll(&mut cx).is_pending());
    }
    let mut received = 0;
    for _ in 0..20 {
        received += read_all(&mut client);
        assert!(written.as_mut().poll(&mut cx).is_pending());
        // The turn of the exchange has ended before its socket is full.
        assert_eq!((backlog.bytes(), backlog.enforce(now_us / 1000)), (0, 0), "{received}");
        now_us += PAUSE_US;
        clock::simulate(now_us);
    }
    assert!(received > 1 << 20);
}
