//! The compiler of the gateway, for translated resources.

use std::sync::Arc;

use yumen_config::Resource;
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, PluginRegistry};
use yumen_snapshot::compile::{CompileOutput, Compiler, CompilerEnv, Loaded, UpstreamDefaults};

/// Compiles resources, without loading certificates.
pub(crate) fn compile(resources: Vec<Resource>) -> CompileOutput {
    let env = CompilerEnv {
        node: NodeFacts::default(),
        defaults: UpstreamDefaults::default(),
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
    Compiler::new(registry, Arc::new(Carry::default()), env).replace_all(resources, 1)
}
