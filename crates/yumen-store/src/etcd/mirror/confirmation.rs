//! Confirmation of held deletions, with the objects it covers. Pure.
//!
//! Each object is named by a digest of its content. A confirmation for another cluster, or for an older copy
//! of this one, therefore covers nothing here.

use std::collections::BTreeSet;

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

use crate::etcd::note::WriteNote;
use crate::state::{ResourceKey, StoreEntry};

/// Length of a name in characters.
const NAME_CHARS: usize = 12;

/// Value of the confirmation key.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(in crate::etcd) struct DeletionConfirmation {
    #[serde(flatten)]
    pub(in crate::etcd) note: WriteNote,
    /// Concatenated names; `None` if the writing version named no objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    objects: Option<String>,
}

impl DeletionConfirmation {
    /// Creates a confirmation of the named objects.
    pub(in crate::etcd) fn about(note: WriteNote, names: &[String]) -> DeletionConfirmation {
        DeletionConfirmation { note, objects: Some(names.concat()) }
    }

    /// Parses a value; an unreadable one counts as a confirmation without names.
    pub(super) fn parse(value: &[u8]) -> DeletionConfirmation {
        serde_json::from_slice(value).unwrap_or_default()
    }

    pub(in crate::etcd) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    /// The named objects; `None` for a confirmation by a version that names none.
    pub(super) fn names(&self) -> Option<BTreeSet<&[u8]>> {
        self.objects.as_ref().map(|names| names.as_bytes().chunks(NAME_CHARS).collect())
    }
}

/// Name of one version of an object: a truncated SHA-256 digest in hexadecimal.
pub(super) fn name_of(key: &ResourceKey, entry: &StoreEntry) -> String {
    let what = format!("{key}\n{}\n{}", entry.modified.0, entry.json);
    let digest = digest::digest(&digest::SHA256, what.as_bytes());
    digest.as_ref().iter().take(NAME_CHARS / 2).map(|byte| format!("{byte:02x}")).collect()
}
