//! HTTP/2 and TLS against the test upstream of this crate, and the test upstream itself.

use std::net::SocketAddr;

use yumen_load::{
    LatencyShape, LoadLimits, LoadPlan, LoadProtocol, LoadShape, LoadTlsVersion, TestUpstream, TlsPlan,
    UpstreamBehaviour, UpstreamCertificate, UpstreamOptions, upstream,
};

use crate::scripted::{errors, plan, run, serve};

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn start(certificate: UpstreamCertificate, behaviour: UpstreamBehaviour) -> TestUpstream {
    let listen_tls = Some(any_port());
    let (listen, threads, body_bytes) = (any_port(), 2, 2);
    upstream(&UpstreamOptions { listen, listen_tls, certificate, threads, body_bytes, behaviour }).unwrap()
}

fn plain(upstream: &TestUpstream, path: &str) -> LoadPlan {
    plan(format!("http://{}{path}", upstream.address()))
}

fn secure(upstream: &TestUpstream, path: &str) -> LoadPlan {
    plan(format!("https://{}{path}", upstream.address_tls().unwrap()))
}

#[test]
fn http2_has_many_streams_on_one_connection() {
    let upstream = start(UpstreamCertificate::Ecdsa, UpstreamBehaviour::default());
    let http2 = |plan| LoadPlan {
        protocol: LoadProtocol::Http2,
        connections: 2,
        streams: 5,
        limits: LoadLimits::count(200),
        ..plan
    };
    for plan in [plain(&upstream, "/100k"), secure(&upstream, "/100k")] {
        let before = upstream.stats();
        let summary = run(&http2(plan));
        assert_eq!(errors(&summary), []);
        assert_eq!((summary.totals.responses, summary.connections.opened), (200, 2));
        assert!(summary.transfer.bytes_received > 200 * 102_400);
        let after = upstream.stats();
        assert_eq!(after.requests - before.requests, 200);
        assert_eq!(after.connections - before.connections, 2);
    }
}

#[test]
fn http2_with_a_new_connection_for_each_request() {
    let upstream = start(UpstreamCertificate::Ecdsa, UpstreamBehaviour::default());
    let plan = LoadPlan {
        protocol: LoadProtocol::Http2,
        new_connection: true,
        limits: LoadLimits::count(10),
        ..plain(&upstream, "/")
    };
    let summary = run(&plan);
    assert_eq!((errors(&summary), summary.connections.opened), (vec![], 10));
    assert_eq!(summary.connections.closed_by_server, 0);
}

#[test]
fn http2_bodies_reach_the_server() {
    let upstream = start(UpstreamCertificate::Ecdsa, UpstreamBehaviour::default());
    let body = vec![b'x'; 300_000];
    for protocol in [LoadProtocol::Http1, LoadProtocol::Http2] {
        let mut plan = LoadPlan { protocol, ..plain(&upstream, "/hello") };
        (plan.request.method, plan.request.body) = ("POST".to_owned(), body.clone());
        let summary = run(&LoadPlan { limits: LoadLimits::count(5), ..plan });
        assert_eq!((errors(&summary), summary.totals.responses), (vec![], 5));
        assert!(summary.transfer.bytes_sent >= 5 * 300_000);
    }
}

#[test]
fn errors_of_http2_are_counted_in_their_classes() {
    let failing = UpstreamBehaviour { error_share: 0.5, error_status: 502, ..UpstreamBehaviour::default() };
    let upstream = start(UpstreamCertificate::Ecdsa, failing);
    let http2 = |plan| LoadPlan { protocol: LoadProtocol::Http2, limits: LoadLimits::count(10), ..plan };
    let summary = run(&http2(plain(&upstream, "/")));
    assert_eq!((errors(&summary), upstream.stats().errors_on_purpose), (vec![("bad_status", 5)], 5));

    let slow =
        UpstreamBehaviour { latency: LatencyShape::Fixed(60_000_000_000), ..UpstreamBehaviour::default() };
    let upstream = start(UpstreamCertificate::Ecdsa, slow);
    let summary = run(&LoadPlan { response_timeout_ms: 50, ..http2(plain(&upstream, "/")) });
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
    let check = |certificate: UpstreamCertificate,
                 version: Option<LoadTlsVersion>,
                 expected: &str,
                 key: &str| {
        let upstream = start(certificate, UpstreamBehaviour::default());
        let tls = TlsPlan { version, ..TlsPlan::default() };
        let summary = run(&LoadPlan { tls, limits: LoadLimits::count(3), ..secure(&upstream, "/1k") });
        let facts = summary.protocols.tls.clone().unwrap();
        assert_eq!((errors(&summary), facts.version.as_str()), (vec![], expected));
        assert_eq!((facts.certificate_key.as_deref(), facts.alpn.as_deref()), (Some(key), Some("http/1.1")));
    };
    check(UpstreamCertificate::Rsa, None, "TLSv1.3", "RSA 2048");
    check(UpstreamCertificate::Ecdsa, Some(LoadTlsVersion::V13), "TLSv1.3", "ECDSA P-256");
    check(UpstreamCertificate::Ecdsa, Some(LoadTlsVersion::V12), "TLSv1.2", "ECDSA P-256");
}

