//! Clients that read slowly under a minimum rate: the rate counts the bytes that they acknowledge, not those
//! in sockets and TLS sessions of the node.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use serde_json::json;
use socket2::Socket;

use crate::harness::tls::{over_tls, trusting};
use crate::harness::upstream::respond;
use crate::harness::{Gateway, Options, Upstream, certs, eventually, noise};

const SIZE_MAX: usize = 5_000_000;
/// Size of a local response, several times the socket buffers.
const MADE_SIZE: usize = 12_000_000;
const NODE: &str = "limits: {answer_bytes_per_s: 20000, rate_window_ms: 1000}";

struct World {
    gateway: Gateway,
    trust: Arc<ClientConfig>,
    _upstream: Upstream,
}

impl World {
    fn start(node: &str) -> World {
        let all = noise(SIZE_MAX);
        let upstream = Upstream::start(move |request, stream| {
            let size: usize = request.target.trim_start_matches('/').parse().unwrap();
            respond(stream, 200, "", &all[..size])
        });
        let authority = certs::Authority::new("front");
        let pair = authority.sign("a", &["a.test"], certs::ecdsa());
        let ssl = json!({ "id": "1", "cert": pair.cert, "key": pair.key, "snis": ["a.test"] });
        let route = json!({ "id": "1", "uri": "/*", "upstream": upstream.alone() });
        let mocking = json!({ "response_example": "x".repeat(MADE_SIZE), "content_type": "text/plain" });
        let made = json!({ "id": "2", "uri": "/made", "plugins": { "mocking": mocking } });
        let document = json!({ "ssls": [ssl], "routes": [route, made] });
        let gateway = Gateway::with(&document, &Options { node, workers: 1, ..Options::default() });
        World { gateway, trust: trusting(&authority.cert), _upstream: upstream }
    }

    /// Requests a body of this size, with or without TLS, with a small receive buffer.
    fn ask(&self, tls: bool, size: usize) -> Box<dyn Read> {
        self.ask_for(tls, &size.to_string())
    }

    fn ask_for(&self, tls: bool, path: &str) -> Box<dyn Read> {
        let address = if tls { self.gateway.https } else { self.gateway.http };
        let socket = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        socket.connect(&address.into()).unwrap();
        let mut tcp = TcpStream::from(socket);
        let head = format!("GET /{path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        if tls {
            let mut tls = over_tls(tcp, &self.trust);
            tls.write_all(head.as_bytes()).unwrap();
            return Box::new(tls);
        }
        tcp.write_all(head.as_bytes()).unwrap();
        Box::new(tcp)
    }

    /// Number of ended requests.
    fn over(&self) -> f64 {
        self.gateway.metric("yumen_requests_total{class=\"2xx\"}")
    }

    fn stalled(&self) -> f64 {
        self.gateway.metric("yumen_faults_total{fault=\"client_stalled\",side=\"client\"}")
    }
}

/// Reads `piece` bytes every 100 ms for a while, then the rest; returns the total.
fn read_slowly(client: &mut dyn Read, piece: usize, slow: Duration) -> std::io::Result<usize> {
    let (begun, mut room, mut count) = (Instant::now(), vec![0; 64 * 1024], 0);
    while begun.elapsed() < slow {
        let mut left = piece;
        while left > 0 {
            let some = left.min(room.len());
            match client.read(&mut room[..some])? {
                0 => return Ok(count),
                some => (count, left) = (count + some, left - some),
            }
        }
        // A slow client.
        std::thread::sleep(Duration::from_millis(100));
    }
    loop {
        match client.read(&mut room)? {
            0 => return Ok(count),
            some => count += some,
        }
    }
}

/// At one of these sizes, the end of a response is in a TLS session in front of a full socket.
fn sizes() -> impl Iterator<Item = usize> {
    (400_000..SIZE_MAX).step_by(128 << 10)
}

/// Whether clients that read `piece` bytes every 100 ms get each size completely.
fn each(world: &World, tls: bool, piece: usize) -> Vec<(usize, bool)> {
    std::thread::scope(|scope| {
        let readers: Vec<_> = sizes()
            .map(|size| {
                let read = move || {
                    let read = read_slowly(&mut *world.ask(tls, size), piece, Duration::from_secs(4));
                    match read {
                        Ok(count) => count > size,
                        Err(error) => {
                            let kinds = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
                            assert!(kinds.contains(&error.kind()), "{error}");
                            false
                        }
                    }
                };
                (size, scope.spawn(read))
            })
            .collect();
        readers.into_iter().map(|(size, thread)| (size, thread.join().unwrap())).collect()
    })
}

#[test]
fn a_client_that_reads_slowly_but_fast_enough_gets_all_of_its_answer() {
    let world = World::start(NODE);
    for tls in [false, true] {
        // Several times the minimum rate, because the system reports free space in steps, and records arrive
        // whole.
        let lost: Vec<_> = each(&world, tls, 10_000).into_iter().filter(|(_, is_whole)| !is_whole).collect();
        assert!(lost.is_empty(), "tls: {tls}, {} of {} lost: {lost:?}", lost.len(), sizes().count());
    }
    assert_eq!(world.stalled(), 0.0);
}

/// Also if only the end of the response is left, in a TLS session.
#[test]
fn a_client_that_reads_nothing_is_cut_off_wherever_its_answer_waits() {
    let world = World::start(NODE);
    for tls in [false, true] {
        let (over, stalled) = (world.over(), world.stalled());
        let sizes = (400_000..SIZE_MAX).step_by(48 << 10);
        let clients: Vec<_> = sizes.map(|size| world.ask(tls, size)).collect();
        let count = clients.len() as f64;
        // Long before the send timeout, which applies without a minimum rate.
        eventually("each is cut off, or all of it is with the system", 20, || world.over() - over == count);
        let cut = world.stalled() - stalled;
        assert!(0.0 < cut, "tls: {tls}, none of {count}");
    }
}

#[test]
fn an_answer_that_the_gateway_makes_may_take_long_but_not_stand_still() {
    // The system reports free space in steps, here some tenths of a second each.
    let world = World::start("timeouts: {send_ms: 1500}");
    for tls in [false, true] {
        let mut stalled = world.ask_for(tls, "made");
        let read = read_slowly(&mut *world.ask_for(tls, "made"), 200_000, Duration::from_secs(5)).unwrap();
        assert!(read > MADE_SIZE, "tls: {tls}, {read}");
        assert_eq!(world.stalled(), f64::from(u8::from(tls)) + 1.0);
        let mut received = Vec::new();
        let end = stalled.read_to_end(&mut received);
        assert!(received.len() < MADE_SIZE, "tls: {tls}, {} {end:?}", received.len());
    }
}

#[test]
fn an_answer_that_the_gateway_makes_must_be_taken_at_the_rate() {
    let world = World::start(NODE);
    let _silent = [world.ask_for(false, "made"), world.ask_for(true, "made")];
    eventually("both are cut off", 20, || world.stalled() == 2.0);
    world.gateway.assert_metric("yumen_faults_total{fault=\"client_gone\",side=\"client\"}", 0.0);
}
