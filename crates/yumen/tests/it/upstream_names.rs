//! Server names for TLS to endpoints that come from clients: their errors are not faults of the endpoints.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::harness::certs::{Authority, ecdsa};
use crate::harness::tls::TlsUpstream;
use crate::harness::{Gateway, eventually};
use crate::l4;

/// Names that no certificate can have.
fn no_names() -> [String; 4] {
    ["-".into(), "foo.123".into(), "a..b".into(), format!("{}.test", "a".repeat(64))]
}

/// The second endpoint is only used if the first is unhealthy, which two consecutive failures cause.
fn upstream(first: SocketAddr, second: SocketAddr, scheme: &str, tls: &Value) -> Value {
    let node = |at: SocketAddr, priority: i32| json!({ "host": at.ip().to_string(), "port": at.port(), "weight": 1, "priority": priority });
    json!({
        "scheme": scheme, "nodes": [node(first, 1), node(second, 0)], "tls": tls,
        "checks": {
            "active": { "type": "tcp", "healthy": { "interval": 3600 }, "unhealthy": { "interval": 3600 } },
            "passive": { "type": "tcp", "unhealthy": { "tcp_failures": 2 } },
        },
        "outlier_detection": {},
    })
}

#[test]
fn no_name_that_clients_choose_makes_an_endpoint_ill() {
    let authority = Authority::new("known");
    let pair = authority.sign("shop", &["shop.test"], ecdsa());
    let (first, second) = (TlsUpstream::text(&pair, "first"), TlsUpstream::text(&pair, "second"));
    let (first_of_2, second_of_2) = (TlsUpstream::text(&pair, "first"), TlsUpstream::text(&pair, "second"));
    let verified = json!({ "verify": true, "ca": authority.cert });
    let routes = json!([
        { "id": "verified", "uri": "/verified", "upstream": upstream(first.address, second.address, "https", &verified) },
        { "id": "any", "uri": "/any", "upstream": upstream(first_of_2.address, second_of_2.address, "https", &json!({})) },
    ]);
    let gateway = Gateway::start(&json!({ "routes": routes }));
    let ask = |path: &str, host: &str| {
        let reply = gateway.get_with(path, &format!("Host: {host}\r\n"));
        (reply.status, reply.text())
    };
    assert_eq!(ask("/verified", "shop.test"), (200, "first".into()), "{}", gateway.log());
    // One request, and a probe each.
    eventually("both were probed", 10, || (first.connections(), second.connections()) == (2, 1));
    for name in no_names() {
        let (status, text) = ask("/verified", &name);
        assert_eq!(status, 502, "{name}");
        assert!(text.contains("no valid certificate for this host"), "{text}");
        // Without verification no name is needed.
        assert_eq!(ask("/any", &name), (200, "first".into()), "{name}");
    }
    assert_eq!((first.connections(), second.connections()), (2, 1), "nobody was connected to");
    assert_eq!(first_of_2.names().into_iter().flatten().count(), 0, "nothing was said of a name");
    for _ in 0..3 {
        assert_eq!(ask("/verified", "other.test").0, 502);
    }
    assert_eq!(second.connections(), 1, "another endpoint would not do better");
    // Refused by the server, which may be its fault: the request is retried, but without an effect on health.
    for _ in 0..3 {
        assert_eq!(ask("/verified", "unknown.test").0, 502);
        assert_eq!(ask("/any", "unknown.test").0, 502);
    }
    assert_eq!(ask("/verified", "shop.test"), (200, "first".into()));
    assert_eq!(ask("/any", "shop.test"), (200, "first".into()));
    gateway.assert_metric("yumen_faults_total{fault=\"upstream_name\",side=\"upstream\"}", 7.0);
    assert!(gateway.log().contains("upstream TLS handshake failed"), "{}", gateway.log());
}

#[test]
fn an_endpoint_that_fails_under_a_name_of_its_own_is_ill() {
    let (authority, unknown) = (Authority::new("known"), Authority::new("stranger"));
    let wrong = unknown.sign("shop", &["shop.test"], ecdsa());
    let right = authority.sign("shop", &["shop.test"], ecdsa());
    let (first, second) = (TlsUpstream::text(&wrong, "first"), TlsUpstream::text(&right, "second"));
    let mut upstream =
        upstream(first.address, second.address, "https", &json!({ "verify": true, "ca": authority.cert }));
    upstream["pass_host"] = "rewrite".into();
    upstream["upstream_host"] = "shop.test".into();
    let gateway = Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] }));
    for _ in 0..6 {
        assert_eq!(gateway.get("/").text(), "second");
    }
    // A probe may have been counted too.
    assert!((2..=3).contains(&first.connections()));
}

#[test]
fn no_name_that_clients_of_streams_choose_makes_an_endpoint_ill() {
    let authority = Authority::new("known");
    let pair = authority.sign("shop", &["shop.test"], ecdsa());
    let own = authority.sign("own", &["shop.test", "other.test"], ecdsa());
    let (first, second) = (TlsUpstream::text(&pair, "first"), TlsUpstream::text(&pair, "second"));
    let verified = json!({ "verify": true, "ca": authority.cert });
    let upstream = upstream(first.address, second.address, "tls", &verified);
    let resources = json!({
        "ssls": [{ "id": "1", "snis": ["shop.test", "other.test"], "cert": own.cert, "key": own.key }],
        "stream_routes": [{ "id": "s", "upstream": upstream }],
    });
    let (gateway, at) = l4::start("[{address: '127.0.0.1:0', protocol: tls}]", &resources);
    let ca = gateway.scratch.write("ca.pem", &authority.cert);
    assert_eq!(l4::curl_tls(at[0], "shop.test", &ca), "first");
    eventually("the other was probed", 10, || second.connections() == 1);
    for _ in 0..3 {
        assert!(l4::curl_tls(at[0], "other.test", &ca).contains("curl:"));
    }
    assert_eq!(l4::curl_tls(at[0], "shop.test", &ca), "first");
    assert_eq!(second.connections(), 1);
    gateway.assert_metric("yumen_stream_faults_total{fault=\"upstream_name\"}", 3.0);
}
