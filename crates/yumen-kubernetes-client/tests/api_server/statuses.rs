//! The status writer: conflicts, pace, the end of the lease.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use yumen_kubernetes_client::{
    LeaseElection, LeaseSettings, LeaseView, ObjectAddress, RawObject, StatusDecider, StatusReport,
    StatusWrite, StatusWriter,
};

use crate::requests::edge;
use crate::server::TestServer;

const EDGE: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways/edge";

/// Wants `status.wanted` on top of the current object.
#[derive(Default)]
struct TestDecider {
    wanted: Mutex<u64>,
    reports: Mutex<Vec<String>>,
}

impl StatusDecider for TestDecider {
    fn decide(&self, _: &ObjectAddress, current: &RawObject) -> Option<Box<str>> {
        let wanted = *self.wanted.lock().unwrap();
        let current: Value = serde_json::from_slice(&current.json).unwrap();
        let status = json!({"wanted": wanted, "seen": current["status"]["foreign"]});
        (current["status"]["wanted"] != wanted).then(|| status.to_string().into())
    }

    fn report(&self, at: &ObjectAddress, report: StatusReport) {
        let text = match report {
            StatusReport::Written(object) => format!("{} written {}", at.name, object.resource_version),
            StatusReport::Unchanged => format!("{} unchanged", at.name),
            StatusReport::Missing => format!("{} missing", at.name),
            StatusReport::Failed(error) => format!("{} failed: {error}", at.name),
        };
        self.reports.lock().unwrap().push(text);
    }
}

fn draft(version: Option<&str>, status: &str) -> StatusWrite {
    StatusWrite { priority: 1, resource_version: version.map(Into::into), status: status.into() }
}

async fn idle(writer: &StatusWriter) {
    let started = Instant::now();
    while writer.pending() > 0 {
        assert!(started.elapsed() < Duration::from_secs(30), "{} pending", writer.pending());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn gateway() -> Value {
    json!({"metadata": {"name": "edge", "namespace": "shop"}, "status": {"foreign": "kept"}})
}

#[tokio::test]
async fn a_conflict_reads_the_object_and_decides_again() {
    let server = TestServer::start().await;
    server.put(EDGE, gateway());
    server.put(EDGE, gateway());
    let decider = Arc::new(TestDecider { wanted: Mutex::new(5), ..TestDecider::default() });
    let writer = StatusWriter::start(server.client(), LeaseView::always(), Arc::clone(&decider));
    // The draft was derived from version 1.
    assert!(writer.submit(edge(), draft(Some("1"), r#"{"wanted":4}"#)));
    idle(&writer).await;
    let status = server.with(|state| state.objects[EDGE]["status"].clone());
    assert_eq!(status, json!({"foreign": "kept", "wanted": 5, "seen": "kept"}));
    let methods: Vec<String> =
        server.with(|state| state.requests.iter().map(|request| request.method.clone()).collect());
    assert_eq!(methods, ["PATCH", "GET", "PATCH"]);
    // A draft without a version is decided on the object, which has the wanted status.
    writer.submit(edge(), draft(None, "{}"));
    idle(&writer).await;
    server.with(|state| state.objects.clear());
    writer.submit(edge(), draft(Some("3"), "{}"));
    idle(&writer).await;
    assert_eq!(*decider.reports.lock().unwrap(), ["edge written 3", "edge unchanged", "edge missing"]);
}

#[tokio::test]
async fn a_thousand_changes_are_a_write_each_500_ms() {
    let server = TestServer::start().await;
    server.put(EDGE, gateway());
    let decider = Arc::new(TestDecider::default());
    let writer = StatusWriter::start(server.client(), LeaseView::always(), Arc::clone(&decider));
    let started = Instant::now();
    // 1 000 changes within about a second; the pace of the changes is the scenario.
    for number in 0..1000_u64 {
        *decider.wanted.lock().unwrap() = number;
        writer.submit(edge(), draft(None, "{}"));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    idle(&writer).await;
    let bound = 2 + started.elapsed().as_millis() / 500;
    let writes =
        server.with(|state| state.requests.iter().filter(|request| request.method == "PATCH").count());
    assert!(writes >= 2 && writes as u128 <= bound, "{writes} writes, {bound} allowed");
    assert_eq!(server.with(|state| state.objects[EDGE]["status"]["wanted"].clone()), json!(999));
}

#[tokio::test]
async fn nothing_is_written_without_the_lease() {
    let server = TestServer::start().await;
    server.put(EDGE, gateway());
    let settings =
        LeaseSettings { namespace: "n".to_owned(), name: "l".to_owned(), identity: "one".to_owned() };
    let election = LeaseElection::start(server.client(), settings);
    let mut view = election.view();
    let writer = StatusWriter::start(server.client(), election.view(), Arc::new(TestDecider::default()));
    assert!(view.is_held() || view.changed().await == Some(true));
    // The writes of one object are spaced, so the second draft is pending when the lease ends.
    assert!(writer.submit(edge(), draft(Some("1"), r#"{"wanted":1}"#)));
    idle(&writer).await;
    assert!(writer.submit(edge(), draft(None, r#"{"wanted":2}"#)));
    election.stop().await;
    assert!(!writer.submit(edge(), draft(None, r#"{"wanted":3}"#)));
    idle(&writer).await;
    let writes = server.with(|state| {
        state
            .requests
            .iter()
            .filter(|request| request.method == "PATCH" && request.target.contains("/status"))
            .count()
    });
    assert_eq!(writes, 1);
}
