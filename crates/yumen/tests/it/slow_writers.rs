//! Clients that send their complete request before they read.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Gateway, Upstream};

/// Sends a head and a body in pieces with pauses, then reads.
fn ask(gateway: &Gateway, path: &str, pieces: usize, piece: usize, pause_ms: u64) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(gateway.http)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let length = pieces * piece;
    write!(stream, "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n")?;
    let piece = vec![b'x'; piece];
    for _ in 0..pieces {
        // A slow client.
        std::thread::sleep(Duration::from_millis(pause_ms));
        stream.write_all(&piece)?;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn an_early_answer_waits_for_a_client_that_writes_first() {
    let upstream = Upstream::text("served");
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "1", "uri": "/key", "plugins": { "key-auth": {} }, "upstream": upstream.alone() },
        { "id": "2", "uri": "/large", "plugins": { "client-control": { "max_body_size": 1000 } },
            "upstream": upstream.alone() },
    ] }));
    for (path, status) in [("/key", "401"), ("/large", "413")] {
        for (pieces, piece, pause_ms) in [(1, 20_000_000, 0), (30, 100_000, 100), (3, 1_000_000, 1500)] {
            let answer = ask(&gateway, path, pieces, piece, pause_ms).expect("an answer");
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        }
    }
}

#[test]
fn a_client_that_writes_for_ever_is_cut_off_and_one_that_says_nothing_sooner() {
    let upstream = Upstream::text("served");
    let routes =
        json!([{ "id": "1", "uri": "/*", "plugins": { "key-auth": {} }, "upstream": upstream.alone() }]);
    let gateway = Gateway::start(&json!({ "routes": routes }));
    let start = Instant::now();
    let silent = std::thread::scope(|scope| {
        let silent = scope.spawn(|| {
            let mut stream = TcpStream::connect(gateway.http).unwrap();
            write!(stream, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\nabc").unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            // A write to a closed socket is answered by a reset.
            while stream.write_all(b"x").is_ok() && start.elapsed() < Duration::from_secs(60) {
                // Pacing: rarer than the gateway expects bytes of a client that it lingers for.
                std::thread::sleep(Duration::from_millis(7000));
            }
            start.elapsed()
        });
        let endless = ask(&gateway, "/", 1_000_000, 1000, 500);
        assert!(endless.is_err());
        silent.join().unwrap()
    });
    assert!(silent < Duration::from_secs(25), "{silent:?}");
    let endless = start.elapsed();
    assert!((25..50).contains(&endless.as_secs()), "{endless:?}");
}
