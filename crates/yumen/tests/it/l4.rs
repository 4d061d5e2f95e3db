//! Streams over real sockets: both directions, TLS passthrough, PROXY headers, plugins, ends.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::datagrams::udp_echo;
use crate::harness::{Gateway, Options, Upstream, certs, eventually, free_port, noise, run};

const WAIT: Duration = Duration::from_secs(20);

/// A TCP server; `serve` handles each connection on its own thread.
pub(crate) fn server(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Echoes every byte, and the end.
pub(crate) fn echo() -> SocketAddr {
    server(|mut stream| {
        let mut room = vec![0; 65_536];
        while let Ok(count @ 1..) = stream.read(&mut room) {
            if stream.write_all(&room[..count]).is_err() {
                break;
            }
        }
    })
}

/// Sends its name at once, then waits for the client to close.
pub(crate) fn named(name: &'static str) -> SocketAddr {
    server(move |mut stream| {
        let _ = stream.write_all(name.as_bytes());
        let _ = stream.read(&mut [0]);
    })
}

/// Collects the bytes of each connection until its end.
fn recorder() -> (SocketAddr, Receiver<Vec<u8>>) {
    let (sender, receiver) = channel();
    let address = server(move |mut stream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    (address, receiver)
}

pub(crate) fn nodes(addresses: &[SocketAddr]) -> Value {
    let nodes: serde_json::Map<String, Value> =
        addresses.iter().map(|address| (address.to_string(), json!(1))).collect();
    json!({ "nodes": nodes, "scheme": "tcp" })
}

fn everything_to(address: SocketAddr) -> Value {
    json!({ "stream_routes": [{ "id": "s", "upstream": nodes(&[address]) }] })
}

/// A gateway with these stream listeners, and their addresses, TCP first.
pub(crate) fn start(listen: &str, resources: &Value) -> (Gateway, Vec<SocketAddr>) {
    start_with(&format!("stream_listen: {listen}\n"), resources)
}

pub(crate) fn start_with(node: &str, resources: &Value) -> (Gateway, Vec<SocketAddr>) {
    let gateway = Gateway::with(resources, &Options { node, ..Options::default() });
    let addresses = listening(&gateway);
    (gateway, addresses)
}

fn listening(gateway: &Gateway) -> Vec<SocketAddr> {
    let lines = gateway.lines();
    let streams = lines.iter().filter(|line| line.split_whitespace().next() == Some("stream"));
    streams.map(|line| line.split_whitespace().nth(2).unwrap().parse().unwrap()).collect()
}

pub(crate) const TCP: &str = "[{address: '127.0.0.1:0'}]";

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream
}

/// All bytes until the end, or until a reset.
pub(crate) fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
    bytes
}

/// The first bytes; empty if the connection is closed instead.
pub(crate) fn first(stream: &mut TcpStream) -> String {
    let mut room = [0; 256];
    let count = stream.read(&mut room).unwrap_or(0);
    String::from_utf8_lossy(&room[..count]).into_owned()
}

#[test]
fn streams_that_idle_hold_no_pipe() {
    let (gateway, at) = start(TCP, &everything_to(echo()));
    // Large enough to be spliced through a pipe.
    let sent = noise(4 << 20);
    let idle: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut client = connect(at[0]);
            let (mut writer, bytes) = (client.try_clone().unwrap(), sent.clone());
            let writing = std::thread::spawn(move || writer.write_all(&bytes).unwrap());
            client.read_exact(&mut vec![0; sent.len()]).unwrap();
            writing.join().unwrap();
            client
        })
        .collect();
    assert!(gateway.metric("yumen_stream_spliced_bytes_total") > 0.0);
    let open = std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap();
    let names = open.filter_map(|one| std::fs::read_link(one.ok()?.path()).ok());
    let pipes = names.filter(|name| name.to_string_lossy().starts_with("pipe:")).count();
    // Each stream with a pipe would hold two ends.
    assert!(pipes < idle.len(), "{pipes} ends of pipes");
}

