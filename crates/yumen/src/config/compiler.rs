//! Construction of the compiler for the live path, offline commands and trials.

use std::sync::Arc;

use yumen_config::NodeConfig;
use yumen_config::node::StoreKind;
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, PluginRegistry};
use yumen_proxy::tls::CertificateLoader;
use yumen_snapshot::RequestRules;
use yumen_snapshot::compile::{Compiler, CompilerEnv, UpstreamDefaults};
use yumen_snapshot::upstream::{AttemptTimeouts, KeepaliveLimits};

use crate::environment::ReadVariables;

/// Creates a compiler for a node with these settings, which notes the environment variables that it reads.
pub(crate) fn new(
    node: &NodeConfig,
    workers: usize,
    carry: Arc<Carry>,
    loader: Arc<CertificateLoader>,
    read: Arc<ReadVariables>,
) -> Compiler {
    let registry = Arc::new(PluginRegistry::new(yumen_plugins::BUILTIN));
    let is_tls = node.listen.iter().filter(|listen| listen.tls);
    let tls_ports = is_tls.filter_map(|listen| listen.address.rsplit_once(':')?.1.parse().ok());
    let timeouts = &node.timeouts;
    let env = CompilerEnv {
        node: NodeFacts {
            workers,
            tls_ports: tls_ports.collect(),
            plugin_attributes: serde_json::to_value(&node.plugins.attr).unwrap_or_default(),
        },
        defaults: UpstreamDefaults {
            timeouts: AttemptTimeouts {
                connect_ms: timeouts.upstream_connect_ms,
                send_ms: timeouts.upstream_send_ms,
                read_ms: timeouts.upstream_read_ms,
                total_ms: 0,
                attempt_ms: 0,
            },
            keepalive: KeepaliveLimits {
                size: node.upstream_keepalive.size,
                idle_timeout_ms: node.upstream_keepalive.idle_ms,
                requests: node.upstream_keepalive.requests.into(),
            },
        },
        path_parameters: node.router.path_parameters,
        workers,
        closes_broken: node.store.kind == StoreKind::Kubernetes,
        missing: yumen_plugins::inactive::missing(&node.plugins.allow_missing),
        fetched: crate::tls::fetched(node),
        variables: Arc::new(move |name| read.read(name)),
        load_certificate: loader,
        sinks: None,
    };
    let rules =
        RequestRules { paths: crate::node::path_policy(node), trace_requests: node.router.trace_requests };
    Compiler::new(registry, carry, env).with_request_rules(rules).with_files(Arc::new(read_plugin_file))
}

/// Largest file that the settings of a plugin may name, in bytes.
const PLUGIN_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads a text file that the settings of a plugin name.
fn read_plugin_file(path: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{path} cannot be read: {error}");
    // A pipe would hold the compilation until someone writes to it.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > PLUGIN_FILE_BYTES_MAX {
        return Err(format!("{path} is not a regular file of at most 1 MiB"));
    }
    std::fs::read_to_string(path).map_err(failed)
}
