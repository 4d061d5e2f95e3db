//! Plugins as objects write them, turned into instances and merged into chains.

use std::cell::RefCell;
use std::sync::Arc;

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::resource::Plugins;
use yumen_config::{InvalidSettings, Kind};
use yumen_plugin::{PluginBuildContext, PluginChain, PluginInstance};

use super::context::CompileContext;
use super::missing_plugins::AbsentPlugin;
use super::names::ObjectName;
use super::nested_plugins::NestedCompiler;
use super::plugin_bindings::{CompilerObjects, PluginBindings};
use super::plugin_settings::{ParsedPlugin, PluginOwner, is_disabled};
use super::staged_objects::StagedObjects;
use super::tables::StagedConsumerKey;
use super::unavailable_plugin::UnavailablePlugin;
use super::upstream::UpstreamBuilder;
use super::{Compiler, invalid, never_run};

/// One plugin of an object.
#[derive(Debug, Clone)]
pub(super) enum PluginEntry {
    On(Arc<PluginInstance>),
    /// A plugin that does not run, by name. It hides plugins of the same name in lower layers.
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

/// The plugins of an object that others refer to.
#[derive(Debug)]
pub(super) struct PluginSet {
    pub(super) entries: Box<[PluginEntry]>,
    /// The chain of referrers without plugins of their own, which share it.
    pub(super) chain: Arc<PluginChain>,
    /// Whether every plugin of the text is in the set. Not so for the rest of a broken global rule.
    pub(super) is_whole: bool,
}

impl PluginSet {
    pub(super) fn new(entries: Box<[PluginEntry]>, empty: &Arc<PluginChain>) -> PluginSet {
        let chain =
            if entries.is_empty() { empty.clone() } else { Arc::new(PluginChain::new(merge(&[&entries]))) };
        PluginSet { entries, chain, is_whole: true }
    }
}

/// The plugins of several layers. The first plugin of each name wins, whether it is on or off; settings do not merge.
pub(super) fn winning<'e>(layers: &[&'e [PluginEntry]]) -> Vec<&'e PluginEntry> {
    let mut valid: Vec<&PluginEntry> = Vec::new();
    // An object has few plugins, so a scan is cheaper than a set of names.
    for entry in layers.iter().copied().flatten() {
        if !valid.iter().any(|other| other.name() == entry.name()) {
            valid.push(entry);
        }
    }
    valid
}

/// The winning plugins that run.
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
        // Routes without plugins of their own share a chain, which keeps large tables small.
        (true, Some(only), None) | (true, None, Some(only)) => only.chain.clone(),
        _ => {
            let of = |set: Option<&'_ PluginSet>| set.map(|set| set.entries.clone()).unwrap_or_default();
            Arc::new(PluginChain::new(merge(&[own, &of(config), &of(service)])))
        }
    }
}

/// The plugins of an object after their construction.
#[derive(Default)]
pub(super) struct BuiltPlugins {
    pub(super) entries: Vec<PluginEntry>,
    /// Authentication settings of a consumer or credential.
    pub(super) keys: Vec<StagedConsumerKey>,
    pub(super) problems: Vec<Problem>,
    /// Errors about missing plugins that a refusal stands in for.
    pub(super) missing: Vec<Problem>,
    /// Whether a plugin was refused. A missing plugin does not count.
    pub(super) failed: bool,
}

/// Builds plugins from settings and from the objects in force.
#[derive(Clone, Copy)]
pub(super) struct PluginBuilder<'c> {
    pub(super) context: &'c CompileContext,
    pub(super) staged: &'c StagedObjects,
    pub(super) bindings: &'c PluginBindings,
    pub(super) upstreams: UpstreamBuilder<'c>,
}

impl Compiler {
    pub(super) fn plugin_builder(&self) -> PluginBuilder<'_> {
        PluginBuilder {
            context: &self.context,
            staged: &self.staged,
            bindings: &self.bindings,
            upstreams: self.upstream_builder(),
        }
    }
}

/// The object whose plugins are built.
#[derive(Clone, Copy)]
struct PluginOrigin<'o> {
    name: &'o ObjectName,
    /// The name as text, shared by the instances.
    text: &'o Arc<str>,
    owner: PluginOwner,
}

