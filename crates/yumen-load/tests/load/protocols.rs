//! HTTP/2 and TLS against the upstream of this crate, and the upstream itself.

use std::net::SocketAddr;

use yumen_load::{
    Behaviour, Certificate, Kind, LatencyShape, Plan, Protocol, TlsPlan, TlsVersion, Upstream,
    UpstreamOptions, upstream,
};

use crate::scripted::{errors, plan, run, serve};

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn start(certificate: Certificate, behaviour: Behaviour) -> Upstream {
    let listen_tls = Some(any_port());
    let (listen, threads, body_bytes) = (any_port(), 2, 2);
    upstream(&UpstreamOptions { listen, listen_tls, certificate, threads, body_bytes, behaviour }).unwrap()
}

fn plain(upstream: &Upstream, path: &str) -> Plan {
    plan(format!("http://{}{path}", upstream.address()))
}

fn secure(upstream: &Upstream, path: &str) -> Plan {
    plan(format!("https://{}{path}", upstream.address_tls().unwrap()))
}

#[test]
fn http2_has_many_streams_on_one_connection() {
    let upstream = start(Certificate::Ecdsa, Behaviour::default());
    let http2 =
        |plan| Plan { protocol: Protocol::Http2, connections: 2, streams: 5, count: Some(200), ..plan };
    for plan in [plain(&upstream, "/100k"), secure(&upstream, "/100k")] {
        let before = upstream.stats();
        let summary = run(&http2(plan));
        assert_eq!(errors(&summary), []);
        assert_eq!((summary.responses, summary.connections.opened), (200, 2));
        assert!(summary.bytes_received > 200 * 102_400);
        let after = upstream.stats();
        assert_eq!(after.requests - before.requests, 200);
        assert_eq!(after.connections - before.connections, 2);
    }
}

#[test]
fn http2_with_a_new_connection_for_each_request() {
    let upstream = start(Certificate::Ecdsa, Behaviour::default());
    let plan =
        Plan { protocol: Protocol::Http2, new_connection: true, count: Some(10), ..plain(&upstream, "/") };
    let summary = run(&plan);
    assert_eq!((errors(&summary), summary.connections.opened), (vec![], 10));
    assert_eq!(summary.connections.closed_by_server, 0);
}

#[test]
fn http2_bodies_reach_the_server() {
    let upstream = start(Certificate::Ecdsa, Behaviour::default());
    let body = vec![b'x'; 300_000];
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let plan =
            Plan { method: "POST".to_owned(), body: body.clone(), protocol, ..plain(&upstream, "/hello") };
        let summary = run(&Plan { count: Some(5), ..plan });
        assert_eq!((errors(&summary), summary.responses), (vec![], 5));
        assert!(summary.bytes_sent >= 5 * 300_000);
    }
}

#[test]
fn errors_of_http2_are_counted_in_their_classes() {
    let failing = Behaviour { error_share: 0.5, error_status: 502, ..Behaviour::default() };
    let upstream = start(Certificate::Ecdsa, failing);
    let http2 = |plan| Plan { protocol: Protocol::Http2, count: Some(10), ..plan };
    let summary = run(&http2(plain(&upstream, "/")));
    assert_eq!((errors(&summary), upstream.stats().errors_on_purpose), (vec![("bad_status", 5)], 5));

    let slow = Behaviour { latency: LatencyShape::Fixed(60_000_000_000), ..Behaviour::default() };
    let upstream = start(Certificate::Ecdsa, slow);
    let summary = run(&Plan { response_timeout_ms: 50, ..http2(plain(&upstream, "/")) });
    assert_eq!((errors(&summary), summary.connections.opened), (vec![("response_timeout", 10)], 1));

    let ending = serve(|peer| {
        peer.read();
    });
    let summary = run(&http2(ending.plan()));
    assert_eq!(errors(&summary), [("read", 10)], "{:?}", summary.errors.examples);

    let babbling = serve(|peer| {
        peer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        peer.stay();
    });
    let summary = run(&http2(babbling.plan()));
    assert_eq!(errors(&summary), [("protocol", 10)], "{:?}", summary.errors.examples);
}

