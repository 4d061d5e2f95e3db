//! Plugins that an object names and this version does not run: left out, or replaced by a refusal.
//!
//! The table of them comes from outside; knows no concrete plugin.

use std::sync::Arc;

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::Kind;
use yumen_plugin::{MissingPlugin, PluginInstance, PluginKind, PluginMeta, VarInputs};

use super::Compiler;
use super::plugins::{BuiltPlugins, PluginEntry};
use super::settings::{self, PluginOwner};
use super::unavailable_plugin::UnavailablePlugin;

/// The setting of the node that lists plugins it runs without.
const ALLOW_MISSING: &str = "plugins.allow_missing";

/// A missing plugin as an object writes it.
pub(super) struct AbsentPlugin<'m> {
    pub(super) name: &'m str,
    /// Its entry in the table; absent where only the node's settings know it.
    pub(super) entry: Option<&'static MissingPlugin>,
    pub(super) meta: Box<PluginMeta>,
    /// The filter in `_meta`, as written.
    pub(super) filter: Value,
}

impl Compiler {
    /// Leaves a missing plugin out, with a warning; where it guards, a refusal takes its place, with an error.
    pub(super) fn leave_out(
        &self,
        object: &Arc<str>,
        absent: AbsentPlugin<'_>,
        side: PluginOwner,
        built: &mut BuiltPlugins,
    ) {
        let AbsentPlugin { name, entry, meta, filter } = absent;
        let path = format!("plugins.{name}");
        let is_credential = match side {
            PluginOwner::Credential => true,
            PluginOwner::Consumer => entry.is_some_and(MissingPlugin::has_credentials),
            PluginOwner::Traffic | PluginOwner::Stream => false,
        };
        let guard = entry.filter(|entry| entry.guards() && !is_credential && !self.env.missing.allows(name));
        let Some(guard) = guard else {
            let message = format!("plugin {name} is not available in this version and is left out");
            built.problems.push(Problem::warning(&**object, path, message));
            // Credentials are no plugin of the consumer: they take none away from the route.
            if !is_credential {
                built.entries.push(PluginEntry::Off(name.into()));
            }
            return;
        };
        built.entries.push(PluginEntry::On(Arc::new(stand_in(guard, *meta, &filter, object.clone()))));
        built.missing.push(problem(object, path, name, side));
    }

    /// Whether a text names a missing plugin that guards and is not disabled, whatever else is wrong with it.
    pub(super) fn lacks_guard(&self, kind: Kind, json: &str) -> bool {
        let side = PluginOwner::of(kind.descriptor().plugins);
        let Ok(written) = serde_json::from_str::<Value>(json) else { return false };
        let plugins = written.get("plugins").and_then(Value::as_object);
        plugins.into_iter().flatten().any(|(name, settings)| {
            !settings::is_disabled(settings) && self.missing_guard(name, side).is_some()
        })
    }

    /// The entry of a missing plugin that guards on this side.
    pub(super) fn missing_guard(&self, name: &str, side: PluginOwner) -> Option<&'static MissingPlugin> {
        let on_streams = side == PluginOwner::Stream;
        let serves = |kind: &PluginKind| if on_streams { kind.serves.streams() } else { kind.serves.http() };
        if self.registry.get(name).is_some_and(|registered| serves(&registered.kind)) {
            return None;
        }
        let is_credential = |entry: &MissingPlugin| match side {
            PluginOwner::Credential => true,
            PluginOwner::Consumer => entry.has_credentials(),
            PluginOwner::Traffic | PluginOwner::Stream => false,
        };
        let entry = self.env.missing.get(name, on_streams)?;
        (entry.guards() && !is_credential(entry) && !self.env.missing.allows(name)).then_some(entry)
    }

    /// The service's plugins that only stream routes cannot have here and that guard: the first, if there is one.
    pub(super) fn missing_on_streams(
        &self,
        own: &[PluginEntry],
        service: &[PluginEntry],
    ) -> Option<&'static MissingPlugin> {
        let is_own = |entry: &&PluginEntry| own.iter().any(|own| own.name() == entry.name());
        let inherited = service.iter().filter(|entry| entry.instance().is_some() && !is_own(entry));
        let mut guards = inherited.filter_map(|entry| {
            let is_closed = entry.instance().is_some_and(|instance| instance.plugin.is_stand_in());
            // A guard that is missing for requests is missing for streams too, on which it might run.
            self.env.missing.get(entry.name(), !is_closed)
        });
        guards.find(|entry| entry.guards() && !self.env.missing.allows(entry.name))
    }
}

/// The reason for which requests are refused.
pub(super) fn reason(name: &str) -> String {
    format!("plugin {name} is not available in this version, and access depends on it")
}

/// The error about a missing plugin that guards.
pub(super) fn problem(object: &str, path: String, name: &str, side: PluginOwner) -> Problem {
    let refused = match side {
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

/// The refusal in place of a missing plugin, for the requests that the plugin would see.
pub(super) fn stand_in(
    entry: &MissingPlugin,
    meta: PluginMeta,
    filter: &Value,
    origin: Arc<str>,
) -> PluginInstance {
    let priority = meta.priority.unwrap_or(entry.priority);
    let meta = filtered_early(meta);
    let reads = if meta.filter.is_some() { settings::reads(filter) } else { VarInputs::default() };
    UnavailablePlugin::of_missing(entry.name).instance(entry.name, priority, meta, origin, reads)
}

/// The same `_meta`, without a filter that nobody can evaluate when the refusal runs, before there is an answer: it
/// would not hold, and the refusal would let requests pass.
pub(super) fn filtered_early(mut meta: PluginMeta) -> PluginMeta {
    meta.filter.take_if(|filter| !filter.reads_request_only());
    meta
}

#[cfg(test)]
mod tests;
