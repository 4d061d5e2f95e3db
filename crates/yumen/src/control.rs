//! The control thread: sole owner of the compiler. Receives changes from all configuration sources and
//! publishes snapshots.

pub(crate) mod applied_tracker;
pub(crate) mod call_watch;
mod first_publication;
mod huge_pages;
mod input_sources;
mod lifetimes;
pub(crate) mod limit_watch;
mod local_objects;
mod metrics;
mod published_snapshots;
mod reported_problems;
mod required_endpoints;
mod status;
mod thread;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use tokio::sync::{oneshot, watch};
use yumen_base::Problem;
use yumen_config::Resource;
use yumen_plugin::{Carry, FetchRequest};
use yumen_snapshot::compile::{ConfigChange, DiscoveryQuery, DiscoveryResult, FetchedResult};
use yumen_snapshot::{Publisher, Snapshot};
use yumen_store::{EntryChange, LastGoodVersions, Revision, Store, StoreCommit, StoreState};

use crate::diagnostics::SourceText;
use crate::endpoints::inputs::{KnownInputs, RequiredHosts, RequiredServices};
use crate::fetched::RequiredFetches;
use applied_tracker::AppliedTracker;
use first_publication::FirstPublication;
pub(crate) use input_sources::InputSources;
pub(crate) use metrics::describe;
pub(crate) use status::ControlStatus;
pub(crate) use thread::start;

/// Messages to the control thread.
pub(crate) enum ControlMessage {
    /// Complete state of the store, with the last good texts of objects from earlier processes.
    State(StoreState, Vec<Resource>),
    /// The store has no usable configuration yet; start-up does not wait for one.
    NoState,
    /// A new revision of the store.
    Committed(Arc<StoreCommit>),
    /// The resource file from which the next states and commits come.
    Source(Box<SourceText>),
    /// Problems of the resource file as a whole, beside those of its objects.
    Document(Vec<Problem>),
    /// Addresses of a host name.
    Resolved(Box<str>, Vec<IpAddr>),
    /// Result of service discovery for one service.
    Discovered(Arc<DiscoveryQuery>, DiscoveryResult),
    /// Result of a fetch.
    Fetched(Arc<FetchRequest>, FetchedResult),
    /// Configuration of the successor; the sender fires when it is published. From then on, the local store's
    /// messages are ignored.
    SuccessorConfig(ConfigDelta, Sender<()>),
    /// Objects of the node itself, which no store holds; the sender fires when they are published.
    LocalObjects(Vec<ConfigChange>, Option<oneshot::Sender<()>>),
    /// Current problems of one source; replaces the earlier ones.
    Problems(ProblemSource, Vec<Problem>),
}

/// Configuration update from the successor.
pub(crate) enum ConfigDelta {
    /// Complete state.
    Whole(StoreState),
    /// Changes since the previous update.
    Changes(Vec<EntryChange>, Revision),
}

/// Reporter of node problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProblemSource {
    /// Certificate expiry monitor.
    Expiry,
    /// ACME client.
    Acme,
    /// Configuration store.
    Store,
    /// Nodes that share the store.
    Cluster,
    /// Configuration sender of a successor.
    Upgrade,
    /// Policy tests in the configuration.
    Tests,
    /// Counter tables of limit plugins.
    Limits,
    /// Kubernetes controller.
    Kubernetes,
    /// Sockets of the configuration's listeners.
    Listeners,
    /// Senders of log entries.
    Sinks,
    /// Calls of plugins to services.
    Calls,
}

/// Handle of the control thread: message sender and exported state.
#[derive(Clone)]
pub(crate) struct ControlHandle {
    pub(crate) messages: Sender<ControlMessage>,
    pub(crate) status: Arc<ControlStatus>,
    pub(crate) snapshots: watch::Receiver<Arc<Snapshot>>,
    pub(crate) hosts: watch::Receiver<RequiredHosts>,
    pub(crate) services: watch::Receiver<RequiredServices>,
    pub(crate) fetches: watch::Receiver<RequiredFetches>,
    first: watch::Receiver<FirstPublication>,
    /// Newest revision of the store that this process and its predecessor serve.
    pub(crate) applied: watch::Receiver<Revision>,
    /// Source of `applied`.
    pub(crate) applied_tracker: Arc<AppliedTracker>,
    /// Last good versions that are served in place of broken objects.
    pub(crate) versions: Arc<LastGoodVersions>,
}

impl ControlHandle {
    /// Number of host names, services and fetched values without a first result.
    pub(crate) fn unresolved(&self) -> u64 {
        self.status.unresolved.load(Ordering::Acquire)
    }

    /// Number of secrets among them.
    pub(crate) fn awaited_secrets(&self) -> u64 {
        self.status.awaited_secrets.load(Ordering::Acquire)
    }
}

/// Subscribes the control thread to revisions, and returns the current state.
pub(crate) fn follow_store(store: &dyn Store, messages: &Sender<ControlMessage>) -> StoreState {
    let follower = messages.clone();
    // Fails only if the process is ending and the control thread with it.
    store.follow(Box::new(move |committed| drop(follower.send(ControlMessage::Committed(committed.clone())))))
}

/// State that the control thread shares with other components, or starts from.
pub(crate) struct ControlContext {
    pub(crate) carry: Arc<Carry>,
    pub(crate) publisher: Arc<Publisher>,
    /// Receives the last good versions in use.
    pub(crate) versions: Arc<LastGoodVersions>,
    pub(crate) applied_tracker: AppliedTracker,
    /// Inputs of the predecessor, for the first compilation.
    pub(crate) initial_inputs: KnownInputs,
    /// Whether large tables are collapsed into huge pages.
    pub(crate) huge_pages: bool,
}