#[test]
fn tls_is_spoken_in_the_version_asked_for() {
    let check = |certificate: Certificate, version: Option<TlsVersion>, expected: &str, key: &str| {
        let upstream = start(certificate, Behaviour::default());
        let tls = TlsPlan { version, ..TlsPlan::default() };
        let summary = run(&Plan { tls, count: Some(3), ..secure(&upstream, "/1k") });
        let facts = summary.tls.clone().unwrap();
        assert_eq!((errors(&summary), facts.version.as_str()), (vec![], expected));
        assert_eq!((facts.certificate_key.as_deref(), facts.alpn.as_deref()), (Some(key), Some("http/1.1")));
    };
    check(Certificate::Rsa, None, "TLSv1.3", "RSA 2048");
    check(Certificate::Ecdsa, Some(TlsVersion::V13), "TLSv1.3", "ECDSA P-256");
    check(Certificate::Ecdsa, Some(TlsVersion::V12), "TLSv1.2", "ECDSA P-256");
}

#[test]
fn sessions_are_resumed_only_where_that_is_wanted() {
    let upstream = start(Certificate::Ecdsa, Behaviour::default());
    for version in [TlsVersion::V12, TlsVersion::V13] {
        for (resumption, full, resumed) in [(true, 1, 9), (false, 10, 0)] {
            let tls = TlsPlan { version: Some(version), resumption, ..TlsPlan::default() };
            let plan = Plan { tls, new_connection: true, count: Some(10), ..secure(&upstream, "/") };
            let connections = run(&plan).connections;
            let found = (connections.full_handshakes, connections.resumed_handshakes);
            assert_eq!(found, (full, resumed), "{version:?}, resumption {resumption}");
        }
    }
}

#[test]
fn certificates_are_verified_where_anchors_are_given() {
    let upstream = start(Certificate::Ecdsa, Behaviour::default());
    let folder = std::env::temp_dir().join(format!("yumen-load-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("other.pem");
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&file, other.cert.pem()).unwrap();
    let tls = TlsPlan { ca_file: Some(file.to_string_lossy().into_owned()), ..TlsPlan::default() };
    let summary = run(&Plan { tls, count: Some(2), ..secure(&upstream, "/") });
    assert_eq!(errors(&summary), [("connect", 2)]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_upstream_counts_what_it_is_asked() {
    let upstream = start(Certificate::Ecdsa, Behaviour { rate_limit: Some(1e-6), ..Behaviour::default() });
    let summary = run(&Plan { count: Some(10), connections: 2, ..plain(&upstream, "/") });
    // The first is within the limit of one in eleven days.
    assert_eq!((errors(&summary), summary.statuses[&200]), (vec![("bad_status", 9)], 1));
    let stats = upstream.stats();
    assert_eq!((stats.connections, stats.requests, stats.limited), (2, 10, 9));
    assert!(stats.cpu_ns > 0);
}

#[test]
fn the_upstream_takes_the_time_it_is_told_to() {
    let latency = LatencyShape::Uniform(2_000_000, 10_000_000);
    let upstream = start(Certificate::Ecdsa, Behaviour { latency, ..Behaviour::default() });
    let summary = run(&Plan { count: Some(1000), connections: 20, ..plain(&upstream, "/") });
    let at = |percentile| summary.latency.at(percentile).unwrap() as f64 / 1e6;
    // Never less than the distribution says; how much more is the machine's affair.
    assert!(summary.latency.min_ns >= 1_990_000);
    assert!(at(50.0) >= 5.5 && at(90.0) >= 8.8, "{} {}", at(50.0), at(90.0));
}

#[test]
fn a_stall_of_the_upstream_shows_in_an_open_loop() {
    let for_ms = 1500;
    let stalls = Some(yumen_load::Stalls { first_ms: 0, every_ms: 0, for_ms });
    let upstream = start(Certificate::Ecdsa, Behaviour { stalls, ..Behaviour::default() });
    let kind = Kind::Open { rate: 50.0 };
    let summary = run(&Plan { kind, count: Some(100), connections: 4, ..plain(&upstream, "/") });
    assert_eq!((errors(&summary), summary.responses), (vec![], 100));
    // The first request was due when the run began and not answered before the stall was over.
    let began_ms = upstream.stats().uptime_ms - summary.elapsed_ns / 1_000_000;
    let longest_ms = summary.latency_corrected.unwrap().max_ns / 1_000_000;
    assert!(longest_ms + began_ms + 2 >= for_ms, "{longest_ms} ms from {began_ms} ms on");
}
