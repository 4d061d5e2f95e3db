//! Assignment of inherited sockets to listeners.

use super::*;

const ANY: &str = "127.0.0.1:0";

fn bound() -> Socket {
    Socket::from(TcpListener::bind(ANY).unwrap())
}

fn labelled(role: SocketRole, listener: u32) -> InheritedSocket {
    let label = SocketLabel { role, configured: ANY.parse().unwrap(), listener };
    InheritedSocket { label: Some(label), name: String::new(), socket: bound() }
}

fn ports(sockets: &[Socket]) -> Vec<u16> {
    sockets.iter().map(|socket| socket.local_addr().unwrap().as_socket().unwrap().port()).collect()
}

#[test]
fn listeners_that_were_asked_for_alike_get_theirs_in_turn() {
    let passed = vec![
        labelled(SocketRole::Http, 0),
        labelled(SocketRole::Http, 0),
        labelled(SocketRole::Admin, 1),
        labelled(SocketRole::Http, 2),
    ];
    let expected: Vec<u16> =
        passed.iter().flat_map(|one| ports(&[one.socket.try_clone().unwrap()])).collect();
    let mut sockets = InheritedSockets::from_outside(passed);
    let configured = ANY.parse().unwrap();
    assert_eq!(ports(&sockets.take(SocketRole::Http, configured)), expected[..2]);
    assert_eq!(ports(&sockets.take(SocketRole::Http, configured)), expected[3..]);
    assert_eq!(ports(&sockets.take(SocketRole::Admin, configured)), expected[2..3]);
    assert!(sockets.take(SocketRole::Http, configured).is_empty());
    sockets.check_activation_taken().unwrap();
}

#[test]
fn a_socket_of_the_service_manager_is_found_by_its_address_or_by_its_name() {
    let passed = |name: &str| InheritedSocket { label: None, name: name.into(), socket: bound() };
    let (plain, admin) = (passed("web"), passed("admin"));
    let address = plain.address().unwrap();
    let mut sockets = InheritedSockets::from_outside(vec![plain, admin]);
    assert!(sockets.take(SocketRole::Datagrams, address).is_empty(), "another kind of socket");
    assert_eq!(ports(&sockets.take(SocketRole::Http, address)), [address.port()]);
    assert_eq!(sockets.take(SocketRole::Admin, "127.0.0.1:9180".parse().unwrap()).len(), 1);
    sockets.check_activation_taken().unwrap();
}

#[test]
fn an_unused_socket_is_an_error_with_its_name() {
    let passed = InheritedSocket { label: None, name: "web".into(), socket: bound() };
    let address = passed.address().unwrap();
    let error =
        InheritedSockets::from_outside(vec![passed]).check_activation_taken().unwrap_err().to_string();
    assert!(error.contains("`web`") && error.contains(&address.to_string()), "{error}");
}

#[test]
fn a_listener_that_became_another_kind_keeps_its_socket() {
    let mut passed = labelled(SocketRole::Http, 0);
    let address = passed.address().unwrap();
    passed.label = Some(SocketLabel { role: SocketRole::Http, configured: address, listener: 0 });
    let mut sockets = InheritedSockets::from_outside(vec![passed]);
    assert_eq!(ports(&sockets.take(SocketRole::Stream, address)), [address.port()]);
}

#[test]
fn the_handles_of_a_closed_listener_are_not_handed_over() {
    let sockets = InheritedSockets::default();
    let [one, other] = [TcpListener::bind(ANY).unwrap(), TcpListener::bind(ANY).unwrap()];
    let addresses = [one.local_addr().unwrap(), other.local_addr().unwrap()];
    sockets.keep(SocketRole::Http, addresses[0], &[one]).unwrap();
    sockets.keep(SocketRole::Http, addresses[1], &[other]).unwrap();
    sockets.handles.forget(SocketRole::Stream, addresses[0]);
    sockets.handles.forget(SocketRole::Http, addresses[1]);
    let left: Vec<SocketAddr> =
        sockets.handles.duplicates().unwrap().into_iter().map(|(label, _)| label.configured).collect();
    assert_eq!(left, addresses[..1]);
    assert!(TcpListener::bind(addresses[1]).is_ok(), "the port is free");
}

#[test]
fn sockets_that_pass_to_another_listener_get_its_role_and_options() {
    let sockets = InheritedSockets::default();
    let socket = TcpListener::bind(ANY).unwrap();
    let address = socket.local_addr().unwrap();
    sockets.keep(SocketRole::Http, address, std::slice::from_ref(&socket)).unwrap();
    let settings = ListenerSettings::plain(address);
    sockets.handles.pass_on(SocketRole::Http, SocketRole::Stream, &settings).unwrap();
    let handles = sockets.handles.duplicates().unwrap();
    assert_eq!(handles[0].0.role, SocketRole::Stream);
    assert!(SockRef::from(&socket).tcp_nodelay().unwrap());
}

#[test]
fn listeners_stay_as_they_are_while_a_successor_starts() {
    let handles = SocketHandles::default();
    assert!(handles.begin_change().is_some());
    handles.freeze();
    assert!(handles.begin_change().is_none());
    handles.thaw();
    assert!(handles.begin_change().is_some());
}

#[test]
fn sockets_that_no_listener_uses_are_closed_at_last() {
    let mut sockets = InheritedSockets::from_outside(vec![labelled(SocketRole::Http, 0)]);
    sockets.check_activation_taken().unwrap();
    sockets.drop_rest();
    assert!(sockets.take(SocketRole::Http, ANY.parse().unwrap()).is_empty());
}
