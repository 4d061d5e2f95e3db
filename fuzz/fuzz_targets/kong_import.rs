//! Kong files: any text is handled, a refusal has a reason, and the result can be written, parsed and compiled.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use yumen_config::document;
use yumen_import::{ImportContext, ImportResult, kong};
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, PluginRegistry};
use yumen_snapshot::compile::{Compiler, CompilerEnv, Loaded, UpstreamDefaults};
use yumen_snapshot::upstream::{AttemptTimeouts, KeepaliveLimits};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let context = ImportContext {
        environment: &|name| (name == "DECK_SET").then(|| "value".to_owned()),
        runs: &|plugin| yumen_plugins::BUILTIN.iter().any(|kind| kind.name == plugin),
    };
    let ImportResult { resources, report } = match kong::import(text, &context) {
        Ok(imported) => imported,
        Err(message) => return assert!(!message.is_empty()),
    };
    for line in report.lines() {
        assert!(!line.object.is_empty() && !line.instead.is_empty());
    }
    let written = document::to_yaml(&resources).expect("resources can be written");
    let (read, problems) = document::parse(&written, &|_| None);
    assert!(problems.is_empty(), "{problems:?}\n{written}");
    assert_eq!(read.len(), resources.len(), "{written}");
    let mut compiler = compiler();
    compiler.replace_all(resources, 1);
    // `yumen import kong` reports these.
    for problem in compiler.problems() {
        assert!(!problem.object.is_empty() && !problem.message.is_empty());
    }
});

/// A compiler as that of the gateway, without certificates.
fn compiler() -> Compiler {
    let timeouts = AttemptTimeouts { connect_ms: 1, send_ms: 1, read_ms: 1, total_ms: 0 };
    let env = CompilerEnv {
        node: NodeFacts { workers: 1, tls_ports: vec![443] },
        defaults: UpstreamDefaults {
            timeouts,
            keepalive: KeepaliveLimits { size: 1, idle_timeout_ms: 1, requests: 1 },
        },
        path_parameters: true,
        workers: 1,
        missing: yumen_plugins::inactive::missing::<&str>(&[]),
        fetched: Arc::default(),
        variables: Arc::new(|_| None),
        load_certificate: Arc::new(|_: &str, _: &str| Ok(Arc::new(()) as Loaded)),
    };
    let registry = Arc::new(PluginRegistry::new(yumen_plugins::BUILTIN));
    Compiler::new(registry, Arc::new(Carry::default()), env)
}
