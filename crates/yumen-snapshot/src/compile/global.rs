//! Global rules: the chain of all rules, and the salvage of a broken one.
//!
//! A rule may be the only guard of the gateway, and it may be mere statistics. So the valid plugins of a broken rule come
//! into force, and a refusal replaces only a broken plugin that guards.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};
use yumen_config::resource::{ResourceDefect, ResourceId, natural_order_key};
use yumen_plugin::{PluginChain, PluginInstance, PluginMeta, VarInputs};

use super::context::CompileContext;
use super::names::ObjectName;
use super::plugin_settings::{self, PluginOwner};
use super::plugins::{PluginEntry, PluginSet, metadata_of};
use super::unavailable_plugin::UnavailablePlugin;
use super::{Compiler, missing_plugins};
use crate::snapshot::ScopedTerms;

/// The name of refusals in place of unknown plugins.
const UNKNOWN: &str = "unknown plugin";

/// The plugins of the global rules.
#[derive(Default)]
pub(super) struct GlobalChains {
    /// For the listeners of the node's settings.
    pub(super) of_node: Arc<PluginChain>,
    pub(super) by_scope: Arc<ScopedTerms<Arc<PluginChain>>>,
}

impl Compiler {
    /// Rebuilds the chain of all global rules, rule after rule in the order of their ids.
    pub(super) fn link_global(&mut self) {
        let mut rules: Vec<_> = self.staged.global_rules.iter().collect();
        // A stable order of rules with equal priorities, whatever order they were written in.
        rules.sort_unstable_by(|a, b| natural_order_key(a.0).cmp(&natural_order_key(b.0)));
        let scopes = &self.staged.rule_scopes;
        let chain = |is_in: &dyn Fn(&[Arc<str>]) -> bool| {
            let chosen = rules.iter().filter(|(id, _)| scopes.get(*id).is_none_or(|scopes| is_in(scopes)));
            let all = chosen.flat_map(|(_, set)| set.chain.all().iter().cloned());
            Arc::new(PluginChain::concat(all.collect()))
        };
        self.global.of_node = chain(&|scopes| scopes.is_empty());
        let named: BTreeSet<&Arc<str>> = scopes.values().flatten().collect();
        let own = named.into_iter().map(|scope| (scope.clone(), chain(&|scopes| scopes.contains(scope))));
        let own = own.collect();
        self.global.by_scope = Arc::new(ScopedTerms { shared: chain(&|_| false), own });
    }

    pub(super) fn set_rule_scopes(&mut self, name: &ObjectName, written: Option<Vec<ResourceId>>) {
        match written {
            Some(ids) => {
                let ids = ids.into_iter().map(|id| id.0).collect();
                self.staged.rule_scopes.insert(name.id.clone(), ids);
            }
            None => drop(self.staged.rule_scopes.remove(&name.id)),
        }
    }

