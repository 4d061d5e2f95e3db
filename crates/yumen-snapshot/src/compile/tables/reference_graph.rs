//! References between objects, found from the object that they name.

use std::collections::BTreeSet;

use yumen_config::Kind;

use crate::compile::names::ObjectName;

/// References as pairs of the named object and its dependent, in one ordered set. The set is compact, and a change costs
/// the same however many dependents an object has.
#[derive(Debug, Default)]
pub(crate) struct ReferenceGraph {
    pairs: BTreeSet<(ObjectName, ObjectName)>,
}

impl ReferenceGraph {
    /// Adds one reference of `dependent`. The named object need not exist.
    pub(crate) fn add(&mut self, on: ObjectName, dependent: &ObjectName) {
        self.pairs.insert((on, dependent.clone()));
    }

    pub(crate) fn add_all(&mut self, on: impl IntoIterator<Item = ObjectName>, dependent: &ObjectName) {
        on.into_iter().for_each(|on| self.add(on, dependent));
    }

    /// Removes one reference of `dependent`.
    pub(crate) fn remove(&mut self, on: ObjectName, dependent: &ObjectName) {
        self.pairs.remove(&(on, dependent.clone()));
    }

    pub(crate) fn remove_all(&mut self, on: impl IntoIterator<Item = ObjectName>, dependent: &ObjectName) {
        on.into_iter().for_each(|on| self.remove(on, dependent));
    }

    /// The references to objects of a kind: the named object and its dependent.
    pub(crate) fn to(&self, kind: Kind) -> impl Iterator<Item = (&ObjectName, &ObjectName)> {
        let first = (ObjectName::new(kind, ""), ObjectName::new(Kind::Routes, ""));
        let pairs = self.pairs.range(first..).take_while(move |(on, _)| on.kind == kind);
        pairs.map(|(on, dependent)| (on, dependent))
    }

    /// The dependents of an object, in the order of their names.
    pub(crate) fn dependents_of<'d>(
        &'d self,
        on: &ObjectName,
    ) -> impl Iterator<Item = &'d ObjectName> + use<'d> {
        // The range starts at the lowest possible dependent: `Routes` is the first kind and no id sorts below the empty one.
        let first = (on.clone(), ObjectName::new(Kind::Routes, ""));
        let on = on.clone();
        self.pairs.range(first..).take_while(move |(one, _)| *one == on).map(|(_, dependent)| dependent)
    }
}

#[cfg(test)]
mod tests;
