//! Spliced bodies: complete and unchanged, with reusable connections afterwards.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::upstream::{Request, respond};
use crate::harness::{Client, Gateway, Options, Upstream, eventually, noise, settles};

/// Lengths around the read buffer, the splice threshold, and the pipe size.
const LENGTHS: [usize; 14] = [
    0, 1, 16_000, 16_384, 24_576, 24_577, 65_536, 100_000, 262_144, 278_528, 300_001, 900_000, 1_000_000,
    3_000_000,
];

fn one_worker(upstream: &Upstream) -> Gateway {
    Gateway::with(&upstream.everything(), &Options { workers: 1, ..Options::default() })
}

/// Number of pipe ends of the gateway. A worker keeps the pipe of a long body for the next one.
fn pipe_ends(gateway: &Gateway) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap();
    let links = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("pipe:")).count()
}

/// A body of the length in the target.
fn requested_body(request: &Request) -> Vec<u8> {
    noise(request.target.trim_start_matches('/').parse().unwrap())
}

/// Reads an endless body, and responds in two parts meanwhile.
fn answers_early() -> SocketAddr {
    const PARTS: [(usize, &str); 2] =
        [(8 << 20, "HTTP/1.1 401 No\r\nContent-Length: 10\r\n\r\nenough"), (24 << 20, "more")];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (mut room, mut read) = (vec![0; 1 << 20], 0);
            while let Ok(count @ 1..) = stream.read(&mut room) {
                let now = read..read + count;
                read += count;
                for (_, part) in PARTS.iter().filter(|(at, _)| now.contains(at)) {
                    let _ = stream.write_all(part.as_bytes());
                }
            }
        }
    });
    address
}

#[test]
fn a_body_without_end_leaves_an_answer_its_turn() {
    let route =
        json!({ "id": "1", "uri": "/*", "upstream": { "nodes": { answers_early().to_string(): 1 } } });
    let options = Options { workers: 1, ..Options::default() };
    let gateway = Gateway::with(&json!({ "routes": [route] }), &options);
    let chunk = [b"100000\r\n".as_slice(), &[b'x'; 1 << 20], b"\r\n"].concat();
    for (framing, piece) in
        [("Content-Length: 1000000000000", &chunk[8..]), ("Transfer-Encoding: chunked", chunk.as_slice())]
    {
        let mut writer = TcpStream::connect(gateway.http).unwrap();
        let mut client = Client::of(writer.try_clone().unwrap());
        client.send(format!("POST / HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n"));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let begun = Instant::now();
                while !is_over.load(Relaxed) && begun.elapsed() < Duration::from_secs(10) {
                    if writer.write_all(piece).is_err() {
                        return;
                    }
                }
                is_over.store(true, Relaxed);
            });
            let reply = client.reply();
            assert!(!is_over.swap(true, Relaxed), "heard only when the body was over");
            assert_eq!((reply.status, reply.text().as_str()), (401, "enoughmore"), "{framing}");
        });
    }
}

