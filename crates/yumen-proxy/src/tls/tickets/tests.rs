use super::*;

fn bound(keys: &Arc<TicketKeys>, binding: u128) -> BoundTickets {
    BoundTickets { keys: keys.clone(), binding }
}

#[test]
fn a_ticket_opens_under_the_key_in_use_and_the_one_before() {
    let keys = Arc::new(TicketKeys::new(60));
    let tickets = bound(&keys, 1);
    assert!(!tickets.enabled());
    assert_eq!(tickets.encrypt(b"session"), None);
    keys.rotate(&[1; TICKET_KEY_BYTES]);
    assert!(tickets.enabled());
    let ticket = tickets.encrypt(b"session").unwrap();
    assert!(!ticket.windows(7).any(|part| part == b"session"));
    assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
    keys.rotate(&[2; TICKET_KEY_BYTES]);
    assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
    assert_ne!(tickets.encrypt(b"session").unwrap()[..NAME_BYTES], ticket[..NAME_BYTES]);
    keys.rotate(&[3; TICKET_KEY_BYTES]);
    assert_eq!(tickets.decrypt(&ticket), None);
}

#[test]
fn another_process_with_the_same_keys_opens_it() {
    let [one, other] = [(); 2].map(|()| Arc::new(TicketKeys::new(60)));
    one.rotate(&[7; TICKET_KEY_BYTES]);
    other.rotate(&[7; TICKET_KEY_BYTES]);
    let ticket = bound(&one, 1).encrypt(b"session").unwrap();
    assert_eq!(bound(&other, 1).decrypt(&ticket).as_deref(), Some(&b"session"[..]));
}

#[test]
fn altered_or_foreign_tickets_do_not_decrypt() {
    let keys = Arc::new(TicketKeys::new(60));
    keys.rotate(&[1; TICKET_KEY_BYTES]);
    let ticket = bound(&keys, 1).encrypt(b"session").unwrap();
    assert_eq!(bound(&keys, 2).decrypt(&ticket), None);
    for at in 0..ticket.len() {
        assert_eq!(bound(&keys, 1).decrypt(&ticket[..at]), None, "{at}");
        let mut altered = ticket.clone();
        altered[at] ^= 1;
        assert_eq!(bound(&keys, 1).decrypt(&altered), None, "{at}");
    }
}
