//! Weighted backends and mirrors of routes and stream routes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::upstream::respond;
use crate::harness::{Gateway, Upstream, eventually};
use crate::l4::{self, named};

#[test]
fn requests_of_weighted_backends_follow_the_weights() {
    let (first, second) = (Upstream::text("first"), Upstream::text("second"));
    let gateway = Gateway::start(&json!({
        "upstreams": [
            { "id": "a", "nodes": first.nodes() },
            { "id": "b", "nodes": second.nodes() },
        ],
        "routes": [{ "id": "1", "uri": "/*", "backends": [
            { "upstream_id": "a", "weight": 7 },
            { "upstream_id": "b", "weight": 2 },
            { "status": 500, "weight": 1 },
        ] }],
    }));
    let count = 1000;
    let refused = (0..count).filter(|_| gateway.get("/").status == 500).count();
    for (found, share) in [(first.requests(), 0.7), (second.requests(), 0.2), (refused, 0.1)] {
        // Six standard deviations of the binomial distribution.
        let (expected, count) = (share * count as f64, count as f64);
        let tolerance = 6.0 * (count * share * (1.0 - share)).sqrt();
        assert!((found as f64 - expected).abs() <= tolerance, "{found} instead of {expected}");
    }
}

#[test]
fn a_stream_share_with_a_status_closes() {
    let (a, b) = (named("a"), named("b"));
    let upstream = |id: &str, address: SocketAddr| json!({ "id": id, "scheme": "tcp", "nodes": { address.to_string(): 1 } });
    let check = |backends: Value, expected: &str| {
        let resources = json!({
            "upstreams": [upstream("a", a), upstream("b", b)],
            "stream_routes": [{ "id": "1", "backends": backends }],
        });
        let (_gateway, at) = l4::start(l4::TCP, &resources);
        assert_eq!(l4::first(&mut l4::connect(at[0])), expected, "{backends}");
    };
    check(json!([{ "upstream_id": "a" }, { "upstream_id": "b", "weight": 0 }]), "a");
    check(json!([{ "status": 503 }]), "");
    check(json!([{ "upstream_id": "b", "weight": 0 }]), "");
}

#[test]
fn every_mirror_gets_its_share_with_the_body() {
    let main = Upstream::text("main");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mirror = |name: &'static str| {
        let seen = seen.clone();
        Upstream::start(move |request, stream| {
            let mark = request.field("x-mark").unwrap_or_default();
            seen.lock().unwrap().push((format!("{name} {mark}"), request.body.clone()));
            respond(stream, 500, "", b"ignored")
        })
    };
    let (all, never, half) = (mirror("all"), mirror("never"), mirror("half"));
    let gateway = Gateway::start(&json!({
        "upstreams": [
            { "id": "all", "nodes": all.nodes() },
            { "id": "never", "nodes": never.nodes() },
            { "id": "half", "nodes": half.nodes() },
        ],
        "routes": [{
            "id": "1",
            "uri": "/*",
            "actions": {
                "request_fields": { "set": [["X-Mark", "edited"]] },
                "mirrors": [
                    { "upstream_id": "all" },
                    { "upstream_id": "never", "numerator": 0 },
                    { "upstream_id": "half", "numerator": 50, "denominator": 100 },
                ],
            },
            "upstream": main.alone(),
        }],
    }));
    let count = 200;
    for _ in 0..count {
        let reply = gateway.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!((reply.status, &*reply.text()), (200, "main"));
    }
    eventually("all copies arrive", 20, || all.requests() == count);
    assert_eq!(never.requests(), 0);
    // Six standard deviations of the binomial distribution.
    assert!((58..=142).contains(&half.requests()), "{}", half.requests());
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|(mark, body)| mark.ends_with(" edited") && body == b"abc"), "{seen:?}");
}
