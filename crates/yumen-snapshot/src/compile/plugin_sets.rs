//! Objects that are nothing but plugins (plugin configs, consumer groups, global rules), and plugin metadata.

use yumen_config::resource as config;
use yumen_config::{Kind, decode};

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

    pub(super) fn stage_metadata(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let written: config::PluginMetadata = decode(json).map_err(|error| vec![invalid(name, error)])?;
        let known = self.context.known_plugins();
        let settings =
            validate::metadata(&known, &name.id, written).map_err(|error| vec![invalid(name, error)])?;
        self.staged.metadata.insert(name.id.clone(), settings);
        Ok(self.context.unread_metadata(name).into_iter().collect())
    }
}