/// An endless flow in one direction does not delay the other direction.
#[test]
fn a_flow_without_end_leaves_the_other_way_its_turn() {
    let endpoint = server(|mut stream| {
        let mut room = vec![0; 1 << 20];
        let mut read = 0;
        while let Ok(count @ 1..) = stream.read(&mut room) {
            let was_less = read < 8 << 20;
            read += count;
            if was_less && read >= 8 << 20 {
                stream.write_all(b"enough").unwrap();
            }
        }
    });
    let (_gateway, at) = start(TCP, &everything_to(endpoint));
    let mut client = connect(at[0]);
    let mut writer = client.try_clone().unwrap();
    let is_enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (begun, bytes) = (Instant::now(), vec![0; 1 << 20]);
            while !is_enough.load(Relaxed) && begun.elapsed() < Duration::from_secs(10) {
                writer.write_all(&bytes).unwrap();
            }
            is_enough.store(true, Relaxed);
            writer.shutdown(Shutdown::Write).unwrap();
        });
        client.read_exact(&mut [0; 6]).unwrap();
        assert!(!is_enough.swap(true, Relaxed), "heard only when the flow was over");
    });
}

#[test]
fn bytes_go_both_ways_until_both_sides_have_ended() {
    let (gateway, at) = start(TCP, &everything_to(echo()));
    // Small ones pass through buffers, large ones are spliced.
    for size in [1, 1000, 100_000, 24 << 20] {
        let mut client = connect(at[0]);
        let sent = noise(size);
        let mut writer = client.try_clone().unwrap();
        let bytes = sent.clone();
        let writing = std::thread::spawn(move || {
            writer.write_all(&bytes).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        assert!(rest(&mut client) == sent, "{size} bytes come back whole");
        writing.join().unwrap();
    }
    assert!(gateway.metric("yumen_stream_spliced_bytes_total") > 0.0);
    eventually("all have ended", 10, || gateway.metric("yumen_streams{protocol=\"tcp\"}") == 0.0);
    gateway.assert_metric("yumen_streams_total{protocol=\"tcp\"}", 4.0);
    let passed = (1 + 1000 + 100_000 + (24 << 20)) as f64;
    gateway.assert_metric("yumen_stream_received_bytes_total", passed);
    gateway.assert_metric("yumen_stream_sent_bytes_total", passed);
}

#[test]
fn a_client_that_has_said_all_still_gets_its_answer() {
    let counting = server(|mut stream| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        // Scripted: the response follows after the end of the other direction.
        std::thread::sleep(Duration::from_millis(100));
        let _ = stream.write_all(format!("got {}", bytes.len()).as_bytes());
    });
    let (_gateway, at) = start(TCP, &everything_to(counting));
    let mut client = connect(at[0]);
    client.write_all(b"hello").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut client), b"got 5");
}

