//! TLS to upstreams, verified if configured.

use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::certs::{Authority, Pair, ecdsa};
use crate::harness::http2::Http2Upstream;
use crate::harness::nginx::Nginx;
use crate::harness::tls::TlsUpstream;
use crate::harness::{Gateway, Reply, Scratch, eventually, free_port, run};

fn check(nginx: &Nginx, settings: &Value, status: u16) -> Reply {
    let mut upstream = settings.clone();
    upstream["scheme"] = "https".into();
    upstream["nodes"] = json!({ nginx.address.to_string(): 1 });
    let gateway = Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] }));
    let reply = gateway.get_with("/host", "Host: shop.test\r\n");
    assert_eq!(reply.status, status, "{settings}: {reply:?}\n{}", gateway.log());
    reply
}

#[test]
fn https_upstreams_are_verified_where_asked_for() {
    let (known, unknown) = (Authority::new("known"), Authority::new("unknown"));
    let pair = known.sign("shop", &["shop.test"], ecdsa());
    let nginx = Nginx::tls(&pair.cert, &pair.key);
    // Without verification every certificate passes; the server name is that of the host.
    assert_eq!(check(&nginx, &json!({}), 200).text(), "shop.test shop.test");
    check(&nginx, &json!({ "tls": { "verify": true, "ca": known.cert } }), 200);
    let reply = check(&nginx, &json!({ "tls": { "verify": true, "ca": unknown.cert } }), 502);
    assert!(reply.json()["error_msg"].as_str().unwrap().contains("TLS"));
    // The right authority with another name.
    let renamed = json!({
        "tls": { "verify": true, "ca": known.cert },
        "pass_host": "rewrite",
        "upstream_host": "other.test",
    });
    check(&nginx, &renamed, 502);
    // The configured name is in SNI and in the certificate, whatever the host.
    let mut named = renamed.clone();
    named["tls"]["server_name"] = "shop.test".into();
    assert_eq!(check(&nginx, &named, 200).text(), "other.test shop.test");
    // With other names, that of SNI does not count.
    named["tls"]["subject_alt_names"] = json!([{ "uri": "spiffe://a" }, { "dns": "*.test" }]);
    check(&nginx, &named, 200);
    named["tls"]["subject_alt_names"] = json!([{ "dns": "other.test" }]);
    check(&nginx, &named, 502);
    // The system's authorities do not include it.
    check(&nginx, &json!({ "tls": { "verify": true } }), 502);
}

#[test]
fn connections_of_https_upstreams_are_kept() {
    let pair = Authority::new("known").sign("shop", &["shop.test"], ecdsa());
    let nginx = Nginx::tls(&pair.cert, &pair.key);
    nginx.put("big", &crate::harness::noise(3_000_000));
    let upstream = json!({ "scheme": "https", "nodes": { nginx.address.to_string(): 1 } });
    let options = crate::harness::Options { workers: 1, ..Default::default() };
    let gateway =
        Gateway::with(&json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] }), &options);
    for _ in 0..5 {
        assert!(gateway.get("/big").body == crate::harness::noise(3_000_000));
    }
    gateway.assert_metric("yumen_upstream_connects_total", 1.0);
}

#[test]
fn tls_is_begun_with_the_name_that_is_asked_for_and_kept_for_it() {
    let pair = Authority::new("known").sign("shop", &["shop.test"], ecdsa());
    let nginx = Nginx::tls(&pair.cert, &pair.key);
    let upstream = json!({ "id": "1", "scheme": "https", "nodes": { nginx.address.to_string(): 1 } });
    let rewrite = json!({ "proxy-rewrite": { "host": "c.test:443", "uri": "/host" } });
    let options = crate::harness::Options { workers: 1, ..Default::default() };
    let routes = json!([
        { "id": "1", "uri": "/host", "upstream_id": "1" },
        { "id": "2", "uri": "/rewritten", "upstream_id": "1", "plugins": rewrite },
    ]);
    let gateway = Gateway::with(&json!({ "routes": routes, "upstreams": [upstream] }), &options);
    for _ in 0..3 {
        for (path, host, expected) in [
            ("/host", "a.test", "a.test a.test"),
            ("/host", "b.test", "b.test b.test"),
            ("/rewritten", "a.test", "c.test:443 c.test"),
        ] {
            let reply = gateway.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(reply.text(), expected);
        }
    }
    gateway.assert_metric("yumen_upstream_connects_total", 3.0);
}

