//! Messages and descriptors arrive complete and in order; a closed peer and a silent peer are different
//! errors.

use std::net::TcpListener;

use super::*;

fn pair() -> (HandoverChannel, HandoverChannel) {
    let (one, other) = UnixStream::pair().unwrap();
    (HandoverChannel::new(one), HandoverChannel::new(other))
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

#[test]
fn documents_and_descriptors_arrive_in_order() {
    let (one, other) = pair();
    let bound: Vec<TcpListener> = (0..150).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let ports: Vec<u16> = bound.iter().map(port).collect();
    let descriptors: Vec<OwnedFd> = bound.into_iter().map(OwnedFd::from).collect();
    one.send(&"before").unwrap();
    one.send_descriptors(&descriptors).unwrap();
    one.send(&"after").unwrap();
    drop(descriptors);
    assert_eq!(other.receive::<String>(Some(deadline())).unwrap(), "before");
    let received = other.receive_descriptors(150, deadline()).unwrap();
    let received: Vec<u16> = received.into_iter().map(|one| port(&TcpListener::from(one))).collect();
    assert_eq!(received, ports);
    assert_eq!(other.receive::<String>(Some(deadline())).unwrap(), "after");
}

#[test]
fn a_peer_that_has_gone_is_no_peer_that_is_silent() {
    let (one, other) = pair();
    let silent = other.receive::<String>(Some(Instant::now() + Duration::from_millis(20))).unwrap_err();
    assert_eq!(silent.kind(), io::ErrorKind::TimedOut);
    drop(one);
    let error = other.receive::<String>(Some(deadline())).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn invalid_document_is_an_error() {
    let check = |bytes: &[u8]| {
        let (one, other) = pair();
        (&one.stream).write_all(bytes).unwrap();
        drop(one);
        assert!(other.receive::<String>(Some(deadline())).is_err(), "{bytes:?}");
    };
    check(b"\0\0\0\x02no");
    check(b"\xff\xff\xff\xff");
    check(b"\0\0\0\x09\"short");
}
