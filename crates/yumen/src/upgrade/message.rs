//! What is said while one process takes over from another. Changes here are changes between versions: a member
//! may be added with a default; anything else is a new [`PROTOCOL`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use yumen_plugin::ExportedState;

use crate::sockets::SocketLabel;
use crate::tls::ExportedStaple;

/// The version of what is said.
pub(super) const PROTOCOL: u32 = 1;
/// The oldest version that is understood.
pub(super) const PROTOCOL_MIN: u32 = 1;

/// The first thing said; the one document that never changes but by more members.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandoverHello {
    pub(super) protocol: u32,
    /// The version of the program.
    pub(super) version: String,
}

/// What the process that serves gives to the one that takes over. The descriptors follow it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct HandoverOffer {
    /// What the descriptors are for, in their order.
    pub(super) sockets: Vec<SocketLabel>,
    /// The keys of session tickets in base64, the oldest first.
    #[serde(default)]
    pub(super) ticket_keys: Vec<String>,
    /// What identifiers of HTTP/3 connections are made of, in base64, and the number of this process in them.
    #[serde(default)]
    pub(super) http3_identity: Option<(String, u8)>,
    /// The resource file, if its text ended with `#END`: without that line it is half written.
    #[serde(default)]
    pub(super) ended_file: Option<PathBuf>,
    /// Whether this process, once it has been taken over from, follows what it is told of the configuration.
    #[serde(default)]
    pub(super) follows: bool,
    /// Whether there are processes before this one still.
    #[serde(default)]
    pub(super) outlives: bool,
    /// The newest revision that every next request here and there is served by.
    #[serde(default)]
    pub(super) applied: u64,
    /// What is known of host names and discovered services; a version that does not tell it knows nothing of them.
    #[serde(default)]
    pub(super) known: Value,
    /// What is shown of the status of certificates; a version that does not tell it leaves it to be fetched.
    #[serde(default)]
    pub(super) staples: Vec<ExportedStaple>,
}

/// What the process that serves says after its offer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PredecessorMessage {
    /// The store can be opened.
    StoreIsFree,
    /// The store cannot be given away, and why.
    StoreStays(String),
    /// What is known of limits and endpoints; serve now.
    Serve(ExportedState),
    /// The one that takes over is the one that counts now.
    TakenOver,
    /// What was counted on connections of the old process meanwhile.
    Counted(ExportedState),
    /// What was told last of the configuration serves every next request of the old process. These objects of it are
    /// broken there.
    InForce(Vec<String>),
    /// And those of the processes before it, as far as so many tellings have come.
    Followed(u64),
    /// The number of a process before it that does not follow.
    WaitsFor(Option<i32>),
    /// It has ended, and so have all before it.
    Ended,
}

/// What the process that takes over says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SuccessorMessage {
    /// It does not take over, and why.
    Refuses(String),
    /// What it is about to do.
    Does(String),
    /// It needs the store, which only one process can have open.
    WantsStore,
    /// It could serve now.
    Ready(SuccessorReady),
    /// It serves.
    Serves,
    /// It can be asked for the next upgrade.
    Settled,
    /// What the configuration is, to one that follows. It says when that is in force, and hears no more of it before.
    Configured(ConfigUpdate),
    /// The gateway is ending. A version that does not know of it does not listen any more by then.
    Ends,
}

/// Texts of the configuration; they hold secrets, as does the memory of both processes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ConfigUpdate {
    /// The revision they are of.
    pub(super) revision: u64,
    /// Whether these are all objects, and what is not among them is gone; else they are those that changed.
    #[serde(default)]
    pub(super) is_whole: bool,
    /// Whether more belongs to it: it comes in force with the last part.
    #[serde(default)]
    pub(super) is_more_to_come: bool,
    #[serde(default)]
    pub(super) objects: Vec<ObjectText>,
}

/// An object: its kind and id, and its text if it is there.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ObjectText {
    pub(super) kind: String,
    pub(super) id: String,
    pub(super) json: Option<String>,
    /// When it ends by itself, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires_ms: Option<u64>,
}

/// What the new process made of the configuration.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct SuccessorReady {
    /// The version of the program.
    pub(super) version: String,
    /// Objects with errors, and what is wrong with them.
    #[serde(default)]
    pub(super) broken: Vec<(String, String)>,
    /// Those of them whose last good version is in force.
    #[serde(default)]
    pub(super) last_good: Vec<String>,
    /// All objects, broken ones too; a version that does not tell them has none.
    #[serde(default)]
    pub(super) objects: Option<Vec<String>>,
}
