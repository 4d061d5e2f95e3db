//! HTTP/2 control frames that belong to traffic: a peer that only reacts to received frames does not count as
//! a flood, and a flooding endpoint is reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::harness::http2::{
    DATA, END_HEADERS, END_STREAM, GET, HEADERS, Http2Upstream, PING, POST, RST_STREAM, RawClient,
    RawUpstream, WINDOW_UPDATE, frame,
};
use crate::harness::{Gateway, Options, eventually};

/// A gRPC message.
const MESSAGE: &[u8] = b"\0\0\0\0\x02hi";
/// Field section of a 200 response.
const OK: &[u8] = &[0x88];

fn one_worker<'a>() -> Options<'a> {
    Options { workers: 1, ..Options::default() }
}

/// The reaction of gRPC libraries to a data frame: window updates, and a PING for measuring the path.
fn answer_to_data(stream: u32) -> Vec<u8> {
    let room = (MESSAGE.len() as u32).to_be_bytes();
    let updates = [frame(WINDOW_UPDATE, 0, 0, &room), frame(WINDOW_UPDATE, 0, stream, &room)].concat();
    [updates, frame(PING, 0, 0, &[0; 8])].concat()
}

/// Sends a message and waits for its echo, `times` times; returns the number of echoes.
fn talk(client: &mut RawClient, times: usize, answer: &[u8]) -> usize {
    client.send(&frame(HEADERS, END_HEADERS, 1, POST));
    let mut acknowledged = 0;
    while acknowledged < times
        && client.send(&frame(DATA, 0, 1, MESSAGE))
        && client.wait_for(DATA).is_some()
        && client.send(answer)
    {
        acknowledged += 1;
    }
    acknowledged
}

#[test]
fn a_client_may_answer_each_message_with_control_frames() {
    let upstream = Http2Upstream::echo();
    let gateway = Gateway::start(&upstream.everything());
    let mut client = RawClient::connect(gateway.http);
    assert_eq!(talk(&mut client, 4000, &answer_to_data(1)), 4000);
    gateway.assert_metric("yumen_http2_floods_total", 0.0);
}

#[test]
fn an_endpoint_may_answer_each_message_with_control_frames() {
    let upstream = RawUpstream::start(|received| match received.kind {
        HEADERS => frame(HEADERS, END_HEADERS, received.stream, OK),
        DATA => {
            [answer_to_data(received.stream), frame(DATA, 0, received.stream, &received.payload)].concat()
        }
        _ => Vec::new(),
    });
    let gateway = Gateway::with(&upstream.everything(), &one_worker());
    let mut client = RawClient::connect(gateway.http);
    assert_eq!(talk(&mut client, 4000, b""), 4000);
    assert_eq!(upstream.connections(), 1);
    gateway.assert_metric("yumen_upstream_http2_floods_total", 0.0);
}

#[test]
fn requests_that_an_endpoint_resets_cost_no_other_its_connection() {
    let internal_error = 2u32.to_be_bytes();
    let arrived = Arc::<AtomicBool>::default();
    let has_arrived = arrived.clone();
    let upstream = RawUpstream::start(move |received| match received.kind {
        // The first request gets its response after all others were reset.
        HEADERS if received.stream > 1 => frame(RST_STREAM, 0, received.stream, &internal_error),
        HEADERS => {
            arrived.store(true, Relaxed);
            Vec::new()
        }
        DATA => frame(HEADERS, END_HEADERS | END_STREAM, received.stream, OK),
        _ => Vec::new(),
    });
    let gateway = Gateway::with(&upstream.everything(), &one_worker());
    let mut waiting = RawClient::connect(gateway.http);
    waiting.send(&frame(HEADERS, END_HEADERS, 1, POST));
    eventually("it is at the endpoint", 10, || has_arrived.load(Relaxed));
    for at in 0..900 {
        assert_eq!(gateway.get("/").status, 502, "{at}");
    }
    waiting.send(&frame(DATA, END_STREAM, 1, MESSAGE));
    assert_eq!(waiting.wait_for(HEADERS).expect("an answer")[0], OK[0]);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn an_endpoint_that_floods_is_counted_and_told_of() {
    let upstream = RawUpstream::start(|received| match received.kind {
        HEADERS => frame(PING, 0, 0, &[0; 8]).repeat(10_000),
        _ => Vec::new(),
    });
    let gateway = Gateway::with(&upstream.everything(), &one_worker());
    let mut client = RawClient::connect(gateway.http);
    client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, GET));
    assert!(client.wait_for(HEADERS).is_some(), "an answer");
    eventually("it is counted", 10, || gateway.metric("yumen_upstream_http2_floods_total") == 1.0);
    let log_line = format!("closed: HTTP/2 control frame flood endpoint={}", upstream.address);
    eventually("the line is logged", 10, || gateway.log().contains(&log_line));
    gateway.assert_metric("yumen_http2_floods_total", 0.0);
}
