//! What a writer leaves beside what it wrote: who it was, why, and when. Pure.

use serde::{Deserialize, Serialize};

use crate::state::Authorship;

/// The value of the key every write through a gateway writes too. Tools that do not know it leave it alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct WriteNote {
    /// Who wrote.
    #[serde(default)]
    pub(super) author: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// When it was decided, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub(super) time_ms: u64,
    /// By what the writer knows its own write again.
    #[serde(default)]
    pub(super) nonce: String,
}

impl WriteNote {
    /// Reads a value. Whoever wrote something else there is nobody known.
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
