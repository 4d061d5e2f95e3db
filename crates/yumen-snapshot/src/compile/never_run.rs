//! Warnings about plugins that never run, because a plugin before them responds to every request.

use std::sync::Arc;

use yumen_base::Problem;
use yumen_plugin::{PluginChain, PluginInstance};

use super::names::ObjectName;
use super::plugins::PluginEntry;

/// Warnings about the plugins of one object. Routes that share them do not repeat the warnings.
pub(super) fn within(name: &ObjectName, entries: &[PluginEntry]) -> Vec<Problem> {
    let instances = || entries.iter().filter_map(PluginEntry::instance);
    // Most objects have no such plugin, and need no chain here.
    if entries.len() < 2 || !instances().any(|one| one.plugin.responds_always_in().is_some()) {
        return Vec::new();
    }
    warnings(name, &PluginChain::new(instances().cloned()), |_, _| true)
}

/// Warnings about pairs of plugins from different objects in the chain of a route.
pub(super) fn across(name: &ObjectName, chain: &PluginChain) -> Vec<Problem> {
    warnings(name, chain, |responder, late| {
        !Arc::ptr_eq(&responder.origin, &late.origin) && responder.origin != late.origin
    })
}

fn warnings(
    name: &ObjectName,
    chain: &PluginChain,
    is_reported: impl Fn(&PluginInstance, &PluginInstance) -> bool,
) -> Vec<Problem> {
    let Some((responder, late)) = chain.never_run() else { return Vec::new() };
    let late = late.into_iter().filter(|late| is_reported(responder, late));
    late.map(|late| {
        let origins = match responder.origin == late.origin {
            true => String::new(),
            false => {
                format!(" ({} of {}, {} of {})", responder.name, responder.origin, late.name, late.origin)
            }
        };
        let message =
            format!("{} responds to every request, so {} never runs{origins}", responder.name, late.name);
        let hint = format!("remove one of them, or limit {} by _meta.filter", responder.name);
        Problem::warning(name.to_string(), format!("plugins.{}", late.name), message).hint(hint)
    })
    .collect()
}

#[cfg(test)]
mod tests;
