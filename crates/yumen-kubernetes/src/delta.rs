//! The result of a translation: differences to the previous result.

use std::collections::BTreeSet;

use serde_json::Value;
use yumen_base::problem::Problem;

use crate::model::{ClusterKind, ObjectKey};
use crate::resources::ResourceChange;
use crate::status::StatusDraft;

/// Path of an object that the controller writes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectPath {
    /// The object.
    pub key: ObjectKey,
}

impl ObjectPath {
    /// Whether the controller made the object and so removes it: true for Services and slices of Gateways, false for
    /// objects of users to which it adds a member.
    pub fn is_owned(&self) -> bool {
        matches!(self.key.kind, ClusterKind::Service | ClusterKind::EndpointSlice)
    }
}

/// A change of an object that the leader writes.
#[derive(Debug, Clone, PartialEq)]
pub enum DesiredObject {
    /// The members that the controller owns, with apiVersion, kind and metadata, for server-side apply.
    Apply(ObjectPath, Value),
    /// The object is removed.
    Remove(ObjectPath),
    /// The name is added to `metadata.finalizers` of an existing object.
    AddFinalizer(ObjectPath, &'static str),
    /// The name is removed from `metadata.finalizers`.
    RemoveFinalizer(ObjectPath, &'static str),
    /// Nothing is to be added to an object of a user any more: a write that waits is dropped.
    Leave(ObjectPath),
}

/// The state of an object that a unit requires.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ObjectIntent {
    Apply(Value),
    AddFinalizer(&'static str),
    RemoveFinalizer(&'static str),
}

impl DesiredObject {
    /// The change that follows from a new intent, or from the end of one.
    pub(crate) fn from_intent(path: ObjectPath, intent: Option<ObjectIntent>) -> DesiredObject {
        match intent {
            Some(ObjectIntent::Apply(value)) => DesiredObject::Apply(path, value),
            Some(ObjectIntent::AddFinalizer(name)) => DesiredObject::AddFinalizer(path, name),
            Some(ObjectIntent::RemoveFinalizer(name)) => DesiredObject::RemoveFinalizer(path, name),
            None if path.is_owned() => DesiredObject::Remove(path),
            None => DesiredObject::Leave(path),
        }
    }
}

/// The differences that follow from changes of objects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TranslationDelta {
    /// Resources, for one commit: first those that others refer to, deletions last.
    pub resources: Vec<ResourceChange>,
    /// Drafts of status; `None` for an object that no longer has an entry of this controller.
    pub statuses: Vec<(ObjectKey, Option<StatusDraft>)>,
    /// Objects for the leader to write.
    pub objects: Vec<DesiredObject>,
    /// Secrets and ConfigMaps whose content is required, if the set changed. Each is answered by
    /// [`ClusterChange::Put`](crate::ClusterChange::Put), or by `Delete` if it does not exist.
    pub wanted: Option<BTreeSet<ObjectKey>>,
    /// All problems, if they changed.
    pub problems: Option<Vec<Problem>>,
}
