//! Nodes with a common store share certificates: each serves the challenge, one orders, and all serve the
//! result.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Pebble, shown, wait_for_certificate};
use crate::harness::certs::Authority;
use crate::harness::etcd::Etcd;
use crate::harness::{Gateway, eventually};
use crate::upgrade::Line;

/// A balancer that assigns connections to the addresses in turn; connections from before its start wait.
fn balance(listener: TcpListener, backs: Vec<SocketAddr>) {
    std::thread::spawn(move || {
        for (near, back) in listener.incoming().map_while(Result::ok).zip(backs.into_iter().cycle()) {
            let Ok(far) = TcpStream::connect(back) else { continue };
            let (mut near_in, mut far_in) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            let (mut near, mut far) = (near, far);
            std::thread::spawn(move || std::io::copy(&mut near_in, &mut far));
            std::thread::spawn(move || std::io::copy(&mut far_in, &mut near));
        }
    });
}

fn issued(pebble: &Pebble) -> usize {
    pebble.log().matches("Issued certificate").count()
}

fn has_no_problems(gateway: &Gateway) -> bool {
    gateway.status_json("/yumen/v1/problems") == json!([])
}

#[test]
fn one_node_orders_and_all_serve() {
    let Some(pebble) = Pebble::start(&json!({})) else { return };
    let etcd = Etcd::start(1);
    let node = pebble.node("http-01", "shop.test, www.shop.test", "");
    let front = TcpListener::bind(&pebble.http).unwrap();
    let gateways = ["one", "other"].map(|name| etcd.gateway_with(name, &node));
    balance(front, gateways.iter().map(|gateway| gateway.http).collect());
    let serials = gateways.each_ref().map(|gateway| wait_for_certificate(gateway, &pebble, "shop.test"));
    assert_eq!(serials[0], serials[1]);
    let log = pebble.log();
    assert!(issued(&pebble) == 1 && !log.contains("INVALID"), "{log}");
    assert!(log.contains("There are now 1 accounts") && !log.contains("There are now 2 accounts"), "{log}");
    gateways.iter().for_each(|gateway| eventually("all is well", 10, || has_no_problems(gateway)));
    let keys = || etcd.ctl(&["get", "/apisix/yumen/acme/", "--prefix", "--keys-only"]).unwrap();
    eventually("only what was fetched stays", 20, || {
        keys().split_whitespace().all(|key| key.contains("/kept/"))
    });
    assert_eq!(keys().split_whitespace().count(), 2, "{}", keys());
    // A node that joins later gets the certificate too.
    let third = etcd.gateway_with("third", &node);
    assert_eq!(wait_for_certificate(&third, &pebble, "shop.test"), serials[0]);
    assert_eq!(issued(&pebble), 1);
}

#[test]
fn certificates_of_a_cluster_are_renewed_once_and_sealed_under_a_common_key() {
    let short = json!({ "profiles": { "default": { "description": "short", "validityPeriod": 24 } } });
    let Some(pebble) = Pebble::start(&short) else { return };
    let etcd = Etcd::start(1);
    let node = pebble.node("tls-alpn-01", "shop.test", "") + "tls: {expiry_warning_days: 0}\n";
    let node = format!("  keyring: [AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=]\n{node}");
    let front = TcpListener::bind(&pebble.tls).unwrap();
    let gateways = ["one", "other"].map(|name| etcd.gateway_with(name, &node));
    balance(front, gateways.iter().map(|gateway| gateway.https).collect());
    let first = wait_for_certificate(&gateways[0], &pebble, "shop.test");
    let later = || gateways.each_ref().map(|gateway| shown(gateway, "shop.test").1);
    eventually("both show the next one", 60, || {
        let [one, other] = later();
        one == other && one != first && !one.is_empty()
    });
    let log = pebble.log();
    // One node renews it about every 16 s.
    assert!(issued(&pebble) <= 3 && !log.contains("INVALID"), "{log}");
    let shared = etcd.ctl(&["get", "/apisix/yumen/acme/kept/", "--prefix", "--print-value-only"]).unwrap();
    assert!(shared.contains("sealed:1:") && !shared.contains("PRIVATE KEY"), "{shared}");
}