#[test]
fn what_was_verified_for_one_name_carries_no_request_for_another() {
    let authority = Authority::new("known");
    let pair = authority.sign("shop", &["shop.test", "second.test"], ecdsa());
    let http2 = Http2Upstream::tls(&pair, |request, mut respond| async move {
        let answer =
            http::Response::builder().header("x-authority", request.uri().authority().unwrap().as_str());
        respond.send_response(answer.body(()).unwrap(), true).map(drop)
    });
    let http1 = Nginx::tls(&pair.cert, &pair.key);
    let upstream = |address: std::net::SocketAddr, more: Value| {
        let mut upstream = json!({ "scheme": "https", "nodes": { address.to_string(): 1 } });
        upstream["tls"] = json!({ "verify": true, "ca": authority.cert });
        upstream.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        upstream
    };
    let rewritten = |host: &str| json!({ "pass_host": "rewrite", "upstream_host": host });
    let routes = json!([
        { "id": "2", "uri": "/2", "upstream": upstream(http2.address, json!({ "http_version": "2" })) },
        { "id": "g", "uri": "/g", "upstream": upstream(http2.address, json!({ "scheme": "grpcs" })) },
        { "id": "1", "uri": "/1", "upstream": upstream(http1.address, json!({})) },
        { "id": "a", "uri": "/a", "upstream": upstream(http1.address, rewritten("shop.test")) },
        { "id": "b", "uri": "/b", "upstream": upstream(http1.address, rewritten("other.test")) },
    ]);
    let options = crate::harness::Options { workers: 1, ..Default::default() };
    let gateway = Gateway::with(&json!({ "routes": routes }), &options);
    let ask = |path: &str, host: &str| gateway.get_with(path, &format!("Host: {host}\r\n")).status;
    for path in ["/2", "/g", "/1"] {
        for _ in 0..2 {
            assert_ne!(ask(path, "shop.test"), 502, "{path}: {}", gateway.log());
            assert_ne!(ask(path, "second.test"), 502, "{path}");
            assert_eq!(ask(path, "other.test"), 502, "{path}");
        }
    }
    // A configured name makes no difference.
    assert_ne!(ask("/a", "any.test"), 502);
    assert_eq!(ask("/b", "any.test"), 502);
    // Two names for each of two schemes, and two failures.
    assert_eq!(http2.requests(), 8);
    assert_eq!(http2.connections(), 4 + 4);
}

#[test]
fn nobody_is_spoken_to_in_http2_who_did_not_agree_on_it() {
    let pair = Authority::new("known").sign("shop", &["shop.test"], ecdsa());
    // One server has no ALPN support; the other refuses unknown protocols.
    let (silent, strict) = (TlsUpstream::text(&pair, "x"), Nginx::tls(&pair.cert, &pair.key));
    let well = Http2Upstream::tls(&pair, |_, mut respond| async move {
        respond.send_response(http::Response::new(()), true).map(drop)
    });
    let start = |nodes: &[SocketAddr]| {
        let nodes: Value = nodes.iter().map(|node| (node.to_string(), json!(1))).collect();
        let outliers = json!({ "consecutive_gateway_failures": 2, "base_ejection_time": 600 });
        let upstream = json!({
            "scheme": "https", "http_version": "2", "nodes": nodes, "outlier_detection": outliers,
            "pass_host": "rewrite", "upstream_host": "shop.test",
        });
        let options = crate::harness::Options { workers: 1, ..Default::default() };
        Gateway::with(&json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] }), &options)
    };
    let post = |gateway: &Gateway| gateway.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    for alone in [silent.address, strict.address] {
        let gateway = start(&[alone]);
        let reply = post(&gateway);
        assert_eq!(reply.status, 502);
        assert_eq!(reply.json()["error_msg"], "the upstream does not speak HTTP/2", "{}", gateway.log());
        assert!(gateway.log().contains("upstream TLS handshake failed"), "{}", gateway.log());
    }
    let (gateway, before) = (start(&[silent.address, well.address]), silent.connections());
    assert!((0..20).all(|_| post(&gateway).status == 200), "another is asked");
    assert_eq!(silent.connections() - before, 2, "and it is left out");
}

