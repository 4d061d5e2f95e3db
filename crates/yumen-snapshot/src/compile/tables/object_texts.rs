//! The texts of objects: the newest one, and the one in force where the newest is broken.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use yumen_config::{Kind, Resource};

use super::Table;
use crate::compile::ConfigChange;
use crate::compile::names::ObjectName;

/// Most ids that a missing one is compared with.
const COMPARED_MAX: usize = 500;

/// The texts of all objects.
#[derive(Debug, Default)]
pub(crate) struct ObjectTexts {
    /// The newest text of each object, valid or not.
    newest: BTreeMap<Kind, Table<Arc<str>>>,
    /// The text in force of each object whose newest one is broken. Every name here is in `newest` as well.
    last_good: BTreeMap<ObjectName, Arc<str>>,
    /// The texts in force when the predecessor process ended, for the first change of their objects.
    inherited: BTreeMap<ObjectName, Arc<str>>,
}

impl ObjectTexts {
    /// The newest text of an object.
    pub(crate) fn newest(&self, name: &ObjectName) -> Option<&Arc<str>> {
        self.newest.get(&name.kind)?.get(&name.id)
    }

    /// The id of an object of a kind that resembles `id`, unless there are too many objects to compare.
    pub(crate) fn closest_id(&self, kind: Kind, id: &str) -> Option<&str> {
        let texts = self.newest.get(&kind).filter(|texts| texts.len() <= COMPARED_MAX)?;
        // Sorted, since the table has no order and the suggestion must not change from run to run.
        let mut ids: Vec<&str> = texts.keys().map(|known| &**known).filter(|known| *known != id).collect();
        ids.sort_unstable();
        yumen_config::closest(id, ids)
    }

    /// The text that the compiled form of an object was made from.
    pub(crate) fn in_force(&self, name: &ObjectName) -> Option<&Arc<str>> {
        self.last_good.get(name).or_else(|| self.newest(name))
    }

    /// Stores the newest text of an object. The last good text stays as it is.
    pub(crate) fn set_newest(&mut self, name: &ObjectName, json: Arc<str>) {
        self.newest.entry(name.kind).or_default().insert(name.id.clone(), json);
    }

    /// Keeps `good` in force; a broken text becomes the newest one.
    pub(crate) fn set_last_good(&mut self, name: &ObjectName, good: Arc<str>) {
        self.last_good.insert(name.clone(), good);
    }

    /// Forgets the last good text: the newest text is in force, or nothing is.
    pub(crate) fn clear_last_good(&mut self, name: &ObjectName) {
        self.last_good.remove(name);
    }

    /// Forgets an object.
    pub(crate) fn remove(&mut self, name: &ObjectName) {
        self.last_good.remove(name);
        if let Some(texts) = self.newest.get_mut(&name.kind) {
            texts.remove(&name.id);
        }
    }

    /// Objects in force by their last good text, each with its broken newest text.
    pub(crate) fn last_good(&self) -> impl Iterator<Item = (Resource, &Arc<str>)> {
        self.last_good.iter().filter_map(|(name, json)| {
            let newest = self.newest(name)?;
            Some((Resource { kind: name.kind, id: name.id.clone(), json: json.clone() }, newest))
        })
    }

    /// Replaces the texts inherited from the predecessor process.
    pub(crate) fn set_inherited(&mut self, resources: Vec<Resource>) {
        let named = resources.into_iter().map(|one| (ObjectName::new(one.kind, one.id), one.json));
        self.inherited = named.collect();
    }

    /// Takes the inherited text of an object.
    pub(crate) fn take_inherited(&mut self, name: &ObjectName) -> Option<Arc<str>> {
        self.inherited.remove(name)
    }

    /// Forgets all inherited texts.
    pub(crate) fn clear_inherited(&mut self) {
        self.inherited.clear();
    }

    /// The changes that lead to exactly these resources.
    pub(crate) fn diff(&self, resources: Vec<Resource>) -> Vec<ConfigChange> {
        let current = |one: &Resource| self.newest.get(&one.kind).and_then(|texts| texts.get(&one.id));
        let count = resources.iter().filter(|one| current(one).is_some()).count();
        let mut changes = Vec::new();
        // The set of names costs an allocation per resource, and most calls delete nothing.
        if count < self.newest.values().map(Table::len).sum() {
            let named: HashSet<(Kind, &str)> = resources.iter().map(|one| (one.kind, &*one.id)).collect();
            for (kind, texts) in &self.newest {
                let missing = texts.keys().filter(|id| !named.contains(&(*kind, id)));
                changes.extend(missing.map(|id| ConfigChange::Delete(*kind, Box::from(&**id))));
            }
        }
        let differs = |one: &Resource| current(one).is_none_or(|text| **text != *one.json);
        // Equal texts stage nothing: the cost of a reload follows the difference.
        changes.extend(resources.into_iter().filter(differs).map(ConfigChange::Put));
        changes
    }
}

#[cfg(test)]
mod tests;
