//! TLS records after a response: no later request gets them as its response.

use std::io::Write;

use serde_json::json;

use crate::harness::certs::{Pair, simple};
use crate::harness::tls::{TlsPeer, TlsUpstream, answer};
use crate::harness::{Client, Gateway, Options};

fn pair() -> Pair {
    simple("shop", &["shop.test"])
}

fn gateway(upstream: &TlsUpstream) -> Gateway {
    let upstream = json!({ "scheme": "https", "nodes": { upstream.address.to_string(): 1 } });
    let routes = json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] });
    Gateway::with(&routes, &Options { workers: 1, ..Options::default() })
}

/// Sends requests on one client connection; returns the responses.
fn ask(gateway: &Gateway, count: usize) -> Vec<String> {
    let mut client = Client::connect(gateway.http);
    let post = "POST / HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 2\r\n\r\nhi";
    (0..count).map(|_| client.send(post).reply().text()).collect()
}

#[test]
fn part_of_a_record_behind_an_answer_does_not_become_the_next() {
    let upstream = TlsUpstream::start(&pair(), |peer, before| {
        let name = format!("conn{before}");
        peer.request()?;
        let mut all = peer.records(&answer(&name));
        let more = peer.records(&answer("stray"));
        all.extend_from_slice(&more[..more.len() / 2]);
        peer.tcp.write_all(&all).ok()?;
        // A second request here would get a response to none.
        peer.request()?;
        peer.tcp.write_all(&more[more.len() / 2..]).ok()
    });
    assert_eq!(ask(&gateway(&upstream), 3), ["conn0", "conn1", "conn2"]);
}

#[test]
fn a_connection_that_was_said_goodbye_to_carries_no_other_request() {
    let upstream = TlsUpstream::start(&pair(), |peer, before| {
        peer.request()?;
        let name = format!("conn{before}");
        let all = [peer.records(&answer(&name)), peer.goodbye()].concat();
        peer.tcp.write_all(&all).ok()?;
        peer.request().map(drop)
    });
    assert_eq!(ask(&gateway(&upstream), 3), ["conn0", "conn1", "conn2"]);
}

#[test]
fn a_body_that_lasts_to_the_end_is_whole_only_where_the_end_was_said() {
    for sends_close_notify in [true, false] {
        let upstream = TlsUpstream::start(&pair(), move |peer, _| {
            peer.request()?;
            let mut all = peer.records(b"HTTP/1.1 200 OK\r\n\r\nall there is");
            if sends_close_notify {
                all.extend_from_slice(&peer.goodbye());
            }
            peer.tcp.write_all(&all).ok()
        });
        let gateway = gateway(&upstream);
        let mut client = Client::connect(gateway.http);
        let reply = client.send("GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n").try_reply(false);
        match sends_close_notify {
            true => assert_eq!(reply.unwrap().text(), "all there is"),
            false => assert!(reply.is_err(), "{reply:?}"),
        }
    }
}

#[test]
fn connections_without_either_are_kept() {
    let serve = |peer: &mut TlsPeer, before: usize| {
        let name = format!("conn{before}");
        loop {
            peer.request()?;
            // Separate records for head and body, in small pieces.
            let text = answer(&name);
            let all = [peer.records(&text[..9]), peer.records(&text[9..])].concat();
            for piece in all.chunks(7) {
                peer.tcp.write_all(piece).ok()?;
            }
        }
    };
    let upstream = TlsUpstream::start(&pair(), serve);
    assert_eq!(ask(&gateway(&upstream), 3), ["conn0", "conn0", "conn0"]);
    assert_eq!(upstream.connections(), 1);
}
