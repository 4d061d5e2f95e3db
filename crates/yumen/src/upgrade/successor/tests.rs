//! Handling of the predecessor's messages by a successor.

use std::net::TcpListener;
use std::os::fd::OwnedFd;

use super::*;
use crate::sockets::{SocketLabel, SocketRole};

fn pair() -> (HandoverChannel, Successor) {
    let (one, other) = UnixStream::pair().unwrap();
    (HandoverChannel::new(one), Successor::on(HandoverChannel::new(other)))
}

fn hello(protocol: u32) -> HandoverHello {
    HandoverHello { protocol, version: "9.9.9".into() }
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(20))
}

#[test]
fn what_is_given_arrives() {
    let (before, successor) = pair();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (asked, bound) = ("127.0.0.1:0".parse().unwrap(), listener.local_addr().unwrap());
    let label = SocketLabel { door: SocketRole::Admin, asked, listener: 0, generation: 0 };
    let keys: Vec<[u8; TICKET_KEY_BYTES]> = vec![[1; TICKET_KEY_BYTES], [2; TICKET_KEY_BYTES]];
    before.send(&hello(PROTOCOL)).unwrap();
    let ticket_keys = keys.iter().map(|key| BASE64.encode(key)).collect();
    let http3_identity = Some((BASE64.encode([7; 32]), 4));
    before
        .send(&HandoverOffer {
            sockets: vec![label],
            ticket_keys,
            http3_identity,
            ..HandoverOffer::default()
        })
        .unwrap();
    before.send_descriptors(&[OwnedFd::from(listener)]).unwrap();
    let mut given = successor.receive().unwrap();
    assert_eq!(given.ticket_keys, keys);
    assert_eq!(given.http3_identity.unwrap().told(), ([7; 32], 5));
    let taken = given.sockets.take(SocketRole::Admin, asked);
    assert_eq!(taken[0].local_addr().unwrap().as_socket(), Some(bound));
}

#[test]
fn another_protocol_is_refused_by_its_number() {
    for protocol in [PROTOCOL_MIN - 1, PROTOCOL + 1] {
        let (before, successor) = pair();
        before.send(&hello(protocol)).unwrap();
        let error = successor.receive().map(drop).unwrap_err();
        let (said, number) = (error.to_string(), format!("uses {protocol},"));
        assert!(said.contains("yumen 9.9.9") && said.contains(&number), "{said}");
        successor.refuses(&error);
        let told = before.receive(soon()).unwrap();
        assert!(matches!(told, SuccessorMessage::Refuses(reason) if reason == said));
    }
}

#[test]
fn members_of_a_later_version_are_passed_over() {
    let (before, successor) = pair();
    before.send(&serde_json::json!({"protocol": PROTOCOL, "version": "9.9.9", "more": [1]})).unwrap();
    before.send(&serde_json::json!({"sockets": [], "more": {"of": "it"}})).unwrap();
    let given = successor.receive().unwrap();
    assert!(given.ticket_keys.is_empty() && given.http3_identity.is_none());
}

#[test]
fn a_store_that_stays_and_a_process_that_goes_are_errors() {
    let (before, successor) = pair();
    before.send(&PredecessorMessage::StoreStays("a backup is being made".into())).unwrap();
    assert!(successor.acquire_store().unwrap_err().to_string().contains("a backup is being made"));
    before.send(&PredecessorMessage::StoreIsFree).unwrap();
    successor.acquire_store().unwrap();
    drop(before);
    assert!(successor.acquire_store().is_err());
    assert!(successor.ready(&[], &StoreState::default(), &Carry::default()).is_err());
}
