use super::*;
use crate::model::ClusterKind;

fn at(seconds: u64) -> Now {
    Now { mono_us: seconds * 1_000_000, unix_ms: 0 }
}

fn claim(name: &str, port: u16, is_udp: bool) -> PortClaim {
    PortClaim { gateway: ObjectKey::new(ClusterKind::Gateway, "infra", name), port, is_udp }
}

/// The Service of the Gateway `name`.
fn service(name: &str, targets: &[u16]) -> ClusterObject {
    let port = |target: &u16| serde_json::json!({ "port": *target, "targetPort": *target });
    let ports: Vec<_> = targets.iter().map(port).collect();
    let owner = serde_json::json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": name, "uid": "uid", "controller": true,
    });
    let value = serde_json::json!({
        "metadata": {
            "name": format!("yumen-{name}"), "namespace": "infra", "labels": { MANAGED_BY: MANAGER },
            "ownerReferences": [owner],
        },
        "spec": { "ports": ports },
    });
    crate::model::decode(ClusterKind::Service, value.to_string().as_bytes()).unwrap()
}

#[test]
fn lowest_free_port_is_proposed() {
    let mut ports = PortAllocator::new(20_000..=20_004, BTreeSet::from([20_001]));
    let is_observed = |port: u16| port == 20_002;
    assert_eq!(ports.propose(&claim("a", 80, false), at(0), is_observed, |_| true), Some(20_000));
    assert_eq!(ports.propose(&claim("b", 80, false), at(0), is_observed, |_| true), Some(20_003));
    // A proposal stands while its Service is not written.
    assert_eq!(ports.propose(&claim("a", 80, false), at(1), is_observed, |_| true), Some(20_000));
    assert_eq!(ports.propose(&claim("a", 443, false), at(0), is_observed, |_| true), Some(20_004));
    assert_eq!(ports.propose(&claim("c", 80, false), at(0), is_observed, |_| true), None);
    // TCP and UDP have ports of their own.
    assert_eq!(ports.propose(&claim("c", 80, true), at(0), |_| false, |_| true), Some(20_000));
}

#[test]
fn observed_port_of_another_displaces_a_proposal() {
    let mut ports = PortAllocator::new(20_000..=20_001, BTreeSet::new());
    assert_eq!(ports.propose(&claim("a", 80, false), at(0), |_| false, |_| true), Some(20_000));
    assert_eq!(ports.propose(&claim("a", 80, false), at(0), |port| port == 20_000, |_| true), Some(20_001));
}

#[test]
fn dropped_proposals_are_free_again() {
    let mut ports = PortAllocator::new(20_000..=20_000, BTreeSet::new());
    let first = claim("a", 80, false);
    assert_eq!(ports.propose(&first, at(0), |_| false, |_| true), Some(20_000));
    ports.retain(&first.gateway, &BTreeSet::from([first.clone()]));
    assert_eq!(ports.propose(&claim("b", 80, false), at(0), |_| false, |_| true), None);
    ports.retain(&first.gateway, &BTreeSet::new());
    assert_eq!(ports.propose(&claim("b", 80, false), at(0), |_| false, |_| true), Some(20_000));
}

#[test]
fn freed_port_is_held_for_a_minute() {
    let mut ports = PortAllocator::new(20_000..=20_001, BTreeSet::new());
    assert!(ports.hold(false, 20_000, &[claim("a", 20_000, false)]).is_some());
    ports.observe(Some(&service("a", &[20_000, 20_001])), Some(&service("a", &[20_001])), at(10));
    let is_observed = |port: u16| port == 20_001;
    assert_eq!(ports.propose(&claim("b", 80, false), at(69), is_observed, |_| true), None);
    assert_eq!(ports.propose(&claim("b", 80, false), at(70), is_observed, |_| true), Some(20_000));
}

#[test]
fn gateway_without_a_port_is_tried_again() {
    let mut ports = PortAllocator::new(20_000..=20_000, BTreeSet::new());
    assert_eq!(ports.propose(&claim("a", 80, false), at(0), |_| true, |_| true), None);
    assert_eq!(ports.take_starved(), BTreeSet::from([claim("a", 80, false).gateway]));
    assert_eq!(ports.take_starved(), BTreeSet::new());
}

#[test]
fn first_holder_keeps_a_port() {
    let mut ports = PortAllocator::new(20_000..=20_001, BTreeSet::new());
    let (old, young) = (claim("old", 80, false), claim("young", 80, false));
    assert_eq!(ports.hold(false, 20_000, std::slice::from_ref(&young)), Some(&young));
    let both = [old.clone(), young.clone()];
    assert_eq!(ports.hold(false, 20_000, &both), Some(&young), "an edit of an older Service");
    assert_eq!(ports.hold(false, 20_000, std::slice::from_ref(&old)), Some(&old), "the holder is gone");
    assert_eq!(ports.hold(false, 20_001, &both), Some(&old), "no memory: the older Service");
}

#[test]
fn ports_of_squatters_are_given_away_last() {
    let mut ports = PortAllocator::new(20_000..=20_001, BTreeSet::new());
    let is_observed = |port: u16| port == 20_000;
    assert_eq!(ports.propose(&claim("a", 80, false), at(0), is_observed, |_| false), Some(20_001));
    assert_eq!(ports.propose(&claim("b", 80, false), at(0), is_observed, |_| false), Some(20_000));
}

#[test]
fn only_the_service_of_a_gateway_has_observed_ports() {
    fn check(change: impl Fn(&mut ServiceObject), count: usize) {
        let mut object = service("a", &[20_000]);
        let ObjectBody::Service(service) = &mut object.body else { panic!("a Service") };
        change(std::sync::Arc::make_mut(service));
        assert_eq!(observed_ports(service).count(), count, "{service:?}");
    }
    check(|_| {}, 1);
    check(|service| service.meta.labels.clear(), 0);
    check(|service| service.meta.owner = None, 0);
    check(|service| service.meta.name = "yumen-other".into(), 0);
}

#[test]
fn names_of_services_are_unique() {
    let names = ["q.b", "q-b", "q-b-ff94fa7c", "q.b-ff94fa7c", "web", "deadbeef", "a-deadbeef"];
    let services: BTreeSet<String> = names.iter().map(|name| service_name(name)).collect();
    assert_eq!(services.len(), names.len(), "{services:?}");
    assert_eq!(service_name("web"), "yumen-web");
    assert_eq!(service_name("q.b"), "yumen-q-b-ff94fa7c");
}
