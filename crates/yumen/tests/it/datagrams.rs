//! Datagrams on listeners that are bound to all addresses of their host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Gateway, Upstream, eventually, free_port};
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

/// The answer to a datagram from where it was sent to. It is asked for again, since datagrams may get lost; another's may
/// come late.
fn ask(socket: &UdpSocket, at: SocketAddr) -> Vec<u8> {
    let mut room = [0; 100];
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        socket.send_to(b"x", at).unwrap();
        while let Ok((count, from)) = socket.recv_from(&mut room) {
            if from == at {
                return room[..count].to_vec();
            }
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
            assert_eq!(ask(&UdpSocket::bind(any).unwrap(), at), b"ax", "on {listen}");
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
                assert_eq!(ask(&client, (address, port).into()), answer, "{address} on {listen}");
            }
        }
        assert_eq!(gateway.metric("yumen_streams{protocol=\"udp\"}"), 2.0);
    }
}

/// Whether a client of one datagram is answered.
fn is_answered(at: SocketAddr) -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    socket.send_to(b"12345", at).unwrap();
    socket.recv_from(&mut [0; 100]).is_ok()
}

#[test]
fn a_first_datagram_that_is_refused_goes_to_another_endpoint() {
    let nodes = json!({ free_port().to_string(): 1, udp_echo("a").to_string(): 1 });
    let (gateway, at) = start(
        "[{address: '127.0.0.1:0', protocol: udp}]",
        &json!({ "stream_routes": [{ "id": "s", "upstream": { "nodes": nodes, "scheme": "udp" } }] }),
    );
    assert!((0..10).all(|_| is_answered(at[0])));
    assert!(gateway.metric("yumen_upstream_retries_total") >= 4.0);
    assert_eq!(gateway.metric("yumen_stream_faults_total{fault=\"connect\"}"), 0.0);
}

#[test]
fn an_endpoint_that_refuses_clients_of_one_datagram_is_unhealthy() {
    let nodes = json!({ free_port().to_string(): 1, udp_echo("a").to_string(): 1 });
    let answering = Upstream::text("");
    // After the first round, in which both are there, nothing is learnt but by traffic.
    let active = json!({ "type": "tcp", "port": answering.address.port(), "healthy": { "interval": 3600 },
        "unhealthy": { "interval": 3600 } });
    let passive = json!({ "type": "tcp", "unhealthy": { "tcp_failures": 1 } });
    let upstream = json!({ "nodes": nodes, "scheme": "udp", "retries": 0,
        "checks": { "active": active, "passive": passive } });
    let (gateway, at) = start(
        "[{address: '127.0.0.1:0', protocol: udp}]",
        &json!({ "stream_routes": [{ "id": "s", "upstream": upstream }] }),
    );
    let round = "yumen_health_probes_total{outcome=\"answered\"}";
    eventually("the first round is over", 30, || gateway.metric(round) == 2.0);
    let answered = (0..10).filter(|_| is_answered(at[0])).count();
    assert_eq!(answered, 9);
    assert_eq!(gateway.metric("yumen_stream_faults_total{fault=\"connect\"}"), 1.0);
}

#[test]
fn what_sessions_sent_first_is_not_kept_while_they_wait() {
    const SESSIONS: usize = 400;
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (gateway, at) = start(
        "[{address: '127.0.0.1:0', protocol: udp}]",
        &json!({ "stream_routes": [{ "id": "s", "upstream": to(sink.local_addr().unwrap()) }] }),
    );
    let begin = || {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(&[b'x'; 60_000], at[0]).unwrap();
        client
    };
    let open = |count: usize| gateway.metric("yumen_streams{protocol=\"udp\"}") == count as f64;
    let mut clients = vec![begin()];
    eventually("there is a first session", 10, || open(1));
    let before = gateway.resident_kib();
    while clients.len() < SESSIONS {
        clients.push(begin());
        // None is lost for want of room in the socket.
        eventually("there is a session", 10, || open(clients.len()));
    }
    let more = gateway.resident_kib().saturating_sub(before);
    assert!(more < 12_000, "{more} KiB");
}
