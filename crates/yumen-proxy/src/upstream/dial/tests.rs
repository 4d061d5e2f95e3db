//! The end of connects that are never established.

use std::future::pending;
use std::sync::Arc;

use serde_json::json;
use yumen_config::Kind as ResourceKind;
use yumen_snapshot::Publisher;

use super::*;
use crate::simulation::net::{Net, Weather};
use crate::simulation::scheduler::Scheduler;
use crate::worker::tests::{compiler, put, worker};

const ENDPOINT: &str = "127.0.0.1:1";

/// Connects to an endpoint that never responds; `nodes` are those of its upstream meanwhile.
#[track_caller]
fn check(nodes: &str, timeout_ms: u64, expected: FaultKind) {
    let weather = Weather { crumbs: 0, again: 0, resets: 0, stalls: 0, room_max: 1 };
    let net = Net::new(Scheduler::new(1, false), weather);
    net.on_connect(|_| Box::pin(pending()));
    let mut compiler = compiler();
    let upstream = |node: &str| put(ResourceKind::Upstreams, "u", &json!({ "nodes": { node: 1 } }));
    let compiled = compiler.apply(vec![upstream(ENDPOINT)], 1);
    let (_, first) = compiled.snapshot.upstreams().next().expect("it was compiled");
    let endpoint = first.endpoints[0].state.clone();
    let dial = EndpointDial {
        address: first.endpoints[0].addr,
        opening: vec![],
        tunnel: None,
        handshake: None,
        timeout_ms,
        endpoint,
    };
    let _later = compiler.apply(vec![upstream(nodes)], 2);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let timers = worker(Arc::new(Publisher::default())).upstream.timers.clone();
    let found = runtime.block_on(async {
        let timer = timers.timer();
        let mut wait = &timer;
        tokio::select! {
            _ = timers.clone().drive() => panic!("the timers ended"),
            connected = dial.connect_within(&mut wait) => connected.err(),
        }
    });
    net.close();
    assert_eq!(found, Some(expected));
}

#[test]
fn a_connect_to_a_removed_endpoint_ends_before_its_timeout() {
    check("127.0.0.1:2", 3_600_000, FaultKind::Connect);
}

#[test]
fn a_connect_without_a_timeout_to_a_removed_endpoint_ends() {
    check("127.0.0.1:2", 0, FaultKind::Connect);
}

#[test]
fn a_connect_to_a_present_endpoint_lasts_until_its_timeout() {
    check(ENDPOINT, 2 * DEPARTURE_CHECK_MS + 1, FaultKind::ConnectTimeout);
}
