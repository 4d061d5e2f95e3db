//! Global rules and consumers by scope. A scope without any of its own has those of all requests.

use std::collections::HashMap;
use std::sync::Arc;

use yumen_plugin::{ClientInfo, ConsumerIndex, PluginChain};

use super::Snapshot;
use crate::route::Route;
use crate::scope::CompiledScope;

/// A value of each scope.
#[derive(Debug, Default)]
pub(crate) struct ScopedTerms<T> {
    /// The value of scopes without an entry.
    pub(crate) shared: T,
    pub(crate) own: HashMap<Arc<str>, T>,
}

impl<T> ScopedTerms<T> {
    fn of(&self, scope: Option<&str>) -> &T {
        // Without rules or consumers of scopes, nothing is looked up.
        let scope = scope.filter(|_| !self.own.is_empty());
        scope.and_then(|scope| self.own.get(scope)).unwrap_or(&self.shared)
    }
}

impl Snapshot {
    /// The global rules of a scope, or of requests for which a listener of the configuration has no scope.
    pub fn rules_of_scope(&self, scope: Option<&CompiledScope>) -> &PluginChain {
        self.scope_rules.of(scope.map(|scope| &*scope.id))
    }

    /// The consumers of a scope, or of requests for which a listener of the configuration has no scope.
    pub fn consumers_of_scope(&self, scope: Option<&CompiledScope>) -> &ConsumerIndex {
        self.scope_consumers.of(scope.map(|scope| &*scope.id))
    }

    /// The global rules before a scope is known: those that run for all requests of the listener.
    #[inline]
    pub fn rules_before_routing(&self, client: &ClientInfo) -> &PluginChain {
        if client.listener.is_static() { &self.global } else { &self.scope_rules.shared }
    }

    /// The global rules and the consumers of a request.
    pub fn terms_of_request(&self, client: &ClientInfo, host: &[u8]) -> (&PluginChain, &ConsumerIndex) {
        if client.listener.is_static() {
            return (&self.global, &self.consumers);
        }
        let scope = self.scope_of(client.listener, host);
        (self.rules_of_scope(scope), self.consumers_of_scope(scope))
    }

    /// The global rules for requests of a route, or of none on the listeners of the node's settings.
    pub fn global_rules(&self, route: Option<&Route>) -> &PluginChain {
        let scope = route.and_then(|route| route.scopes.as_ref()?.iter().next());
        let rules = match scope {
            Some(scope) => self.scope_rules.of(Some(scope)),
            None => &self.global,
        };
        self.rules_for(rules, route)
    }

    /// The given global rules, or none if the route skips them.
    pub fn rules_for<'s>(&'s self, rules: &'s PluginChain, route: Option<&Route>) -> &'s PluginChain {
        match route {
            // The rules of such a route are an empty chain, so callers need no second case.
            Some(route) if route.skips_global_rules => &self.no_rules,
            _ => rules,
        }
    }
}

#[cfg(test)]
mod tests;
