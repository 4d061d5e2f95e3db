//! The compiler of the gateway, for translated resources.

use std::sync::Arc;

use yumen_config::Resource;
use yumen_http::uri::{EncodedSlashPolicy, PathPolicy};
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, PluginRegistry};
use yumen_snapshot::RequestRules;
use yumen_snapshot::compile::{CompileOutput, Compiler, CompilerEnv, Loaded, UpstreamDefaults};

/// Compiles resources as a node that serves Ingresses, without loading certificates.
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
    let paths = PathPolicy { encoded_slashes: EncodedSlashPolicy::Separate, ..PathPolicy::default() };
    let rules = RequestRules { paths, trace_requests: false };
    Compiler::new(registry, Arc::new(Carry::default()), env)
        .with_request_rules(rules)
        .replace_all(resources, 1)
}