#[test]
fn sessions_are_resumed_only_where_that_is_wanted() {
    let upstream = start(UpstreamCertificate::Ecdsa, UpstreamBehaviour::default());
    for version in [LoadTlsVersion::V12, LoadTlsVersion::V13] {
        for (resumption, full, resumed) in [(true, 1, 9), (false, 10, 0)] {
            let tls = TlsPlan { version: Some(version), resumption, ..TlsPlan::default() };
            let plan = LoadPlan {
                tls,
                new_connection: true,
                limits: LoadLimits::count(10),
                ..secure(&upstream, "/")
            };
            let connections = run(&plan).connections;
            let found = (connections.full_handshakes, connections.resumed_handshakes);
            assert_eq!(found, (full, resumed), "{version:?}, resumption {resumption}");
        }
    }
}

#[test]
fn certificates_are_verified_where_anchors_are_given() {
    let upstream = start(UpstreamCertificate::Ecdsa, UpstreamBehaviour::default());
    let folder = std::env::temp_dir().join(format!("yumen-load-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("other.pem");
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&file, other.cert.pem()).unwrap();
    let tls = TlsPlan { ca_file: Some(file.to_string_lossy().into_owned()), ..TlsPlan::default() };
    let summary = run(&LoadPlan { tls, limits: LoadLimits::count(2), ..secure(&upstream, "/") });
    assert_eq!(errors(&summary), [("connect", 2)]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_upstream_counts_what_it_is_asked() {
    let upstream = start(
        UpstreamCertificate::Ecdsa,
        UpstreamBehaviour { rate_limit: Some(1e-6), ..UpstreamBehaviour::default() },
    );
    let summary = run(&LoadPlan { limits: LoadLimits::count(10), connections: 2, ..plain(&upstream, "/") });
    // Only the first is within the limit of one request in eleven days.
    assert_eq!((errors(&summary), summary.statuses[&200]), (vec![("bad_status", 9)], 1));
    let stats = upstream.stats();
    assert_eq!((stats.connections, stats.requests, stats.limited), (2, 10, 9));
    assert!(stats.cpu_ns > 0);
}

#[test]
fn upstream_takes_the_requested_time() {
    let latency = LatencyShape::Uniform(2_000_000, 10_000_000);
    let upstream =
        start(UpstreamCertificate::Ecdsa, UpstreamBehaviour { latency, ..UpstreamBehaviour::default() });
    let summary =
        run(&LoadPlan { limits: LoadLimits::count(1000), connections: 20, ..plain(&upstream, "/") });
    let at = |percentile| summary.latencies.response.at(percentile).unwrap() as f64 / 1e6;
    // At least the values of the distribution; the machine may add to them.
    assert!(summary.latencies.response.min_ns >= 1_990_000);
    assert!(at(50.0) >= 5.5 && at(90.0) >= 8.8, "{} {}", at(50.0), at(90.0));
}

#[test]
fn a_stall_of_the_upstream_shows_in_an_open_loop() {
    let for_ms = 1500;
    let stalls = Some(yumen_load::StallSchedule { first_ms: 0, every_ms: 0, for_ms });
    let upstream =
        start(UpstreamCertificate::Ecdsa, UpstreamBehaviour { stalls, ..UpstreamBehaviour::default() });
    let kind = LoadShape::Open { rate: 50.0 };
    let summary =
        run(&LoadPlan { kind, limits: LoadLimits::count(100), connections: 4, ..plain(&upstream, "/") });
    assert_eq!((errors(&summary), summary.totals.responses), (vec![], 100));
    // The first request was due at the begin of the run, and got its response after the stall.
    let began_ms = upstream.stats().uptime_ms - summary.elapsed_ns / 1_000_000;
    let longest_ms = summary.latencies.corrected.unwrap().max_ns / 1_000_000;
    assert!(longest_ms + began_ms + 2 >= for_ms, "{longest_ms} ms from {began_ms} ms on");
}
