//! Addresses of objects on the API server, by the versions that it serves.

use std::collections::BTreeMap;

use yumen_kubernetes::{ClusterKind, ObjectKey};
use yumen_kubernetes_client::{ApiClient, ObjectPath, WatchedKind};

/// The served version of each kind.
#[derive(Debug, Default)]
pub(super) struct ServedVersions {
    versions: BTreeMap<ClusterKind, Box<str>>,
}

impl ServedVersions {
    /// Looks up the version of a kind; the preferred one if the API server does not answer.
    pub(super) async fn look_up(&mut self, client: &ApiClient, kind: ClusterKind) {
        if let Ok(Some(version)) = client.served_version(&watched(kind)).await {
            self.versions.insert(kind, version.into());
        }
    }

    /// The address of an object.
    pub(super) fn path(&self, key: &ObjectKey) -> ObjectPath {
        let api = key.kind.api();
        let version = self.versions.get(&key.kind).map_or(api.versions[0], |version| version);
        ObjectPath {
            group: api.group.into(),
            version: version.into(),
            plural: api.plural.into(),
            namespace: (!key.namespace.is_empty()).then(|| (&*key.namespace).into()),
            name: (&*key.name).into(),
        }
    }
}

/// The kind for the client, with whole objects of all namespaces.
pub(super) fn watched(kind: ClusterKind) -> WatchedKind {
    let api = kind.api();
    WatchedKind::new(api.group, api.plural, api.name, api.versions)
}

/// The object at an address; `None` for a kind that the translation does not read.
pub(super) fn key_of(at: &ObjectPath) -> Option<ObjectKey> {
    let kind = ClusterKind::all()
        .find(|kind| kind.api().group == &*at.group && kind.api().plural == &*at.plural)?;
    Some(ObjectKey::new(kind, at.namespace.as_deref().unwrap_or_default(), &at.name))
}
