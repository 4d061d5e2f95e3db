//! Native actions of routes: two instances at the ends of a plugin chain, and the edits that backends have.
//!
//! Performs no I/O. Independent of how a request is forwarded.

mod access;
mod address_lists;
mod arrival;
mod auth_request;
mod backend;
mod basic_auth;
mod canary;
mod client_certificate;
mod cors;
mod external_auth;
mod fields;
mod forwarded;
mod forwarding;
mod mirror;
mod password_hash;
mod redirect;
mod respond;
mod response_rate;
mod response_rewrite;
mod rewrite;
mod session;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use yumen_config::InvalidSettings;
use yumen_config::resource::{ActionStage, RouteActionsSpec};
use yumen_plugin::{Origin, Plugin, PluginInstance, PluginMeta, UpstreamSlot, VarInputs};

use access::AccessGuard;
use arrival::ArrivalActions;
use forwarding::ForwardingActions;

pub use backend::BackendEdits;
pub use canary::CanaryRules;
pub use fields::FieldEdits;
pub use rewrite::{PathRewrite, RewriteRefused};
pub use session::{
    CookieClient, HashedSession, SESSION_KEY_BYTES, SessionKeys, SessionTicket, received_value,
    response_field,
};

/// The instance that runs before all plugins.
pub const ARRIVAL: &str = "actions-arrival";

/// The instance of access rules, after all plugins: address lists, passwords, an authorization service.
pub const ACCESS: &str = "actions-auth";

/// The instance that runs last.
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
    let reads = inputs(spec);
    if let Some(arrival) = ArrivalActions::build(spec, first, upstreams)? {
        built.instances.push(instance(ARRIVAL, i32::MAX, Arc::new(arrival), origin, reads));
    }
    if let Some(guard) = AccessGuard::build(spec, upstreams)? {
        built.instances.push(instance(ACCESS, i32::MIN + 1, Arc::new(guard), origin, reads));
    }
    if let Some(forwarding) = ForwardingActions::build(spec, last, upstreams)? {
        built.instances.push(instance(FORWARDING, i32::MIN, Arc::new(forwarding), origin, reads));
    }
    Ok(built)
}

/// The inputs of all texts with variables.
fn inputs(spec: &RouteActionsSpec) -> VarInputs {
    let edits = [&spec.request_fields, &spec.response_fields].into_iter().flatten();
    let edits = edits.filter(|edits| edits.variables);
    let values = edits.flat_map(|edits| [&edits.set, &edits.add].into_iter().flatten().flatten());
    let replacements = spec.response_rewrite.iter().flat_map(|rewrite| {
        [&rewrite.cookie_domains, &rewrite.cookie_paths, &rewrite.locations].into_iter().flatten().flatten()
    });
    let redirect = spec.redirect.as_ref().and_then(|redirect| redirect.url.as_ref());
    let auth = spec.external_auth.as_ref().and_then(|auth| auth.nginx.as_ref());
    let of_auth = auth.into_iter().flat_map(|auth| {
        let texts = [Some(&auth.url), auth.host.as_ref(), auth.redirect_field.as_ref(), auth.signin.as_ref()];
        let key = auth.cache.as_ref().map(|cache| &cache.key);
        let fields = auth.fields.iter().flatten().map(|(_, value)| value);
        texts.into_iter().flatten().chain(key).chain(fields)
    });
    let texts = values.map(|(_, value)| value).chain(replacements.map(|one| &one.to));
    let texts = texts.chain(redirect).chain(of_auth);
    texts.fold(VarInputs::default(), |inputs, text| inputs | VarInputs::of(text))
}

fn instance(
    name: &'static str,
    priority: i32,
    plugin: Arc<dyn Plugin>,
    origin: &Origin,
    reads: VarInputs,
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
        reads,
    })
}
