//! Objects of the node itself, such as fetched certificates, which no store holds.

use std::collections::BTreeMap;

use yumen_config::{Kind, Resource};
use yumen_snapshot::compile::ConfigChange;

/// The node's own objects.
#[derive(Debug, Default)]
pub(super) struct LocalObjects {
    objects: BTreeMap<(Kind, Box<str>), Resource>,
}

impl LocalObjects {
    pub(super) fn apply(&mut self, changes: &[ConfigChange]) {
        for change in changes {
            match change {
                ConfigChange::Put(resource) => drop(self.objects.insert(key(resource), resource.clone())),
                ConfigChange::Delete(kind, id) => drop(self.objects.remove(&(*kind, id.clone()))),
                ConfigChange::Resolved { .. } | ConfigChange::Discovered(..) | ConfigChange::Fetched(..) => {}
            }
        }
    }

    pub(super) fn contains(&self, resource: &Resource) -> bool {
        self.objects.contains_key(&key(resource))
    }

    pub(super) fn resources(&self) -> impl Iterator<Item = Resource> {
        self.objects.values().cloned()
    }
}

fn key(resource: &Resource) -> (Kind, Box<str>) {
    (resource.kind, resource.id.as_ref().into())
}
