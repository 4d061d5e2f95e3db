//! Measures reviews at 5 000 Ingresses. Run with
//! `cargo test --release --workspace --test review_speed -- --ignored --nocapture`.

mod measured;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use yumen_kubernetes::{ClusterTranslator, IngressOptions, ReviewSubject, TranslationSettings, read_review};
use yumen_plugin::PluginRegistry;
use yumen_snapshot::ObjectValidator;
use yumen_snapshot::compile::{LoadCertificate, Loaded, Variables};

use measured::{NAMESPACES, NOW, NoCertificates, PER_NAMESPACE, ingress, ingress_cluster};

const REVIEWS: usize = 2000;

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
    translator.apply(ingress_cluster(&host), NOW);
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
