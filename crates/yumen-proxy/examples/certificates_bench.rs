//! Times reading 100 000 certificates, as a start does, against making all of their keys ready. Prints
//! milliseconds and resident memory.
//!
//! `cargo run --release -p yumen-proxy --example certificates_bench [certificates]`

#![allow(clippy::print_stdout, reason = "its whole purpose is to print")]

use std::sync::Arc;
use std::time::Instant;

use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256,
};
use yumen_config::{Kind, Resource};
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, PluginRegistry};
use yumen_proxy::tls::{CertificateLoader, load_key_pair};
use yumen_snapshot::{Compiler, CompilerEnv, ConfigChange, UpstreamDefaults};

/// RSA keys take long to make; so many are used in turn.
const RSA_KEYS: usize = 8;

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Certificates of one authority, a chain of two each, as ssl objects.
fn objects(count: usize, is_rsa: bool) -> Vec<(String, String, Resource)> {
    let made = |key| KeyPair::generate_for(key).expect("a key");
    let mut above = CertificateParams::new(Vec::new()).expect("no names");
    above.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own = made(&PKCS_ECDSA_P256_SHA256);
    let above_pem = above.self_signed(&own).expect("a certificate").pem();
    let issuer = Issuer::new(above, own);
    let rsa: Vec<String> = match is_rsa {
        true => (0..RSA_KEYS).map(|_| made(&PKCS_RSA_SHA256).serialize_pem()).collect(),
        false => Vec::new(),
    };
    let object = |number: usize| {
        let name = format!("host{number}.example.test");
        let key = match rsa.get(number % RSA_KEYS) {
            Some(pem) => KeyPair::from_pem(pem).expect("just made"),
            None => made(&PKCS_ECDSA_P256_SHA256),
        };
        let params = CertificateParams::new(vec![name.clone()]).expect("a name");
        let cert = params.signed_by(&key, &issuer).expect("a certificate").pem() + &above_pem;
        let key = key.serialize_pem();
        let value = serde_json::json!({ "cert": cert, "key": key, "snis": [name] });
        (cert, key, Resource::new(Kind::Ssls, &number.to_string(), &value))
    };
    (0..count).map(object).collect()
}

fn measure(count: usize, is_rsa: bool) {
    let kind = if is_rsa { "RSA-2048" } else { "ECDSA P-256" };
    let objects = objects(count, is_rsa);
    let env = CompilerEnv {
        node: NodeFacts::default(),
        defaults: UpstreamDefaults::default(),
        path_parameters: true,
        workers: 2,
        closes_broken: false,
        missing: Default::default(),
        fetched: Arc::default(),
        variables: Arc::new(|_| None),
        load_certificate: Arc::new(CertificateLoader::default()),
        sinks: None,
    };
    let mut compiler = Compiler::new(Arc::new(PluginRegistry::new(&[])), Arc::new(Carry::default()), env);
    let changes = objects.iter().map(|(_, _, resource)| ConfigChange::Put(resource.clone())).collect();
    let (before_mb, started) = (resident_mb(), Instant::now());
    let compiled = compiler.apply(changes, 1);
    let read_ms = started.elapsed().as_millis();
    assert!(compiled.problems.is_empty(), "{:?}", compiled.problems.first());
    let read_mb = resident_mb() - before_mb;
    let (before_mb, started) = (resident_mb(), Instant::now());
    let ready: Vec<_> = objects.iter().map(|(cert, key, _)| load_key_pair(cert, key)).collect();
    let ready_ms = started.elapsed().as_millis();
    assert!(ready.iter().all(Result::is_ok));
    let ready_mb = resident_mb() - before_mb;
    println!(
        "{count} {kind}: compiled {read_ms} ms, {read_mb} MB; all keys made ready {ready_ms} ms, {ready_mb} MB"
    );
}

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100_000);
    for is_rsa in [false, true] {
        measure(count, is_rsa);
    }
}
