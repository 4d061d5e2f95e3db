//! Closed and open loops: their requests and their latencies when the server stalls.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use yumen_load::{LatencySummary, LoadLimits, LoadPlan, LoadShape, RequestPlan, WeightedUrl};

use crate::scripted::{OK, Peer, errors, run, serve};

const MS: u64 = 1_000_000;

fn histogram(latency: &LatencySummary) -> Histogram<u64> {
    let bytes = BASE64_STANDARD.decode(&latency.histogram).unwrap();
    Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap()
}

/// Number of responses with a latency of at least `ms`.
fn slower_than(latency: &LatencySummary, ms: u64) -> u64 {
    histogram(latency).count_between(ms * MS, u64::MAX)
}

fn answer_all(peer: &mut Peer) {
    while peer.read() {
        peer.write(OK);
    }
}

/// Responds at once, except to request 101, which is delayed by one second.
fn stalls_once() -> impl Fn(&mut Peer) {
    let served = AtomicUsize::new(0);
    move |peer| {
        while peer.read() {
            if served.fetch_add(1, Ordering::Relaxed) == 100 {
                std::thread::sleep(Duration::from_secs(1));
            }
            peer.write(OK);
        }
    }
}

#[test]
fn a_closed_loop_makes_its_count_on_its_connections() {
    let server = serve(answer_all);
    let summary =
        run(&LoadPlan { limits: LoadLimits::count(100), connections: 4, threads: 2, ..server.plan() });
    assert_eq!(errors(&summary), []);
    assert_eq!((summary.totals.requests, summary.totals.responses, summary.totals.unanswered), (100, 100, 0));
    assert_eq!(summary.connections.opened, 4);
    assert_eq!(summary.transfer.bytes_received, 100 * OK.len() as u64);
    assert_eq!(summary.latencies.corrected, None);
    assert!(summary.generator.cost.cpu_ns() > 0);
}

#[test]
fn a_closed_loop_hides_a_stall_and_an_open_loop_shows_it() {
    let closed = run(&LoadPlan { limits: LoadLimits::count(600), ..serve(stalls_once()).plan() });
    let kind = LoadShape::Open { rate: 200.0 };
    let open = run(&LoadPlan { kind, limits: LoadLimits::count(600), ..serve(stalls_once()).plan() });
    assert_eq!((errors(&closed), errors(&open)), (vec![], vec![]));
    assert_eq!((closed.totals.responses, open.totals.responses), (600, 600));
    // Both loads met the stall of one second.
    assert!(closed.latencies.response.max_ns >= 1000 * MS && open.latencies.response.max_ns >= 1000 * MS);
    // At 200 per second, at least 99 requests are due in the first half of the stall; each is late by
    // half a second or more.
    let corrected = open.latencies.corrected.as_ref().unwrap();
    assert!(slower_than(corrected, 500) >= 99, "{corrected:?}");
    assert!(corrected.at(90.0).unwrap() >= 300 * MS);
    // Measured from the moment of sending, only one request was slow: the wait of the others is not included.
    assert!(slower_than(&closed.latencies.response, 500) < 20, "{:?}", closed.latencies.response);
    assert!(slower_than(&open.latencies.response, 500) < 20, "{:?}", open.latencies.response);
}

#[test]
fn an_open_loop_counts_what_the_end_cuts_off() {
    let server = serve(|peer| {
        peer.read();
        peer.stay();
    });
    let kind = LoadShape::Open { rate: 100.0 };
    let summary =
        run(&LoadPlan { kind, connections: 2, limits: LoadLimits::duration_ms(1000), ..server.plan() });
    assert_eq!((summary.totals.requests, summary.totals.responses, summary.totals.unanswered), (2, 0, 100));
    let corrected = summary.latencies.corrected.unwrap();
    assert_eq!(corrected.count, 100);
    assert!(corrected.max_ns >= 990 * MS, "the first was due at once and never answered");
    assert!(slower_than(&corrected, 490) >= 50);
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let server = serve(answer_all);
    let kind = LoadShape::Open { rate: 100.0 };
    let plan =
        LoadPlan { kind, connections: 5, threads: 2, limits: LoadLimits::duration_ms(2000), ..server.plan() };
    let summary = run(&plan);
    assert_eq!(errors(&summary), []);
    assert_eq!(
        summary.totals.responses + summary.totals.unanswered,
        200,
        "every request due is accounted for"
    );
    assert_eq!(summary.timeline.len(), 2);
}

#[test]
fn a_known_latency_is_measured_as_such() {
    let server = serve(|peer| {
        while peer.read() {
            std::thread::sleep(Duration::from_millis(if peer.number == 0 { 20 } else { 60 }));
            peer.write(OK);
        }
    });
    // One of the two connections takes three times as long, so it carries about a quarter of the responses.
    let summary = run(&LoadPlan { limits: LoadLimits::count(40), connections: 2, ..server.plan() });
    let measured = histogram(&summary.latencies.response);
    assert!(measured.min() >= 20 * MS - 20 * MS / 1000);
    assert!(slower_than(&summary.latencies.response, 59) >= 3);
}

