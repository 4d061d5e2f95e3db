//! HTTP/3 frames that no library sends.

use std::time::Duration;

use serde_json::json;

use crate::harness::certs::{self, Authority};
use crate::harness::http2;
use crate::harness::http3::{self, Http3Client};
use crate::harness::upstream::respond;
use crate::harness::{Gateway, Options, Upstream, eventually};

struct World {
    gateway: Gateway,
    authority: Authority,
    upstream: Upstream,
}

impl World {
    /// Echoes bodies; `/slow` after a delay.
    fn start() -> World {
        let authority = Authority::new("known");
        let pair = authority.sign("a", &["a.test"], certs::ecdsa());
        let upstream = Upstream::start(|request, stream| {
            if request.target == "/slow" {
                // Scripted.
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

/// The field section of `POST /`, from the static table and literals.
fn head(fields: &[u8]) -> Vec<u8> {
    frame(1, &[b"\x00\x00\xd4\xd7\xc1\x50\x06a.test", fields].concat())
}

/// Sends these pieces with pauses and reads all; `None` if the response is incomplete.
async fn ask(client: &Http3Client, pieces: &[Vec<u8>], pause_ms: u64) -> Option<Vec<u8>> {
    let (mut sender, mut receiver) = client.quic.open_bi().await.ok()?;
    for piece in pieces {
        // The response shows the fate of the request.
        let _ = sender.write_all(piece).await;
        if pause_ms > 0 {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }
    let _ = sender.finish();
    receiver.read_to_end(100_000).await.ok()
}

/// Whether the bytes are a 200 response with this body, with any frames in between.
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
    world.gateway.assert_metric("yumen_http3_faults_total", 0.0);
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
    world.gateway.assert_metric("yumen_connection_panics_total", 0.0);
    world.gateway.assert_metric("yumen_http3_faults_total", 4.0);
}

/// The header of a frame with an enormous length.
fn endless(kind: u8) -> Vec<u8> {
    [&[kind][..], b"\xc0\0\x01\0\0\0\0\0"].concat()
}

const RESERVED: u8 = 0x21;
const CONTROL: &[u8] = b"\x00\x04\x00";

/// A client that writes all frames itself.
struct RawClient {
    quic: quinn::Connection,
    control: quinn::SendStream,
    _endpoint: quinn::Endpoint,
}

impl RawClient {
    /// Opens the control stream with these bytes.
    async fn connect(world: &World, begin: &[u8]) -> RawClient {
        let connected = http3::connect(world.gateway.https, "a.test", &world.authority.cert, None).await;
        let (endpoint, quic) = connected.unwrap();
        let mut control = quic.open_uni().await.unwrap();
        control.write_all(begin).await.unwrap();
        RawClient { quic, control, _endpoint: endpoint }
    }

    async fn is_served(&self) -> bool {
        let (mut sender, mut receiver) = self.quic.open_bi().await.unwrap();
        sender.write_all(&[head(b""), data(b"x")].concat()).await.unwrap();
        sender.finish().unwrap();
        is_answer(&receiver.read_to_end(1000).await.unwrap(), b"x")
    }

    /// The error code with which the gateway closed the connection.
    async fn close_code(&self) -> u64 {
        let quinn::ConnectionError::ApplicationClosed(close) = self.quic.closed().await else { return 0 };
        close.error_code.into_inner()
    }
}

const FLOOD_BYTES: usize = 32 << 20;
const GROWTH_KIB_MAX: u64 = 12 << 10;

/// Sends as long as the stream accepts data; returns the number of bytes.
async fn pour(sender: &mut quinn::SendStream) -> usize {
    let piece = vec![0; 1 << 16];
    let mut sent = 0;
    while sent < FLOOD_BYTES && sender.write_all(&piece).await.is_ok() {
        sent += piece.len();
    }
    sent
}

#[test]
fn frames_of_unknown_types_pass_by_however_long_they_are() {
    let world = World::start();
    http2::run(async {
        let mut client = RawClient::connect(&world, CONTROL).await;
        assert!(client.is_served().await, "the gateway is warm");
        let before = world.gateway.resident_kib();
        client.control.write_all(&endless(RESERVED)).await.unwrap();
        assert_eq!(pour(&mut client.control).await, FLOOD_BYTES);
        let (mut sender, _receiver) = client.quic.open_bi().await.unwrap();
        sender.write_all(&endless(RESERVED)).await.unwrap();
        assert_eq!(pour(&mut sender).await, FLOOD_BYTES);
        let grown = world.gateway.resident_kib().saturating_sub(before);
        assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
        assert!(client.is_served().await);
        let short = frame(RESERVED, b"grease");
        let pieces = [short.clone(), head(b""), short.clone(), data(b"a"), short.clone(), data(b"b"), short];
        let (mut sender, mut receiver) = client.quic.open_bi().await.unwrap();
        sender.write_all(&pieces.concat()).await.unwrap();
        sender.finish().unwrap();
        assert!(is_answer(&receiver.read_to_end(1000).await.unwrap(), b"ab"));
    });
    world.gateway.assert_metric("yumen_http3_floods_total", 0.0);
    world.gateway.assert_metric("yumen_http3_faults_total", 0.0);
}

#[test]
fn other_frames_that_are_long_end_their_connection_and_are_counted() {
    let world = World::start();
    http2::run(async {
        // H3_EXCESSIVE_LOAD.
        const EXCESSIVE_LOAD: u64 = 0x107;
        let (settings, goaway) = (endless(4), endless(7));
        for begin in [[b"\x00".as_slice(), &settings].concat(), [CONTROL, &goaway].concat()] {
            let mut client = RawClient::connect(&world, &begin).await;
            assert!(pour(&mut client.control).await < FLOOD_BYTES);
            assert_eq!(client.close_code().await, EXCESSIVE_LOAD, "{begin:02x?}");
        }
        for before in [vec![], head(b""), [head(b""), data(b"a")].concat()] {
            let client = RawClient::connect(&world, CONTROL).await;
            let (mut sender, _receiver) = client.quic.open_bi().await.unwrap();
            sender.write_all(&[before.clone(), settings.clone()].concat()).await.unwrap();
            assert_eq!(client.close_code().await, EXCESSIVE_LOAD, "{before:02x?}");
        }
        assert!(RawClient::connect(&world, CONTROL).await.is_served().await);
    });
    eventually("all are counted", 10, || world.gateway.metric("yumen_http3_floods_total") == 5.0);
    world.gateway.assert_metric("yumen_http3_faults_total", 0.0);
}

#[test]
fn a_head_without_end_is_answered_431_and_trailers_without_end_break_off() {
    let world = World::start();
    http2::run(async {
        let client = RawClient::connect(&world, CONTROL).await;
        assert!(client.is_served().await, "the gateway is warm");
        let before = world.gateway.resident_kib();
        for begin in [endless(1), [frame(RESERVED, b"x"), endless(1)].concat()] {
            let (mut sender, mut receiver) = client.quic.open_bi().await.unwrap();
            sender.write_all(&begin).await.unwrap();
            assert!(pour(&mut sender).await < FLOOD_BYTES);
            let answer = receiver.read_to_end(1000).await.unwrap();
            // `:status: 431`, its name from the static table and its value literal or Huffman-coded.
            assert_eq!(answer.first(), Some(&1), "a head: {answer:02x?}");
        }
        let (mut sender, mut receiver) = client.quic.open_bi().await.unwrap();
        sender.write_all(&[head(b""), data(b"a"), endless(1)].concat()).await.unwrap();
        assert!(pour(&mut sender).await < FLOOD_BYTES);
        assert!(receiver.read_to_end(1000).await.is_err());
        let grown = world.gateway.resident_kib().saturating_sub(before);
        assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
        assert!(client.is_served().await);
    });
    let counted = || world.gateway.metric("yumen_faults_total{fault=\"client_head\",side=\"client\"}");
    eventually("both heads are counted", 10, || counted() == 2.0);
    world.gateway.assert_metric("yumen_http3_floods_total", 0.0);
}
