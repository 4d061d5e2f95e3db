//! How streams and tunnels end: what one side said before it left reaches the other, and nobody is waited for for ever.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::tls::{TlsPeer, TlsUpstream, over_tls, trusting};
use crate::harness::upstream::Gate;
use crate::harness::{Client, Gateway, Scratch, certs, eventually, noise};
use crate::l4::{TCP, connect, echo, nodes, server, start, start_with};

const TLS: &str = "[{address: '127.0.0.1:0', protocol: tls}]";
const MUCH: usize = 3 << 20;

/// Reads nothing before the gate is open; then hands over what came and whether it ended without a reset.
fn slow_recorder(gate: &Gate) -> (SocketAddr, Receiver<(Vec<u8>, bool)>) {
    let (tell, told) = channel();
    let gate = gate.clone();
    let address = server(move |mut stream| {
        gate.pass();
        let mut bytes = Vec::new();
        let is_whole = stream.read_to_end(&mut bytes).is_ok();
        let _ = tell.send((bytes, is_whole));
    });
    (address, told)
}

fn streams_to(address: SocketAddr) -> Value {
    json!([{ "id": "s", "upstream": nodes(&[address]) }])
}

/// Says it in records; the connection then ends with the script.
fn say_without_goodbye(peer: &mut TlsPeer, bytes: &[u8]) -> Option<()> {
    bytes.chunks(16 << 10).try_for_each(|piece| {
        let records = peer.records(piece);
        peer.tcp.write_all(&records).ok()
    })
}

/// Writes until the other side has taken nothing for a while; how much it has taken.
fn fill(stream: &mut TcpStream) -> usize {
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let (piece, mut sent) = (noise(16 << 10), 0);
    while let Ok(count) = stream.write(&piece) {
        sent += count;
    }
    sent
}

#[test]
fn what_a_client_of_tls_said_before_it_left_without_goodbye_reaches_the_endpoint() {
    let (authority, gate) = (certs::Authority::new("front"), Gate::default());
    let pair = authority.sign("a", &["a.test"], certs::ecdsa());
    let (endpoint, told) = slow_recorder(&gate);
    let ssl = json!({ "id": "1", "cert": pair.cert, "key": pair.key, "snis": ["a.test"] });
    let (gateway, at) = start(TLS, &json!({ "ssls": [ssl], "stream_routes": streams_to(endpoint) }));
    let said = noise(MUCH);
    let mut client = over_tls(connect(at[0]), &trusting(&authority.cert));
    let opener = gate.clone();
    let opening = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        opener.open();
    });
    client.write_all(&said).unwrap();
    client.flush().unwrap();
    client.sock.shutdown(Shutdown::Write).unwrap();
    let (bytes, is_whole) = told.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(bytes == said && is_whole, "{} bytes, whole: {is_whole}", bytes.len());
    opening.join().unwrap();
    eventually("it is over", 10, || gateway.metric("yumen_streams{protocol=\"tls\"}") == 0.0);
    assert_eq!(gateway.metric("yumen_stream_faults_total{fault=\"client_reset\"}"), 0.0);
}

#[test]
fn what_an_endpoint_of_tls_said_before_it_left_without_goodbye_reaches_the_client() {
    let pair = certs::simple("b", &["b.test"]);
    let said = noise(MUCH);
    let saying = said.clone();
    let endpoint = TlsUpstream::start(&pair, move |peer, _| say_without_goodbye(peer, &saying));
    let mut upstream = nodes(&[endpoint.address]);
    upstream["scheme"] = json!("tls");
    let (gateway, at) = start(TCP, &json!({ "stream_routes": [{ "id": "s", "upstream": upstream }] }));
    let mut client = connect(at[0]);
    std::thread::sleep(Duration::from_millis(300));
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    assert!(bytes == said, "{} bytes", bytes.len());
    drop(client);
    eventually("it is over", 10, || gateway.metric("yumen_streams{protocol=\"tcp\"}") == 0.0);
    assert_eq!(gateway.metric("yumen_stream_faults_total{fault=\"upstream_reset\"}"), 0.0);
}

#[test]
fn what_a_client_said_before_it_broke_off_reaches_the_endpoint() {
    let gate = Gate::default();
    let (endpoint, told) = slow_recorder(&gate);
    let (gateway, at) = start(TCP, &json!({ "stream_routes": streams_to(endpoint) }));
    let mut client = connect(at[0]);
    fill(&mut client);
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    gate.open();
    let (bytes, is_whole) = told.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(!is_whole, "what was cut off does not look finished");
    eventually("it is over", 10, || gateway.metric("yumen_streams{protocol=\"tcp\"}") == 0.0);
    // What is counted as passed on was.
    assert_eq!(gateway.metric("yumen_stream_received_bytes_total"), bytes.len() as f64);
    assert!(bytes.len() > 100_000, "{}", bytes.len());
    assert_eq!(gateway.metric("yumen_stream_faults_total{fault=\"client_reset\"}"), 1.0);
}

#[test]
fn an_endpoint_that_never_ends_is_not_waited_for_when_the_client_has_left() {
    let gate = Gate::default();
    let (endpoint, _told) = slow_recorder(&gate);
    let node = format!("stream_listen: {TCP}\ntimeouts: {{stream_half_closed_ms: 300}}\n");
    let (gateway, at) = start_with(&node, &json!({ "stream_routes": streams_to(endpoint) }));
    let mut client = connect(at[0]);
    client.write_all(b"bye").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    eventually("it is over", 10, || gateway.metric("yumen_stream_faults_total{fault=\"idle\"}") == 1.0);
    assert_eq!(gateway.metric("yumen_streams{protocol=\"tcp\"}"), 0.0);
}

#[test]
fn the_last_messages_of_a_websocket_reach_the_client_though_tls_was_not_said_goodbye_to() {
    let pair = certs::simple("b", &["b.test"]);
    let said = noise(MUCH);
    let saying = said.clone();
    let endpoint = TlsUpstream::start(&pair, move |peer, _| {
        peer.request()?;
        let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        say_without_goodbye(peer, &[&head[..], &saying].concat())
    });
    let upstream = json!({ "scheme": "https", "nodes": { endpoint.address.to_string(): 1 } });
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "r", "uri": "/*", "enable_websocket": true, "upstream": upstream }
    ] }));
    let mut client = Client::connect(gateway.http);
    client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    std::thread::sleep(Duration::from_millis(300));
    assert!(client.head().unwrap().starts_with("HTTP/1.1 101"));
    assert!(client.bytes(MUCH) == said);
}

#[test]
fn a_stream_is_logged_in_the_format_of_apisix() {
    let scratch = Scratch::new();
    let file = scratch.path().join("streams.log");
    let line = "$remote_addr [$time_local] $protocol $status $bytes_sent $bytes_received $session_time";
    let node = format!(
        "stream_listen: {TCP}\nlogs: {{access: {{enabled: true, path: \"{}\", line: \"{line}\"}}}}\n",
        file.display()
    );
    let (_gateway, at) = start_with(&node, &json!({ "stream_routes": streams_to(echo()) }));
    let mut client = connect(at[0]);
    client.write_all(b"hello").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read_to_end(&mut Vec::new()).unwrap(), 5);
    let logged = || std::fs::read_to_string(&file).unwrap_or_default();
    eventually("it is logged", 10, || logged().contains("] TCP 200 5 5 "));
    assert!(logged().starts_with("127.0.0.1 ["), "{}", logged());
}