#[test]
fn answers_of_every_length_pass_and_their_connections_are_kept() {
    let upstream = Upstream::start(|request, stream| respond(stream, 200, "", &requested_body(request)));
    let gateway = one_worker(&upstream);
    let mut client = Client::connect(gateway.http);
    for length in LENGTHS.into_iter().chain(LENGTHS.into_iter().rev()) {
        assert!(client.get(&format!("/{length}")).body == noise(length), "{length}");
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn long_bodies_go_through_pipes_and_short_ones_do_not() {
    let upstream = Upstream::start(|request, stream| {
        respond(stream, 200, "", &if request.method == "GET" { requested_body(request) } else { Vec::new() })
    });
    let upload = |gateway: &Gateway, length: usize| {
        let head = format!("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n");
        assert_eq!(Client::connect(gateway.http).send(head).send(noise(length)).reply().status, 200);
    };
    let gateway = one_worker(&upstream);
    let before = pipe_ends(&gateway);
    assert_eq!(gateway.get("/16000").body.len(), 16_000);
    upload(&gateway, 1000);
    assert_eq!(pipe_ends(&gateway), before);
    assert_eq!(gateway.get("/100000").body.len(), 100_000);
    // One pipe with two ends.
    assert_eq!(pipe_ends(&gateway), before + 2);
    let gateway = one_worker(&upstream);
    upload(&gateway, 3_000_000);
    assert!(pipe_ends(&gateway) > before);
}

#[test]
fn answers_that_come_in_pieces_pass() {
    let upstream = Upstream::start(|request, stream| {
        let body = requested_body(request);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let sent = stream.write_all(head.as_bytes());
        // Scripted: a pause before each piece.
        let pieces = body.chunks(body.len().div_ceil(20).max(1));
        pieces
            .fold(sent, |sent, piece| {
                std::thread::sleep(Duration::from_millis(2));
                sent.and_then(|()| stream.write_all(piece))
            })
            .is_ok()
    });
    let gateway = one_worker(&upstream);
    let mut client = Client::connect(gateway.http);
    for length in LENGTHS {
        assert!(client.get(&format!("/{length}")).body == noise(length), "{length}");
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn requests_of_every_length_pass() {
    let upstream = Upstream::start(|request, stream| {
        let is_whole = request.body == requested_body(request);
        respond(stream, if is_whole { 200 } else { 409 }, "", b"")
    });
    let gateway = one_worker(&upstream);
    let mut client = Client::connect(gateway.http);
    for length in LENGTHS {
        let head = format!("POST /{length} HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n");
        let reply = client.send(head).send(noise(length)).reply();
        assert_eq!(reply.status, 200, "{length}");
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn what_stands_behind_a_long_body_is_nobodys_answer() {
    let sent = Arc::<AtomicUsize>::default();
    let counted = sent.clone();
    let upstream = Upstream::start(move |request, stream| {
        let is_sent = respond(stream, 200, "", &requested_body(request))
            && stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").is_ok();
        counted.fetch_add(1, AcqRel);
        is_sent
    });
    let gateway = one_worker(&upstream);
    let mut client = Client::connect(gateway.http);
    for turn in 1..=3 {
        assert!(client.get("/100000").body == noise(100_000));
        // On the loopback interface, sent bytes have arrived.
        eventually("the bytes after the body are sent", 5, || sent.load(Acquire) == turn);
        // The surplus bytes closed the connection, so each turn opens another.
        assert_eq!(upstream.connections(), turn);
    }
}

#[test]
fn a_long_body_that_is_cut_off_is_seen_as_cut_off() {
    let upstream = Upstream::start(|request, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        let _ = stream.write_all(&requested_body(request));
        false
    });
    let gateway = one_worker(&upstream);
    for length in LENGTHS.into_iter().filter(|length| *length < 1_000_000) {
        let request = format!("GET /{length} HTTP/1.1\r\nHost: x\r\n\r\n");
        let reply = Client::connect(gateway.http).send(request).try_reply(false);
        assert!(reply.is_err(), "{length}: {:?}", reply.map(|reply| reply.body.len()));
    }
}

#[test]
fn a_reader_that_comes_back_gets_all_of_a_long_body() {
    let sent = Arc::<AtomicUsize>::default();
    let counted = sent.clone();
    let upstream = Upstream::start(move |request, stream| {
        let body = requested_body(request);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), &body].concat().chunks(64 << 10).all(|piece| {
            let is_sent = stream.write_all(piece).is_ok();
            counted.fetch_add(piece.len(), AcqRel);
            is_sent
        })
    });
    let gateway = one_worker(&upstream);
    let mut clients: Vec<Client> =
        (0..20).map(|_| Client::of(TcpStream::connect(gateway.http).unwrap())).collect();
    for client in &mut clients {
        client.send("GET /20000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    eventually("sockets and pipes are full", 20, settles(|| sent.load(Acquire)));
    let whole = noise(20_000_000);
    for client in &mut clients {
        assert!(client.reply().body == whole);
    }
}

#[test]
fn an_upload_of_which_a_part_has_gone_is_not_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut room = vec![0; 50_000];
        let mut head = 0;
        while !room[..head].ends_with(b"\r\n\r\n") {
            head += connection.read(&mut room[head..]).unwrap();
        }
        connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        connection.read_exact(&mut room).unwrap();
        drop(connection);
        // Any further request is recorded.
        while let Ok((mut next, _)) = listener.accept() {
            let count = next.read(&mut room).unwrap_or(0);
            let _ = sender.send(String::from_utf8_lossy(&room[..count.min(100)]).into_owned());
            let _ = next.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstored");
        }
    });
    let upstream = json!({ "nodes": { address.to_string(): 1 }, "retries": 1 });
    let document = json!({ "routes": [{ "id": "all", "uri": "/*", "upstream": upstream }] });
    let gateway = Gateway::with(&document, &Options { workers: 1, ..Options::default() });
    let mut client = Client::connect(gateway.http);
    assert_eq!(client.get("/").status, 200);
    let (first, last) = (noise(60_000), noise(140_000));
    client.send("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 200000\r\n\r\n");
    // Pacing: the gateway reads the head alone.
    std::thread::sleep(Duration::from_millis(100));
    client.send(first);
    // Pacing: the endpoint closes the connection in the middle of the body.
    std::thread::sleep(Duration::from_millis(200));
    client.send(last).send("GET /after HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(client.reply().status, 502);
    assert_eq!(receiver.recv_timeout(Duration::from_millis(500)).ok(), None);
}
