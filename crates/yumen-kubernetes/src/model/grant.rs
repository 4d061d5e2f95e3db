//! ReferenceGrant.

use std::sync::Arc;

use serde::Deserialize;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ReferenceGrantSpec {
    pub(crate) from: Vec<GrantSource>,
    pub(crate) to: Vec<GrantTarget>,
}

/// Objects that may refer to others.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct GrantSource {
    pub(crate) group: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) namespace: Arc<str>,
}

/// Objects of the grant's namespace that may be referred to.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct GrantTarget {
    pub(crate) group: Arc<str>,
    pub(crate) kind: Arc<str>,
    /// Absent or empty: all objects of the kind.
    pub(crate) name: Option<Arc<str>>,
}
