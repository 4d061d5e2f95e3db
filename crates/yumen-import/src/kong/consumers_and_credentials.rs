//! Consumers and their credentials while they are read: who is who, and in which group.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use yumen_config::{Kind, Resource};

use super::document::EntityIndex;

/// A consumer on its way.
#[derive(Debug, Default)]
pub(super) struct ImportedConsumer {
    pub(super) username: String,
    pub(super) labels: Map<String, Value>,
    /// Names of the groups it is in, for access lists.
    pub(super) groups: BTreeSet<String>,
    /// Places of the groups whose plugins it shares.
    pub(super) consumer_groups: Vec<usize>,
    pub(super) label: String,
}

/// All consumers, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct ImportedConsumers {
    pub(super) all: Vec<ImportedConsumer>,
    pub(super) index: EntityIndex,
    pub(super) groups: Vec<(String, String)>,
    pub(super) credentials: Vec<ImportedCredential>,
}

/// How somebody proves who he is.
#[derive(Debug)]
pub(super) struct ImportedCredential {
    pub(super) label: String,
    pub(super) owner: usize,
    pub(super) id: String,
    pub(super) plugin: &'static str,
    pub(super) settings: Value,
    pub(super) labels: Option<Value>,
}

impl ImportedConsumers {
    /// What a consumer is called here; `reference` is a name or an id.
    pub(super) fn username(&self, reference: &Value) -> Option<&str> {
        Some(self.all[self.index.find(reference)?].username.as_str())
    }

    /// Who is in one of these groups.
    pub(super) fn members(&self, groups: &[String], by_consumer_group: bool) -> Vec<String> {
        let is_member = |import_consumer: &&ImportedConsumer| {
            let in_group = |at: &usize| groups.contains(&self.groups[*at].1);
            groups.iter().any(|group| import_consumer.groups.contains(group))
                || (by_consumer_group && import_consumer.consumer_groups.iter().any(in_group))
        };
        self.all.iter().filter(is_member).map(|import_consumer| import_consumer.username.clone()).collect()
    }
}

impl ImportedCredential {
    /// As it stands with its consumer.
    pub(super) fn resource(&self) -> Resource {
        let mut value = json!({ "plugins": { self.plugin: self.settings } });
        if let Some(labels) = &self.labels {
            value["labels"] = labels.clone();
        }
        Resource::new(Kind::Credentials, &self.id, &value)
    }
}
