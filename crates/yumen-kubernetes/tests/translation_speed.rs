//! Measures the translation of 5 000 routes and of single changes. Run with
//! `cargo test --release -p yumen-kubernetes --test translation_speed -- --ignored --nocapture`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use yumen_base::time::Now;
use yumen_kubernetes::{
    CertificateInspector, CertificateNames, ClusterChange, ClusterKind, ClusterObject, ClusterTranslator,
    TranslationSettings, decode,
};

const NAMESPACES: usize = 50;
const ROUTES_PER_NAMESPACE: usize = 100;
const NOW: Now = Now { mono_us: 0, unix_ms: 1_800_000_000_000 };

struct NoCertificates;

impl CertificateInspector for NoCertificates {
    fn pair(&self, _: &str, _: &str) -> Result<CertificateNames, String> {
        Err("no certificate".to_owned())
    }

    fn authorities(&self, _: &str) -> Result<(), String> {
        Err("no certificate".to_owned())
    }
}

fn object(kind: ClusterKind, value: &Value) -> ClusterObject {
    decode(kind, value.to_string().as_bytes()).expect("an object")
}

fn route(namespace: usize, name: usize, port: u16) -> ClusterObject {
    object(
        ClusterKind::HttpRoute,
        &json!({
            "metadata": { "name": format!("app-{name}"), "namespace": format!("team-{namespace}"), "generation": port },
            "spec": {
                "parentRefs": [{ "name": "web", "namespace": "infra" }],
                "hostnames": [format!("app-{name}.team-{namespace}.example.com")],
                "rules": [{
                    "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
                    "filters": [{
                        "type": "ResponseHeaderModifier",
                        "responseHeaderModifier": { "set": [{ "name": "x-port", "value": port.to_string() }] },
                    }],
                    "backendRefs": [{ "name": format!("app-{name}"), "port": port }],
                }],
            },
        }),
    )
}

fn slice(namespace: usize, name: usize, address: usize) -> ClusterObject {
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

fn cluster() -> Vec<ClusterChange> {
    let class = json!({ "metadata": { "name": "yumen" }, "spec": { "controllerName": "gateway.yumen.io/controller" } });
    let listener = json!({
        "name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": { "namespaces": { "from": "All" } },
    });
    let gateway = json!({
        "metadata": { "name": "web", "namespace": "infra" },
        "spec": { "gatewayClassName": "yumen", "listeners": [listener] },
    });
    let (mut services, mut slices, mut routes) = (Vec::new(), Vec::new(), Vec::new());
    for namespace in 0..NAMESPACES {
        for name in 0..ROUTES_PER_NAMESPACE {
            let service = json!({
                "metadata": { "name": format!("app-{name}"), "namespace": format!("team-{namespace}") },
                "spec": { "ports": [{ "name": "a", "port": 80 }, { "name": "b", "port": 8080 }] },
            });
            services.push(object(ClusterKind::Service, &service));
            slices.push(slice(namespace, name, 1));
            routes.push(route(namespace, name, 80));
        }
    }
    vec![
        ClusterChange::Put(object(ClusterKind::GatewayClass, &class)),
        ClusterChange::Put(object(ClusterKind::Gateway, &gateway)),
        ClusterChange::Replace(ClusterKind::Service, services),
        ClusterChange::Replace(ClusterKind::EndpointSlice, slices),
        ClusterChange::Replace(ClusterKind::HttpRoute, routes),
    ]
}

/// The mean time of one change among 500, each of another object.
fn change_time(
    translator: &mut ClusterTranslator,
    changed: impl Fn(usize, usize) -> ClusterObject,
) -> Duration {
    let mut total = Duration::ZERO;
    for count in 0..500 {
        let object = changed(count % NAMESPACES, count / NAMESPACES);
        let begin = Instant::now();
        let delta = translator.apply(vec![ClusterChange::Put(object)], NOW);
        total += begin.elapsed();
        assert!(!delta.resources.is_empty());
    }
    total / 500
}

#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "the numbers are the result")]
fn five_thousand_routes_and_single_changes() {
    let mut translator = ClusterTranslator::new(TranslationSettings::default(), Arc::new(NoCertificates));
    let mut all = Duration::MAX;
    // The best of several runs, since other processes take their share.
    for _ in 0..5 {
        translator = ClusterTranslator::new(TranslationSettings::default(), Arc::new(NoCertificates));
        let changes = cluster();
        let begin = Instant::now();
        let delta = translator.apply(changes, NOW);
        all = all.min(begin.elapsed());
        assert!(delta.resources.len() >= 2 * NAMESPACES * ROUTES_PER_NAMESPACE, "{}", delta.resources.len());
    }
    let of_route = change_time(&mut translator, |namespace, name| route(namespace, name, 8080));
    let of_slice = change_time(&mut translator, |namespace, name| slice(namespace, name, 2));
    println!("5 000 routes: {all:?}; one route: {of_route:?}; one slice: {of_slice:?}");
    if !cfg!(debug_assertions) {
        assert!(all < Duration::from_millis(500), "{all:?}");
        assert!(of_route < Duration::from_micros(200), "{of_route:?}");
        assert!(of_slice < Duration::from_micros(200), "{of_slice:?}");
    }
}
