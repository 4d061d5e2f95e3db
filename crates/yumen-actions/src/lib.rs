//! Native actions of routes: two instances at the ends of a plugin chain, and the edits that backends have.
//!
//! Performs no I/O. Independent of how a request is forwarded.

mod arrival;
mod backend;
mod cors;
mod fields;
mod forwarding;
mod mirror;
mod redirect;
mod respond;
mod rewrite;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use yumen_config::InvalidSettings;
use yumen_config::resource::{ActionStage, RouteActionsSpec};
use yumen_plugin::{Origin, Plugin, PluginInstance, PluginMeta, UpstreamSlot, VarInputs};

use arrival::ArrivalActions;
use forwarding::ForwardingActions;

pub use backend::BackendEdits;
pub use fields::FieldEdits;
pub use rewrite::{PathRewrite, RewriteRefused};

/// The instance that runs before all plugins.
pub const ARRIVAL: &str = "actions-arrival";

/// The instance that runs after all plugins.
pub const FORWARDING: &str = "actions";

/// The objects that actions refer to.
pub trait ActionUpstreams {
    /// The upstream with this id. The actions are built again when it appears or disappears.
    fn upstream(&self, id: &str) -> Option<UpstreamSlot>;

    /// Reports a part at `path` in the actions that has no effect, with the remedy.
    fn warn(&self, path: &str, message: String, remedy: &str);
}

/// Actions in the form of plugins.
#[derive(Debug, Default)]
pub struct BuiltActions {
    /// The instances for the chain of the route.
    pub instances: Vec<Arc<PluginInstance>>,
}

/// Builds the actions of the object `origin`.
///
/// # Errors
/// A pattern has syntax that no engine supports.
pub fn build(
    spec: &RouteActionsSpec,
    origin: &Origin,
    upstreams: &dyn ActionUpstreams,
) -> Result<BuiltActions, InvalidSettings> {
    let mut built = BuiltActions::default();
    let (first, last) = match &spec.redirect {
        Some(redirect) if redirect.stage == ActionStage::First => (Some(redirect), None),
        other => (None, other.as_ref()),
    };
    if let Some(arrival) = ArrivalActions::build(spec.cors.as_ref(), first)? {
        built.instances.push(instance(ARRIVAL, i32::MAX, Arc::new(arrival), origin));
    }
    if let Some(forwarding) = ForwardingActions::build(spec, last, upstreams)? {
        built.instances.push(instance(FORWARDING, i32::MIN, Arc::new(forwarding), origin));
    }
    Ok(built)
}

fn instance(
    name: &'static str,
    priority: i32,
    plugin: Arc<dyn Plugin>,
    origin: &Origin,
) -> Arc<PluginInstance> {
    Arc::new(PluginInstance {
        phases: plugin.phases(),
        plugin,
        name,
        priority,
        meta: PluginMeta::default(),
        origin: origin.clone(),
        is_auth: false,
        prefers_route: false,
        reads: VarInputs::default(),
    })
}
