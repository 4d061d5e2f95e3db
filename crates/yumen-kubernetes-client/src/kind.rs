//! Watched kinds as data: which resource, in which versions, and which part of it.

/// A kind to list and watch. The members are sent to the API server; nothing else depends on the kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchTarget {
    /// The API group; empty for core kinds.
    pub group: String,
    /// The resource, `httproutes`.
    pub plural: String,
    /// `HTTPRoute`, for messages.
    pub kind: String,
    /// Versions that the caller decodes, preferred first: the first one that the API server serves is watched.
    pub versions: Vec<String>,
    /// Whether objects come as `PartialObjectMetadata`: metadata only, so that contents of Secrets never arrive.
    pub metadata_only: bool,
    /// One namespace; absent for all.
    pub namespace: Option<String>,
    /// A field selector, `type=kubernetes.io/tls`; absent for all objects.
    pub field_selector: Option<String>,
    /// A label selector; absent for all objects.
    pub label_selector: Option<String>,
}

impl WatchTarget {
    /// All objects of a kind, whole.
    pub fn new(group: &str, plural: &str, kind: &str, versions: &[&str]) -> WatchTarget {
        WatchTarget {
            group: group.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            versions: versions.iter().map(|&version| version.to_owned()).collect(),
            metadata_only: false,
            namespace: None,
            field_selector: None,
            label_selector: None,
        }
    }

    /// The kind with metadata only.
    pub fn metadata_only(self) -> WatchTarget {
        WatchTarget { metadata_only: true, ..self }
    }

    /// The media type of lists.
    pub(crate) fn list_accept(&self) -> &'static str {
        if self.metadata_only {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        } else {
            "application/json"
        }
    }

    /// The media type of watches.
    pub(crate) fn watch_accept(&self) -> &'static str {
        if self.metadata_only {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        } else {
            "application/json"
        }
    }
}
