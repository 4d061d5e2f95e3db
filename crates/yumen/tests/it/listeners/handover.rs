//! Upgrades and failed upgrades with listeners of the configuration.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use serde_json::json;

use super::{document, http, http_document, is_open};
use crate::harness::gateway::YUMEN;
use crate::harness::http2;
use crate::harness::http3::{self, Http3Client};
use crate::harness::{Client, Upstream, certs, eventually, free_port};
use crate::l4::{connect, echo, nodes};
use crate::upgrade::{Line, start};

/// Runs `change` while clients send requests to `addresses`, each on a connection until a response ends it.
fn under_load(addresses: &[SocketAddr], change: impl FnOnce(&dyn Fn())) {
    let (is_over, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for address in addresses {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Relaxed) {
                        let mut client = Client::connect(*address);
                        loop {
                            let reply = client.get("/");
                            assert_eq!((reply.status, reply.text().as_str()), (200, "x"));
                            answers.fetch_add(1, Relaxed);
                            if is_over.load(Relaxed) || reply.field("connection") == Some("close") {
                                break;
                            }
                        }
                    }
                });
            }
        }
        let wait = || {
            let seen = answers.load(Relaxed);
            eventually("clients are answered", 30, || answers.load(Relaxed) > seen + 100);
        };
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| change(&wait)));
        is_over.store(true, Relaxed);
        changed.unwrap();
    });
}

#[test]
fn an_upgrade_and_a_failed_one_lose_no_request_of_a_listener() {
    let upstream = Upstream::text("x");
    let [one, other, late] = [free_port(), free_port(), free_port()];
    let mut line =
        start(&http_document(&[http("a", one), http("b", other)], &upstream), "upgrade: {ready_s: 2}");
    let silent = line.gateway.scratch.write("silent", "#!/bin/sh\nexec sleep 600\n");
    std::fs::set_permissions(&silent, std::fs::Permissions::from_mode(0o755)).unwrap();
    under_load(&[one, other], |wait| {
        wait();
        let output = line.ask(&["--binary", &silent]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        wait();
        // The listeners change again after the failed upgrade, and in the successor.
        let three = [http("a", one), http("b", other), http("c", late)];
        line.gateway.apply(&http_document(&three, &upstream));
        eventually("the listener is open", 10, || is_open(&line.gateway, "c", late));
        for _ in 0..2 {
            line.upgrade();
            wait();
            assert!(is_open(&line.gateway, "a", one) && is_open(&line.gateway, "c", late));
            assert_eq!(Client::connect(late).get("/").text(), "x");
        }
        line.gateway.apply(&http_document(&three[..2], &upstream));
        eventually("the listener is closed", 10, || std::net::TcpStream::connect(late).is_err());
        wait();
    });
}

#[test]
fn a_listener_that_is_written_during_an_upgrade_opens_whatever_its_outcome() {
    let upstream = Upstream::text("x");
    let [one, late] = [free_port(), free_port()];
    let line = start(&http_document(&[http("a", one)], &upstream), "upgrade: {ready_s: 2}");
    let slow = line.gateway.scratch.write("slow", "#!/bin/sh\ntouch started\nexec sleep 600\n");
    std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| line.ask(&["--binary", &slow]));
        eventually("the new process has started", 10, || {
            std::path::Path::new(&line.gateway.scratch.file("started")).exists()
        });
        line.gateway.apply(&http_document(&[http("a", one), http("b", late)], &upstream));
        assert_eq!(asking.join().unwrap().status.code(), Some(2));
    });
    eventually("the listener is open", 10, || is_open(&line.gateway, "b", late));
    assert_eq!(Client::connect(late).get("/").text(), "x");
}

#[test]
fn an_address_that_the_successor_cannot_bind_refuses_the_upgrade() {
    let upstream = Upstream::text("x");
    let [served, taken] = [free_port(), free_port()];
    let _holder = std::net::TcpListener::bind(taken).unwrap();
    let line = start(&http_document(&[http("a", served)], &upstream), "");
    let other = http_document(&[http("a", taken)], &upstream);
    let other = line.gateway.scratch.write("other.json", other.to_string());
    let any = "127.0.0.1:0";
    let text = format!(
        "#!/bin/sh\nexec {YUMEN} run --config yumen.yaml --workers 1 --listen {any} --listen-tls {any} \
         --admin {any} --status {any} --file {other}\n"
    );
    let binary = line.gateway.scratch.write("other", text);
    std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = line.ask(&["--binary", &binary]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(&format!("listeners/a: cannot listen on {taken}")), "{stderr}");
    assert_eq!(Client::connect(served).get("/").text(), "x");
}

#[test]
fn streams_and_http3_connections_of_listeners_outlive_an_upgrade() {
    let upstream = Upstream::text("x");
    let authority = certs::Authority::new("test authority");
    let pair = authority.sign("a.test", &["a.test"], certs::ecdsa());
    let [secure, tcp] = [free_port(), free_port()];
    let listeners = [
        json!({ "id": "https", "address": secure.to_string(), "protocol": "https", "http3": true }),
        json!({ "id": "tcp", "address": tcp.to_string(), "protocol": "tcp" }),
    ];
    let mut resources = document(&listeners, &upstream.alone(), &nodes(&[echo()]));
    resources["ssls"] = json!([
        { "id": "scoped", "snis": ["a.test"], "cert": pair.cert, "key": pair.key, "scopes": ["s"] },
        { "id": "static", "snis": ["a.test"], "cert": pair.cert, "key": pair.key },
    ]);
    let mut line: Line = start(&resources, "");
    let mut stream = connect(tcp);
    let echoes = |stream: &mut std::net::TcpStream| {
        stream.write_all(b"hello").unwrap();
        let mut room = [0; 5];
        stream.read_exact(&mut room).unwrap();
        assert_eq!(&room, b"hello");
    };
    echoes(&mut stream);
    http2::run(async {
        let connect = async || Http3Client::connect(secure, "a.test", &authority.cert, None).await.unwrap();
        let ask = async |client: &Http3Client| {
            let stream = client.sender.clone().send_request(http3::request("GET", "/")).await.ok()?;
            Some(http3::exchange(stream, b"", None).await.map(|answer| answer.body))
        };
        let early = connect().await;
        assert_eq!(ask(&early).await.unwrap().unwrap(), b"x");
        line.upgrade();
        // The predecessor has announced the end of the connection, or still serves it.
        assert!(ask(&early).await.is_none_or(|answer| answer.unwrap() == b"x"));
        let late = connect().await;
        assert_eq!(ask(&late).await.unwrap().unwrap(), b"x");
    });
    echoes(&mut stream);
    echoes(&mut connect(tcp));
}
