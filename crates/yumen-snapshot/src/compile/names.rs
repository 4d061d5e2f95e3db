//! Names of objects, and who depends on whom.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use yumen_config::Kind;

/// An object by kind and id; shown as `routes/1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ObjectName {
    pub(super) kind: Kind,
    pub(super) id: Arc<str>,
}

impl ObjectName {
    pub(super) fn new(kind: Kind, id: impl Into<Arc<str>>) -> ObjectName {
        ObjectName { kind, id: id.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.name(), self.id)
    }
}

/// A name in the order of compiling: what others refer to comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankedName {
    rank: u8,
    pub(super) name: ObjectName,
}

impl From<ObjectName> for RankedName {
    fn from(name: ObjectName) -> RankedName {
        let rank = Kind::ALL.iter().position(|kind| *kind == name.kind).unwrap_or(0) as u8;
        RankedName { rank, name }
    }
}

/// Pairs of an object and one that depends on it, in one ordered set: compact, and cheap to change
/// however many dependents an object has.
#[derive(Debug, Default)]
pub(super) struct DependencySet {
    pairs: BTreeSet<(ObjectName, ObjectName)>,
}

impl DependencySet {
    pub(super) fn add(&mut self, on: ObjectName, dependent: &ObjectName) {
        self.pairs.insert((on, dependent.clone()));
    }

    pub(super) fn remove(&mut self, on: ObjectName, dependent: &ObjectName) {
        self.pairs.remove(&(on, dependent.clone()));
    }

    pub(super) fn of<'d>(&'d self, on: &ObjectName) -> impl Iterator<Item = &'d ObjectName> + use<'d> {
        // Routes are the lowest kind and no id is below the empty one.
        let first = (on.clone(), ObjectName::new(Kind::Routes, ""));
        let on = on.clone();
        self.pairs.range(first..).take_while(move |(one, _)| *one == on).map(|(_, dependent)| dependent)
    }
}
