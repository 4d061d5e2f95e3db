//! HTTP/3 connections are identified by their connection ids in every process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use serde_json::json;

use super::{Line, start_with};
use crate::harness::certs::{self, Authority};
use crate::harness::http3::{Http3Client, request};
use crate::harness::upstream::{Gate, respond};
use crate::harness::{Options, Upstream, eventually, http2};

fn start(upstream: &Upstream, workers: u32) -> (Line, Authority) {
    let authority = Authority::new("known");
    let pair = authority.sign("a", &["a.test"], certs::ecdsa());
    let any = "address: '127.0.0.1:0'";
    let node = format!("listen: [{{{any}}}, {{{any}, tls: true, http3: true}}]\n");
    let options = Options { node: &node, own_listeners: true, workers, ..Options::default() };
    let resources = json!({
        "routes": [{"id": "1", "uri": "/*", "upstream": upstream.alone()}],
        "ssls": [{"id": "a", "cert": pair.cert, "key": pair.key, "snis": ["a.test"]}],
    });
    (start_with(&resources, &options), authority)
}

#[test]
fn requests_under_way_are_answered_by_the_process_they_were_asked_of() {
    let gate = Gate::default();
    let (waits, arrived) = (gate.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = arrived.clone();
    let upstream = Upstream::start(move |request, stream| {
        if request.target == "/slow" {
            counted.fetch_add(1, Relaxed);
            waits.pass();
        }
        respond(stream, 200, "", &request.body)
    });
    let (mut line, authority) = start(&upstream, 2);
    let first = line.serving();
    let body = crate::harness::noise(200_000);
    http2::run(async {
        let mut clients = Vec::new();
        for _ in 0..8 {
            let client =
                Http3Client::connect(line.gateway.https, "a.test", &authority.cert, None).await.unwrap();
            assert_eq!(client.get("/quick").await.status, 200);
            clients.push(client);
        }
        let requesting: Vec<_> = clients
            .into_iter()
            .map(|client| {
                let body = body.clone();
                tokio::spawn(async move {
                    let answer = client.ask_with(request("POST", "/slow"), &body, None).await;
                    // Otherwise the client sends its next request on another connection.
                    (client, answer)
                })
            })
            .collect();
        let mut line = tokio::task::spawn_blocking(move || {
            eventually("all are at the upstream", 60, || arrived.load(Relaxed) == 8);
            line.upgrade();
            gate.open();
            line
        })
        .await
        .unwrap();
        for requesting in requesting {
            let (_, answer) = requesting.await.unwrap();
            let answer = answer.expect("an answer");
            assert_eq!(answer.status, 200);
            assert!(answer.body == body, "what was sent comes back");
        }
        for _ in 0..4 {
            let client =
                Http3Client::connect(line.gateway.https, "a.test", &authority.cert, None).await.unwrap();
            assert_eq!(client.get("/quick").await.status, 200);
        }
        tokio::task::spawn_blocking(move || line.wait_for_end_of(first)).await.unwrap();
    });
}

#[test]
fn a_connection_is_served_to_its_end_where_the_other_workers_had_none() {
    const ROUNDS: usize = 4;
    let gates: Arc<[Gate]> = (0..ROUNDS).map(|_| Gate::default()).collect();
    let arrived = Arc::new(AtomicUsize::new(0));
    let (waits, counted) = (gates.clone(), arrived.clone());
    let upstream = Upstream::start(move |request, stream| {
        waits[counted.fetch_add(1, Relaxed)].pass();
        respond(stream, 200, "", &request.body)
    });
    // The system selects the worker of a connection; with four it is rarely the first each time.
    let (mut line, authority) = start(&upstream, 4);
    let body = crate::harness::noise(1_000_000);
    http2::run(async {
        for round in 0..ROUNDS {
            let client =
                Http3Client::connect(line.gateway.https, "a.test", &authority.cert, None).await.unwrap();
            let (sent, arrived) = (body.clone(), arrived.clone());
            let requesting = tokio::spawn(async move {
                let answer = client.ask_with(request("POST", "/"), &sent, None).await;
                (client, answer)
            });
            let upgrading = tokio::task::spawn_blocking(move || {
                eventually("it is at the upstream", 60, || arrived.load(Relaxed) == round + 1);
                let before = line.serving();
                line.upgrade();
                // Workers without connections have ended, with the datagrams that they forwarded.
                eventually("one is left", 60, || workers_of(before) == 1);
                line
            });
            line = upgrading.await.unwrap();
            gates[round].open();
            let (client, answer) =
                tokio::time::timeout(Duration::from_secs(20), requesting).await.unwrap().unwrap();
            assert!(answer.expect("an answer").body == body, "what was sent comes back");
            drop(client);
        }
        tokio::task::spawn_blocking(move || drop(line)).await.unwrap();
    });
}

/// Number of workers of a process.
fn workers_of(pid: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let names =
        tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    names.filter(|name| name.starts_with("yumen-worker")).count()
}
