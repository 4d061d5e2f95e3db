//! Consumers and their credentials while they are read: who is who, and in which group.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use yumen_config::{Kind, Resource};

use super::document::Index;

/// A consumer on its way.
#[derive(Debug, Default)]
pub(super) struct Person {
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
pub(super) struct People {
    pub(super) all: Vec<Person>,
    pub(super) index: Index,
    pub(super) groups: Vec<(String, String)>,
    pub(super) credentials: Vec<Credential>,
}

/// How somebody proves who he is.
#[derive(Debug)]
pub(super) struct Credential {
    pub(super) label: String,
    pub(super) owner: usize,
    pub(super) id: String,
    pub(super) plugin: &'static str,
    pub(super) settings: Value,
    pub(super) labels: Option<Value>,
}

impl People {
    /// What a consumer is called here; `reference` is a name or an id.
    pub(super) fn username(&self, reference: &Value) -> Option<&str> {
        Some(self.all[self.index.find(reference)?].username.as_str())
    }

    /// Who is in one of these groups.
    pub(super) fn members(&self, groups: &[String], by_consumer_group: bool) -> Vec<String> {
        let is_member = |person: &&Person| {
            let in_group = |at: &usize| groups.contains(&self.groups[*at].1);
            groups.iter().any(|group| person.groups.contains(group))
                || (by_consumer_group && person.consumer_groups.iter().any(in_group))
        };
        self.all.iter().filter(is_member).map(|person| person.username.clone()).collect()
    }
}

impl Credential {
    /// As it stands with its consumer.
    pub(super) fn resource(&self) -> Resource {
        let mut value = json!({ "plugins": { self.plugin: self.settings } });
        if let Some(labels) = &self.labels {
            value["labels"] = labels.clone();
        }
        Resource::new(Kind::Credentials, &self.id, &value)
    }
}