#[test]
fn a_certificate_is_shown_to_upstreams_that_ask() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let pair = servers.sign("shop", &["shop.test"], ecdsa());
    let nginx = Nginx::mutual(&pair.cert, &pair.key, &clients.cert);
    let robot = clients.issue_client("robot", 1, 2100);
    let unknown = Authority::new("others").issue_client("stranger", 1, 2100);
    let upstream =
        |tls: Value| json!({ "scheme": "https", "nodes": { nginx.address.to_string(): 1 }, "tls": tls });
    let verified = json!({ "verify": true, "ca": servers.cert });
    let mut shown = verified.clone();
    shown["client_cert"] = robot.cert.clone().into();
    shown["client_key"] = robot.key.clone().into();
    let (mut by_id, mut wrong) = (verified.clone(), verified.clone());
    by_id["client_cert_id"] = "robot".into();
    wrong["client_cert"] = unknown.cert.into();
    wrong["client_key"] = unknown.key.into();
    let route = |id: &str, tls: Value| {
        let rewrite = json!({ "proxy-rewrite": { "uri": "/client" } });
        json!({ "id": id, "uri": format!("/{id}"), "upstream": upstream(tls), "plugins": rewrite })
    };
    let routes =
        [route("none", verified), route("inline", shown), route("by-id", by_id), route("wrong", wrong)];
    let ssl = json!({ "id": "robot", "type": "client", "cert": robot.cert, "key": robot.key });
    let gateway = Gateway::start(&json!({ "routes": routes, "ssls": [ssl] }));
    let ask = |path: &str| {
        let reply = gateway.get_with(path, "Host: shop.test\r\n");
        (reply.status, reply.text())
    };
    assert_eq!(ask("/inline"), (200, "O=Shop\\, Inc,CN=robot".to_owned()));
    assert_eq!(ask("/by-id"), (200, "O=Shop\\, Inc,CN=robot".to_owned()));
    // Connections are not shared between client certificates; NGINX responds with 400 to unknown ones.
    assert_eq!(ask("/none").0, 400);
    assert_eq!(ask("/wrong").0, 400);
}

/// With TLS 1.3 the refusal only shows after the handshake (RFC 8446 §4.4.2.4).
#[test]
fn why_an_endpoint_breaks_off_after_the_handshake_is_in_the_log() {
    let pair = Authority::new("servers").sign("shop", &["shop.test"], ecdsa());
    let (scratch, address) = (Scratch::new(), free_port());
    let (cert, key) = (scratch.write("cert.pem", &pair.cert), scratch.write("key.pem", &pair.key));
    let mut server = Command::new("openssl")
        .args(["s_server", "-tls1_3", "-www", "-accept", &address.port().to_string(), "-Verify", "1"])
        .args(["-verify_return_error", "-cert", &cert, "-key", &key])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl runs: scripts/deps.sh test");
    eventually("it listens", 10, || TcpStream::connect(address).is_ok());
    let upstream = |scheme: &str| json!({ "scheme": scheme, "nodes": { address.to_string(): 1 } });
    let gateway =
        Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream("https") }] }));
    assert_eq!(gateway.get("/").status, 502);
    let problems = || {
        gateway
            .log()
            .lines()
            .any(|line| line.contains(&address.to_string()) && line.contains("CertificateRequired"))
    };
    eventually("the reason is reported", 10, problems);
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn what_cannot_be_used_towards_upstreams_is_told_before_it_is_needed() {
    let pair = Authority::new("known").issue_client("robot", 1, 2100);
    let other = Authority::new("known").issue_client("other", 1, 2100);
    let padding = "x".repeat(200);
    let upstream = |tls: Value| json!({ "scheme": "https", "nodes": { "127.0.0.1:1": 1 }, "tls": tls });
    let routes = [
        json!({ "id": "a", "uri": "/a", "upstream": upstream(json!({ "verify": true, "ca": padding })) }),
        json!({ "id": "b", "uri": "/b", "upstream": upstream(json!({ "client_cert": pair.cert, "client_key": other.key })) }),
    ];
    let gateway = Gateway::start(&json!({ "routes": routes }));
    let problems = gateway.status_json("/yumen/v1/problems");
    let problem_at = |at: usize| format!("{} {}", problems[at]["object"], problems[at]["path"]);
    assert_eq!(problem_at(0), "\"routes/a\" \"upstream.tls.ca\"");
    assert_eq!(problem_at(1), "\"routes/b\" \"upstream.tls.client_key\"");
    assert_eq!(gateway.get("/a").status, 503);
}

