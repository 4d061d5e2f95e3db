//! Times compiling 100 000 routes, and one change among them. Prints milliseconds and resident memory.
//!
//! `cargo run --release -p yumen-snapshot --example compile_bench [routes] [scopes]`; the routes are divided among the
//! scopes, if there are any.

#![allow(clippy::print_stdout, reason = "its whole purpose is to print")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use yumen_config::{Kind, Resource};
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, PluginRegistry};
use yumen_snapshot::{Compiler, CompilerEnv, ConfigChange, UpstreamDefaults};

fn compiler() -> Compiler {
    let env = CompilerEnv {
        sinks: None,
        node: NodeFacts::default(),
        defaults: UpstreamDefaults::default(),
        path_parameters: true,
        workers: 2,
        closes_broken: false,
        missing: Default::default(),
        fetched: Arc::default(),
        variables: Arc::new(|_| None),
        load_certificate: Arc::new(
            |_: &str,
             _: &str|
             -> Result<yumen_snapshot::compile::Loaded, yumen_snapshot::compile::KeyPairError> {
                Err(yumen_snapshot::compile::KeyPairError::Certificate("no certificates here".into()))
            },
        ),
    };
    Compiler::new(Arc::new(PluginRegistry::new(&[])), Arc::new(Carry::default()), env)
}

/// Every tenth route has an upstream of its own, the others share a thousand.
fn route(number: usize, revision: usize, scopes: usize) -> Resource {
    let mut value = json!({
        "uri": format!("/api/v{revision}/tenant{}/item{number}/*", number % 1000),
        "name": format!("route {number}"),
        "methods": ["GET", "POST"],
    });
    if number.is_multiple_of(10) {
        value["upstream"] =
            json!({ "nodes": { format!("10.1.{}.{}:80", number / 250 % 250, number % 250): 1 } });
    } else {
        value["upstream_id"] = json!((number % 1000).to_string());
    }
    if scopes > 0 {
        value["scopes"] = json!([(number % scopes).to_string()]);
    }
    Resource::new(Kind::Routes, &format!("r{number}"), &value)
}

/// A listener with these scopes, each for a host of its own.
fn listener(scopes: usize) -> impl Iterator<Item = ConfigChange> {
    let address = json!({ "address": "0.0.0.0:8080", "protocol": "http" });
    let listener = (scopes > 0).then(|| Resource::new(Kind::Listeners, "web", &address));
    let scopes = (0..scopes).map(|number| {
        let value = json!({ "listeners": ["web"], "hosts": [format!("host{number}.test")] });
        Resource::new(Kind::Scopes, &number.to_string(), &value)
    });
    listener.into_iter().chain(scopes).map(ConfigChange::Put)
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn main() {
    let number = |at: usize| std::env::args().nth(at).and_then(|text| text.parse::<usize>().ok());
    let (routes, scopes) = (number(1).unwrap_or(100_000), number(2).unwrap_or(0));
    let upstream = |number: usize| {
        let nodes = json!({ "nodes": { format!("10.0.0.{}:80", number % 250): 1, "10.0.1.1:80": 1 } });
        Resource::new(Kind::Upstreams, &number.to_string(), &nodes)
    };
    let mut changes: Vec<ConfigChange> =
        (0..1000).map(|number| ConfigChange::Put(upstream(number))).collect();
    changes.extend(listener(scopes));
    changes.extend((0..routes).map(|number| ConfigChange::Put(route(number, 1, scopes))));
    let texts = resident_mb();
    let mut compiler = compiler();
    let start = Instant::now();
    let mut compiled = compiler.apply(changes, 1);
    println!("{routes} routes: {:.1} ms, {} problems", ms(start.elapsed()), compiled.problems.len());
    println!("resident: {} MB, of which texts {texts} MB", resident_mb());
    let mut times: Vec<Duration> = Vec::new();
    for step in 0..1000 {
        let change = ConfigChange::Put(route(step * 97 % routes, 2, scopes));
        let start = Instant::now();
        compiled = compiler.apply(vec![change], 2);
        times.push(start.elapsed());
    }
    times.sort_unstable();
    println!("one change: median {:.3} ms, worst {:.3} ms", ms(times[500]), ms(times[999]));
    println!("{} routes in force", compiled.snapshot.routes().len());
}
