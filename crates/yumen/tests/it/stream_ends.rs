//! Ends of streams and tunnels: bytes sent before an end reach the other side, and no wait is endless.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::tls::{TlsPeer, TlsUpstream, over_tls, trusting};
use crate::harness::upstream::Gate;
use crate::harness::{Client, Gateway, Scratch, certs, eventually, noise, settles};
use crate::l4::{TCP, connect, echo, nodes, server, start, start_with};

const TLS: &str = "[{address: '127.0.0.1:0', protocol: tls}]";
const MUCH: usize = 3 << 20;

/// Reads only after the gate is open; then returns the bytes and whether they ended without a reset.
fn slow_recorder(gate: &Gate) -> (SocketAddr, Receiver<(Vec<u8>, bool)>) {
    let (sender, receiver) = channel();
    let gate = gate.clone();
    let address = server(move |mut stream| {
        gate.pass();
        let mut bytes = Vec::new();
        let is_whole = stream.read_to_end(&mut bytes).is_ok();
        let _ = sender.send((bytes, is_whole));
    });
    (address, receiver)
}

fn streams_to(address: SocketAddr) -> Value {
    json!([{ "id": "s", "upstream": nodes(&[address]) }])
}

/// Sends bytes in TLS records and counts them, without close_notify at the end.
fn send_without_close_notify(peer: &mut TlsPeer, bytes: &[u8], sent: &AtomicUsize) -> Option<()> {
    bytes.chunks(16 << 10).try_for_each(|piece| {
        let records = peer.records(piece);
        peer.tcp.write_all(&records).ok()?;
        sent.fetch_add(piece.len(), Ordering::AcqRel);
        Some(())
    })
}

/// Waits until as many of these bytes are sent as fit on their path.
fn wait_until_sent(sent: &AtomicUsize) {
    eventually("all that fits on the path is sent", 20, settles(|| sent.load(Ordering::Acquire)));
}

/// Writes until the other side reads nothing for a while; returns the number of accepted bytes.
fn fill(stream: &mut TcpStream) -> usize {
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let (piece, mut sent) = (noise(16 << 10), 0);
    while let Ok(count) = stream.write(&piece) {
        sent += count;
    }
    sent - unacknowledged(stream)
}

/// Bytes that the other side's system has not acknowledged: the first queue in /proc/net/tcp.
fn unacknowledged(stream: &TcpStream) -> usize {
    let port = |address: SocketAddr| format!(":{:04X}", address.port());
    let ends = [stream.local_addr().unwrap(), stream.peer_addr().unwrap()].map(port);
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|line| line[1].ends_with(&ends[0]) && line[2].ends_with(&ends[1])).unwrap();
    usize::from_str_radix(line[4].split(':').next().unwrap(), 16).unwrap()
}