impl PluginBuilder<'_> {
    /// Builds all plugins of an object.
    pub(super) fn build(
        &self,
        name: &ObjectName,
        plugins: Option<Plugins>,
        owner: PluginOwner,
    ) -> BuiltPlugins {
        let mut built = BuiltPlugins::default();
        let text: Arc<str> = match &plugins {
            Some(plugins) if !plugins.is_empty() => name.to_string().into(),
            // Most routes of a large table have no plugins: no name is formatted for them.
            _ => return built,
        };
        let origin = PluginOrigin { name, text: &text, owner };
        for (plugin, settings) in plugins.into_iter().flatten() {
            if let Err(error) = self.build_one(origin, &plugin, settings, &mut built) {
                let problem = invalid(name, error.under(&format!("plugins.{plugin}")));
                built.problems.push(self.context.with_suggestion(problem, &plugin));
                built.failed = true;
            }
        }
        if owner == PluginOwner::Traffic {
            built.problems.extend(never_run::within(name, &built.entries));
        }
        for problem in std::mem::take(&mut built.missing) {
            // The hint describes the object as written. If another plugin was refused, the object is not in force as
            // written, and the problem of that plugin has the hint.
            let hint = problem.hint.filter(|_| !built.failed);
            built.problems.push(Problem { hint, ..problem });
        }
        built
    }

    fn build_one(
        &self,
        origin: PluginOrigin<'_>,
        plugin: &str,
        settings: Value,
        built: &mut BuiltPlugins,
    ) -> Result<(), InvalidSettings> {
        let objects =
            CompilerObjects { builder: *self, owner: origin.name, plugin, warnings: RefCell::default() };
        let nested = NestedCompiler { outer: &objects, owner: origin.text };
        let setup = PluginBuildContext {
            carry: &self.context.carry,
            owner: origin.text,
            metadata: self.staged.metadata.get(plugin),
            node: &self.context.env.node,
            objects: Some(&objects),
            sinks: self.context.env.sinks.as_deref(),
            nested: Some(&nested),
        };
        let has_function = settings.pointer("/_meta/pre_function").is_some() && !is_disabled(&settings);
        let parsed = self.context.known_plugins().parse(plugin, settings, origin.owner, &setup);
        if has_function && parsed.is_ok() {
            let path = format!("plugins.{plugin}._meta.pre_function");
            let message = "Lua functions are not supported: the plugin runs without this one";
            built.problems.push(Problem::warning(origin.text.to_string(), path, message).hint("remove it"));
        }
        built.problems.append(&mut objects.warnings.borrow_mut());
        match parsed.map_err(|error| error.into_invalid(plugin))? {
            ParsedPlugin::Disabled => built.entries.push(PluginEntry::Off(plugin.into())),
            ParsedPlugin::Missing { entry, meta, filter } => {
                let absent = AbsentPlugin { name: plugin, entry, meta, filter };
                self.context.replace_missing(origin.text, absent, origin.owner, built);
            }
            ParsedPlugin::Key { plugin, key: parsed } => {
                built.keys.push(StagedConsumerKey { plugin, parsed });
            }
            ParsedPlugin::Awaited { kind } => {
                let path = format!("plugins.{plugin}");
                let message = "checked when the values of its secrets arrive";
                built.problems.push(Problem::warning(origin.text.to_string(), path, message));
                built.entries.push(UnavailablePlugin::awaiting(kind, origin.text, origin.owner));
            }
            ParsedPlugin::Plugin { kind, plugin, meta, reads } => {
                built.entries.push(PluginEntry::On(Arc::new(PluginInstance {
                    phases: plugin.phases(),
                    reads: reads | plugin.reads(),
                    plugin,
                    name: kind.name,
                    // `_meta.priority` replaces the priority of the plugin, as in APISIX.
                    priority: meta.priority.unwrap_or(kind.priority),
                    meta: *meta,
                    origin: origin.text.clone(),
                    is_auth: kind.role.is_auth(),
                    prefers_route: kind.prefers_route,
                })))
            }
        }
        Ok(())
    }
}

/// The metadata objects that plugins are built from.
pub(super) fn metadata_of(entries: &[PluginEntry]) -> impl Iterator<Item = ObjectName> {
    // Registered for every entry, disabled ones too: the metadata may not exist yet.
    // Native actions have no metadata.
    let is_plugin =
        |entry: &&PluginEntry| ![yumen_actions::ARRIVAL, yumen_actions::FORWARDING].contains(&entry.name());
    entries.iter().filter(is_plugin).map(|entry| ObjectName::new(Kind::PluginMetadata, entry.name()))
}
