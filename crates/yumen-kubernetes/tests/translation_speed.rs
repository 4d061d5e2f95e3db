//! Measures the translation of 5 000 routes or Ingresses, and of single changes. Run with
//! `cargo test --release --workspace --test translation_speed -- --ignored --nocapture`.

mod compiler;
mod measured;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use yumen_config::Resource;
use yumen_kubernetes::{
    ClusterChange, ClusterKind, ClusterObject, ClusterTranslator, IngressOptions, ResourceChange,
    TranslationSettings,
};

use measured::{
    NAMESPACES, NOW, NoCertificates, PER_NAMESPACE, each, ingress_cluster, object, service, slice,
};

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

fn cluster() -> Vec<ClusterChange> {
    let class = json!({ "metadata": { "name": "yumen" }, "spec": { "controllerName": "gateway.yumen.io/controller" } });
    let listener = json!({
        "name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": { "namespaces": { "from": "All" } },
    });
    let gateway = json!({
        "metadata": { "name": "web", "namespace": "infra" },
        "spec": { "gatewayClassName": "yumen", "listeners": [listener] },
    });
    vec![
        ClusterChange::Put(object(ClusterKind::GatewayClass, &class)),
        ClusterChange::Put(object(ClusterKind::Gateway, &gateway)),
        ClusterChange::Replace(ClusterKind::Service, each(service)),
        ClusterChange::Replace(ClusterKind::EndpointSlice, each(|namespace, name| slice(namespace, name, 1))),
        ClusterChange::Replace(ClusterKind::HttpRoute, each(|namespace, name| route(namespace, name, 80))),
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
        assert!(delta.resources.len() >= 2 * NAMESPACES * PER_NAMESPACE, "{}", delta.resources.len());
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

#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "the numbers are the result")]
fn five_thousand_ingresses() {
    let (mut translated, mut compiled) = (Duration::MAX, Duration::MAX);
    for _ in 0..5 {
        let ingress = IngressOptions { take_over: true, ..IngressOptions::with_flags(&[]) };
        let settings = TranslationSettings { ingress, ..TranslationSettings::default() };
        let mut translator = ClusterTranslator::new(settings, Arc::new(NoCertificates));
        let changes = ingress_cluster(|namespace, name| format!("a{name}.n{namespace}.test"));
        let begin = Instant::now();
        let delta = translator.apply(changes, NOW);
        translated = translated.min(begin.elapsed());
        let named = |change: &ResourceChange| {
            let ResourceChange::Put(resource) = change else { return None };
            let kind = resource.name.kind.kind().expect("a kind of this build");
            Some(Resource { kind, id: resource.name.id.clone(), json: resource.json.clone() })
        };
        let resources: Vec<Resource> = delta.resources.iter().filter_map(named).collect();
        assert!(resources.len() > 4 * NAMESPACES * PER_NAMESPACE, "{}", resources.len());
        let begin = Instant::now();
        let output = compiler::compile(resources);
        compiled = compiled.min(begin.elapsed());
        assert!(output.problems.is_empty(), "{:?}", output.problems.first());
    }
    println!("5 000 Ingresses: translated in {translated:?}, compiled in {compiled:?}");
    if !cfg!(debug_assertions) {
        assert!(translated + compiled < Duration::from_secs(2), "{translated:?} and {compiled:?}");
    }
}
