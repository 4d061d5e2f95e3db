//! Note of a writer with author, reason and time, stored with each write. Pure.

use serde::{Deserialize, Serialize};

use crate::state::Authorship;

/// Value of the key that every write through a gateway updates. Other programs leave the key alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct WriteNote {
    #[serde(default)]
    pub(super) author: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// Time of the decision in milliseconds since the Unix epoch.
    #[serde(default)]
    pub(super) time_ms: u64,
    /// Identifies the write for its writer.
    #[serde(default)]
    pub(super) nonce: String,
}

impl WriteNote {
    /// Parses a value; an unreadable one has no known author.
    pub(super) fn parse(value: &[u8]) -> WriteNote {
        serde_json::from_slice(value).unwrap_or_default()
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    pub(super) fn authorship(&self) -> Authorship {
        Authorship { author: self.author.clone(), reason: self.reason.clone() }
    }
}
