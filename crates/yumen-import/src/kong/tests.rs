//! Kong files and their expected conversions, one case per file in `tests/`; and the order of routes.
//!
//! `YUMEN_BLESS=1` overwrites the expected files: read the difference before committing.

// Helpers panic at the failing line.
#![allow(clippy::unwrap_used)]

mod order;
mod robustness;
mod units;

use std::path::PathBuf;
use std::sync::Arc;

use yumen_base::ProblemLevel;
use yumen_config::{Resource, document};
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, PluginRegistry};
use yumen_snapshot::compile::{CompileOutput, Compiler, CompilerEnv, Loaded, UpstreamDefaults};
use yumen_snapshot::upstream::{AttemptTimeouts, KeepaliveLimits};

use super::import;
use crate::{ImportContext, ImportResult};

/// The plugins that the gateway of the cases runs: fixed, so that a new plugin does not change the expected files.
const RUNNING: [&str; 22] = [
    "basic-auth",
    "client-control",
    "consumer-restriction",
    "cors",
    "fault-injection",
    "ip-restriction",
    "jwt-auth",
    "kafka-logger",
    "key-auth",
    "ldap-auth-advanced",
    "limit-count",
    "mocking",
    "opa",
    "openid-connect",
    "opentelemetry",
    "prometheus",
    "proxy-rewrite",
    "redirect",
    "request-id",
    "response-rewrite",
    "ua-restriction",
    "zipkin",
];

fn environment(name: &str) -> Option<String> {
    let value = match name {
        "DECK_KEY" => "key-from-deck",
        "DECK_PORT" => "9001",
        "DECK_HOSTS" => "[a.example.com, b.example.com]",
        "OTHER_KEY" => "key-from-the-vault",
        "SHOP_PASSWORD" => "{\"bob\":\"secret of bob\"}",
        _ => return None,
    };
    Some(value.to_owned())
}

fn imported(text: &str) -> Result<ImportResult, String> {
    let runs = |name: &str| RUNNING.contains(&name);
    import(text, &ImportContext { environment: &environment, runs: &runs })
}

/// Compiles as the gateway does, without loading certificates.
fn compiled(resources: &[Resource]) -> CompileOutput {
    let seconds = 60_000;
    let env = CompilerEnv {
        node: NodeFacts { workers: 1, tls_ports: vec![443], ..NodeFacts::default() },
        defaults: UpstreamDefaults {
            timeouts: AttemptTimeouts {
                connect_ms: seconds,
                send_ms: seconds,
                read_ms: seconds,
                total_ms: 0,
                attempt_ms: 0,
            },
            keepalive: KeepaliveLimits { size: 1, idle_timeout_ms: seconds, requests: 1 },
        },
        path_parameters: true,
        workers: 1,
        closes_broken: false,
        missing: yumen_plugins::inactive::missing::<&str>(&[]),
        fetched: Arc::default(),
        variables: Arc::new(|_| None),
        load_certificate: Arc::new(|_: &str, _: &str| Ok(Arc::new(()) as Loaded)),
        sinks: None,
    };
    let registry = Arc::new(PluginRegistry::new(yumen_plugins::BUILTIN));
    let mut compiler = Compiler::new(registry, Arc::new(Carry::default()), env);
    compiler.replace_all(resources.to_vec(), 1)
}

fn converted(text: &str) -> String {
    let ImportResult { resources, report } = match imported(text) {
        Ok(imported) => imported,
        Err(message) => return format!("error: {message}\n"),
    };
    let document = document::to_yaml(&resources).unwrap();
    let (read, problems) = document::parse(&document, &|_| None);
    assert_eq!(problems, [], "the document can be parsed");
    assert_same(&read, &resources);
    let compiled = compiled(&resources);
    let errors: Vec<_> =
        compiled.problems.iter().filter(|problem| problem.level == ProblemLevel::Error).collect();
    assert!(errors.is_empty(), "{errors:?}\n{document}");
    format!("{document}--- report\n{}", report.text())
}

/// Parsed resources equal the original ones, apart from the ids that a document has in its items.
fn assert_same(read: &[Resource], written: &[Resource]) {
    assert_eq!(read.len(), written.len());
    for resource in written {
        let other = read.iter().find(|one| one.kind == resource.kind && one.id == resource.id);
        let value = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
        let mut converted = value(&other.expect("it has the same kind and id").json);
        converted.as_object_mut().unwrap().shift_remove("id");
        assert_eq!(converted, value(&resource.json), "{resource}");
    }
}

/// The Kong files of all cases.
fn case_files() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/kong/tests");
    let paths = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect();
    files.sort();
    files
}

#[test]
fn cases_convert_as_expected_every_time() {
    let files = case_files();
    for path in &files {
        let text = std::fs::read_to_string(path).unwrap();
        let (first, second) = (converted(&text), converted(&text));
        assert_eq!(first, second, "{} is translated the same way each time", path.display());
        let expected = path.with_extension("expected");
        if std::env::var_os("YUMEN_BLESS").is_some() {
            std::fs::write(&expected, &first).unwrap();
        }
        let golden = std::fs::read_to_string(&expected).unwrap_or_default();
        assert!(first == golden, "{}\n--- expected\n{golden}\n--- came\n{first}", path.display());
    }
    assert!(files.len() > 8, "{files:?}");
}
