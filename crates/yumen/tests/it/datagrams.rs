//! UDP: sessions, the choice of their endpoint, and listeners on all addresses of the host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Gateway, Upstream, eventually, free_port, noise};
use crate::l4::{nodes, start, start_with};

const SECOND_LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

fn to(endpoint: SocketAddr) -> Value {
    json!({ "nodes": { endpoint.to_string(): 1 }, "scheme": "udp" })
}

/// A gateway with one listener at `address`, and its port.
fn start_at(address: &str, resources: &Value) -> (Gateway, u16) {
    let (gateway, at) = start(&format!("[{{address: '{address}', protocol: udp}}]"), resources);
    (gateway, at[0].port())
}

/// Responds to each datagram with its name and the payload.
pub(crate) fn udp_echo(name: &'static str) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut room = vec![0; 65_536];
        while let Ok((count, peer)) = socket.recv_from(&mut room) {
            let _ = socket.send_to(&[name.as_bytes(), &room[..count]].concat(), peer);
        }
    });
    address
}

/// The response to a datagram from the address that it was sent to. Repeats the datagram, because one may be
/// lost, and ignores late responses from others.
fn ask(socket: &UdpSocket, at: SocketAddr, datagram: &[u8]) -> Vec<u8> {
    let mut room = vec![0; 65_536];
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        socket.send_to(datagram, at).unwrap();
        while let Ok((count, from)) = socket.recv_from(&mut room) {
            if from == at {
                return room[..count].to_vec();
            }
        }
    }
    panic!("no answer of {at} to {datagram:?}");
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
            assert_eq!(ask(&UdpSocket::bind(any).unwrap(), at, b"x"), b"ax", "on {listen}");
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
        // One client socket has a session with each listener.
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..2 {
            for (address, answer) in [(Ipv4Addr::LOCALHOST.into(), b"ax"), (SECOND_LOOPBACK, b"bx")] {
                assert_eq!(ask(&client, (address, port).into(), b"x"), answer, "{address} on {listen}");
            }
        }
        gateway.assert_metric("yumen_streams{protocol=\"udp\"}", 2.0);
    }
}

/// Whether a client with a single datagram gets a response.
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
    gateway.assert_metric("yumen_stream_faults_total{fault=\"connect\"}", 0.0);
}

#[test]
fn an_endpoint_that_refuses_clients_of_one_datagram_is_unhealthy() {
    let nodes = json!({ free_port().to_string(): 1, udp_echo("a").to_string(): 1 });
    let answering = Upstream::text("");
    // After the first round of probes, which succeed, only traffic changes the health.
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
    gateway.assert_metric("yumen_stream_faults_total{fault=\"connect\"}", 1.0);
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
        // One after another, so that none is lost in a full socket buffer.
        eventually("there is a session", 10, || open(clients.len()));
    }
    let more = gateway.resident_kib().saturating_sub(before);
    assert!(more < 12_000, "{more} KiB");
}

#[test]
fn datagrams_go_both_ways_in_sessions_that_end() {
    let mut upstream = nodes(&[udp_echo("a"), udp_echo("b")]);
    upstream["scheme"] = json!("udp");
    upstream["timeout"] = json!({ "connect": 5, "send": 1, "read": 1 });
    let (gateway, at) = start(
        "[{address: '127.0.0.1:0', protocol: udp}]",
        &json!({ "stream_routes": [{ "id": "s", "upstream": upstream }] }),
    );
    let clients: Vec<UdpSocket> = (0..8).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let mut met = std::collections::BTreeSet::new();
    for (number, client) in clients.iter().enumerate() {
        let first = ask(client, at[0], format!("hello {number}").as_bytes());
        assert_eq!(&first[1..], format!("hello {number}").as_bytes());
        // A session keeps its endpoint.
        let big = noise(9000);
        assert!(ask(client, at[0], &big) == [&first[..1], &big].concat());
        met.insert(first[0]);
    }
    assert_eq!(met.len(), 2, "sessions are spread over the endpoints");
    let open = "yumen_streams{protocol=\"udp\"}";
    eventually("silent sessions end", 20, || gateway.metric(open) == 0.0);
    assert_eq!(ask(&clients[0], at[0], b"again")[1..], b"again"[..]);
}

