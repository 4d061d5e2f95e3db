//! Connection identifiers and the owners that they decode to.

use quinn::ConnectionIdGenerator;
use quinn::udp::RecvMeta;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::{
    DatagramForwarder, DatagramReceiver, DatagramRoute, DatagramSteering, ID_BYTES, LONG_HEADER,
    SteeringMailbox, SteeringMessage, mailboxes, pass_on,
};

const SECRET: [u8; 16] = *b"a secret of ours";

fn datagram(first: u8, id: &[u8]) -> Vec<u8> {
    [&[first], id, b"sealed"].concat()
}

fn handshake(id: &[u8]) -> Vec<u8> {
    [&[LONG_HEADER | 0x60, 0, 0, 0, 1, id.len() as u8], id, b"sealed"].concat()
}

#[test]
fn an_identifier_leads_to_the_endpoint_that_made_it() {
    let steering = DatagramSteering::new(&SECRET, 0, 5);
    for endpoint in 0..5 {
        for _ in 0..100 {
            let id = steering.ids(endpoint).generate_cid();
            assert_eq!(id.len(), ID_BYTES);
            assert_eq!(steering.route(&datagram(0x40, &id), endpoint), DatagramRoute::Keep);
            assert_eq!(steering.route(&datagram(0x40, &id), 7), DatagramRoute::Endpoint(endpoint));
            assert_eq!(
                steering.route(&handshake(&id), 7),
                DatagramRoute::Keep,
                "nobody moves before it is over"
            );
        }
    }
}

#[test]
fn an_identifier_leads_to_the_process_that_made_it() {
    let of = |generation: u8| DatagramSteering::new(&SECRET, generation, 2);
    let check = |made: u8, receiving: u8, expected: DatagramRoute| {
        let id = of(made).ids(1).generate_cid();
        assert_eq!(of(receiving).route(&datagram(0x40, &id), 0), expected, "{made} {receiving}");
        let of_handshake =
            if expected == DatagramRoute::Endpoint(1) { DatagramRoute::Keep } else { expected };
        assert_eq!(of(receiving).route(&handshake(&id), 0), of_handshake, "{made} {receiving}");
    };
    check(3, 3, DatagramRoute::Endpoint(1));
    check(2, 3, DatagramRoute::Predecessor);
    check(4, 3, DatagramRoute::Successor);
    check(255, 0, DatagramRoute::Predecessor);
    check(0, 255, DatagramRoute::Successor);
    // The predecessor of the predecessor has exited: a stateless reset is the answer.
    check(1, 3, DatagramRoute::Keep);
}

/// The next datagram in a mailbox.
fn delivered(mailbox: &mut SteeringMailbox) -> Option<Vec<u8>> {
    match mailbox.own.blocking_recv()? {
        SteeringMessage::Datagram(handed) => Some(handed.data().to_vec()),
        SteeringMessage::HandOver => None,
    }
}

#[test]
fn forwarded_datagrams_reach_a_live_endpoint() {
    let steering = DatagramSteering::new(&SECRET, 3, 3);
    let (end, peer) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let pipe = DatagramForwarder::new(end);
    let send = |datagram: &[u8]| pipe.send(datagram, &RecvMeta::default());
    let [first, mut second, third] = <[SteeringMailbox; 3]>::try_from(mailboxes(3)).ok().unwrap();
    let endpoints = first.others.clone();
    let of = steering.clone();
    let passing = std::thread::spawn(move || pass_on(DatagramReceiver::new(peer), &of, &endpoints));
    drop(first);
    let mut check = |datagram: Vec<u8>| {
        assert!(send(&datagram));
        assert_eq!(delivered(&mut second).unwrap(), datagram);
    };
    let ids: Vec<_> = (0..3).map(|endpoint| steering.ids(endpoint).generate_cid()).collect();
    check(datagram(0x40, &ids[1]));
    check(handshake(&ids[1]));
    check(datagram(0x40, &ids[0]));
    drop(third);
    check(datagram(0x40, &ids[2]));
    check(b"of nobody".to_vec());
    drop(second);
    assert!(send(&datagram(0x40, &ids[1])));
    passing.join().unwrap();
    assert!(!send(&datagram(0x40, &ids[1])), "the other process knows that nobody is left");
}

#[test]
fn without_the_secret_an_identifier_does_not_tell_whose_it_is() {
    let (ours, peer) =
        (DatagramSteering::new(&SECRET, 0, 2), DatagramSteering::new(b"another one here", 0, 2));
    let ids: Vec<_> = (0..64).map(|_| ours.ids(1).generate_cid()).collect();
    assert!(ids.iter().any(|id| peer.route(&datagram(0x40, id), 0) != DatagramRoute::Endpoint(1)));
    let tails: std::collections::HashSet<&[u8]> = ids.iter().map(|id| &id[ID_BYTES - 3..]).collect();
    assert!(tails.len() > 1, "nothing in common");
}

#[test]
fn short_datagrams_have_no_owner() {
    let steering = DatagramSteering::new(&SECRET, 0, 2);
    for datagram in [&b""[..], b"\x40", b"\x40short", b"\xe0", b"\xe0\0\0\0\x01\x0bshort"] {
        assert_eq!(steering.route(datagram, 0), DatagramRoute::Keep);
    }
}
