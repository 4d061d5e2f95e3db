//! Plugins that an object names and this version does not run. They are left out, or a refusal replaces them.
//!
//! The table of missing plugins is an input of the compiler.

use std::sync::Arc;

use serde_json::Value;
use yumen_base::Problem;
use yumen_plugin::{MissingPlugin, PluginInstance, PluginMeta, VarInputs};

use super::context::CompileContext;
use super::plugin_settings::{self, PluginOwner};
use super::plugins::{BuiltPlugins, PluginEntry};
use super::unavailable_plugin::UnavailablePlugin;

/// The setting of the node that lists plugins it runs without.
const ALLOW_MISSING: &str = "plugins.allow_missing";

/// A missing plugin in an object.
pub(super) struct AbsentPlugin<'m> {
    pub(super) name: &'m str,
    /// The entry in the table; absent for a plugin that only the node's settings name.
    pub(super) entry: Option<&'static MissingPlugin>,
    pub(super) meta: Box<PluginMeta>,
    /// The filter in `_meta`, unparsed.
    pub(super) filter: Value,
}

impl CompileContext {
    /// Leaves out a missing plugin with a warning. A refusal, and an error, replace a missing guard.
    pub(super) fn replace_missing(
        &self,
        object: &Arc<str>,
        absent: AbsentPlugin<'_>,
        owner: PluginOwner,
        built: &mut BuiltPlugins,
    ) {
        let AbsentPlugin { name, entry, meta, filter } = absent;
        let path = format!("plugins.{name}");
        let is_credential = owner == PluginOwner::Credential;
        // A credential of a missing plugin identifies a client and neither opens nor closes anything.
        let guard = entry.filter(|entry| entry.guards() && !is_credential && !self.env.missing.allows(name));
        let Some(guard) = guard else {
            let message = format!("plugin {name} is not available in this version and is left out");
            built.problems.push(Problem::warning(&**object, path, message));
            // An entry that is off hides the route's plugin of this name. Credentials must not do that: they are no
            // plugin of the consumer.
            if !is_credential {
                built.entries.push(PluginEntry::Off(name.into()));
            }
            return;
        };
        built.entries.push(PluginEntry::On(Arc::new(stand_in(guard, *meta, &filter, object.clone()))));
        built.missing.push(problem(object, path, name, owner));
    }

    /// The entry of a missing plugin that guards in an object of this role.
    pub(super) fn missing_guard(&self, name: &str, owner: PluginOwner) -> Option<&'static MissingPlugin> {
        if self.known_plugins().registered(name, owner).is_some() {
            return None;
        }
        let entry = self.env.missing.get(name, owner == PluginOwner::Stream)?;
        let is_guard = entry.guards() && owner != PluginOwner::Credential;
        (is_guard && !self.env.missing.allows(name)).then_some(entry)
    }

    /// The first guard among a service's plugins that runs for requests and is missing for streams.
    pub(super) fn missing_on_streams(
        &self,
        own: &[PluginEntry],
        service: &[PluginEntry],
    ) -> Option<&'static MissingPlugin> {
        // The route's own entry takes precedence, and was judged when the route was staged.
        let is_own = |entry: &&PluginEntry| own.iter().any(|own| own.name() == entry.name());
        let inherited = service.iter().filter(|entry| entry.instance().is_some() && !is_own(entry));
        let mut guards = inherited.filter_map(|entry| {
            // A refusal stands in for a guard that is missing for requests; it is missing for streams as well. The table
            // is searched for the traffic that the plugin is missing for.
            let is_stand_in = entry.instance().is_some_and(|instance| instance.plugin.is_stand_in());
            self.env.missing.get(entry.name(), !is_stand_in)
        });
        guards.find(|entry| entry.guards() && !self.env.missing.allows(entry.name))
    }
}

/// The reason of a refusal, for operators.
pub(super) fn reason(name: &str) -> String {
    format!("plugin {name} is not available in this version, and access depends on it")
}

/// The error about a missing guard.
pub(super) fn problem(object: &str, path: String, name: &str, owner: PluginOwner) -> Problem {
    let refused = match owner {
        PluginOwner::Stream => "connections are closed",
        PluginOwner::Consumer | PluginOwner::Credential => "requests of the consumer are answered 503",
        PluginOwner::Traffic => "requests are answered 503",
    };
    let message = reason(name);
    let hint = format!(
        "{refused}: replace it by an available plugin, disable it in its _meta, or list it in {ALLOW_MISSING} of \
         yumen.yaml to run without it"
    );
    Problem::error(object, path, message).hint(hint)
}

/// The refusal in place of a missing plugin. It keeps priority and filter, so it refuses the requests that the plugin
/// would run for.
pub(super) fn stand_in(
    entry: &MissingPlugin,
    meta: PluginMeta,
    filter: &Value,
    origin: Arc<str>,
) -> PluginInstance {
    // The refusal takes the position of the plugin: plugins before it, such as CORS, still run.
    let priority = meta.priority.unwrap_or(entry.priority);
    let meta = without_response_filter(meta);
    let reads = if meta.filter.is_some() { plugin_settings::reads(filter) } else { VarInputs::default() };
    UnavailablePlugin::of_missing(entry.name).instance(entry.name, priority, meta, origin, reads)
}

/// The same `_meta` without a filter that reads the response. A refusal runs before there is a response: such a filter
/// would never hold, and the refusal would let all requests pass.
pub(super) fn without_response_filter(mut meta: PluginMeta) -> PluginMeta {
    meta.filter.take_if(|filter| !filter.reads_request_only());
    meta
}

#[cfg(test)]
mod tests;
