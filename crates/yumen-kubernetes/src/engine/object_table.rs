//! The objects as of the newest change, with their indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::compact_set::CompactSet;
use super::read_key::{IndexKey, ReadKey, index_keys};
use crate::model::{ClusterKind, ClusterObject, LeanObject, ObjectKey};

#[derive(Debug, Clone, Default)]
pub(super) struct ObjectTable {
    objects: BTreeMap<ObjectKey, ClusterObject>,
    indexes: BTreeMap<IndexKey, CompactSet<ObjectKey>>,
    /// Required objects that do not exist, as opposed to those that were not read yet.
    absent: BTreeSet<ObjectKey>,
    /// Kinds of which all objects are known.
    listed: BTreeSet<ClusterKind>,
}

impl ObjectTable {
    pub(super) fn find(&self, key: &ObjectKey) -> Option<&ClusterObject> {
        self.objects.get(key)
    }

    pub(super) fn get<T: LeanObject>(&self, key: &ObjectKey) -> Option<&Arc<T>> {
        self.objects.get(key).and_then(|object| T::of(&object.body))
    }

    /// Whether the absence of an object of the table means that it does not exist.
    pub(super) fn is_known(&self, key: &ObjectKey) -> bool {
        self.listed.contains(&key.kind) || self.absent.contains(key) || self.objects.contains_key(key)
    }

    pub(super) fn of_kind(&self, kind: ClusterKind) -> impl Iterator<Item = (&ObjectKey, &ClusterObject)> {
        let first = ObjectKey::new(kind, "", "");
        let from = (Bound::Included(first), Bound::Unbounded);
        self.objects.range(from).take_while(move |(key, _)| key.kind == kind)
    }

    pub(super) fn in_namespace(
        &self,
        kind: ClusterKind,
        namespace: &Arc<str>,
    ) -> impl Iterator<Item = (&ObjectKey, &ClusterObject)> {
        let first = ObjectKey { kind, namespace: namespace.clone(), name: "".into() };
        let from = (Bound::Included(first), Bound::Unbounded);
        self.objects.range(from).take_while(move |(key, _)| key.kind == kind && key.namespace == *namespace)
    }

    pub(super) fn index(&self, key: &IndexKey) -> Option<&CompactSet<ObjectKey>> {
        self.indexes.get(key)
    }

    /// Stores an object. Returns the facts that differ; none for an equal object.
    pub(super) fn put(&mut self, object: ClusterObject) -> Vec<ReadKey> {
        let key = object.key();
        self.absent.remove(&key);
        let after = index_keys(&object);
        let is_equal = self.objects.get(&key).is_some_and(|previous| *previous == object);
        // An equal object may still have a newer version and status.
        let previous = self.objects.insert(key.clone(), object);
        if is_equal {
            return Vec::new();
        }
        let before = previous.as_ref().map(index_keys).unwrap_or_default();
        let mut changed = facts_of(&key);
        changed.extend(self.reindex(&key, before, after));
        changed
    }

    /// Removes an object. Returns the facts that differ.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Vec<ReadKey> {
        let is_reference = matches!(key.kind, ClusterKind::Secret | ClusterKind::ConfigMap);
        let was_known = !is_reference || self.is_known(key);
        if is_reference && !self.listed.contains(&key.kind) {
            self.absent.insert(key.clone());
        }
        let Some(previous) = self.objects.remove(key) else {
            // Absence that becomes known releases the units that wait for the object.
            return if was_known { Vec::new() } else { facts_of(key) };
        };
        let mut changed = facts_of(key);
        changed.extend(self.reindex(key, index_keys(&previous), Vec::new()));
        changed
    }

    /// Marks the objects of a kind as complete, and returns the keys that `present` does not have.
    pub(super) fn mark_listed(&mut self, kind: ClusterKind, present: &BTreeSet<ObjectKey>) -> Vec<ObjectKey> {
        self.listed.insert(kind);
        self.of_kind(kind).map(|(key, _)| key).filter(|key| !present.contains(key)).cloned().collect()
    }

    /// Drops a referenced object that no unit requires any more, so that it is read again when it is.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        if !self.listed.contains(&key.kind) {
            self.objects.remove(key);
            self.absent.remove(key);
        }
    }

    fn reindex(&mut self, key: &ObjectKey, before: Vec<IndexKey>, after: Vec<IndexKey>) -> Vec<ReadKey> {
        let (before, after) = (BTreeSet::from_iter(before), BTreeSet::from_iter(after));
        for index in before.difference(&after) {
            if let Some(members) = self.indexes.get_mut(index) {
                members.remove(key);
                if members.is_empty() {
                    self.indexes.remove(index);
                }
            }
        }
        for index in after.difference(&before) {
            self.indexes.entry(index.clone()).or_default().insert(key.clone());
        }
        before.symmetric_difference(&after).cloned().map(ReadKey::Index).collect()
    }
}

fn facts_of(key: &ObjectKey) -> Vec<ReadKey> {
    vec![ReadKey::Object(key.clone()), ReadKey::In(key.kind, key.namespace.clone()), ReadKey::All(key.kind)]
}
