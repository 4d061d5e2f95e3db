//! Messages of the handover protocol. They are exchanged between versions: a new member needs a default, and
//! any other change needs a new [`PROTOCOL`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use yumen_plugin::ExportedState;

use crate::serving::sockets::SocketLabel;
use crate::tls::ExportedStaple;

/// Protocol version that this program sends.
pub(super) const PROTOCOL: u32 = 2;
/// Oldest protocol version that this program accepts.
pub(super) const PROTOCOL_MIN: u32 = 2;

/// First message. Its format never changes, except by additional members.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandoverHello {
    pub(super) protocol: u32,
    /// Version of the program.
    pub(super) version: String,
}

/// State that the predecessor sends to the successor. The descriptors follow.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct HandoverOffer {
    /// Purpose of each descriptor, in order.
    pub(super) sockets: Vec<SocketLabel>,
    /// Session ticket keys in base64, the oldest first.
    #[serde(default)]
    pub(super) ticket_keys: Vec<String>,
    /// Secret of HTTP/3 connection ids in base64, and the generation of this process in them.
    #[serde(default)]
    pub(super) http3_identity: Option<(String, u8)>,
    /// The resource file, if its text ended with `#END`. A later text without that line is incomplete.
    #[serde(default)]
    pub(super) ended_file: Option<PathBuf>,
    /// Newest revision applied in the predecessor.
    #[serde(default)]
    pub(super) applied: u64,
    /// Limits of the predecessor's drain.
    #[serde(default)]
    pub(super) drain: DrainLimits,
    /// Known addresses of host names and endpoints of services; absent from versions that do not send them.
    #[serde(default)]
    pub(super) known: Value,
    /// Known OCSP staples. After a version that does not send them, the successor fetches them.
    #[serde(default)]
    pub(super) staples: Vec<ExportedStaple>,
}

/// Time limits of the predecessor's drain, by the node settings of the predecessor.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct DrainLimits {
    /// Limit after the handover, in milliseconds; 0 is no limit.
    pub(crate) after_handover_ms: u64,
    /// Limit once the drain is ended early, in milliseconds.
    pub(crate) early_ms: u64,
}

/// Messages from the predecessor after its offer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PredecessorMessage {
    /// The successor may open the store.
    StoreIsFree,
    /// The store cannot be released, with the reason.
    StoreStays(String),
    /// Current state of limits and endpoints; the successor must serve now.
    Serve(ExportedState),
    /// The handover is complete: the successor is now authoritative.
    TakenOver,
    /// Counters of the predecessor's connections since the last report.
    Counted(ExportedState),
    /// Number of client connections open in the predecessor, after a change.
    Connections(u64),
    /// The last configuration update is published in the predecessor; these objects are broken there.
    InForce(Vec<String>),
}

/// Messages from the successor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SuccessorMessage {
    /// The successor aborts the handover, with the reason.
    Refuses(String),
    /// Next step, for progress output.
    Does(String),
    /// The successor needs the store, which only one process can have open.
    WantsStore,
    /// The successor is ready to serve.
    Ready(SuccessorReady),
    /// The successor serves.
    Serves,
    /// The successor accepts the next upgrade request.
    Settled,
    /// Configuration update. The next one is sent after this one is in force.
    Configured(ConfigUpdate),
    /// The predecessor must end its drain early: the gateway ends, or an operator ended the drain.
    EndDrain,
}

/// Texts of the configuration. They contain secrets, as does the memory of both processes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ConfigUpdate {
    /// Revision of the texts.
    pub(super) revision: u64,
    /// Whether `objects` is the complete set, so that absent objects are deleted; otherwise only changes.
    #[serde(default)]
    pub(super) is_whole: bool,
    /// Whether further parts follow; the last part publishes the update.
    #[serde(default)]
    pub(super) is_more_to_come: bool,
    #[serde(default)]
    pub(super) objects: Vec<ObjectText>,
}

/// Kind and id of an object, with its text unless it is deleted.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ObjectText {
    pub(super) kind: String,
    pub(super) id: String,
    pub(super) json: Option<String>,
    /// Expiry, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires_ms: Option<u64>,
}

/// Result of the successor's compilation.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct SuccessorReady {
    /// Version of the program.
    pub(super) version: String,
    /// Objects with errors, with messages.
    #[serde(default)]
    pub(super) broken: Vec<(String, String)>,
    /// Broken objects whose last good version is served.
    #[serde(default)]
    pub(super) last_good: Vec<String>,
    /// Names of all objects, broken ones included; absent from versions that do not send them.
    #[serde(default)]
    pub(super) objects: Option<Vec<String>>,
}