fn reset(stream: TcpStream) {
    // A close without linger sends a reset.
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Sends a byte regularly until stopped or the connection closes.
fn chat(stream: &TcpStream) -> (JoinHandle<()>, Arc<AtomicBool>) {
    let (mut stream, is_over) = (stream.try_clone().unwrap(), Arc::<AtomicBool>::default());
    let over = is_over.clone();
    let chatting = std::thread::spawn(move || {
        while !over.load(Ordering::Acquire) && stream.write_all(b".").is_ok() {
            // Pacing: a byte at a time.
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    (chatting, is_over)
}

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const UPGRADED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// A connection to the endpoint as a stream, or as a tunnel.
fn through(gateway: &Gateway, at: SocketAddr, is_tunnel: bool) -> TcpStream {
    if !is_tunnel {
        return connect(at);
    }
    let mut client = connect(gateway.http);
    client.write_all(UPGRADE.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    client
}

/// A gateway with both a stream and a tunnel to the endpoint, which sees no difference.
fn both_ways(timeouts: &str, serve: impl Fn(TcpStream) + Clone + Send + 'static) -> (Gateway, SocketAddr) {
    let address = server(serve.clone());
    let upgrading = server(move |mut stream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read_exact(&mut byte).is_err() {
                return;
            }
            head.push(byte[0]);
        }
        let _ = stream.write_all(UPGRADED);
        serve(stream);
    });
    // One tunnel at a time, so that a second one shows whether the first gave its slot back.
    let limit = json!({ "conn": 1, "burst": 0, "default_conn_delay": 0.1, "key": "remote_addr" });
    let tunnel = json!({ "id": "r", "uri": "/*", "enable_websocket": true, "plugins": { "limit-conn": limit },
        "upstream": { "nodes": { upgrading.to_string(): 1 } } });
    let resources = json!({ "routes": [tunnel], "stream_routes": streams_to(address) });
    let (gateway, at) = start_with(&format!("stream_listen: {TCP}\ntimeouts: {timeouts}\n"), &resources);
    (gateway, at[0])
}

#[test]
fn what_a_client_of_tls_said_before_it_left_without_goodbye_reaches_the_endpoint() {
    let (authority, gate) = (certs::Authority::new("front"), Gate::default());
    let pair = authority.sign("a", &["a.test"], certs::ecdsa());
    let (endpoint, receiver) = slow_recorder(&gate);
    let ssl = json!({ "id": "1", "cert": pair.cert, "key": pair.key, "snis": ["a.test"] });
    let (gateway, at) = start(TLS, &json!({ "ssls": [ssl], "stream_routes": streams_to(endpoint) }));
    let payload = noise(MUCH);
    let mut client = over_tls(connect(at[0]), &trusting(&authority.cert));
    let (opener, sent) = (gate.clone(), Arc::<AtomicUsize>::default());
    let counted = sent.clone();
    // The buffers on the path fill before the endpoint reads.
    let opening = std::thread::spawn(move || {
        wait_until_sent(&counted);
        opener.open();
    });
    for piece in payload.chunks(16 << 10) {
        client.write_all(piece).unwrap();
        sent.fetch_add(piece.len(), Ordering::AcqRel);
    }
    client.flush().unwrap();
    client.sock.shutdown(Shutdown::Write).unwrap();
    let (bytes, is_whole) = receiver.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(bytes == payload && is_whole, "{} bytes, whole: {is_whole}", bytes.len());
    opening.join().unwrap();
    eventually("it is over", 10, || gateway.metric("yumen_streams{protocol=\"tls\"}") == 0.0);
    gateway.assert_metric("yumen_stream_faults_total{fault=\"client_reset\"}", 0.0);
}

#[test]
fn what_an_endpoint_of_tls_said_before_it_left_without_goodbye_reaches_the_client() {
    let pair = certs::simple("b", &["b.test"]);
    let (payload, sent) = (noise(MUCH), Arc::<AtomicUsize>::default());
    let (bytes, counted) = (payload.clone(), sent.clone());
    let endpoint =
        TlsUpstream::start(&pair, move |peer, _| send_without_close_notify(peer, &bytes, &counted));
    let mut upstream = nodes(&[endpoint.address]);
    upstream["scheme"] = json!("tls");
    let (gateway, at) = start(TCP, &json!({ "stream_routes": [{ "id": "s", "upstream": upstream }] }));
    let mut client = connect(at[0]);
    // The end of the endpoint arrives before the client reads.
    wait_until_sent(&sent);
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    assert!(bytes == payload, "{} bytes", bytes.len());
    drop(client);
    eventually("it is over", 10, || gateway.metric("yumen_streams{protocol=\"tcp\"}") == 0.0);
    gateway.assert_metric("yumen_stream_faults_total{fault=\"upstream_reset\"}", 0.0);
}

#[test]
fn what_a_client_said_before_it_broke_off_reaches_the_endpoint() {
    let gate = Gate::default();
    let (endpoint, receiver) = slow_recorder(&gate);
    let (gateway, at) = start(TCP, &json!({ "stream_routes": streams_to(endpoint) }));
    let mut client = connect(at[0]);
    let sent = fill(&mut client);
    reset(client);
    gate.open();
    let (bytes, is_whole) = receiver.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(!is_whole, "what was cut off does not look finished");
    eventually("it is over", 10, || gateway.metric("yumen_streams{protocol=\"tcp\"}") == 0.0);
    // The counter includes exactly the forwarded bytes.
    gateway.assert_metric("yumen_stream_received_bytes_total", bytes.len() as f64);
    assert!(bytes.len() >= sent, "{} of {sent}", bytes.len());
    gateway.assert_metric("yumen_stream_faults_total{fault=\"client_reset\"}", 1.0);
}

#[test]
fn what_a_client_said_before_it_broke_off_reaches_an_endpoint_that_speaks_itself() {
    for is_tunnel in [false, true] {
        let (gate, (sender, receiver)) = (Gate::default(), channel());
        let opened = gate.clone();
        let (gateway, at) = both_ways("{}", move |mut stream| {
            let _chat = chat(&stream);
            opened.pass();
            let mut bytes = Vec::new();
            let end = stream.read_to_end(&mut bytes).map_err(|error| error.kind());
            let _ = sender.send((bytes.len(), end.is_ok()));
        });
        let mut client = through(&gateway, at, is_tunnel);
        let sent = fill(&mut client);
        reset(client);
        // Pacing: the gateway notices the reset before the endpoint reads, and nothing outside shows it.
        std::thread::sleep(Duration::from_millis(300));
        gate.open();
        let (received, _) = receiver.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(received >= sent, "{received} of {sent}, tunnel: {is_tunnel}");
        if !is_tunnel {
            eventually("it is over", 10, || gateway.metric("yumen_streams{protocol=\"tcp\"}") == 0.0);
            gateway.assert_metric("yumen_stream_received_bytes_total", received as f64);
            gateway.assert_metric("yumen_stream_faults_total{fault=\"client_reset\"}", 1.0);
        }
    }
}

#[test]
fn what_an_endpoint_said_before_it_broke_off_reaches_a_client_that_speaks_itself() {
    for (is_tunnel, ends) in [(false, false), (false, true), (true, false), (true, true)] {
        let (sender, receiver) = channel();
        let (gateway, at) = both_ways("{}", move |mut stream| {
            if ends {
                // Data that is not read after its end breaks the connection too.
                let _ = stream.write_all(&noise(1 << 20));
                let _ = sender.send(1 << 20);
            } else {
                let _ = sender.send(fill(&mut stream));
                reset(stream);
            }
        });
        let mut client = through(&gateway, at, is_tunnel);
        let sent = receiver.recv_timeout(Duration::from_secs(20)).unwrap();
        // Pacing: the gateway notices the end of the endpoint before the client speaks.
        std::thread::sleep(Duration::from_millis(100));
        let (chatting, is_over) = chat(&client);
        // Scripted: the client speaks for a while and reads nothing.
        std::thread::sleep(Duration::from_millis(300));
        is_over.store(true, Ordering::Release);
        chatting.join().unwrap();
        let mut bytes = Vec::new();
        let end = client.read_to_end(&mut bytes);
        assert!(bytes.len() >= sent, "{} of {sent}, tunnel: {is_tunnel}, ends: {ends}", bytes.len());
        assert_eq!(
            end.is_ok(),
            ends,
            "what was cut off does not look finished: {end:?}, tunnel: {is_tunnel}"
        );
        if !is_tunnel {
            eventually("it is over", 10, || gateway.metric("yumen_streams{protocol=\"tcp\"}") == 0.0);
            gateway.assert_metric("yumen_stream_sent_bytes_total", bytes.len() as f64);
            gateway.assert_metric("yumen_stream_faults_total{fault=\"upstream_reset\"}", 1.0);
        }
    }
}

#[test]
fn an_endpoint_that_takes_nothing_is_not_waited_for_when_the_client_has_broken_off() {
    let (gateway, at) = both_ways("{send_ms: 300}", |stream| drop(chat(&stream).0.join()));
    let mut client = through(&gateway, at, false);
    fill(&mut client);
    reset(client);
    eventually("it is over", 10, || gateway.metric("yumen_streams{protocol=\"tcp\"}") == 0.0);
    gateway.assert_metric("yumen_stream_faults_total{fault=\"client_reset\"}", 1.0);
}

#[test]
fn a_tunnel_whose_client_has_left_ends_and_gives_its_place_back() {
    let (gateway, at) = both_ways("{stream_half_closed_ms: 300}", |mut stream| {
        // Scripted: sends for longer than the timeout, then nothing, without an end.
        for _ in 0..10 {
            let _ = stream.write_all(b"tick");
            std::thread::sleep(Duration::from_millis(100));
        }
        std::thread::sleep(Duration::from_secs(60));
    });
    let mut client = through(&gateway, at, true);
    client.shutdown(Shutdown::Write).unwrap();
    let mut bytes = Vec::new();
    let end = client.read_to_end(&mut bytes).map_err(|error| error.kind());
    assert_eq!((bytes.len(), end), (40, Err(ErrorKind::ConnectionReset)));
    // Its slot in `limit-conn` is free.
    drop(through(&gateway, at, true));
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
    gateway.assert_metric("yumen_streams{protocol=\"tcp\"}", 0.0);
}

#[test]
fn the_last_messages_of_a_websocket_reach_the_client_though_tls_was_not_said_goodbye_to() {
    let pair = certs::simple("b", &["b.test"]);
    let (payload, sent) = (noise(MUCH), Arc::<AtomicUsize>::default());
    let (bytes, counted) = (payload.clone(), sent.clone());
    let endpoint = TlsUpstream::start(&pair, move |peer, _| {
        peer.request()?;
        let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        send_without_close_notify(peer, &[&head[..], &bytes].concat(), &counted)
    });
    let upstream = json!({ "scheme": "https", "nodes": { endpoint.address.to_string(): 1 } });
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "r", "uri": "/*", "enable_websocket": true, "upstream": upstream }
    ] }));
    let mut client = Client::connect(gateway.http);
    client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    // The end of the endpoint arrives before the client reads.
    wait_until_sent(&sent);
    assert!(client.head().unwrap().starts_with("HTTP/1.1 101"));
    assert!(client.bytes(MUCH) == payload);
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
