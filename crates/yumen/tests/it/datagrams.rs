//! Datagrams on listeners that are bound to all addresses of their host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::Gateway;
use crate::l4::{start, udp_echo};

const SECOND_LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

fn to(endpoint: SocketAddr) -> Value {
    json!({ "nodes": { endpoint.to_string(): 1 }, "scheme": "udp" })
}

/// A gateway with one listener at `address`, and its port.
fn start_at(address: &str, resources: &Value) -> (Gateway, u16) {
    let (gateway, at) = start(&format!("[{{address: '{address}', protocol: udp}}]"), resources);
    (gateway, at[0].port())
}

/// The answer to a datagram, and who gave it. It is asked for again, since datagrams may get lost.
fn ask(socket: &UdpSocket, at: SocketAddr) -> (Vec<u8>, SocketAddr) {
    let mut room = [0; 100];
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        socket.send_to(b"x", at).unwrap();
        if let Ok((count, from)) = socket.recv_from(&mut room) {
            return (room[..count].to_vec(), from);
        }
    }
    panic!("no answer of {at}");
}

#[test]
fn an_answer_leaves_from_the_address_that_was_asked() {
    let everything = json!({ "stream_routes": [{ "id": "s", "upstream": to(udp_echo("a")) }] });
    for (listen, addresses) in [
        ("0.0.0.0:0", &["127.0.0.1", "127.0.0.2"][..]),
        ("[::]:0", &["127.0.0.1", "127.0.0.2", "::1"]),
        ("127.0.0.2:0", &["127.0.0.2"]),
    ] {
        let (_gateway, port) = start_at(listen, &everything);
        for address in addresses {
            let at = SocketAddr::new(address.parse().unwrap(), port);
            let any = if at.is_ipv6() { "[::1]:0" } else { "127.0.0.1:0" };
            assert_eq!(ask(&UdpSocket::bind(any).unwrap(), at), (b"ax".to_vec(), at), "on {listen}");
        }
    }
}

#[test]
fn a_stream_route_sees_to_which_address_a_datagram_was_sent() {
    let routes = json!({ "stream_routes": [
        { "id": "1", "upstream": to(udp_echo("a")) },
        { "id": "2", "server_addr": "127.0.0.2", "upstream": to(udp_echo("b")) },
    ] });
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let (gateway, port) = start_at(listen, &routes);
        // One client that asks both has a session with each.
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..2 {
            for (address, answer) in [(Ipv4Addr::LOCALHOST.into(), b"ax"), (SECOND_LOOPBACK, b"bx")] {
                assert_eq!(ask(&client, (address, port).into()).0, answer, "{address} on {listen}");
            }
        }
        assert_eq!(gateway.metric("yumen_streams{protocol=\"udp\"}"), 2.0);
    }
}
