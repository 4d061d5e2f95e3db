//! Plugins as objects write them, turned into instances and merged into chains.

use std::sync::Arc;

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::InvalidSettings;
use yumen_config::resource::Plugins;
use yumen_plugin::{PluginBuildContext, PluginChain, PluginInstance};

use super::missing::AbsentPlugin;
use super::objects::CompilerObjects;
use super::settings::{KnownPlugins, ParsedPlugin, PluginOwner};
use super::{Compiler, ObjectName};

/// One plugin of an object. One that does not run still hides those of the same name below it.
#[derive(Debug, Clone)]
pub(super) enum PluginEntry {
    On(Arc<PluginInstance>),
    Off(Box<str>),
}

impl PluginEntry {
    pub(super) fn name(&self) -> &str {
        match self {
            PluginEntry::On(instance) => instance.name,
            PluginEntry::Off(name) => name,
        }
    }

    pub(super) fn instance(&self) -> Option<&Arc<PluginInstance>> {
        match self {
            PluginEntry::On(instance) => Some(instance),
            PluginEntry::Off(_) => None,
        }
    }
}

/// Plugins of an object others refer to, with the chain of those that add none of their own.
#[derive(Debug)]
pub(super) struct PluginSet {
    pub(super) entries: Box<[PluginEntry]>,
    pub(super) chain: Arc<PluginChain>,
    /// Whether all that was written is among them.
    pub(super) is_whole: bool,
}

impl PluginSet {
    pub(super) fn new(entries: Box<[PluginEntry]>, empty: &Arc<PluginChain>) -> PluginSet {
        let chain =
            if entries.is_empty() { empty.clone() } else { Arc::new(PluginChain::new(merge(&[&entries]))) };
        PluginSet { entries, chain, is_whole: true }
    }
}

/// The plugins of several objects, the first of each name winning whole, also where it is one that is off.
pub(super) fn winning<'e>(layers: &[&'e [PluginEntry]]) -> Vec<&'e PluginEntry> {
    let mut kept: Vec<&PluginEntry> = Vec::new();
    for entry in layers.iter().copied().flatten() {
        if !kept.iter().any(|other| other.name() == entry.name()) {
            kept.push(entry);
        }
    }
    kept
}

/// Those of the winning plugins that run.
pub(super) fn merge(layers: &[&[PluginEntry]]) -> Vec<Arc<PluginInstance>> {
    winning(layers).into_iter().filter_map(PluginEntry::instance).cloned().collect()
}

/// The chain of a route: its own plugins over its plugin config's over its service's.
pub(super) fn chain(
    own: &[PluginEntry],
    config: Option<&PluginSet>,
    service: Option<&PluginSet>,
    empty: &Arc<PluginChain>,
) -> Arc<PluginChain> {
    let config = config.filter(|set| !set.entries.is_empty());
    let service = service.filter(|set| !set.entries.is_empty());
    match (own.is_empty(), config, service) {
        (true, None, None) => empty.clone(),
        (true, Some(only), None) | (true, None, Some(only)) => only.chain.clone(),
        _ => {
            let of = |set: Option<&'_ PluginSet>| set.map(|set| set.entries.clone()).unwrap_or_default();
            Arc::new(PluginChain::new(merge(&[own, &of(config), &of(service)])))
        }
    }
}

/// What became of the plugins of an object.
#[derive(Default)]
pub(super) struct BuiltPlugins {
    pub(super) entries: Vec<PluginEntry>,
    /// Authentication settings of a consumer or credential: plugin, key, parsed settings.
    pub(super) keys: Vec<super::consumer::StagedConsumerKey>,
    pub(super) problems: Vec<Problem>,
    /// Errors about plugins that are missing and have a refusal in their place.
    pub(super) missing: Vec<Problem>,
    /// Whether a plugin was refused. A missing one is not.
    pub(super) failed: bool,
}

