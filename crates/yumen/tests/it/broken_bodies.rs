//! Request bodies that break off after the response has begun: both sides learn of it at once, as a fault of
//! the client.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h3::error::{Code, StreamError};
use http::Response;
use serde_json::{Value, json};

use crate::harness::http2::{self, Http2Client, Http2Upstream};
use crate::harness::http3;
use crate::harness::{Client, Gateway, eventually};
use crate::http3::World;

/// The ends of request bodies as the endpoint saw them.
type Ends = Arc<Mutex<Vec<Option<Reason>>>>;

/// Responds at once, and reads the request body to its end.
fn early() -> (Http2Upstream, Ends) {
    let ends = Ends::default();
    let log = ends.clone();
    let upstream = Http2Upstream::start(move |request, mut respond| {
        let log = log.clone();
        async move {
            let mut body = request.into_body();
            let mut sender = respond.send_response(Response::new(()), false)?;
            sender.send_data(Bytes::from("first"), false)?;
            let end = loop {
                match body.data().await {
                    Some(Ok(data)) => body.flow_control().release_capacity(data.len())?,
                    Some(Err(error)) => break error.reason(),
                    None => break None,
                }
            };
            log.lock().unwrap().push(end);
            sender.send_data(Bytes::from("last"), true)
        }
    });
    (upstream, ends)
}

/// A request with an incomplete body.
const BEGUN: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";

/// A client in the middle of its request, and the endpoint's connection.
fn begin_http1() -> (Gateway, Client, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nodes = json!({ listener.local_addr().unwrap().to_string(): 1 });
    let all = json!({ "id": "1", "uri": "/*", "upstream": { "nodes": nodes } });
    let gateway = Gateway::start(&json!({ "routes": [all] }));
    let mut client = Client::connect(gateway.http);
    client.send(BEGUN);
    let (endpoint, _) = listener.accept().unwrap();
    endpoint.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    (gateway, client, endpoint)
}

fn faults(gateway: &Gateway) -> Vec<String> {
    let (_, text) = gateway.status_text("/metrics");
    let counted = text.lines().filter_map(|line| line.strip_prefix("yumen_faults_total"));
    let counted = counted.filter(|line| !line.ends_with(" 0"));
    counted.map(|line| line.split('"').nth(1).unwrap_or_default().to_owned()).collect()
}

fn reported_once(gateway: &Gateway, ends: &Ends, fault: &str) {
    eventually("the endpoint sees the end", 8, || !ends.lock().unwrap().is_empty());
    assert_eq!(*ends.lock().unwrap(), [Some(Reason::CANCEL)]);
    eventually("it is counted", 8, || faults(gateway) == [fault]);
}

fn at_most(upstream: &Http2Upstream, bytes_max: u64) -> Value {
    let plugins = json!({ "client-control": { "max_body_size": bytes_max } });
    json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream.alone(), "plugins": plugins }] })
}

#[test]
fn a_body_that_turns_malformed_ends_its_request_on_both_sides() {
    let (upstream, ends) = early();
    let gateway = Gateway::start(&upstream.everything());
    let mut client = Client::connect(gateway.http);
    client.send(BEGUN);
    assert!(client.head().unwrap().starts_with("HTTP/1.1 200"));
    let mut body = Vec::new();
    assert!(client.chunk(&mut body).unwrap());
    client.send("ZZZ\r\n");
    reported_once(&gateway, &ends, "client_body");
    assert!(client.is_closed_within(Duration::from_secs(5)), "and no last chunk");
}

#[test]
fn a_body_that_turns_out_too_large_ends_its_request_on_both_sides() {
    let (upstream, ends) = early();
    let gateway = Gateway::start(&at_most(&upstream, 20_000));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let (answer, mut stream) = client.begin(http2::request("POST", "/")).await;
        http2::send(&mut stream, b"hello", false).await.unwrap();
        let mut body = answer.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "first");
        // It may learn of it before all data has left.
        let _ = http2::send(&mut stream, &[b'x'; 30_000], false).await;
        let end = body.data().await.unwrap().unwrap_err();
        assert_eq!(end.reason(), Some(Reason::INTERNAL_ERROR));
    });
    reported_once(&gateway, &ends, "body_too_large");
}

