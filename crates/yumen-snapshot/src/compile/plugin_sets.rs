//! Objects that are nothing but plugins (plugin configs, consumer groups, global rules), and plugin metadata.

use yumen_config::resource as config;
use yumen_config::{Kind, decode};
use yumen_plugin::kind::OpenNodeLog;

use super::names::ObjectName;
use super::plugin_settings::PluginOwner;
use super::plugins::{PluginSet, metadata_of};
use super::{Compiler, StageResult, invalid, validate};

impl Compiler {
    /// Stages a plugin config, consumer group or global rule.
    pub(super) fn stage_plugin_set(&mut self, name: &ObjectName, written: config::Plugins) -> StageResult {
        let built = self.plugin_builder().build(name, Some(written), PluginOwner::Traffic);
        if built.failed {
            return Err(built.problems);
        }
        self.remove_plugin_set(name);
        let set = PluginSet::new(built.entries.into(), &self.context.empty_chain);
        if let Some(sets) = self.staged.plugin_sets_mut(name.kind) {
            self.references.add_all(metadata_of(&set.entries), name);
            sets.insert(name.id.clone(), set);
        }
        Ok(built.problems)
    }

    pub(super) fn remove_plugin_set(&mut self, name: &ObjectName) {
        let removed = self.staged.plugin_sets_mut(name.kind).and_then(|sets| sets.remove(&name.id));
        if let Some(removed) = removed {
            self.references.remove_all(metadata_of(&removed.entries), name);
            if name.kind == Kind::GlobalRules {
                self.staged.rule_scopes.remove(&name.id);
            }
        }
    }

    /// The function by which the metadata of a plugin opens the sink of the node's own log.
    fn opens_node_log(&self, plugin: &str) -> Option<OpenNodeLog> {
        self.context.registry.get(plugin)?.kind.node_log
    }

    pub(super) fn withdraw_metadata(&mut self, name: &ObjectName) {
        self.staged.metadata.remove(&name.id);
        if let (Some(_), Some(sinks)) = (self.opens_node_log(&name.id), &self.context.env.sinks) {
            sinks.set_node_log(None);
        }
    }

    pub(super) fn stage_metadata(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let written: config::PluginMetadata = decode(json).map_err(|error| vec![invalid(name, error)])?;
        let known = self.context.known_plugins();
        let settings =
            validate::metadata(&known, &name.id, written).map_err(|error| vec![invalid(name, error)])?;
        if let (Some(open), Some(sinks)) = (self.opens_node_log(&name.id), &self.context.env.sinks) {
            let opened = open(&settings, sinks).map_err(|error| vec![invalid(name, error)])?;
            sinks.set_node_log(Some(opened));
        }
        self.staged.metadata.insert(name.id.clone(), settings);
        Ok(self.context.unread_metadata(name).into_iter().collect())
    }
}
