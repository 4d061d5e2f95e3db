//! A cluster of 5 000 applications, for measurements.

// Each test binary uses a part.
#![allow(dead_code, reason = "see above")]

use serde_json::{Value, json};
use yumen_base::time::Now;
use yumen_kubernetes::{
    CertificateInspector, CertificateNames, ClusterChange, ClusterKind, ClusterObject, decode,
};

pub(crate) const NAMESPACES: usize = 50;
pub(crate) const PER_NAMESPACE: usize = 100;
pub(crate) const NOW: Now = Now { mono_us: 0, unix_ms: 1_800_000_000_000 };

pub(crate) struct NoCertificates;

impl CertificateInspector for NoCertificates {
    fn pair(&self, _: &str, _: &str) -> Result<CertificateNames, String> {
        Err("no certificate".to_owned())
    }

    fn authorities(&self, _: &str) -> Result<(), String> {
        Err("no certificate".to_owned())
    }
}

pub(crate) fn object(kind: ClusterKind, value: &Value) -> ClusterObject {
    decode(kind, value.to_string().as_bytes()).expect("an object")
}

/// A Service of an application.
pub(crate) fn service(namespace: usize, name: usize) -> ClusterObject {
    let value = json!({
        "metadata": { "name": format!("app-{name}"), "namespace": format!("team-{namespace}") },
        "spec": { "ports": [{ "name": "a", "port": 80 }, { "name": "b", "port": 8080 }] },
    });
    object(ClusterKind::Service, &value)
}

/// The endpoint of an application.
pub(crate) fn slice(namespace: usize, name: usize, address: usize) -> ClusterObject {
    let service = format!("app-{name}");
    object(
        ClusterKind::EndpointSlice,
        &json!({
            "metadata": {
                "name": format!("{service}-1"), "namespace": format!("team-{namespace}"),
                "labels": { "kubernetes.io/service-name": service },
            },
            "addressType": "IPv4",
            "ports": [{ "name": "a", "port": 3000 }, { "name": "b", "port": 3000 }],
            "endpoints": [{ "addresses": [format!("10.1.0.{address}")], "conditions": { "ready": true } }],
        }),
    )
}

/// An Ingress of five paths and three annotations; `host` decides how many Ingresses share one.
pub(crate) fn ingress(namespace: usize, name: usize, host: &str, timeout: usize) -> Value {
    let backend = json!({ "service": { "name": format!("app-{name}"), "port": { "number": 80 } } });
    let path = |at: usize| json!({ "path": format!("/n{namespace}/app-{name}/{at}"), "pathType": "Prefix", "backend": backend });
    let prefix = "nginx.ingress.kubernetes.io";
    json!({
        "metadata": {
            "name": format!("app-{name}"), "namespace": format!("team-{namespace}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {
                (format!("{prefix}/proxy-read-timeout")): timeout.to_string(),
                (format!("{prefix}/proxy-body-size")): "8m",
                (format!("{prefix}/limit-rps")): "50",
            },
        },
        "spec": {
            "ingressClassName": "nginx",
            "rules": [{ "host": host, "http": { "paths": (0..5).map(path).collect::<Vec<_>>() } }],
        },
    })
}

/// An object of each application.
pub(crate) fn each(make: impl Fn(usize, usize) -> ClusterObject) -> Vec<ClusterObject> {
    let all = (0..NAMESPACES).flat_map(|namespace| (0..PER_NAMESPACE).map(move |name| (namespace, name)));
    all.map(|(namespace, name)| make(namespace, name)).collect()
}

/// Ingresses of the class `nginx` with their Services.
pub(crate) fn ingress_cluster(host: impl Fn(usize, usize) -> String) -> Vec<ClusterChange> {
    let class = json!({ "metadata": { "name": "nginx" }, "spec": { "controller": "k8s.io/ingress-nginx" } });
    let written =
        |namespace, name| object(ClusterKind::Ingress, &ingress(namespace, name, &host(namespace, name), 30));
    vec![
        ClusterChange::Put(object(ClusterKind::IngressClass, &class)),
        ClusterChange::Replace(ClusterKind::Service, each(service)),
        ClusterChange::Replace(ClusterKind::EndpointSlice, each(|namespace, name| slice(namespace, name, 1))),
        ClusterChange::Replace(ClusterKind::Ingress, each(written)),
    ]
}
