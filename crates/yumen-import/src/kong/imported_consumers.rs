//! Consumers, their groups and credentials under conversion.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use yumen_config::{Kind, Resource};

use super::document::EntityIndex;

/// A consumer under conversion.
#[derive(Debug, Default)]
pub(super) struct ImportedConsumer {
    pub(super) username: String,
    pub(super) labels: Map<String, Value>,
    /// Names of its ACL groups; an empty one for a group that is not set.
    pub(super) groups: BTreeSet<String>,
    /// Indexes of its consumer groups.
    pub(super) consumer_groups: Vec<usize>,
    pub(super) label: String,
    /// Whether one of its consumer groups is not set.
    pub(super) lacks_group: bool,
}

/// All consumers, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct ImportedConsumers {
    pub(super) all: Vec<ImportedConsumer>,
    pub(super) index: EntityIndex,
    pub(super) groups: Vec<ImportedGroup>,
    pub(super) credentials: Vec<ImportedCredential>,
    /// Whether the secrets of JWT credentials are in Base64; `None` if the file's plugins disagree.
    pub(super) secrets_in_base64: Option<bool>,
}

/// A consumer group.
#[derive(Debug)]
pub(super) struct ImportedGroup {
    pub(super) id: String,
    pub(super) name: String,
}

/// A credential under conversion.
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
    /// The resulting name of a consumer; `reference` is a name or an id.
    pub(super) fn username(&self, reference: &Value) -> Option<&str> {
        Some(self.all[self.index.find(reference)?].username.as_str())
    }

    /// Whether the consumer of this resulting name has credentials.
    pub(super) fn has_credentials(&self, username: &str) -> bool {
        self.credentials.iter().any(|credential| self.all[credential.owner].username == username)
    }

    /// The consumers in any of these groups; with `suspects`, also those with a group that is not set.
    pub(super) fn members(&self, groups: &[String], by_consumer_group: bool, suspects: bool) -> Vec<String> {
        let is_member = |consumer: &&ImportedConsumer| {
            let in_group = |at: &usize| groups.contains(&self.groups[*at].name);
            (suspects && consumer.groups.contains(""))
                || groups.iter().any(|group| consumer.groups.contains(group))
                || (by_consumer_group && consumer.consumer_groups.iter().any(in_group))
        };
        self.all.iter().filter(is_member).map(|consumer| consumer.username.clone()).collect()
    }
}

impl ImportedCredential {
    /// The resource below its consumer.
    pub(super) fn resource(&self) -> Resource {
        let mut value = json!({ "plugins": { self.plugin: self.settings } });
        if let Some(labels) = &self.labels {
            value["labels"] = labels.clone();
        }
        Resource::new(Kind::Credentials, &self.id, &value)
    }
}
