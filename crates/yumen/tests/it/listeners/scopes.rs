//! Scopes of a listener over all versions of HTTP.

use serde_json::json;

use crate::harness::http2::{self, Http2Client};
use crate::harness::http3::Http3Client;
use crate::harness::tls::{over_tls, trusting};
use crate::harness::{Upstream, certs, free_port};
use crate::l4::connect;

/// A request for a host.
fn get(host: &str) -> http::Request<()> {
    http::Request::builder().uri(format!("https://{host}/")).body(()).unwrap()
}

#[test]
fn a_connection_serves_the_hosts_of_its_scope_and_misdirects_those_of_another() {
    let (first, second) = (Upstream::text("first"), Upstream::text("second"));
    let authority = certs::Authority::new("test authority");
    let address = free_port();
    let mut resources = json!({
        "listeners": [{ "id": "web", "address": address.to_string(), "protocol": "https", "http3": true }],
        "scopes": [], "ssls": [], "routes": [],
    });
    for (name, upstream) in [("a.test", &first), ("b.test", &second)] {
        let pair = authority.sign(name, &[name], certs::ecdsa());
        let mut add = |kind: &str, object| resources[kind].as_array_mut().unwrap().push(object);
        add("scopes", json!({ "id": name, "listeners": ["web"], "hosts": [name] }));
        add(
            "ssls",
            json!({ "id": name, "snis": [name], "cert": pair.cert, "key": pair.key, "scopes": [name] }),
        );
        add("routes", json!({ "id": name, "uri": "/*", "upstream": upstream.alone(), "scopes": [name] }));
    }
    let _gateway = super::start(&resources);
    let tls = trusting(&authority.cert);
    for (host, status) in [("a.test", "200"), ("b.test", "421"), ("c.test", "404")] {
        use std::io::{Read, Write};
        let mut stream = over_tls(connect(address), &tls);
        write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        let _ = stream.read_to_string(&mut reply);
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{host}: {reply}");
    }
    http2::run(async {
        for (name, other, body) in [("a.test", "b.test", "first"), ("b.test", "a.test", "second")] {
            let newest = Http3Client::connect(address, name, &authority.cert, None).await.unwrap();
            let answer = newest.ask(get(name), b"").await;
            assert_eq!((answer.status, &*answer.body), (200, body.as_bytes()), "{name}");
            assert_eq!(newest.ask(get(other), b"").await.status, 421, "{name}");
            let mut older = Http2Client::over_tls(address, name, (*tls).clone()).await;
            for (host, status) in [(name, 200), (other, 421), (name, 200)] {
                assert_eq!(older.ask(get(host), b"").await.unwrap().status, status, "{name} {host}");
            }
            // The connection stays usable.
            assert_eq!(newest.ask(get(name), b"").await.status, 200, "{name}");
        }
    });
}
