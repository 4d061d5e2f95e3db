use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use yumen_snapshot::Publisher;

use super::*;
use crate::transport::tcp::TcpConnection;
use crate::worker::tests::worker;

#[test]
fn buffered_bytes_are_read_first() {
    let worker = worker(Arc::new(Publisher::default()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nonblocking(true).unwrap();
    let mut early = Inbox::default();
    early.room(&worker.buffers)[..5].copy_from_slice(b"early");
    early.filled(5);
    let patience = FrameBudget::new(100, 0, 0);
    let mut wire = Http2Transport::new(
        TransportStream::Tcp(TcpConnection::fresh(near)),
        early,
        patience,
        worker.buffers.clone(),
    );
    let mut room = [0; 3];
    let mut read = |room: &mut [u8]| {
        let mut room = ReadBuf::new(room);
        let polled =
            Pin::new(&mut wire).poll_read(&mut Context::from_waker(std::task::Waker::noop()), &mut room);
        assert!(matches!(polled, Poll::Ready(Ok(()))), "{polled:?}");
        room.filled().to_vec()
    };
    assert_eq!((read(&mut room), read(&mut room)), (b"ear".to_vec(), b"ly".to_vec()));
    // A new buffer is zeroed; a returned one still has its old content.
    assert_eq!(&worker.buffers.take()[..5], b"early");
}

#[test]
fn the_end_is_announced_between_frames_only() {
    let worker = worker(Arc::new(Publisher::default()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nonblocking(true).unwrap();
    let patience = FrameBudget::new(100, 0, 0);
    let stream = TransportStream::Tcp(TcpConnection::fresh(near));
    let mut wire = Http2Transport::new(stream, Inbox::default(), patience, worker.buffers.clone());
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut write = |bytes| {
        assert!(matches!(Pin::new(&mut wire).poll_write(&mut cx, bytes), Poll::Ready(Ok(3))));
        wire.clone()
    };
    write(b"one");
    assert!(!write(b"two").announce_end());
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(Pin::new(&mut wire).poll_flush(&mut cx).is_ready());
    assert!(wire.announce_end());
    assert!(matches!(wire.poll_send(&mut cx), Poll::Ready(Ok(()))));
    let mut sent = [0; 6 + GRACEFUL_GOAWAY.len()];
    std::io::Read::read_exact(&mut listener.accept().unwrap().0, &mut sent).unwrap();
    assert_eq!(sent[..], [&b"onetwo"[..], &GRACEFUL_GOAWAY].concat());
}
