//! Addresses of objects on the API server, by the versions that it serves.

use std::collections::{BTreeMap, BTreeSet};

use yumen_kubernetes::{ClusterKind, ObjectKey};
use yumen_kubernetes_client::{ObjectAddress, RawObjectChange, WatchOutput, WatchSet, WatchTarget};

/// The served version of each kind.
#[derive(Debug, Default)]
pub(super) struct ServedVersions {
    versions: BTreeMap<ClusterKind, Box<str>>,
}

impl ServedVersions {
    pub(super) fn set(&mut self, kind: ClusterKind, version: Box<str>) {
        self.versions.insert(kind, version);
    }

    /// The address of an object.
    pub(super) fn path(&self, key: &ObjectKey) -> ObjectAddress {
        let api = key.kind.api();
        let version = self.versions.get(&key.kind).map_or(api.versions[0], |version| version);
        ObjectAddress {
            group: api.group.into(),
            version: version.into(),
            plural: api.plural.into(),
            namespace: (!key.namespace.is_empty()).then(|| (&*key.namespace).into()),
            name: (&*key.name).into(),
        }
    }
}

/// The kind for the client, with whole objects of all namespaces.
pub(super) fn watched(kind: ClusterKind) -> WatchTarget {
    let api = kind.api();
    WatchTarget::new(api.group, api.plural, api.name, api.versions)
}

/// The object at an address; `None` for a kind that the translation does not read.
pub(super) fn key_of(at: &ObjectAddress) -> Option<ObjectKey> {
    let kind =
        ClusterKind::all().find(|kind| kind.api().group == &*at.group && kind.api().plural == &*at.plural)?;
    Some(ObjectKey::new(kind, at.namespace.as_deref().unwrap_or_default(), &at.name))
}

/// Looks up the versions of the groups whose definitions changed.
pub(super) fn recheck_groups(output: &WatchOutput, watches: &WatchSet) {
    let names: Vec<&str> = match output {
        WatchOutput::Replaced(objects) => objects.iter().map(|object| &*object.name).collect(),
        WatchOutput::Changed(RawObjectChange::Put(object) | RawObjectChange::Delete(object)) => {
            vec![&object.name]
        }
        _ => return,
    };
    // A definition is named `plural.group`.
    let groups: BTreeSet<&str> = names.iter().filter_map(|name| Some(name.split_once('.')?.1)).collect();
    groups.iter().for_each(|group| watches.recheck_group(group));
}
