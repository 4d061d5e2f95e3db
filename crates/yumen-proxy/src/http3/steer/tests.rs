//! Identifiers of connections, and whom they lead to.

use quinn::ConnectionIdGenerator;

use super::{ID_BYTES, LONG_HEADER, Steering};

fn datagram(first: u8, id: &[u8]) -> Vec<u8> {
    [&[first], id, b"sealed"].concat()
}

#[test]
fn an_identifier_leads_to_the_worker_that_made_it() {
    let steering = Steering::new(5);
    for worker in 0..5 {
        for _ in 0..100 {
            let id = steering.ids(worker).generate_cid();
            assert_eq!(id.len(), ID_BYTES);
            assert_eq!(steering.owner_of(&datagram(0x40, &id)), Some(worker));
            assert_eq!(steering.owner_of(&datagram(LONG_HEADER | 0x40, &id)), None, "a handshake");
        }
    }
}

#[test]
fn without_the_secret_an_identifier_does_not_tell_the_worker() {
    let (ours, theirs) = (Steering::new(2), Steering::new(2));
    let ids: Vec<_> = (0..64).map(|_| ours.ids(1).generate_cid()).collect();
    assert!(ids.iter().any(|id| theirs.owner_of(&datagram(0x40, id)) != Some(1)));
    let tails: std::collections::HashSet<&[u8]> = ids.iter().map(|id| &id[ID_BYTES - 2..]).collect();
    assert!(tails.len() > 1, "nothing in common");
}

#[test]
fn what_is_too_short_leads_nowhere() {
    let steering = Steering::new(2);
    for datagram in [&b""[..], b"\x40", b"\x40short"] {
        assert_eq!(steering.owner_of(datagram), None);
    }
}
