//! Somebody's word that held deletions may pass, and what it is about. Pure.
//!
//! A word names each object by what it was: one of another cluster, or of an older copy, names nothing that is served here.

use std::collections::BTreeSet;

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

use crate::etcd::note::WriteNote;
use crate::state::{ResourceKey, StoreEntry};

/// Characters of a name.
const NAME_CHARS: usize = 12;

/// The value of the key that lets deletions pass.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(in crate::etcd) struct DeletionConfirmation {
    #[serde(flatten)]
    pub(in crate::etcd) note: WriteNote,
    /// The names of the objects, one behind another; `None` in the word of a version that named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    objects: Option<String>,
}

impl DeletionConfirmation {
    /// A word about the objects of these names.
    pub(in crate::etcd) fn about(note: WriteNote, names: &[String]) -> DeletionConfirmation {
        DeletionConfirmation { note, objects: Some(names.concat()) }
    }

    /// Reads a value; what cannot be read is a word about nothing in particular.
    pub(super) fn parse(value: &[u8]) -> DeletionConfirmation {
        serde_json::from_slice(value).unwrap_or_default()
    }

    pub(in crate::etcd) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    /// What it is about; `None` where its writer did not know that words name something.
    pub(super) fn names(&self) -> Option<BTreeSet<&[u8]>> {
        self.objects.as_ref().map(|names| names.as_bytes().chunks(NAME_CHARS).collect())
    }
}

/// The name of one version of an object.
pub(super) fn name_of(key: &ResourceKey, entry: &StoreEntry) -> String {
    let what = format!("{key}\n{}\n{}", entry.modified.0, entry.json);
    let digest = digest::digest(&digest::SHA256, what.as_bytes());
    digest.as_ref().iter().take(NAME_CHARS / 2).map(|byte| format!("{byte:02x}")).collect()
}