#[test]
fn a_call_that_a_client_of_http3_takes_back_is_taken_back_from_the_endpoint() {
    for stops in [false, true] {
        let (upstream, ends) = early();
        let world = World::start(json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]), 1, "");
        http2::run(async {
            let client = world.client().await;
            let (mut sender, mut receiver) = client.begin(http3::request("POST", "/")).await.split();
            sender.send_data(Bytes::from("hello")).await.unwrap();
            receiver.recv_response().await.unwrap();
            assert!(receiver.recv_data().await.unwrap().is_some());
            sender.stop_stream(Code::H3_REQUEST_CANCELLED);
            if stops {
                drop(receiver);
            } else {
                assert!(receiver.recv_data().await.is_err(), "nothing more comes");
            }
            let report = async {
                // The interval of looks at the state; the bound is below.
                while ends.lock().unwrap().is_empty() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            // Before the connection is idle.
            tokio::time::timeout(Duration::from_secs(15), report).await.expect("the endpoint sees the end");
        });
        reported_once(&world.gateway, &ends, "client_gone");
    }
}

#[test]
fn an_endpoint_of_http1_is_not_left_waiting_for_the_rest_of_a_broken_body() {
    let (gateway, mut client, mut endpoint) = begin_http1();
    endpoint.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst").unwrap();
    assert!(client.head().unwrap().starts_with("HTTP/1.1 200"));
    client.send("ZZZ\r\n");
    let mut seen = Vec::new();
    endpoint.read_to_end(&mut seen).unwrap();
    assert!(seen.ends_with(b"5\r\nhello\r\n"), "{}", String::from_utf8_lossy(&seen));
    eventually("it is counted", 8, || faults(&gateway) == ["client_body"]);
}

#[test]
fn an_answer_that_was_read_whole_is_passed_on_whatever_becomes_of_the_body() {
    let (gateway, mut client, mut endpoint) = begin_http1();
    endpoint.write_all(b"HTTP/1.1 413 No\r\nContent-Length: 5\r\n\r\nlarge").unwrap();
    let reply = client.reply();
    client.send("ZZZ\r\n");
    assert_eq!((reply.status, reply.text().as_str()), (413, "large"));
    assert!(client.is_closed_within(Duration::from_secs(5)));
    assert!(faults(&gateway).is_empty());
}

#[test]
fn a_client_of_http3_is_told_why_its_body_is_not_read() {
    let world = World::start(json!([]), 1, "");
    http2::run(async {
        let client = world.client().await;
        for is_silent in [false, true] {
            let (mut sender, mut receiver) = client.begin(http3::request("POST", "/none")).await.split();
            if is_silent {
                assert_eq!(receiver.recv_response().await.unwrap().status(), 404);
            }
            let stopped = loop {
                if let Err(error) = sender.send_data(Bytes::from(vec![b'x'; 10_000])).await {
                    break error;
                }
            };
            assert_eq!(code(&stopped), Some(Code::H3_NO_ERROR), "{stopped}");
            if !is_silent {
                assert_eq!(receiver.recv_response().await.unwrap().status(), 404);
            }
        }
    });
}

#[test]
fn a_body_unlike_its_length_is_told_to_be_malformed_over_http3() {
    let (upstream, _) = early();
    let world = World::start(json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]), 1, "");
    http2::run(async {
        let client = world.client().await;
        for length in ["2", "10"] {
            let mut request = http3::request("POST", "/");
            request.headers_mut().insert("content-length", length.parse().unwrap());
            let (mut sender, mut receiver) = client.begin(request).await.split();
            sender.send_data(Bytes::from("hello")).await.unwrap();
            let _ = sender.finish().await;
            let end = async {
                receiver.recv_response().await?;
                while receiver.recv_data().await?.is_some() {}
                Ok::<_, StreamError>(())
            };
            let end = end.await.unwrap_err();
            assert_eq!(code(&end), Some(Code::H3_MESSAGE_ERROR), "{length}: {end}");
        }
    });
}

/// The code with which the other side ended a stream.
fn code(error: &StreamError) -> Option<Code> {
    match error {
        StreamError::RemoteTerminate { code, .. } => Some(*code),
        _ => None,
    }
}