#[test]
fn a_reader_that_is_behind_holds_the_writer_up_and_loses_nothing() {
    let (go, wait) = channel::<()>();
    let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
    let (sender, receiver) = channel();
    let slow = server(move |mut stream| {
        let _ = wait.lock().unwrap().recv();
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    let (gateway, at) = start(TCP, &everything_to(slow));
    let mut client = connect(at[0]);
    // A write that times out shows that all buffers on the path are full.
    client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let block = noise(1 << 20);
    let mut written = 0;
    while let Ok(count) = client.write(&block[written % block.len()..]) {
        written += count;
        assert!(written < 512 << 20, "nobody reads, and still all is taken");
    }
    assert!(gateway.resident_kib() < 256 * 1024, "what waits is with the system, not here");
    go.send(()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let bytes = receiver.recv_timeout(WAIT).expect("all arrives");
    assert_eq!(bytes.len(), written);
    assert!(bytes.chunks(block.len()).all(|chunk| chunk == &block[..chunk.len()]));
}

#[test]
fn a_reset_is_passed_on_and_never_looks_like_an_end() {
    let resetting = server(|mut stream| {
        let _ = stream.write_all(b"half of");
        let _ = stream.read(&mut [0; 16]);
        // Unread bytes turn the close into a reset.
        let _ = stream.write_all(b"x");
    });
    let (gateway, at) = start(TCP, &everything_to(resetting));
    let mut client = connect(at[0]);
    assert_eq!(first(&mut client), "half of");
    client.write_all(&[1; 4096]).unwrap();
    let mut bytes = Vec::new();
    assert!(client.read_to_end(&mut bytes).is_err(), "{bytes:?}");
    eventually("it is counted", 10, || {
        gateway.metric("yumen_stream_faults_total{fault=\"upstream_reset\"}") == 1.0
    });
}

#[test]
fn the_most_specific_route_gets_the_connection() {
    let listen = "[{address: '127.0.0.1:0'}, {address: '127.0.0.1:0'}]";
    let (gateway, at) = start(listen, &json!({}));
    assert_eq!(rest(&mut connect(at[0])), b"", "without a route the connection is closed");
    gateway.apply(&json!({ "stream_routes": [
        { "id": "any", "upstream": nodes(&[named("any")]) },
        { "id": "port", "server_port": at[1].port(), "upstream": nodes(&[named("port")]) },
    ]}));
    assert_eq!(first(&mut connect(at[0])), "any");
    assert_eq!(first(&mut connect(at[1])), "port");
    gateway.apply(&json!({ "stream_routes": [
        { "id": "near", "remote_addr": "127.0.0.0/8", "upstream": nodes(&[named("near")]) },
        { "id": "far", "remote_addr": "192.0.2.0/24", "upstream": nodes(&[named("far")]) },
    ]}));
    assert_eq!(first(&mut connect(at[0])), "near");
}

#[test]
fn a_change_is_for_new_connections_and_leaves_old_ones_alone() {
    let (gateway, at) = start(TCP, &everything_to(echo()));
    let mut old = connect(at[0]);
    old.write_all(b"before").unwrap();
    assert_eq!(first(&mut old), "before");
    gateway.apply(&everything_to(named("new")));
    assert_eq!(first(&mut connect(at[0])), "new");
    gateway.apply(&json!({}));
    old.write_all(b"after").unwrap();
    assert_eq!(first(&mut old), "after");
}

#[test]
fn endpoints_that_refuse_are_passed_over() {
    let upstream = nodes(&[free_port(), named("alive")]);
    let (gateway, at) = start(TCP, &json!({ "stream_routes": [{ "id": "s", "upstream": upstream }] }));
    for _ in 0..6 {
        assert_eq!(first(&mut connect(at[0])), "alive");
    }
    gateway.apply(&everything_to(free_port()));
    assert_eq!(rest(&mut connect(at[0])), b"");
    eventually("it is counted", 10, || gateway.metric("yumen_stream_faults_total{fault=\"connect\"}") == 1.0);
}

#[test]
fn a_silent_stream_ends_after_its_upstream_s_timeout() {
    let mut upstream = nodes(&[echo()]);
    upstream["timeout"] = json!({ "connect": 5, "send": 1, "read": 1 });
    let (gateway, at) = start(TCP, &json!({ "stream_routes": [{ "id": "s", "upstream": upstream }] }));
    let mut client = connect(at[0]);
    client.write_all(b"x").unwrap();
    assert_eq!(rest(&mut client), b"x");
    gateway.assert_metric("yumen_stream_faults_total{fault=\"idle\"}", 1.0);
}

/// The body that curl gets over TLS for a name at an address.
pub(crate) fn curl_tls(address: SocketAddr, name: &str, ca: &str) -> String {
    let resolve = format!("{name}:{}:{}", address.port(), address.ip());
    let url = format!("https://{name}:{}/", address.port());
    let (_, out, err) =
        run("curl", &["-sS", "--http1.1", "--cacert", ca, "--resolve", &resolve, "-m", "20", &url]);
    out + &err
}

#[test]
fn tls_ends_at_the_gateway_and_begins_again_towards_the_endpoint() {
    let authority = certs::Authority::new("behind");
    let (front, back) = (certs::simple("a", &["a.test"]), authority.sign("b", &["b.test"], certs::ecdsa()));
    let ssl = json!({ "id": "1", "cert": front.cert, "key": front.key, "snis": ["a.test"] });
    let plain = Upstream::text("in the clear");
    let (gateway, at) = start(
        "[{address: '127.0.0.1:0', protocol: tls}]",
        &json!({ "ssls": [ssl],
        "stream_routes": [{ "id": "s", "sni": "a.test", "upstream": nodes(&[plain.address]) }] }),
    );
    let ca = gateway.scratch.write("front.pem", &front.cert);
    assert_eq!(curl_tls(at[0], "a.test", &ca), "in the clear");
    // A second gateway is the TLS endpoint.
    let inner_ssl = json!({ "id": "1", "cert": back.cert, "key": back.key, "snis": ["b.test"] });
    let (_inner, inner) = start(
        "[{address: '127.0.0.1:0', protocol: tls}]",
        &json!({ "ssls": [inner_ssl],
        "stream_routes": [{ "id": "s", "sni": "b.test", "upstream": nodes(&[plain.address]) }] }),
    );
    let mut upstream = nodes(&inner[..1]);
    upstream["scheme"] = json!("tls");
    upstream["pass_host"] = json!("rewrite");
    upstream["upstream_host"] = json!("b.test");
    upstream["tls"] = json!({ "verify": true, "ca": authority.cert });
    let ssl = json!({ "id": "1", "cert": front.cert, "key": front.key, "snis": ["a.test"] });
    gateway.apply(&json!({ "ssls": [ssl], "stream_routes": [{ "id": "s", "upstream": upstream }] }));
    assert_eq!(curl_tls(at[0], "a.test", &ca), "in the clear");
}

#[test]
fn tls_that_is_passed_on_goes_where_its_server_name_says() {
    let plain = Upstream::text("found");
    let ends = |name: &str| {
        let pair = certs::simple(name, &[name]);
        let ssl = json!({ "id": "1", "cert": pair.cert, "key": pair.key, "snis": [name] });
        let (gateway, at) = start(
            "[{address: '127.0.0.1:0', protocol: tls}]",
            &json!({ "ssls": [ssl],
            "stream_routes": [{ "id": "s", "upstream": nodes(&[plain.address]) }] }),
        );
        (gateway.scratch.write("ca.pem", &pair.cert), gateway, at[0])
    };
    let ((ca_a, _a, at_a), (ca_b, _b, at_b)) = (ends("a.test"), ends("x.b.test"));
    let (gateway, at) = start(
        "[{address: '127.0.0.1:0', protocol: tls_passthrough}]",
        &json!({ "stream_routes": [
            { "id": "a", "sni": "a.test", "upstream": nodes(&[at_a]) },
            { "id": "b", "sni": "*.b.test", "upstream": nodes(&[at_b]) },
        ]}),
    );
    assert_eq!(curl_tls(at[0], "a.test", &ca_a), "found");
    assert_eq!(curl_tls(at[0], "x.b.test", &ca_b), "found");
    assert!(curl_tls(at[0], "c.test", &ca_a).contains("curl:"));
    let mut other = connect(at[0]);
    other.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(rest(&mut other), b"");
    for fault in ["no_route", "not_tls"] {
        let sample = format!("yumen_stream_faults_total{{fault=\"{fault}\"}}");
        eventually(fault, 10, || gateway.metric(&sample) == 1.0);
    }
}

#[test]
fn endpoints_are_told_of_the_client_where_they_want_to_know() {
    let (address, records) = recorder();
    let mut upstream = nodes(&[address]);
    upstream["proxy_protocol"] = json!("v1");
    let (gateway, at) = start(TCP, &json!({ "stream_routes": [{ "id": "s", "upstream": upstream }] }));
    let send = || {
        let mut client = connect(at[0]);
        client.write_all(b"hello").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        (client.local_addr().unwrap().port(), records.recv_timeout(WAIT).expect("the endpoint receives it"))
    };
    let (port, bytes) = send();
    let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {port} {}\r\nhello", at[0].port());
    assert_eq!(String::from_utf8_lossy(&bytes), expected);
    upstream["proxy_protocol"] = json!("v2");
    gateway.apply(&json!({ "stream_routes": [{ "id": "s", "upstream": upstream }] }));
    let (port, bytes) = send();
    assert_eq!(
        (&bytes[..12], &bytes[24..26], &bytes[28..]),
        (&b"\r\n\r\n\0\r\nQUIT\n"[..], &port.to_be_bytes()[..], &b"hello"[..])
    );
}

#[test]
fn what_a_trusted_proxy_tells_of_the_client_counts() {
    let node = "stream_listen: [{address: '127.0.0.1:0', proxy_protocol_from: ['127.0.0.0/8']}]\n";
    let only = json!({ "ip-restriction": { "whitelist": ["192.0.2.0/24"] } });
    let route = json!({ "id": "s", "upstream": nodes(&[named("in")]), "plugins": only });
    let (gateway, at) = start_with(node, &json!({ "stream_routes": [route] }));
    let v2 = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &[192, 0, 2, 9, 127, 0, 0, 1, 0, 9, 0, 9]].concat();
    for (header, expected) in [
        (&b"PROXY TCP4 192.0.2.1 127.0.0.1 1234 443\r\n"[..], "in"),
        (&v2, "in"),
        (b"PROXY TCP4 198.51.100.1 127.0.0.1 1234 443\r\n", ""),
        (b"PROXY UNKNOWN\r\n", ""),
        (b"PROXY TCP4 nonsense\r\n", ""),
        (b"hello", ""),
    ] {
        let mut client = connect(at[0]);
        // Pacing: in two parts, so that the first bytes are not taken for the whole header.
        client.write_all(&header[..3]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let _ = client.write_all(&header[3..]);
        assert_eq!(first(&mut client), expected, "{}", String::from_utf8_lossy(header));
    }
    gateway.assert_metric("yumen_stream_faults_total{fault=\"refused\"}", 2.0);
    gateway.assert_metric("yumen_stream_faults_total{fault=\"proxy_header\"}", 2.0);
}

#[test]
fn a_proxy_header_that_ends_too_soon_ends_its_connection_and_nothing_else() {
    let node = "workers: {count: 1}\nstream_listen: [{address: '127.0.0.1:0', proxy_protocol_from: ['127.0.0.0/8']}]\n";
    let (gateway, at) = start_with(node, &everything_to(named("in")));
    for header in
        [&b"PROXY TC"[..], b"P", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0cab", b"PROXY TCP4 192.0.2.1 127.0.0.1 1"]
    {
        for is_reset in [false, true] {
            let mut client = connect(at[0]);
            client.write_all(header).unwrap();
            // Pacing: the end comes later than the bytes.
            std::thread::sleep(Duration::from_millis(10));
            if is_reset {
                // A close without linger sends a reset.
                socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
            } else {
                client.shutdown(std::net::Shutdown::Write).unwrap();
                assert_eq!(rest(&mut client), b"");
            }
        }
    }
    eventually("all of them ended", 10, || {
        gateway.metric("yumen_stream_faults_total{fault=\"proxy_header\"}") == 8.0
    });
    let mut client = connect(at[0]);
    client.write_all(b"PROXY UNKNOWN\r\n").unwrap();
    assert_eq!(first(&mut client), "in");
}

#[test]
fn requests_behind_a_proxy_header_come_from_the_client_it_tells() {
    let upstream = Upstream::start(|request, stream| {
        let address = request.field("x-real-ip").unwrap_or("").to_owned();
        crate::harness::upstream::respond(stream, 200, "", address.as_bytes())
    });
    let trusted = "proxy_protocol_from: ['127.0.0.1']";
    let node = format!(
        "listen: [{{address: '127.0.0.1:0', {trusted}}}, {{address: '127.0.0.1:0', tls: true, {trusted}}}]\n"
    );
    let options = Options { node: &node, own_listeners: true, ..Options::default() };
    let gateway = Gateway::with(&upstream.everything(), &options);
    let request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let reply = gateway.send(format!("PROXY TCP6 2001:db8::7 ::1 1 2\r\n{request}"));
    assert_eq!((reply.status, reply.text().as_str()), (200, "2001:db8::7"));
    let mut client = connect(gateway.http);
    client.write_all(request.as_bytes()).unwrap();
    assert_eq!(first(&mut client), "", "a trusted peer without a header is not served");
    let url = format!("https://{}/", gateway.https);
    let (_, out, _) = run("curl", &["-sSk", "--haproxy-protocol", "-m", "20", &url]);
    assert_eq!(out, "127.0.0.1");
}

#[test]
fn so_many_connections_at_a_time_and_no_more() {
    let limit = json!({ "conn": 1, "burst": 0, "default_conn_delay": 0.1, "key": "remote_addr" });
    let (gateway, at) = start(
        TCP,
        &json!({ "stream_routes": [
        { "id": "s", "upstream": nodes(&[named("in")]), "plugins": { "limit-conn": limit, "prometheus": {} } }] }),
    );
    let mut one = connect(at[0]);
    assert_eq!(first(&mut one), "in");
    assert_eq!(first(&mut connect(at[0])), "");
    drop(one);
    eventually("the place is free", 10, || first(&mut connect(at[0])) == "in");
    eventually("they are counted", 10, || {
        gateway.metric("apisix_stream_connection_total{route=\"s\"}") >= 3.0
    });
}

#[test]
fn a_stream_is_not_dialled_where_a_pattern_left_open_whether_a_guard_runs() {
    // Only preread plugins: their filters are evaluated when the first bytes have arrived.
    let hard = json!([["remote_addr", "~~", "^((?!x).|(?!x).|(?!x).|(?!x).)*$\\1\\1"]]);
    let plugins = json!({ "mqtt-proxy": { "protocol_level": 4, "_meta": { "filter": hard } } });
    let dialled = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let dial_log = dialled.clone();
    let endpoint = server(move |_| dial_log.store(true, std::sync::atomic::Ordering::SeqCst));
    let route = json!({ "id": "s", "upstream": nodes(&[endpoint]), "plugins": plugins });
    let (gateway, at) = start(TCP, &json!({ "stream_routes": [route] }));
    let mut client = connect(at[0]);
    // The connection may have been closed already.
    let _ = client.write_all(b"no packet of MQTT");
    assert_eq!(rest(&mut client), b"");
    assert!(!dialled.load(std::sync::atomic::Ordering::SeqCst));
    eventually("it is counted", 10, || gateway.metric("yumen_stream_faults_total{fault=\"refused\"}") == 1.0);

    let mut upstream = nodes(&[udp_echo("a")]);
    upstream["scheme"] = json!("udp");
    let route = json!({ "id": "s", "upstream": upstream, "plugins": plugins });
    let (gateway, at) =
        start("[{address: '127.0.0.1:0', protocol: udp}]", &json!({ "stream_routes": [route] }));
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(&crate::mqtt::mqtt("a"), at[0]).unwrap();
    eventually("its session is refused", 10, || {
        gateway.metric("yumen_stream_faults_total{fault=\"refused\"}") == 1.0
    });
    client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(client.recv_from(&mut [0; 64]).is_err());
}

#[test]
fn a_stream_under_way_is_not_cut_off_by_the_end_of_the_node() {
    let (mut gateway, at) = start(TCP, &everything_to(echo()));
    let mut client = connect(at[0]);
    client.write_all(b"one").unwrap();
    assert_eq!(first(&mut client), "one");
    gateway.terminate();
    eventually("nobody else gets in", 10, || TcpStream::connect(at[0]).is_err());
    client.write_all(b"two").unwrap();
    assert_eq!(first(&mut client), "two");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut client), b"");
    assert_eq!(gateway.wait(30).code(), Some(0));
}

#[test]
fn a_line_of_the_access_log_tells_of_each_stream() {
    let node = format!("stream_listen: {TCP}\nlogs: {{access: {{enabled: true, path: access.log}}}}\n");
    let (gateway, at) = start_with(&node, &everything_to(echo()));
    let mut client = connect(at[0]);
    client.write_all(b"hello").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut client), b"hello");
    let path = gateway.scratch.file("access.log");
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    eventually("a line is written", 10, || read().contains('\n'));
    let line: Value = serde_json::from_str(read().lines().next().unwrap()).unwrap();
    let expected = json!({ "protocol": "tcp", "route_id": "s", "status": 200, "received_bytes": 5, "sent_bytes": 5, "attempts": 1, "server_addr": at[0].to_string() });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&line[name], value, "{name} of {line}");
    }
}

#[test]
fn stream_routes_are_written_through_the_admin_api() {
    let node = format!("stream_listen: {TCP}\n");
    let scratch = crate::harness::Scratch::new();
    let gateway =
        Gateway::launch(scratch, &Options { node: &node, ..Options::default() }, &["--data-dir", "data"]);
    let key = format!("X-API-KEY: {}", gateway.admin_key().expect("a first start prints the admin key"));
    let at = listening(&gateway)[0];
    let put = |body: &Value| {
        let url = format!("http://{}/apisix/admin/stream_routes/1?wait=applied", gateway.admin);
        let (_, out, _) = run("curl", &["-sS", "-X", "PUT", "-H", &key, "-d", &body.to_string(), &url]);
        out
    };
    let refused =
        put(&json!({ "server_port": at.port(), "plugins": { "cors": {} }, "upstream": nodes(&[echo()]) }));
    assert!(refused.contains("unknown plugin [cors]"), "{refused}");
    let written = put(&json!({ "server_port": at.port(), "upstream": nodes(&[named("served")]) }));
    assert!(written.contains("/stream_routes/1"), "{written}");
    assert_eq!(first(&mut connect(at)), "served");
}
