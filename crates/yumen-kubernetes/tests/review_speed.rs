//! Measures reviews at 5 000 Ingresses. Run with
//! `cargo test --release -p yumen-kubernetes --test review_speed -- --ignored --nocapture`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use yumen_base::time::Now;
use yumen_kubernetes::{
    CertificateInspector, CertificateNames, ClusterChange, ClusterKind, ClusterObject, ClusterTranslator,
    IngressOptions, ReviewSubject, TranslationSettings, decode, read_review,
};
use yumen_plugin::PluginRegistry;
use yumen_snapshot::ObjectValidator;
use yumen_snapshot::compile::{LoadCertificate, Loaded, Variables};

const NAMESPACES: usize = 50;
const PER_NAMESPACE: usize = 100;
const REVIEWS: usize = 2000;
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

/// An Ingress of five paths and three annotations; `host` decides how many Ingresses share one.
fn ingress(namespace: usize, name: usize, host: &str, timeout: usize) -> Value {
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

fn cluster(host: impl Fn(usize, usize) -> String) -> Vec<ClusterChange> {
    let class = json!({ "metadata": { "name": "nginx" }, "spec": { "controller": "k8s.io/ingress-nginx" } });
    let (mut services, mut ingresses) = (Vec::new(), Vec::new());
    for namespace in 0..NAMESPACES {
        for name in 0..PER_NAMESPACE {
            let service = json!({
                "metadata": { "name": format!("app-{name}"), "namespace": format!("team-{namespace}") },
                "spec": { "ports": [{ "port": 80 }] },
            });
            services.push(object(ClusterKind::Service, &service));
            let written = ingress(namespace, name, &host(namespace, name), 30);
            ingresses.push(object(ClusterKind::Ingress, &written));
        }
    }
    vec![
        ClusterChange::Put(object(ClusterKind::IngressClass, &class)),
        ClusterChange::Replace(ClusterKind::Service, services),
        ClusterChange::Replace(ClusterKind::Ingress, ingresses),
    ]
}

fn review(translator: &mut ClusterTranslator, operation: &str, object: &Value, expected: bool) -> Duration {
    let registry = PluginRegistry::new(yumen_plugins::BUILTIN);
    let missing = yumen_plugins::inactive::missing::<&str>(&[]);
    let load: LoadCertificate = Arc::new(|_: &str, _: &str| Ok(Arc::new(()) as Loaded));
    let variables: Variables = Arc::new(|_| None);
    let validator = ObjectValidator {
        registry: &registry,
        missing: &missing,
        load_certificate: &load,
        variables: &variables,
    };
    let kind = json!({ "group": "networking.k8s.io", "version": "v1", "kind": "Ingress" });
    let request = json!({ "uid": "1", "kind": kind, "operation": operation, "object": object });
    let body = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
    let body = body.to_string();
    let begin = Instant::now();
    let question = read_review(body.as_bytes()).expect("a review");
    let ReviewSubject::Object(reviewed) = &question.subject else { panic!("nothing to review") };
    let findings = translator.review(reviewed, NOW, &|kind, value| {
        validator.validate(kind, value).map_err(|error| format!("{error:?}"))
    });
    let answer = findings.answer(&question).to_string();
    let elapsed = begin.elapsed();
    assert_eq!(findings.refusals.is_empty(), expected, "{answer}");
    elapsed
}

fn settings() -> TranslationSettings {
    let ingress = IngressOptions { take_over: true, ..IngressOptions::with_flags(&[]) };
    TranslationSettings { ingress, ..TranslationSettings::default() }
}

/// The 50th, 99th and highest of many reviews: new ones, updates, and refused ones.
fn measure(title: &str, host: impl Fn(usize, usize) -> String) -> Duration {
    let mut translator = ClusterTranslator::new(settings(), Arc::new(NoCertificates));
    translator.apply(cluster(&host), NOW);
    let mut times: Vec<Duration> = (0..REVIEWS)
        .map(|count| {
            let (namespace, name) = (count % NAMESPACES, count / NAMESPACES);
            let host = host(namespace, name);
            match count % 3 {
                0 => {
                    let new = ingress(namespace, PER_NAMESPACE + name, &host, 30);
                    review(&mut translator, "CREATE", &new, true)
                }
                1 => review(&mut translator, "UPDATE", &ingress(namespace, name, &host, 60), true),
                _ => {
                    let mut taking = ingress(namespace, name, &host, 30);
                    taking["metadata"]["name"] = "taking".into();
                    review(&mut translator, "CREATE", &taking, false)
                }
            }
        })
        .collect();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    report(&format!("{title}: p50 {:?}, p99 {:?}, max {:?}", at(0.5), at(0.99), at(1.0)));
    at(0.99)
}

#[allow(clippy::print_stdout, reason = "the numbers are the result")]
fn report(line: &str) {
    println!("{line}");
}

#[test]
#[ignore = "a measurement"]
fn reviews_at_five_thousand_ingresses() {
    let own = measure("a host per Ingress", |namespace, name| format!("a{name}.n{namespace}.test"));
    let shared = measure("a host per 100 Ingresses", |namespace, _| format!("n{namespace}.test"));
    if !cfg!(debug_assertions) {
        assert!(own < Duration::from_millis(20), "{own:?}");
        assert!(shared < Duration::from_millis(20), "{shared:?}");
    }
}
