//! HTTP/3 connections that close during a response: accepted requests are completed.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::http2;
use crate::harness::http3::{Http3Client, request};
use crate::harness::upstream::{Gate, respond};
use crate::harness::{Upstream, eventually_async, noise};
use crate::http3::World;

/// The library buffers this much as soon as the endpoint has sent it.
const SIZE: usize = 800_000;

/// Requests a body over a link of `bytes_per_s`, while `ends` closes the connection.
fn check(node: &str, bytes_per_s: u64, ends: impl AsyncFn(&World, &Http3Client)) {
    let body = noise(SIZE);
    let answer = body.clone();
    let upstream = Upstream::start(move |request, stream| {
        respond(stream, 200, "", if request.target == "/long" { &answer } else { b"" })
    });
    let world = World::start(json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]), 1, node);
    http2::run(async {
        let client = world.client().await;
        client.move_to_narrow_link("127.0.0.1", bytes_per_s);
        assert_eq!(client.get("/").await.status, 200);
        let ending = async {
            eventually_async("it is at the upstream", 10, || upstream.requests() == 2).await;
            // The scenario: the end comes in the middle of a body that takes seconds on this link.
            tokio::time::sleep(Duration::from_millis(500)).await;
            ends(&world, &client).await;
        };
        let request_running = client.ask_with(request("GET", "/long"), b"", None);
        let (taken, ()) = tokio::join!(request_running, ending);
        assert!(taken.expect("an answer").body == body);
    });
}

#[test]
fn a_node_that_drains_sends_the_rest_of_its_answers() {
    check("", 200_000, async |world, _| world.gateway.terminate());
}

#[test]
fn a_connection_is_not_idle_while_an_answer_is_on_its_way() {
    check("timeouts: {idle_ms: 1500}", 200_000, async |_, _| {});
}

#[test]
fn a_client_that_is_to_come_back_gets_the_rest_of_its_answer_before() {
    // Longer than a path validation, and than the closing period of a connection.
    check("", 100_000, async |_, client| {
        client.move_to_narrow_link("127.0.0.2", 100_000);
        assert_eq!(client.get("/").await.status, 200);
    });
}

#[test]
fn a_client_that_vanished_does_not_hold_a_node_that_drains() {
    let gate = Gate::default();
    let upstream = Upstream::gated(&gate, "late");
    let mut world = World::start(json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]), 1, "");
    // The client stops completely when this runtime is no longer driven.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _vanished = runtime.block_on(async {
        let client = world.client().await;
        let mut stream = client.begin(request("GET", "/")).await;
        stream.finish().await.expect("it is asked");
        eventually_async("it is at the upstream", 10, || upstream.requests() == 1).await;
        (client, stream)
    });
    gate.open();
    // Pacing: the gateway sends the response to the vanished client, and nothing outside shows it.
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    world.gateway.terminate();
    assert!(world.gateway.wait(60).success());
    // A client that reads nothing may otherwise take 30 s.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