/// A certificate that strict parsers refuse, made by openssl with these arguments.
fn odd(extra: &[&str]) -> Pair {
    let scratch = Scratch::new();
    let file = |name: &str| scratch.file(name).display().to_string();
    let (key, request, cert) = (file("key.pem"), file("request.pem"), file("cert.pem"));
    let openssl = |args: &[&str]| {
        let (status, _, err) = run("openssl", args);
        assert_eq!(status, 0, "{args:?}: {err}");
    };
    let common = ["req", "-nodes", "-subj", "/CN=odd", "-keyout", &key];
    if extra.is_empty() {
        // A certificate without extensions has version 1.
        openssl(&[&common[..], &["-newkey", "rsa:2048", "-out", &request]].concat());
        openssl(&["x509", "-req", "-in", &request, "-signkey", &key, "-days", "9", "-out", &cert]);
    } else {
        openssl(&[&common[..], &["-x509", "-days", "9", "-out", &cert], extra].concat());
    }
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    Pair { cert: read(&cert), key: read(&key) }
}

#[test]
fn a_certificate_nobody_verifies_may_be_as_odd_as_it_likes() {
    let unknown = "1.2.3.4=critical,ASN1:UTF8String:x";
    for (what, pair) in [
        ("version 1", odd(&[])),
        ("an unknown critical extension", odd(&["-newkey", "rsa:2048", "-addext", unknown])),
        ("a short key", odd(&["-newkey", "rsa:1024"])),
    ] {
        let nginx = Nginx::tls(&pair.cert, &pair.key);
        assert_eq!(check(&nginx, &json!({}), 200).text(), "shop.test shop.test", "{what}");
        check(&nginx, &json!({ "tls": { "verify": true, "ca": pair.cert } }), 502);
    }
}

#[test]
fn a_certificate_given_as_its_own_authority_is_taken_for_its_name_and_time() {
    let verified = |ca: &str| json!({ "tls": { "verify": true, "ca": ca } });
    let own = Authority::own("shop.test", 2100);
    let nginx = Nginx::tls(&own.cert, &own.key);
    check(&nginx, &verified(&own.cert), 200);
    check(&nginx, &verified(&[Authority::new("other").cert, own.cert.clone()].concat()), 200);
    // A certificate with the same content and another key.
    check(&nginx, &verified(&Authority::own("shop.test", 2100).cert), 502);
    let mut renamed = verified(&own.cert);
    renamed["pass_host"] = "rewrite".into();
    renamed["upstream_host"] = "other.test".into();
    check(&nginx, &renamed, 502);
    let over = Authority::own("shop.test", 2021);
    check(&Nginx::tls(&over.cert, &over.key), &verified(&over.cert), 502);
}

#[test]
fn servers_are_not_trusted_beyond_the_time_of_their_authority() {
    let now_unix_s = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let until_unix_s = now_unix_s() + 8;
    let ending = Authority::until("ending", until_unix_s);
    let pair = ending.sign("shop", &["shop.test"], ecdsa());
    let nginx = Nginx::tls(&pair.cert, &pair.key);
    let upstream = json!({
        "scheme": "https", "nodes": { nginx.address.to_string(): 1 }, "tls": { "verify": true, "ca": ending.cert },
        // A connection per request, each with a resumed session.
        "keepalive_pool": { "size": 1, "requests": 1 },
    });
    let options = crate::harness::Options { workers: 1, ..Default::default() };
    let route = json!({ "id": "1", "uri": "/*", "upstream": upstream });
    let gateway = Gateway::with(&json!({ "routes": [route] }), &options);
    let ask = || gateway.get_with("/host", "Host: shop.test\r\n");
    assert_eq!([ask().status, ask().status, ask().status], [200; 3], "{}", gateway.log());
    // The scenario: the authority expires.
    std::thread::sleep(std::time::Duration::from_secs((until_unix_s + 2).saturating_sub(now_unix_s())));
    let refused = ask();
    assert_eq!(refused.status, 502, "{}", gateway.log());
    assert!(refused.json()["error_msg"].as_str().unwrap().contains("TLS"));
    assert!(gateway.log().contains("certificate expired"), "{}", gateway.log());
    let late = Authority::until("late", 1_609_459_200);
    let routes = [json!({ "id": "2", "uri": "/*", "upstream": {
        "scheme": "https", "nodes": { nginx.address.to_string(): 1 }, "tls": { "verify": true, "ca": late.cert },
    } })];
    gateway.apply(&json!({ "routes": routes }));
    crate::harness::eventually("the end is told", 10, || {
        let problems = gateway.status_json("/yumen/v1/problems").to_string();
        problems.contains("upstream.tls.ca") && problems.contains("the authority CN=late expired")
    });
}
