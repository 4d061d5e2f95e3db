//! The environment of a compiler: plugins, node facts, carried state and shared defaults. Only its table of secrets
//! changes.

use std::sync::Arc;

use yumen_base::Problem;
use yumen_config::Kind;
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, FetchedCells, MissingPlugins, PluginChain, PluginRegistry, SinkRegistry};

use super::Compiler;
use super::certificate::LoadCertificate;
use super::names::ObjectName;
use super::plugin_names;
use super::plugin_settings::KnownPlugins;
use super::references::{ReferenceValues, Variables};
use super::secret_table::SecretTable;
use crate::balance::RoundRobinState;
use crate::upstream::{AttemptTimeouts, KeepaliveLimits, UpstreamTls};

/// Settings of upstreams that do not have their own.
#[derive(Debug, Clone, Copy)]
pub struct UpstreamDefaults {
    /// Bounds of one attempt.
    pub timeouts: AttemptTimeouts,
    /// Bounds of idle connections.
    pub keepalive: KeepaliveLimits,
}

impl Default for UpstreamDefaults {
    fn default() -> Self {
        UpstreamDefaults {
            timeouts: AttemptTimeouts {
                connect_ms: 60_000,
                send_ms: 60_000,
                read_ms: 60_000,
                total_ms: 0,
                attempt_ms: 0,
            },
            keepalive: KeepaliveLimits { size: 320, idle_timeout_ms: 60_000, requests: 1000 },
        }
    }
}

/// The input of a compiler beside the resources.
#[derive(Clone)]
pub struct CompilerEnv {
    /// Facts for plugins.
    pub node: NodeFacts,
    /// Settings of upstreams that do not have their own.
    pub defaults: UpstreamDefaults,
    /// Whether `:name` and `*name` segments of paths are parameters.
    pub path_parameters: bool,
    /// The number of workers.
    pub workers: usize,
    /// Whether a broken route, stream route or certificate closes, instead of its last good version staying in force.
    /// In Kubernetes that version may refer to objects whose owners have withdrawn their permission since.
    pub closes_broken: bool,
    /// Plugins that users may configure although this version does not run them. They are left out with a warning where
    /// that exposes nothing; otherwise a refusal takes their place.
    pub missing: MissingPlugins,
    /// Ids of the ssl objects with certificates that the node fetches by ACME. Their handshakes follow the rules of the
    /// object that would otherwise be found by the server name.
    pub fetched: Arc<[Box<str>]>,
    /// The environment that `$env://` in settings refers to.
    pub variables: Variables,
    /// Loads certificates.
    pub load_certificate: LoadCertificate,
    /// Sinks of log entries; `None` in trials, whose plugins write none.
    pub sinks: Option<Arc<SinkRegistry>>,
}

/// Reads a text file that the settings of a plugin name.
pub type ReadPluginFile = Arc<dyn Fn(&str) -> Result<String, String> + Send + Sync>;

/// The environment of a compiler, with values that many objects share, and its table of secrets.
pub(super) struct CompileContext {
    pub(super) registry: Arc<PluginRegistry>,
    pub(super) carry: Arc<Carry>,
    pub(super) env: CompilerEnv,
    /// Cells of fetched values.
    pub(super) cells: Arc<FetchedCells>,
    pub(super) secrets: SecretTable,
    /// Reads files for plugins; `None` refuses their paths.
    pub(super) read_file: Option<ReadPluginFile>,
    pub(super) empty_chain: Arc<PluginChain>,
    /// TLS settings of upstreams without their own.
    pub(super) plain_tls: Arc<UpstreamTls>,
    /// Positions of round robin for upstreams with a single endpoint.
    pub(super) no_turns: Arc<RoundRobinState>,
}

impl Compiler {
    /// A question for the begin of a hint, if an object in words resembles a missing one.
    pub(super) fn meant_id(&self, what: &str, id: &str) -> String {
        let kind = match what {
            "upstream" => Kind::Upstreams,
            "service" => Kind::Services,
            _ => Kind::PluginConfigs,
        };
        // Ids of one digit resemble each other.
        let meant = self.texts.closest_id(kind, id).filter(|_| id.len() > 2);
        meant.map(|near| format!("did you mean \"{near}\"? ")).unwrap_or_default()
    }
}

impl CompileContext {
    pub(super) fn new(registry: Arc<PluginRegistry>, carry: Arc<Carry>, env: CompilerEnv) -> CompileContext {
        CompileContext {
            registry,
            carry,
            env,
            cells: Arc::default(),
            secrets: SecretTable::default(),
            read_file: None,
            empty_chain: Arc::default(),
            plain_tls: Arc::default(),
            no_turns: Arc::default(),
        }
    }

    /// Whether broken objects of a kind close; see [`CompilerEnv::closes_broken`].
    pub(super) fn closes_broken(&self, kind: Kind) -> bool {
        self.env.closes_broken && matches!(kind, Kind::Routes | Kind::StreamRoutes | Kind::Ssls)
    }

    /// The values that references in settings stand for.
    pub(super) fn reference_values(&self) -> ReferenceValues<'_> {
        ReferenceValues::new(&self.env.variables, &self.secrets, &self.cells)
    }

    /// The plugins that objects may configure, and the values that their settings may refer to.
    pub(super) fn known_plugins(&self) -> KnownPlugins<'_> {
        KnownPlugins { registry: &self.registry, missing: &self.env.missing, values: self.reference_values() }
    }

    /// The problem, with a hint if `plugin` is unknown and resembles a known name.
    pub(super) fn with_suggestion(&self, problem: Problem, plugin: &str) -> Problem {
        match self.closest_plugin(plugin) {
            Some(closest) => problem.hint(format!("did you mean \"{closest}\"?")),
            None => problem,
        }
    }

    /// A warning about metadata of an unknown plugin.
    pub(super) fn unread_metadata(&self, name: &ObjectName) -> Option<Problem> {
        let plugin = &*name.id;
        if self.registry.get(plugin).is_some() || self.env.missing.is_known(plugin) {
            return None;
        }
        let message = format!("unknown plugin [{plugin}]");
        Some(self.with_suggestion(Problem::warning(name.to_string(), "", message), plugin))
    }

    /// The plugin with the name closest to an unknown one.
    fn closest_plugin(&self, name: &str) -> Option<&str> {
        let built_in = || self.registry.iter().map(|registered| registered.kind.name);
        let is_known = built_in().any(|known| known == name);
        if is_known {
            return None;
        }
        let counterpart = plugin_names::counterpart(name);
        counterpart
            .filter(|plugin| built_in().any(|known| known == *plugin))
            // A plugin that runs is a better advice than a closer name of one that does not.
            .or_else(|| yumen_config::closest(name, built_in()))
            .or_else(|| yumen_config::closest(name, self.env.missing.names()))
    }
}
