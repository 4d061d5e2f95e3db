//! Plugins inside the settings of a plugin. References in their settings are resolved with those of the outer plugin.

use std::cell::RefCell;
use std::sync::Arc;

use serde_json::Value;
use yumen_plugin::{NestedPluginFault, NestedPlugins, Plugin, PluginBuildContext};

use super::plugin_bindings::CompilerObjects;
use super::plugin_settings::{KnownPlugins, PluginOwner};

/// Builds the nested plugins of one plugin of an object.
pub(super) struct NestedCompiler<'c> {
    pub(super) outer: &'c CompilerObjects<'c>,
    /// The object with the settings, as `kind/id`.
    pub(super) owner: &'c str,
}

impl NestedPlugins for NestedCompiler<'_> {
    fn build(&self, path: &str, name: &str, settings: Value) -> Result<Arc<dyn Plugin>, NestedPluginFault> {
        let builder = self.outer.builder;
        // Paths of inline upstreams and warnings lead to the nested settings.
        let plugin = format!("{}.{path}", self.outer.plugin);
        let objects = CompilerObjects {
            builder,
            owner: self.outer.owner,
            plugin: &plugin,
            warnings: RefCell::default(),
        };
        let setup = PluginBuildContext {
            carry: &builder.context.carry,
            owner: self.owner,
            metadata: builder.staged.metadata.get(name),
            node: &builder.context.env.node,
            objects: Some(&objects),
            sinks: builder.context.env.sinks.as_deref(),
            nested: None,
        };
        let built = build_nested(builder.context.known_plugins(), name, settings, &setup);
        self.outer.warnings.borrow_mut().append(&mut objects.warnings.borrow_mut());
        built
    }
}

/// Checks nested plugins of an object that is only validated.
pub(super) struct NestedValidator<'j> {
    pub(super) known: KnownPlugins<'j>,
    pub(super) setup: &'j PluginBuildContext<'j>,
}

impl NestedPlugins for NestedValidator<'_> {
    fn build(&self, _: &str, name: &str, settings: Value) -> Result<Arc<dyn Plugin>, NestedPluginFault> {
        build_nested(self.known, name, settings, self.setup)
    }
}

fn build_nested(
    known: KnownPlugins<'_>,
    name: &str,
    mut settings: Value,
    setup: &PluginBuildContext<'_>,
) -> Result<Arc<dyn Plugin>, NestedPluginFault> {
    let Some(registered) = known.registered(name, PluginOwner::Traffic) else {
        return Err(match known.missing.get(name, false) {
            Some(missing) if missing.is_auth() => NestedPluginFault::Unavailable,
            Some(_) => NestedPluginFault::NotAuthentication,
            None => NestedPluginFault::Unknown,
        });
    };
    if !registered.kind.may_nest {
        return Err(NestedPluginFault::NotAuthentication);
    }
    if let Some(settings) = settings.as_object_mut() {
        settings.remove("_meta");
    }
    registered.build(settings, setup).map_err(NestedPluginFault::Settings)
}
