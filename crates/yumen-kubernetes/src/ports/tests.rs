use super::*;
use crate::model::ClusterKind;

fn at(seconds: u64) -> Now {
    Now { mono_us: seconds * 1_000_000, unix_ms: 0 }
}

fn claim(name: &str, port: u16, is_udp: bool) -> PortClaim {
    PortClaim { gateway: ObjectKey::new(ClusterKind::Gateway, "infra", name), port, is_udp }
}

fn service(name: &str, targets: &[u16]) -> ClusterObject {
    let port = |target: &u16| serde_json::json!({ "port": *target, "targetPort": *target });
    let ports: Vec<_> = targets.iter().map(port).collect();
    let value = serde_json::json!({
        "metadata": { "name": name, "namespace": "infra", "labels": { MANAGED_BY: MANAGER } },
        "spec": { "ports": ports },
    });
    crate::model::decode(ClusterKind::Service, value.to_string().as_bytes()).unwrap()
}

#[test]
fn lowest_free_port_is_proposed() {
    let mut ports = PortAllocator::new(20_000..=20_004, BTreeSet::from([20_001]));
    let is_observed = |port: u16| port == 20_002;
    assert_eq!(ports.propose(&claim("a", 80, false), at(0), is_observed), Some(20_000));
    assert_eq!(ports.propose(&claim("b", 80, false), at(0), is_observed), Some(20_003));
    // A proposal stands while its Service is not written.
    assert_eq!(ports.propose(&claim("a", 80, false), at(1), is_observed), Some(20_000));
    assert_eq!(ports.propose(&claim("a", 443, false), at(0), is_observed), Some(20_004));
    assert_eq!(ports.propose(&claim("c", 80, false), at(0), is_observed), None);
    // TCP and UDP have ports of their own.
    assert_eq!(ports.propose(&claim("c", 80, true), at(0), |_| false), Some(20_000));
}

#[test]
fn observed_port_of_another_displaces_a_proposal() {
    let mut ports = PortAllocator::new(20_000..=20_001, BTreeSet::new());
    assert_eq!(ports.propose(&claim("a", 80, false), at(0), |_| false), Some(20_000));
    assert_eq!(ports.propose(&claim("a", 80, false), at(0), |port| port == 20_000), Some(20_001));
}

#[test]
fn dropped_proposals_are_free_again() {
    let mut ports = PortAllocator::new(20_000..=20_000, BTreeSet::new());
    let first = claim("a", 80, false);
    assert_eq!(ports.propose(&first, at(0), |_| false), Some(20_000));
    ports.retain(&first.gateway, &BTreeSet::from([first.clone()]));
    assert_eq!(ports.propose(&claim("b", 80, false), at(0), |_| false), None);
    ports.retain(&first.gateway, &BTreeSet::new());
    assert_eq!(ports.propose(&claim("b", 80, false), at(0), |_| false), Some(20_000));
}

#[test]
fn freed_port_is_held_for_a_minute() {
    let mut ports = PortAllocator::new(20_000..=20_001, BTreeSet::new());
    ports.observe(Some(&service("a", &[20_000, 20_001])), Some(&service("a", &[20_001])), at(10));
    let is_observed = |port: u16| port == 20_001;
    assert_eq!(ports.propose(&claim("b", 80, false), at(69), is_observed), None);
    assert_eq!(ports.propose(&claim("b", 80, false), at(70), is_observed), Some(20_000));
}

#[test]
fn ports_of_foreign_services_are_not_observed() {
    let mut foreign = service("a", &[20_000]);
    if let ObjectBody::Service(service) = &mut foreign.body {
        std::sync::Arc::make_mut(service).meta.labels.clear();
        assert_eq!(observed_ports(service).count(), 0);
    }
}
