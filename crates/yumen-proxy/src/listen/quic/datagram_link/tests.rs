//! A datagram arrives with its addresses, or not at all.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

fn pipe_into(end: OwnedFd) -> DatagramForwarder {
    DatagramForwarder::new(end)
}

fn take(receiver: &mut DatagramReceiver) -> Option<(Vec<u8>, RecvMeta)> {
    let (mut room, mut meta) = ([0; 2048], RecvMeta::default());
    receiver.take()?.put(&mut room, &mut meta);
    Some((room[..meta.len].to_vec(), meta))
}

#[test]
fn a_datagram_arrives_with_where_it_came_from() {
    let (one, other) = pair();
    let (pipe, mut receiver) = (pipe_into(one), DatagramReceiver::new(other));
    let mut check = |peer: &str, local: Option<&str>, ecn: Option<EcnCodepoint>| {
        let sent = received(5, peer.parse().unwrap(), ecn, local.map(|ip| ip.parse().unwrap()));
        assert!(pipe.send(b"hello", &sent));
        let (data, meta) = take(&mut receiver).unwrap();
        assert_eq!(
            (&data[..], meta.addr, meta.dst_ip, meta.ecn),
            (&b"hello"[..], sent.addr, sent.dst_ip, ecn)
        );
    };
    check("127.0.0.1:4000", Some("127.0.0.2"), None);
    check("[2001:db8::1]:4000", Some("::1"), Some(EcnCodepoint::Ect0));
    check("[::ffff:10.0.0.1]:65535", None, Some(EcnCodepoint::Ce));
    check("10.0.0.1:1", None, Some(EcnCodepoint::Ect1));
}

#[test]
fn a_process_that_has_gone_takes_nothing_and_sends_nothing() {
    let (one, other) = pair();
    drop(other);
    let meta = received(1, "127.0.0.1:1".parse().unwrap(), None, None);
    assert!(!pipe_into(one).send(b"x", &meta));
    let (one, other) = pair();
    let mut receiver = DatagramReceiver::new(other);
    drop(one);
    assert!(take(&mut receiver).is_none());
}

#[test]
fn short_packets_are_not_datagrams() {
    assert!(read(b"short").is_none());
    assert!(read(&[0; HEAD_BYTES]).is_some_and(|handed| handed.data.is_empty()));
}