impl Compiler {
    /// Builds all plugins of an object.
    pub(super) fn build_plugins(
        &self,
        owner: &ObjectName,
        plugins: Option<Plugins>,
        side: PluginOwner,
    ) -> BuiltPlugins {
        let mut built = BuiltPlugins::default();
        let object: Arc<str> = match &plugins {
            Some(plugins) if !plugins.is_empty() => owner.to_string().into(),
            _ => return built,
        };
        for (name, settings) in plugins.into_iter().flatten() {
            if let Err(InvalidSettings { path, message }) =
                self.build_plugin((owner, &object), &name, settings, side, &mut built)
            {
                let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
                let problem = Problem::error(&*object, format!("plugins.{name}{dot}{path}"), message);
                built.problems.push(self.with_meant(super::advised(problem), &name));
                built.failed = true;
            }
        }
        for problem in std::mem::take(&mut built.missing) {
            // Of an object that is not in force as written another problem tells what becomes of requests.
            let hint = problem.hint.filter(|_| !built.failed);
            built.problems.push(Problem { hint, ..problem });
        }
        built
    }

    /// The problem with the plugin that was meant, where nobody knows the one named.
    fn with_meant(&self, problem: Problem, plugin: &str) -> Problem {
        match self.meant(plugin) {
            Some(meant) => problem.hint(format!("did you mean \"{meant}\"?")),
            None => problem,
        }
    }

    /// A warning about metadata of a plugin nobody knows: nothing reads it.
    pub(super) fn unread_metadata(&self, name: &ObjectName) -> Option<Problem> {
        let plugin = &*name.id;
        if self.registry.get(plugin).is_some() || self.env.missing.is_known(plugin) {
            return None;
        }
        let message = format!("unknown plugin [{plugin}]");
        Some(self.with_meant(Problem::warning(name.to_string(), "", message), plugin))
    }

    /// The plugin that was meant by a name nobody knows.
    fn meant(&self, name: &str) -> Option<&str> {
        let built_in = || self.registry.iter().map(|registered| registered.kind.name);
        let is_known = built_in().any(|known| known == name);
        if is_known { None } else { yumen_config::closest(name, built_in().chain(self.env.missing.names())) }
    }

    /// Which plugins there are, and what their settings may refer to.
    pub(super) fn known(&self) -> KnownPlugins<'_> {
        KnownPlugins { registry: &self.registry, missing: &self.env.missing, variables: &self.env.variables }
    }

    fn build_plugin(
        &self,
        (owner, object): (&ObjectName, &Arc<str>),
        name: &str,
        settings: Value,
        side: PluginOwner,
        built: &mut BuiltPlugins,
    ) -> Result<(), InvalidSettings> {
        let metadata = self.metadata.get(name);
        let view = CompilerObjects { compiler: self, owner, plugin: name };
        let setup = PluginBuildContext {
            carry: &self.carry,
            owner: object,
            metadata,
            node: &self.env.node,
            objects: Some(&view),
        };
        match self.known().parse(name, settings, side, &setup).map_err(|flaw| flaw.told(name))? {
            ParsedPlugin::Disabled => built.entries.push(PluginEntry::Off(name.into())),
            ParsedPlugin::Missing { entry, meta, filter } => {
                let absent = AbsentPlugin { name, entry, meta, filter };
                self.leave_out(object, absent, side, built);
            }
            ParsedPlugin::Key { plugin, key: (key, auth) } => {
                built.keys.push(super::consumer::StagedConsumerKey { plugin, key, auth });
            }
            ParsedPlugin::Plugin { kind, plugin, meta, reads } => {
                built.entries.push(PluginEntry::On(Arc::new(PluginInstance {
                    phases: plugin.phases(),
                    plugin,
                    name: kind.name,
                    priority: meta.priority.unwrap_or(kind.priority),
                    meta: *meta,
                    origin: object.clone(),
                    is_auth: kind.is_auth,
                    prefers_route: kind.prefers_route,
                    reads,
                })))
            }
        }
        Ok(())
    }
}
