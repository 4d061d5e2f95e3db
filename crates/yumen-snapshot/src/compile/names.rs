//! Names of objects, and their order in a compilation.

use std::fmt;
use std::sync::Arc;

use yumen_config::Kind;

/// An object by kind and id; shown as `routes/1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectName {
    pub(crate) kind: Kind,
    pub(crate) id: Arc<str>,
}

impl ObjectName {
    pub(crate) fn new(kind: Kind, id: impl Into<Arc<str>>) -> ObjectName {
        ObjectName { kind, id: id.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.name(), self.id)
    }
}

/// A name in the order of compiling: objects that others refer to come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RankedName {
    rank: u8,
    pub(crate) name: ObjectName,
}

impl From<ObjectName> for RankedName {
    fn from(name: ObjectName) -> RankedName {
        let rank = Kind::ALL.iter().position(|kind| *kind == name.kind).unwrap_or(0) as u8;
        RankedName { rank, name }
    }
}
