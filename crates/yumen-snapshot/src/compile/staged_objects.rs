//! Staged objects that are no entries of a routing table, by kind and id.

use std::sync::Arc;

use serde_json::Value;
use yumen_config::Kind;
use yumen_plugin::proto::ProtoDescriptors;

use super::consumer::{StagedConsumer, StagedCredential};
use super::plugins::PluginSet;
use super::service::StagedService;
use super::tables::Table;

/// One table per kind. An object is in its table while a good version, or a replacement for it, is in force.
#[derive(Default)]
pub(super) struct StagedObjects {
    pub(super) services: Table<StagedService>,
    pub(super) plugin_configs: Table<PluginSet>,
    pub(super) consumer_groups: Table<PluginSet>,
    pub(super) global_rules: Table<PluginSet>,
    /// The scopes of the rules that do not run for all requests; empty for the listeners of the node's settings.
    pub(super) rule_scopes: Table<Box<[Arc<str>]>>,
    /// Settings of plugin metadata, complete with defaults.
    pub(super) metadata: Table<Value>,
    pub(super) consumers: Table<StagedConsumer>,
    pub(super) credentials: Table<StagedCredential>,
    pub(super) protos: Table<Arc<ProtoDescriptors>>,
}

impl StagedObjects {
    /// The table of a kind whose objects are nothing but plugins.
    pub(super) fn plugin_sets_mut(&mut self, kind: Kind) -> Option<&mut Table<PluginSet>> {
        match kind {
            Kind::PluginConfigs => Some(&mut self.plugin_configs),
            Kind::ConsumerGroups => Some(&mut self.consumer_groups),
            Kind::GlobalRules => Some(&mut self.global_rules),
            _ => None,
        }
    }
}
