//! Handling of the predecessor's messages by a successor.

use std::net::TcpListener;
use std::os::fd::OwnedFd;

use super::*;
use crate::serving::sockets::{SocketLabel, SocketRole};

fn pair() -> (HandoverChannel, Successor) {
    let (one, other) = UnixStream::pair().unwrap();
    (HandoverChannel::new(one), Successor::on(HandoverChannel::new(other)))
}

fn hello(protocol: u32) -> HandoverHello {
    HandoverHello { protocol, version: "9.9.9".into() }
}

fn deadline() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(20))
}

#[test]
fn sockets_and_keys_of_the_offer_arrive() {
    let (predecessor, successor) = pair();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (configured, bound) = ("127.0.0.1:0".parse().unwrap(), listener.local_addr().unwrap());
    let label = SocketLabel { role: SocketRole::Admin, configured, listener: 0 };
    let keys: Vec<[u8; TICKET_KEY_BYTES]> = vec![[1; TICKET_KEY_BYTES], [2; TICKET_KEY_BYTES]];
    predecessor.send(&hello(PROTOCOL)).unwrap();
    let ticket_keys = keys.iter().map(|key| BASE64.encode(key)).collect();
    let http3_identity = Some((BASE64.encode([7; 32]), 4));
    predecessor
        .send(&HandoverOffer {
            sockets: vec![label],
            ticket_keys,
            http3_identity,
            ..HandoverOffer::default()
        })
        .unwrap();
    predecessor.send_descriptors(&[OwnedFd::from(listener)]).unwrap();
    let mut given = successor.receive().unwrap();
    assert_eq!(given.ticket_keys, keys);
    assert_eq!(given.http3_identity.unwrap().export(), ([7; 32], 5));
    let taken = given.sockets.take(SocketRole::Admin, configured);
    assert_eq!(taken[0].local_addr().unwrap().as_socket(), Some(bound));
}

#[test]
fn another_protocol_is_refused_with_its_number() {
    for protocol in [PROTOCOL_MIN - 1, PROTOCOL + 1] {
        let (predecessor, successor) = pair();
        predecessor.send(&hello(protocol)).unwrap();
        let error = successor.receive().map(drop).unwrap_err();
        let (message, number) = (error.to_string(), format!("uses {protocol},"));
        assert!(message.contains("yumen 9.9.9") && message.contains(&number), "{message}");
        successor.refuse(&error);
        let refusal = predecessor.receive(deadline()).unwrap();
        assert!(matches!(refusal, SuccessorMessage::Refuses(reason) if reason == message));
    }
}

#[test]
fn unknown_members_are_ignored() {
    let (predecessor, successor) = pair();
    predecessor.send(&serde_json::json!({"protocol": PROTOCOL, "version": "9.9.9", "more": [1]})).unwrap();
    predecessor.send(&serde_json::json!({"sockets": [], "more": {"of": "it"}})).unwrap();
    let given = successor.receive().unwrap();
    assert!(given.ticket_keys.is_empty() && given.http3_identity.is_none());
}

#[test]
fn a_refused_store_and_a_closed_channel_are_errors() {
    let (predecessor, successor) = pair();
    predecessor.send(&PredecessorMessage::StoreStays("a backup is being made".into())).unwrap();
    assert!(successor.acquire_store().unwrap_err().to_string().contains("a backup is being made"));
    predecessor.send(&PredecessorMessage::StoreIsFree).unwrap();
    successor.acquire_store().unwrap();
    drop(predecessor);
    assert!(successor.acquire_store().is_err());
    assert!(successor.report_ready(&[], &StoreState::default(), &Carry::default()).is_err());
}