#[test]
fn a_node_with_another_key_orders_for_itself_and_leaves_what_the_others_share() {
    let Some(pebble) = Pebble::start(&json!({})) else { return };
    let etcd = Etcd::start(1);
    let node = pebble.node("http-01", "shop.test", "");
    let front = TcpListener::bind(&pebble.http).unwrap();
    let start = |name: &str, key: &str| etcd.gateway_with(name, &format!("  keyring: [{key}]\n{node}"));
    let one = start("one", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    balance(front, vec![one.http]);
    let serial = wait_for_certificate(&one, &pebble, "shop.test");
    let shared = || etcd.ctl(&["get", "/apisix/yumen/acme/kept/", "--prefix"]).unwrap();
    eventually("account and certificate are kept", 10, || shared().matches("sealed:1:").count() == 2);
    let before = shared();
    let other = start("other", "HxAdHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=");
    assert_ne!(wait_for_certificate(&other, &pebble, "shop.test"), serial);
    let problems = || other.status_json("/yumen/v1/problems").to_string();
    eventually("the line is logged", 10, || {
        problems().contains("cannot be decrypted: is store.keyring the same on all nodes?")
            && problems().contains("orders for itself")
    });
    assert_eq!(shared(), before);
    assert!(has_no_problems(&one) && shown(&one, "shop.test").1 == serial);
    assert_eq!(issued(&pebble), 2);
}

#[test]
fn what_one_node_failed_with_the_next_does_not_try_at_once() {
    let Some(pebble) = Pebble::start(&json!({ "domainBlocklist": ["shop.test"] })) else { return };
    let etcd = Etcd::start(1);
    let node = pebble.node("http-01", "shop.test", "");
    let gateways = ["one", "other"].map(|name| etcd.gateway_with(name, &node));
    eventually("the refusal is told", 30, || gateways.iter().any(|gateway| !has_no_problems(gateway)));
    // A negative check: the other node makes no attempt.
    std::thread::sleep(Duration::from_secs(4));
    let log = pebble.log();
    assert_eq!(log.matches("POST /order-plz").count(), 1, "{log}");
    // The other node makes the next attempt.
    let refused = etcd.ctl(&["get", "/apisix/yumen/acme/failed/", "--prefix", "-w", "json"]).unwrap();
    let lease = serde_json::from_str::<Value>(&refused).unwrap()["kvs"][0]["lease"].as_i64().unwrap();
    let left = etcd.ctl(&["lease", "timetolive", &format!("{lease:x}"), "-w", "json"]).unwrap();
    let lease_s = serde_json::from_str::<Value>(&left).unwrap()["granted-ttl"].as_u64().unwrap();
    let problems = gateways.iter().map(|gateway| gateway.status_json("/yumen/v1/problems").to_string());
    let problems: String = problems.collect();
    let again_s = problems.split("tried again in ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(lease_s == 60 && again_s.parse::<u64>().unwrap() >= 2 * lease_s, "{lease_s}, {problems}");
}

#[test]
fn a_node_that_cannot_reach_the_authority_keeps_no_other_from_ordering() {
    let Some(pebble) = Pebble::start(&json!({})) else { return };
    let etcd = Etcd::start(1);
    let node = pebble.node("http-01", "shop.test", "");
    let other_authority = pebble.scratch.write("stranger.pem", &Authority::new("a stranger").cert);
    let one = etcd.gateway_with("one", &node.replace(&pebble.ca, &other_authority));
    let problems = || one.status_json("/yumen/v1/problems").to_string();
    eventually("one node does not trust the authority", 30, || problems().contains("no certificate from"));
    let front = TcpListener::bind(&pebble.http).unwrap();
    let other = etcd.gateway_with("other", &node);
    balance(front, vec![one.http, other.http]);
    let serial = wait_for_certificate(&other, &pebble, "shop.test");
    assert_eq!(wait_for_certificate(&one, &pebble, "shop.test"), serial);
    eventually("all is well", 10, || has_no_problems(&one));
    assert_eq!(issued(&pebble), 1);
}

#[test]
fn a_process_that_takes_over_shows_what_another_node_has_pinned_up() {
    let Some(pebble) = Pebble::start_with(&json!({}), ("PEBBLE_VA_SLEEPTIME", "5")) else { return };
    let etcd = Etcd::start(1);
    let node = pebble.node("http-01", "shop.test", "");
    let front = TcpListener::bind(&pebble.http).unwrap();
    let other = etcd.gateway_with("other", &pebble.node("http-01", "later.test", ""));
    let one = etcd.gateway_with("one", &node);
    // All challenges are requested from the node that did not order.
    balance(front, vec![other.http]);
    let mut line = Line::of(other);
    for name in ["later.test", "shop.test"] {
        eventually("it is looked for", 60, || pebble.log().contains(&format!("Value:\"{name}\"")));
    }
    line.upgrade();
    wait_for_certificate(&one, &pebble, "shop.test");
    let log = pebble.log();
    assert!(!log.contains("INVALID"), "{log}");
}
