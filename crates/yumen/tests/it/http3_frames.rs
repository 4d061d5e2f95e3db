//! Frames of HTTP/3 as no library sends them.

use std::time::Duration;

use serde_json::json;

use crate::harness::certs::{self, Authority};
use crate::harness::http2;
use crate::harness::http3::Http3Client;
use crate::harness::upstream::respond;
use crate::harness::{Gateway, Options, Upstream};

struct World {
    gateway: Gateway,
    authority: Authority,
    upstream: Upstream,
}

impl World {
    /// Echoes bodies; `/slow` after a while.
    fn start() -> World {
        let authority = Authority::new("known");
        let pair = authority.sign("a", &["a.test"], certs::ecdsa());
        let upstream = Upstream::start(|request, stream| {
            if request.target == "/slow" {
                std::thread::sleep(Duration::from_millis(300));
            }
            respond(stream, 200, "", &request.body)
        });
        let node = "listen: [{address: '127.0.0.1:0'}, {address: '127.0.0.1:0', tls: true, http3: true}]";
        let nodes = json!({ upstream.address.to_string(): 1 });
        let routes =
            json!([{ "id": "1", "uri": "/*", "upstream": { "type": "least_conn", "nodes": nodes } }]);
        let ssl = json!({ "id": "a", "cert": pair.cert, "key": pair.key, "snis": ["a.test"] });
        let options = Options { node, own_listeners: true, workers: 1, ..Options::default() };
        let gateway = Gateway::with(&json!({ "routes": routes, "ssls": [ssl] }), &options);
        World { gateway, authority, upstream }
    }

    async fn client(&self) -> Http3Client {
        Http3Client::connect(self.gateway.https, "a.test", &self.authority.cert, None).await.unwrap()
    }
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind, u8::try_from(payload.len()).unwrap()], payload].concat()
}

fn data(payload: &[u8]) -> Vec<u8> {
    frame(0, payload)
}

/// The head of `POST /`, by the static table and in plain text.
fn head(fields: &[u8]) -> Vec<u8> {
    frame(1, &[b"\x00\x00\xd4\xd7\xc1\x50\x06a.test", fields].concat())
}

/// Sends these bytes with pauses between them, and takes all that comes; `None` where it is not whole.
async fn ask(client: &Http3Client, pieces: &[Vec<u8>], pause_ms: u64) -> Option<Vec<u8>> {
    let (mut sender, mut receiver) = client.quic.open_bi().await.ok()?;
    for piece in pieces {
        // What becomes of it, the answer tells.
        let _ = sender.write_all(piece).await;
        if pause_ms > 0 {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }
    let _ = sender.finish();
    receiver.read_to_end(100_000).await.ok()
}

/// An answer of 200 with this body, whatever stands between.
fn is_answer(bytes: &[u8], body: &[u8]) -> bool {
    bytes.windows(3).take(8).any(|part| part == b"\x00\x00\xd9") && bytes.ends_with(&data(body))
}

#[test]
fn empty_frames_of_data_change_nothing() {
    let world = World::start();
    http2::run(async {
        let client = world.client().await;
        let empty = || data(b"");
        let tables = [
            vec![data(b"hello"), data(b"world")],
            vec![data(b"hello"), empty(), data(b"world")],
            vec![empty(), data(b"hello"), empty(), empty(), data(b"world")],
            vec![data(b"helloworld"), empty()],
            vec![data(b"helloworld"), b"\x40\x00\x80\0\0\0".to_vec()],
        ];
        for frames in tables {
            for length in [b"".as_slice(), b"\x54\x0210"] {
                for pause_ms in [0, 20] {
                    let pieces = [&[head(length)], &frames[..]].concat();
                    let answer = ask(&client, &pieces, pause_ms).await.expect("an answer");
                    assert!(is_answer(&answer, b"helloworld"), "{frames:02x?}: {answer:02x?}");
                }
            }
        }
        for frames in [vec![empty()], vec![empty(), empty()]] {
            let answer = ask(&client, &[&[head(b"")], &frames[..]].concat(), 20).await.expect("an answer");
            assert!(answer.windows(3).any(|part| part == b"\x00\x00\xd9"), "{answer:02x?}");
        }
        assert!(client.quic.close_reason().is_none());
    });
    assert_eq!(world.gateway.metric("yumen_http3_faults_total"), 0.0);
    assert_eq!(world.upstream.requests(), 22);
}

#[test]
fn a_frame_of_data_that_was_cut_ends_its_connection_and_leaves_nothing_behind() {
    let world = World::start();
    http2::run(async {
        for fields in [b"".as_slice(), b"\x54\x0210"] {
            for pause_ms in [0, 30] {
                let client = world.client().await;
                let pieces = [head(fields), b"\x00\x0ahello".to_vec()];
                assert_eq!(ask(&client, &pieces, pause_ms).await, None, "{fields:?}, {pause_ms}");
                let closed = client.quic.closed().await;
                let quinn::ConnectionError::ApplicationClosed(close) = closed else { panic!("{closed}") };
                // RFC 9114 §7.1: H3_FRAME_ERROR.
                assert_eq!(close.error_code.into_inner(), 0x106, "{fields:?}, {pause_ms}");
            }
        }
        let client = world.client().await;
        assert_eq!(client.get("/").await.status, 200);
    });
    assert_eq!(world.gateway.metric("yumen_connection_panics_total"), 0.0);
    assert_eq!(world.gateway.metric("yumen_http3_faults_total"), 4.0);
}
