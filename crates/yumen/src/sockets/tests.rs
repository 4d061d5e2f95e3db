//! Which socket from outside is for which listener.

use super::*;

const ANY: &str = "127.0.0.1:0";

fn bound() -> Socket {
    Socket::from(TcpListener::bind(ANY).unwrap())
}

fn labelled(door: Door, listener: u32) -> Passed {
    let label = Label { door, asked: ANY.parse().unwrap(), listener, generation: 0 };
    Passed { label: Some(label), name: String::new(), socket: bound() }
}

fn ports(sockets: &[Socket]) -> Vec<u16> {
    sockets.iter().map(|socket| socket.local_addr().unwrap().as_socket().unwrap().port()).collect()
}

#[test]
fn listeners_that_were_asked_for_alike_get_theirs_in_turn() {
    let passed = vec![
        labelled(Door::Http, 0),
        labelled(Door::Http, 0),
        labelled(Door::Admin, 1),
        labelled(Door::Http, 2),
    ];
    let expected: Vec<u16> =
        passed.iter().flat_map(|one| ports(&[one.socket.try_clone().unwrap()])).collect();
    let mut sockets = Sockets::from_outside(passed);
    let asked = ANY.parse().unwrap();
    assert_eq!(ports(&sockets.take(Door::Http, asked)), expected[..2]);
    assert_eq!(ports(&sockets.take(Door::Http, asked)), expected[3..]);
    assert_eq!(ports(&sockets.take(Door::Admin, asked)), expected[2..3]);
    assert!(sockets.take(Door::Http, asked).is_empty());
    sockets.end_taking().unwrap();
}

#[test]
fn a_socket_of_the_service_manager_is_found_by_its_address_or_by_its_name() {
    let passed = |name: &str| Passed { label: None, name: name.into(), socket: bound() };
    let (plain, admin) = (passed("web"), passed("admin"));
    let address = plain.address().unwrap();
    let mut sockets = Sockets::from_outside(vec![plain, admin]);
    assert!(sockets.take(Door::Datagrams, address).is_empty(), "another kind of socket");
    assert_eq!(ports(&sockets.take(Door::Http, address)), [address.port()]);
    assert_eq!(sockets.take(Door::Admin, "127.0.0.1:9180".parse().unwrap()).len(), 1);
    sockets.end_taking().unwrap();
}

#[test]
fn a_socket_nobody_listens_on_is_told_with_its_name() {
    let passed = Passed { label: None, name: "web".into(), socket: bound() };
    let address = passed.address().unwrap();
    let error = Sockets::from_outside(vec![passed]).end_taking().unwrap_err().to_string();
    assert!(error.contains("`web`") && error.contains(&address.to_string()), "{error}");
}

#[test]
fn a_listener_that_became_another_kind_keeps_its_socket() {
    let mut passed = labelled(Door::Http, 0);
    let address = passed.address().unwrap();
    passed.label = Some(Label { door: Door::Http, asked: address, listener: 0, generation: 0 });
    let mut sockets = Sockets::from_outside(vec![passed]);
    assert_eq!(ports(&sockets.take(Door::Stream, address)), [address.port()]);
}
