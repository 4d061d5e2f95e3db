use serde_json::json;
use yumen_base::metric::{MetricSource, MetricValue as Number};
use yumen_plugin::{ExchangeOutcome, Phase, PluginTiming};

use super::{RecentRequest, SampledExchange, WorkerObservations};
use crate::observe::all_counters::AllCounters;
use crate::observe::counters::WorkerCounters;

fn ran(name: &'static str, phase: Phase, run_ns: u64, wait_ns: u64, answered: bool) -> PluginTiming {
    PluginTiming { name, phase, origin: None, started_ns: 0, run_ns, wait_ns, answered }
}

fn recent(path: &str, at_unix_ms: u64) -> RecentRequest {
    RecentRequest {
        at_unix_ms,
        weight: 1,
        method: "GET".into(),
        scheme: "http",
        host: "a".into(),
        path: path.into(),
        client_ip: "192.0.2.1".parse().unwrap(),
        sni: None,
        listener: None,
        is_cut: false,
        consumer: None,
        route_id: None,
        status: 200,
    }
}

/// Records a request with this weight, route `r`, upstream `u` and these plugins.
fn note(observed: &WorkerObservations, weight: u32, status: u16, plugins: &[PluginTiming]) -> bool {
    let outcome =
        ExchangeOutcome { status, received_bytes: 10, sent_bytes: 20, ..ExchangeOutcome::default() };
    observed.note(SampledExchange {
        weight,
        total_ns: 100_000,
        busy_ns: 7_000,
        upstream_ns: Some(80_000),
        outcome: &outcome,
        route: Some(("r", "shop")),
        upstream: Some("upstreams/u"),
        consumer: Some("alice"),
        plugins,
        recent: recent("/", 1),
        recent_max: 2,
    })
}

#[test]
fn a_sample_counts_for_all_it_stands_for() {
    let workers = AllCounters(vec![WorkerCounters::default().into(), WorkerCounters::default().into()]);
    let plugins = [
        ran("cors", Phase::Rewrite, 1_000, 0, false),
        ran("limit-count", Phase::Access, 500, 2_000, true),
        ran("cors", Phase::ResponseHead, 200, 0, false),
    ];
    assert!(note(&workers.0[0].observed, 3, 503, &plugins));
    assert!(note(&workers.0[1].observed, 1, 200, &[]));
    let top = workers.top();
    assert_eq!(
        top["routes"],
        json!([{
            "id": "r", "name": "shop", "requests": 4, "errors": 3, "answers": 3, "busy_ns": 28_000,
            "wait_ns": 320_000, "received_bytes": 40, "sent_bytes": 80, "duration_ns": 400_000,
            "durations_us": [[112, 4]],
        }])
    );
    assert_eq!(
        (&top["upstreams"][0]["id"], &top["upstreams"][0]["duration_ns"]),
        (&json!("upstreams/u"), &json!(320_000))
    );
    assert_eq!((&top["consumers"][0]["id"], &top["total"]["requests"]), (&json!("alice"), &json!(4)));
    let plugins = top["plugins"].as_array().unwrap();
    let row = |id: &str| plugins.iter().find(|row| row["id"] == id).unwrap();
    let numbers = |id: &str| {
        ["requests", "answers", "errors", "busy_ns", "wait_ns", "duration_ns"]
            .map(|key| row(id)[key].as_u64().unwrap())
    };
    assert_eq!(numbers("cors"), [3, 0, 0, 3_600, 0, 3_600]);
    assert_eq!(numbers("limit-count"), [3, 3, 3, 1_500, 6_000, 7_500]);
}

#[test]
fn the_cost_of_plugins_becomes_families() {
    let workers = AllCounters(vec![WorkerCounters::default().into()]);
    note(&workers.0[0].observed, 2, 200, &[ran("cors", Phase::Rewrite, 1_000, 500, false)]);
    let mut families = Vec::new();
    workers.gather(&mut families);
    let value = |name: &str| {
        let family = families.iter().find(|family| family.name == name).unwrap();
        assert_eq!(family.samples[0].labels, [("plugin", "cors".to_owned())]);
        family.samples[0].value.clone()
    };
    assert_eq!(value("yumen_plugin_run_seconds_total"), Number::Number(2e-6));
    assert_eq!(value("yumen_plugin_wait_seconds_total"), Number::Number(1e-6));
    assert_eq!(value("yumen_plugin_runs_total"), Number::Number(2.0));
    assert_eq!(value("yumen_plugin_answers_total"), Number::Number(0.0));
}

#[test]
fn the_oldest_request_is_forgotten_first() {
    let workers = AllCounters(vec![WorkerCounters::default().into(), WorkerCounters::default().into()]);
    for (worker, path, at) in [(0, "/a", 1), (0, "/b", 3), (1, "/c", 2), (0, "/d", 4)] {
        workers.0[worker].observed.0.lock().unwrap().push_recent(recent(path, at), 2);
    }
    let paths: Vec<_> = workers.recent().into_iter().map(|request| request.path.into_string()).collect();
    assert_eq!(paths, ["/d", "/b", "/c"]);
    workers.0[1].observed.0.lock().unwrap().push_recent(recent("/e", 5), 0);
    assert_eq!(workers.recent().len(), 3, "none are remembered where none shall be");
}

#[test]
fn a_worker_does_not_wait_for_a_reader() {
    let observed = WorkerObservations::default();
    let reading = observed.0.lock().unwrap();
    assert!(!note(&observed, 1, 200, &[]));
    drop(reading);
    assert!(note(&observed, 1, 200, &[]));
}
