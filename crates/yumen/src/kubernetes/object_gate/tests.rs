//! Starts of a leader, by the order in which kinds are listed.

use std::sync::Arc;

use serde_json::{Value, json};
use yumen_base::time::Now;
use yumen_kubernetes::{ClusterChange, ClusterObject, TranslationSettings, decode};

use super::super::certificate_reader::CertificateReader;
use super::*;

const NOW: Now = Now { mono_us: 0, unix_ms: 1_800_000_000_000 };

fn object(kind: ClusterKind, value: &Value) -> ClusterObject {
    decode(kind, value.to_string().as_bytes()).unwrap()
}

fn class() -> ClusterObject {
    let finalizers = ["gateway-exists-finalizer.gateway.networking.k8s.io"];
    object(
        ClusterKind::GatewayClass,
        &json!({
            "metadata": { "name": "yumen", "finalizers": finalizers },
            "spec": { "controllerName": "gateway.yumen.io/controller" },
        }),
    )
}

fn gateway(name: &str) -> ClusterObject {
    object(
        ClusterKind::Gateway,
        &json!({
            "metadata": { "name": name, "namespace": "shop", "uid": format!("uid-{name}") },
            "spec": {
                "gatewayClassName": "yumen",
                "listeners": [{ "name": "http", "port": 80, "protocol": "HTTP" }],
            },
        }),
    )
}

fn service(gateway: &str, target: u16) -> ClusterObject {
    let owner = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": gateway,
        "uid": format!("uid-{gateway}"), "controller": true,
    });
    object(
        ClusterKind::Service,
        &json!({
            "metadata": {
                "name": format!("yumen-{gateway}"), "namespace": "shop", "ownerReferences": [owner],
                "labels": { "app.kubernetes.io/managed-by": "yumen" },
            },
            "spec": { "ports": [{ "port": 80, "protocol": "TCP", "targetPort": target }] },
        }),
    )
}

fn written(objects: &[DesiredObject]) -> Vec<String> {
    let line = |object: &DesiredObject| match object {
        DesiredObject::Apply(path, form) => {
            format!("{} {}", path.key.name, form["spec"]["ports"][0]["targetPort"])
        }
        other => format!("{other:?}"),
    };
    let mut lines: Vec<String> = objects.iter().map(line).collect();
    lines.sort();
    lines
}

/// Lists kinds in the order given; returns the objects that the leader writes once everything is known.
fn check(order: &[ClusterKind], expected: &[&str]) {
    let mut translator = ClusterTranslator::new(TranslationSettings::default(), Arc::new(CertificateReader));
    let mut gate = ObjectGate::new();
    for kind in order {
        let objects = match kind {
            ClusterKind::GatewayClass => vec![class()],
            ClusterKind::Gateway => vec![gateway("g"), gateway("p")],
            ClusterKind::Service => vec![service("g", 20_005), service("p", 20_003)],
            _ => Vec::new(),
        };
        gate.observe_list(*kind);
        let delta = translator.apply(vec![ClusterChange::Replace(*kind, objects)], NOW);
        let early = gate.admit(false, delta.objects, &translator);
        assert_eq!(early, [], "{order:?}: written before everything is known");
    }
    assert_eq!(written(&gate.admit(true, Vec::new(), &translator)), expected, "{order:?}");
}

#[test]
fn start_of_a_leader_moves_no_port_and_no_finalizer() {
    let expected = ["yumen-g 20005", "yumen-p 20003"];
    let [class, gateway, sets, service] = DECISIVE;
    check(&[class, gateway, sets, service], &expected);
    check(&[service, gateway, class, sets], &expected);
    check(&[class, sets, service, gateway], &expected);
}

#[test]
fn refused_list_keeps_objects_back_until_it_arrives() {
    let mut translator = ClusterTranslator::new(TranslationSettings::default(), Arc::new(CertificateReader));
    let mut gate = ObjectGate::new();
    for (kind, objects) in [
        (ClusterKind::GatewayClass, vec![class()]),
        (ClusterKind::Gateway, vec![gateway("g")]),
        (ClusterKind::ListenerSet, Vec::new()),
    ] {
        gate.observe_list(kind);
        translator.apply(vec![ClusterChange::Replace(kind, objects)], NOW);
    }
    assert_eq!(gate.admit(true, Vec::new(), &translator), []);
    gate.observe_list(ClusterKind::Service);
    let services = vec![service("g", 20_005)];
    let delta = translator.apply(vec![ClusterChange::Replace(ClusterKind::Service, services)], NOW);
    assert_eq!(written(&gate.admit(true, delta.objects, &translator)), ["yumen-g 20005"]);
}
