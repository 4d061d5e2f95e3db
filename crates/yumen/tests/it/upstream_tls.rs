//! TLS towards upstreams: spoken, and verified where asked for.

use serde_json::{Value, json};

use crate::harness::certs::{Authority, ecdsa};
use crate::harness::nginx::Nginx;
use crate::harness::{Gateway, Reply};

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
    // not asked for: anything goes, and the server name is the host's
    assert_eq!(check(&nginx, &json!({}), 200).text(), "shop.test shop.test");
    check(&nginx, &json!({ "tls": { "verify": true, "ca": known.cert } }), 200);
    let reply = check(&nginx, &json!({ "tls": { "verify": true, "ca": unknown.cert } }), 502);
    assert!(reply.json()["error_msg"].as_str().unwrap().contains("TLS"));
    // the right authority, another name
    let renamed = json!({
        "tls": { "verify": true, "ca": known.cert },
        "pass_host": "rewrite",
        "upstream_host": "other.test",
    });
    check(&nginx, &renamed, 502);
    // the system's authorities do not know it
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
    assert_eq!(gateway.metric("yumen_upstream_connects_total"), 1.0);
}
