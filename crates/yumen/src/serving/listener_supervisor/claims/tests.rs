//! Conflicts between listeners.

use super::*;

fn listener(id: &str, created_s: i64, address: &str, protocol: ListenProtocol) -> RequestedListener {
    let address = address.parse().unwrap();
    let http3 = protocol == ListenProtocol::Https;
    let settings = ListenSettings {
        address,
        protocol,
        port: address.port(),
        proxy_from: yumen_base::IpSet::default(),
        real_ip: None,
        http3,
        backlog: None,
    };
    let number = ListenerNumber { slot: 1, epoch: 0 };
    RequestedListener { id: id.into(), number, created_s, settings: Arc::new(settings) }
}

/// The claims of these listeners as `id transport address`, and the problems.
#[track_caller]
fn check(listeners: Vec<RequestedListener>, claimed: &[&str], problems: &[&str]) {
    let at = ListenAddress { transport: ListenTransport::Tcp, address: "127.0.0.1:80".parse().unwrap() };
    let occupied = BTreeMap::from([(at, "a listener of yumen.yaml")]);
    let claims = ListenerClaims::of(listeners, &occupied, 3);
    let found = claims.sockets.iter().map(|claim| {
        let ListenAddress { transport, address } = claim.at;
        format!("{} {transport:?} {address}", claim.listener.id)
    });
    assert_eq!(found.collect::<Vec<_>>(), claimed);
    let found = claims.problems.iter().map(|one| format!("{} {}: {}", one.object, one.path, one.message));
    assert_eq!(found.collect::<Vec<_>>(), problems);
}

use ListenProtocol::{Http, Https, Tcp, Udp};

#[test]
fn of_two_listeners_with_one_address_the_older_has_it_then_the_lower_id() {
    let refused = |id: &str, owner: &str| {
        format!("listeners/{id} address: not opened: listeners/{owner} has the address 127.0.0.1:1")
    };
    let at = "127.0.0.1:1";
    check(
        vec![listener("a", 2, at, Http), listener("b", 1, at, Tcp)],
        &["b Tcp 127.0.0.1:1"],
        &[&refused("a", "b")],
    );
    check(
        vec![listener("b", 1, at, Http), listener("a", 1, at, Http)],
        &["a Tcp 127.0.0.1:1"],
        &[&refused("b", "a")],
    );
}

#[test]
fn tcp_and_udp_have_ports_of_their_own() {
    let at = "127.0.0.1:1";
    check(
        vec![listener("a", 0, at, Http), listener("b", 0, at, Udp)],
        &["a Tcp 127.0.0.1:1", "b Udp 127.0.0.1:1"],
        &[],
    );
}

#[test]
fn http3_claims_the_udp_port_and_is_left_out_without_it() {
    let at = "127.0.0.1:1";
    check(vec![listener("a", 0, at, Https)], &["a Tcp 127.0.0.1:1", "a Udp 127.0.0.1:1"], &[]);
    check(
        vec![listener("a", 2, at, Https), listener("b", 1, at, Udp)],
        &["b Udp 127.0.0.1:1", "a Tcp 127.0.0.1:1"],
        &["listeners/a http3: HTTP/3 is not served: listeners/b has the UDP address 127.0.0.1:1"],
    );
}

#[test]
fn an_address_of_the_node_settings_is_refused() {
    let expected = "listeners/a address: not opened: a listener of yumen.yaml has the address 127.0.0.1:80";
    check(vec![listener("a", 0, "127.0.0.1:80", Http)], &[], &[expected]);
}

#[test]
fn listeners_above_the_limit_are_refused_the_youngest_first() {
    let all = (1..=4).map(|at| listener(&at.to_string(), -at, &format!("127.0.0.1:{at}"), Tcp)).collect();
    check(
        all,
        &["4 Tcp 127.0.0.1:4", "3 Tcp 127.0.0.1:3", "2 Tcp 127.0.0.1:2"],
        &["listeners/1 : not opened: more than 3 listeners"],
    );
}
