//! The lease of one and of two processes.

use std::time::{Duration, Instant};

use serde_json::json;
use yumen_kubernetes_client::{ApiClient, LeaseElection, LeaseSettings};

use crate::server::TestServer;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ops/leases/yumen-controller";

fn settings(identity: &str) -> LeaseSettings {
    LeaseSettings {
        namespace: "ops".to_owned(),
        name: "yumen-controller".to_owned(),
        identity: identity.to_owned(),
    }
}

fn holder(server: &TestServer) -> Option<String> {
    server.with(|state| Some(state.objects.get(LEASE)?["spec"]["holderIdentity"].as_str()?.to_owned()))
}

async fn gain(election: &LeaseElection) {
    let mut view = election.view();
    if view.is_held() {
        return;
    }
    let held = tokio::time::timeout(Duration::from_secs(20), view.changed()).await;
    assert_eq!(held.expect("no lease within 20 s"), Some(true));
    assert!(view.is_held());
}

#[tokio::test]
async fn a_released_lease_goes_to_the_other_process() {
    let server = TestServer::start().await;
    let one = LeaseElection::start(server.client(), settings("one"));
    gain(&one).await;
    let view = one.view();
    let two = LeaseElection::start(server.client(), settings("two"));
    // The second process has looked and does not hold the lease.
    server
        .until(|state| {
            (state.requests.iter().filter(|request| request.method == "GET").count() > 1).then_some(())
        })
        .await;
    assert!(!two.view().is_held());
    one.stop().await;
    assert!(!view.is_held());
    gain(&two).await;
    assert_eq!(holder(&server).as_deref(), Some("two"));
}

#[tokio::test]
async fn a_lease_that_another_process_took_ends_writing() {
    let server = TestServer::start().await;
    let election = LeaseElection::start(server.client(), settings("one"));
    gain(&election).await;
    let mut view = election.view();
    let lease = server.with(|state| state.objects[LEASE].clone());
    let mut taken = lease.clone();
    taken["spec"]["holderIdentity"] = json!("other");
    server.put(LEASE, taken);
    let held = tokio::time::timeout(Duration::from_secs(20), view.changed()).await;
    assert_eq!(held.expect("no loss within 20 s"), Some(false));
    assert!(!view.is_held());
    drop(election);
    assert_eq!(view.changed().await, None);
    assert_eq!(holder(&server).as_deref(), Some("other"));
}

#[tokio::test]
async fn missing_rights_on_leases_are_reported() {
    let server = TestServer::start().await;
    server.script_status("GET", 403, r#"{"message":"no"}"#);
    let election = LeaseElection::start(server.client(), settings("one"));
    let view = election.view();
    let started = Instant::now();
    let failure = loop {
        if let Some(failure) = view.failure() {
            break failure.to_string();
        }
        assert!(started.elapsed() < Duration::from_secs(20), "no failure within 20 s");
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    assert!(failure.contains("grant verb \"get\" on resource \"leases\""), "{failure}");
    // The next attempt succeeds.
    gain(&election).await;
    assert_eq!(view.failure(), None);
}

#[tokio::test]
async fn a_dropped_election_keeps_the_lease_for_a_successor_of_its_identity() {
    let server = TestServer::start().await;
    let election = LeaseElection::start(server.client(), settings("pod"));
    gain(&election).await;
    let view = election.view();
    drop(election);
    assert!(!view.is_held());
    assert_eq!(holder(&server).as_deref(), Some("pod"));
    let client = ApiClient::new(&server.config()).unwrap();
    let successor = LeaseElection::start(client, settings("pod"));
    gain(&successor).await;
    let transitions = server.with(|state| state.objects[LEASE]["spec"]["leaseTransitions"].clone());
    assert_eq!(transitions, json!(0));
}