#[test]
fn a_new_connection_for_each_request_is_one() {
    let server = serve(answer_all);
    let summary = run(&LoadPlan {
        limits: LoadLimits::count(20),
        connections: 2,
        new_connection: true,
        ..server.plan()
    });
    assert_eq!((summary.totals.responses, summary.connections.opened), (20, 20));
    assert_eq!(summary.latencies.connect.unwrap().count, 20);
}

#[test]
fn the_server_s_close_is_obeyed() {
    let server = serve(|peer| {
        peer.read();
        peer.write(b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n");
        peer.stay();
    });
    let summary = run(&LoadPlan { limits: LoadLimits::count(6), ..server.plan() });
    assert_eq!((errors(&summary), summary.connections.opened), (vec![], 6));
}

#[test]
fn headers_go_out_exactly_as_given() {
    let server = serve(answer_all);
    let headers = vec![("Connection".to_owned(), "Close".to_owned()), ("x-A".to_owned(), "b".to_owned())];
    let request = RequestPlan { headers, ..server.plan().request };
    run(&LoadPlan { limits: LoadLimits::count(1), request, ..server.plan() });
    let expected =
        format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: Close\r\nx-A: b\r\n\r\n", server.address);
    assert_eq!(*server.heads.lock().unwrap(), [expected]);
}

#[test]
fn urls_get_their_share() {
    let server = serve(answer_all);
    let url = |path: &str, weight| WeightedUrl { url: format!("http://{}{path}", server.address), weight };
    let urls = vec![url("/a", 3), url("/b", 1)];
    let request = RequestPlan { urls, ..RequestPlan::default() };
    run(&LoadPlan { request, limits: LoadLimits::count(400), ..server.plan() });
    let heads = server.heads.lock().unwrap();
    assert_eq!(heads.iter().filter(|head| head.starts_with("GET /a ")).count(), 300);
    assert_eq!(heads.len(), 400);
}

#[test]
fn the_warm_up_is_not_in_the_result() {
    let server = serve(answer_all);
    let summary = run(&LoadPlan {
        limits: LoadLimits { warmup_ms: 300, ..LoadLimits::duration_ms(300) },
        ..server.plan()
    });
    assert!((server.heads.lock().unwrap().len() as u64) > summary.totals.responses);
    assert_eq!(summary.elapsed_ns, 300 * MS);
}

fn ramp() -> LoadShape {
    LoadShape::Ramp { low: 20.0, high: 45.0, step: 20.0, calls: 3, connections_per_step: 10 }
}

#[test]
fn a_ramp_rises_in_steps_and_makes_its_calls() {
    let server = serve(answer_all);
    let summary = run(&LoadPlan { kind: ramp(), threads: 1, ..server.plan() });
    assert_eq!(errors(&summary), []);
    let steps: Vec<_> =
        summary.ramp.iter().map(|step| (step.connection_rate, step.calls, step.responses)).collect();
    assert_eq!(steps, [(20.0, 30, 30), (40.0, 30, 30)]);
    assert_eq!(summary.ramp[0].demanded_request_rate, 60.0);
    assert_eq!(summary.ramp[0].error_percent, 0.0);
    assert_eq!((summary.totals.responses, summary.connections.opened), (60, 20));
}

#[test]
fn calls_a_failed_connection_did_not_make_are_errors_of_the_step() {
    let server = serve(|peer| {
        peer.read();
        peer.write(OK);
        peer.read();
        peer.stay();
    });
    let summary = run(&LoadPlan { kind: ramp(), response_timeout_ms: 1500, ..server.plan() });
    for step in &summary.ramp {
        assert_eq!((step.responses, step.errors.response_timeout), (10, 10));
        assert!((step.error_percent - 200.0 / 3.0).abs() < 1e-9, "{}", step.error_percent);
    }
}

#[test]
fn idle_connections_are_held_and_the_lost_are_counted() {
    let server = serve(|peer| {
        peer.read();
        peer.write(OK);
        if peer.number >= 5 {
            peer.stay();
        }
    });
    let kind = LoadShape::Idle { hold_ms: 2000, requests_first: 1, pids: vec![std::process::id()] };
    let sources = vec!["127.0.0.2".parse().unwrap(), "127.0.0.3".parse().unwrap()];
    let summary = run(&LoadPlan { kind, connections: 50, threads: 2, sources, ..server.plan() });
    let idle = summary.idle.unwrap();
    assert_eq!((idle.wanted, idle.held, idle.lost), (50, 45, 5));
    assert!(idle.rss_per_connection_bytes.is_some() && idle.rss_held_bytes > 0);
    assert!(idle.held_ns >= 2000 * MS);
    assert_eq!(summary.totals.responses, 50);
}