#[test]
fn a_session_of_datagrams_whose_endpoint_goes_ends_as_its_upstream_says() {
    let (before, after) = (udp_echo("a"), udp_echo("b"));
    let to = |on_change: &Value, endpoint: SocketAddr| {
        let mut upstream = nodes(&[endpoint]);
        upstream["scheme"] = json!("udp");
        upstream["on_change"] = on_change.clone();
        json!({ "stream_routes": [{ "id": "s", "upstream": upstream }] })
    };
    let nothing = json!({ "stream_routes": [] });
    // Setting, next document, endpoint that responds in the end, number of sessions that ended.
    for (on_change, then, answers, ended) in [
        (json!("keep"), to(&json!("keep"), after), b'a', 0.0),
        (json!("keep"), nothing.clone(), b'a', 0.0),
        (json!("close"), to(&json!("close"), after), b'b', 1.0),
        (json!({ "drain": 0.2 }), to(&json!("keep"), after), b'b', 1.0),
    ] {
        let (gateway, at) = start("[{address: '127.0.0.1:0', protocol: udp}]", &to(&on_change, before));
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(ask(&client, at[0], b"x"), b"ax", "{on_change}");
        gateway.apply(&then);
        if ended == 0.0 {
            // A negative check: longer than the gateway needs to notice.
            for _ in 0..15 {
                std::thread::sleep(Duration::from_millis(100));
                assert_eq!(ask(&client, at[0], b"x"), b"ax", "{on_change}");
            }
        } else {
            eventually("it is somebody else who answers", 10, || ask(&client, at[0], b"x")[0] == answers);
        }
        assert_eq!(gateway.metric("yumen_stream_faults_total{fault=\"changed\"}"), ended, "{on_change}");
        let open = gateway.metric("yumen_streams{protocol=\"udp\"}");
        assert_eq!(open, 1.0, "{on_change}: one session, or the one after it");
    }
    // A drained session keeps its endpoint until the drain ends.
    let slow = json!({ "drain": 3600 });
    let (gateway, at) = start("[{address: '127.0.0.1:0', protocol: udp}]", &to(&slow, before));
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_eq!(ask(&client, at[0], b"x"), b"ax");
    gateway.apply(&nothing);
    eventually("it is to end", 10, || {
        assert_eq!(ask(&client, at[0], b"x"), b"ax");
        gateway.metric("yumen_tunnels_ended_total") == 1.0
    });
    assert_eq!(ask(&client, at[0], b"x"), b"ax");
}

#[test]
fn a_client_whose_datagrams_are_refused_is_led_to_another_endpoint() {
    let mut upstream = nodes(&[free_port(), udp_echo("alive")]);
    (upstream["scheme"], upstream["retries"]) = (json!("udp"), json!(0));
    let (gateway, at) = start(
        "[{address: '127.0.0.1:0', protocol: udp}]",
        &json!({ "stream_routes": [{ "id": "s", "upstream": upstream }] }),
    );
    let answered = |socket: &UdpSocket| {
        let mut room = [0; 100];
        (0..6).any(|_| socket.send_to(b"x", at[0]).is_ok() && socket.recv_from(&mut room).is_ok())
    };
    for _ in 0..4 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(answered(&socket));
    }
    assert!(gateway.metric("yumen_stream_faults_total{fault=\"connect\"}") >= 1.0);
}

#[test]
fn sessions_of_datagrams_are_bounded() {
    let node =
        "stream_listen: [{address: '127.0.0.1:0', protocol: udp}]\nlimits: {udp_sessions_per_worker: 1}\n";
    let resources = json!({ "stream_routes": [{ "id": "s", "upstream": nodes(&[udp_echo("a")]) }] });
    let (gateway, at) = start_with(node, &resources);
    let clients: Vec<UdpSocket> = (0..16).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for client in &clients {
        client.send_to(b"x", at[0]).unwrap();
    }
    // Two workers with at most one session each.
    eventually("the others are refused", 10, || {
        gateway.metric("yumen_stream_faults_total{fault=\"too_many_sessions\"}") >= 14.0
    });
    let open = gateway.metric("yumen_streams{protocol=\"udp\"}");
    assert!((1.0..=2.0).contains(&open), "{open}");
}