    /// Puts the valid plugins of a broken rule in force, and refusals in place of its broken guards. Returns the effect
    /// on requests, for a hint.
    pub(super) fn salvage_rule(
        &mut self,
        name: &ObjectName,
        json: &str,
        defects: &[ResourceDefect],
    ) -> String {
        // The previous version must not contribute plugins that the new text no longer has.
        self.remove_plugin_set(name);
        let mut entries = Vec::new();
        // Names of plugins that a refusal replaces, and of plugins that are left out.
        let (mut refusing, mut lacking) = (Vec::new(), Vec::new());
        let plugins = plugins(json);
        if plugins.is_none() {
            // Any of the unknown plugins may guard.
            let refusal = self.context.refusal(name, "", Value::Null);
            entries.extend(refusal.map(|refusal| PluginEntry::On(Arc::new(refusal))));
            refusing.push("its plugins".to_owned());
        }
        for (plugin, mut settings) in plugins.into_iter().flatten() {
            let path = format!("plugins.{plugin}");
            let is_broken =
                !plugin_settings::is_disabled(&settings) && defects.iter().any(|one| one.is_within(&path));
            // Built one by one, so that a broken plugin does not fail its neighbours.
            let alone = || Map::from_iter([(plugin.clone(), settings.clone())]);
            let built =
                (!is_broken).then(|| self.plugin_builder().build(name, Some(alone()), PluginOwner::Traffic));
            if let Some(built) = built.filter(|built| !built.failed) {
                let instances = built.entries.iter().filter_map(PluginEntry::instance);
                // A missing guard builds successfully as a refusal; the hint still has to name it.
                refusing.extend(instances.filter(|one| one.plugin.is_stand_in()).map(|_| plugin.clone()));
                entries.extend(built.entries);
                continue;
            }
            // A defective filter might exempt the very requests that must be refused.
            if defects.iter().any(|one| one.is_within(&format!("{path}._meta"))) {
                settings.as_object_mut().map(|settings| settings.remove("_meta"));
            }
            if let Some(refusal) = self.context.refusal(name, &plugin, settings) {
                entries.push(PluginEntry::On(Arc::new(refusal)));
                refusing.push(plugin);
            } else {
                lacking.push(plugin);
            }
        }
        self.references.add_all(metadata_of(&entries), name);
        let runs = entries.len() > refusing.len();
        if !entries.is_empty() {
            let set =
                PluginSet { is_whole: false, ..PluginSet::new(entries.into(), &self.context.empty_chain) };
            self.staged.global_rules.insert(name.id.clone(), set);
            // A refusal must not reach requests that the rule does not concern.
            self.set_rule_scopes(name, scopes(json));
        }
        // Places the upstreams that the valid plugins asked for while they were built.
        drop(self.bind(name));
        match (refusing.is_empty(), runs) {
            (false, _) => format!(
                "requests under global rules are answered 503 until it is fixed: they must not pass without {}",
                refusing.join(" and ")
            ),
            (true, true) if lacking.is_empty() => "its plugins are in force all the same".into(),
            (true, true) => format!(
                "its other plugins are active; requests pass without {} until it is fixed",
                lacking.join(" and ")
            ),
            (true, false) => "not active: requests pass without it until it is fixed".into(),
        }
    }
}

impl CompileContext {
    /// The refusal in place of a plugin that could not be built, if the plugin guards. An unknown plugin may guard.
    fn refusal(&self, name: &ObjectName, plugin: &str, mut settings: Value) -> Option<PluginInstance> {
        let origin: Arc<str> = name.to_string().into();
        let known = self.registry.get(plugin).map(|registered| &registered.kind);
        let kind = known.map(|kind| (kind.name, kind.priority, kind.role.guards()));
        let missing =
            || self.env.missing.get(plugin, false).map(|one| (one.name, one.priority, one.guards()));
        let (kind_name, priority, guards) = match kind.or_else(missing) {
            Some(kind) => kind,
            // A disabled entry would not run if it were known.
            None if plugin_settings::is_disabled(&settings) => return None,
            None => {
                // Neither the phase nor the filter of an unknown plugin is known, so all requests are refused, first.
                let meta = PluginMeta::default();
                return Some(UnavailablePlugin::of_rule().instance(
                    UNKNOWN,
                    i32::MAX,
                    meta,
                    origin,
                    VarInputs::default(),
                ));
            }
        };
        // The setting exempts missing plugins only, not broken settings of plugins that this version runs.
        if !guards || self.env.missing.allows(plugin) && known.is_none() {
            return None;
        }
        // A plugin with a filter would have seen only some requests; only those are refused.
        let filter = settings.pointer("/_meta/filter").cloned().unwrap_or_default();
        // An unreadable `_meta` exempts no request.
        let meta = plugin_settings::take_meta(&mut settings).ok().flatten().unwrap_or_default();
        let meta = missing_plugins::without_response_filter(meta);
        let reads =
            if meta.filter.is_some() { plugin_settings::reads(&filter) } else { VarInputs::default() };
        let priority = meta.priority.unwrap_or(priority);
        Some(UnavailablePlugin::of_rule().instance(kind_name, priority, meta, origin, reads))
    }
}

/// The scopes in a text; `None` for all requests, also if their member has another type.
fn scopes(json: &str) -> Option<Vec<ResourceId>> {
    let text: Value = serde_json::from_str(json).ok()?;
    serde_json::from_value(text.get("scopes")?.clone()).ok()
}

/// The plugins in a text, valid or not. `None` if their member has another type.
fn plugins(json: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str::<Value>(json).ok().as_mut().and_then(|rule| rule.get_mut("plugins")) {
        Some(Value::Object(plugins)) => Some(std::mem::take(plugins)),
        None | Some(Value::Null) => Some(Map::new()),
        // The tools of APISIX write an empty object as an empty list.
        Some(Value::Array(items)) if items.is_empty() => Some(Map::new()),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests;
