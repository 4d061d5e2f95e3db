//! Native actions of a route, built into its own plugins.

use std::cell::RefCell;
use std::sync::Arc;

use yumen_actions::ActionUpstreams;
use yumen_base::Problem;
use yumen_config::InvalidSettings;
use yumen_config::resource as config;
use yumen_plugin::{ObjectLookup, UpstreamSlot};

use super::invalid;
use super::names::ObjectName;
use super::plugin_bindings::CompilerObjects;
use super::plugins::{BuiltPlugins, PluginBuilder, PluginEntry};
use super::target;

/// The upstreams of a compiler, as actions see them.
struct CompilerUpstreams<'c> {
    objects: CompilerObjects<'c>,
    warnings: RefCell<Vec<Problem>>,
}

impl ActionUpstreams for CompilerUpstreams<'_> {
    fn upstream(&self, id: &str) -> Option<UpstreamSlot> {
        ObjectLookup::upstream(&self.objects, id)
    }

    fn warn(&self, path: &str, message: String, remedy: &str) {
        let warning = Problem::warning(self.objects.owner.to_string(), path, message).hint(remedy);
        self.warnings.borrow_mut().push(warning);
    }
}

impl PluginBuilder<'_> {
    /// Adds the actions of a route to its own plugins, so that they merge with those of other objects.
    pub(super) fn build_actions(
        &self,
        name: &ObjectName,
        actions: Option<&config::RouteActionsSpec>,
        built: &mut BuiltPlugins,
    ) {
        let Some(actions) = actions else { return };
        let objects = CompilerObjects {
            builder: *self,
            owner: name,
            plugin: yumen_actions::FORWARDING,
            warnings: RefCell::default(),
        };
        let upstreams = CompilerUpstreams { objects, warnings: RefCell::default() };
        let origin: Arc<str> = name.to_string().into();
        match yumen_actions::build(actions, &origin, &upstreams) {
            Ok(actions) => built.entries.extend(actions.instances.into_iter().map(PluginEntry::On)),
            Err(error) => {
                built.problems.push(invalid(name, error.under("actions")));
                built.failed = true;
            }
        }
        built.problems.extend(upstreams.warnings.into_inner());
    }
}

/// Upstreams of no compiler, for the validation of single objects.
struct NoUpstreams;

impl ActionUpstreams for NoUpstreams {
    fn upstream(&self, _: &str) -> Option<UpstreamSlot> {
        Some(UpstreamSlot::default())
    }

    fn warn(&self, _: &str, _: String, _: &str) {}
}

/// Validates actions and backends of a route without putting them in force.
pub(super) fn check(written: &config::RouteSpec) -> Result<(), InvalidSettings> {
    if let Some(actions) = &written.actions {
        let origin = Arc::from("judged");
        yumen_actions::build(actions, &origin, &NoUpstreams).map_err(|error| error.under("actions"))?;
    }
    written.backends.as_deref().map_or(Ok(()), |backends| target::backends(backends).map(drop))
}

#[cfg(test)]
mod tests;
