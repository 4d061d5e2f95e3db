//! The store in etcd, shared by a cluster of nodes, in the key layout of APISIX.
//!
//! Serves its mirror whether or not etcd is reachable. Owns a runtime; does not interpret the texts and
//! is independent of the purpose of the followers.

mod announce;
mod client;
mod follow;
mod history;
mod layout;
mod mirror;
mod nodes;
mod note;
mod plan;
mod proto;
mod settings;
mod shared;
mod shared_keys;
#[cfg(test)]
mod tests;
mod tls;
mod wire;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};

pub use announce::{AnnouncedNode, Describe, NodeAnnouncement};
pub use client::{ClusterHead, EtcdClient, EtcdWatch, KeyListing, WatchMessage};
pub use mirror::FOREIGN;
pub use nodes::NodeRecord;
pub use proto::{KeyEvent, KeyValue};
pub use settings::{EtcdClientSettings, EtcdSettings, EtcdTlsFiles, RetryPauses};
pub use shared::{EtcdStatus, MirrorPosition, OnProblems};
pub use shared_keys::SharedKeys;
pub use wire::{GrpcCode, RpcError};

use crate::directory::{self, DataDir};
use crate::last_good::{self, FormerState, LastGood, LastGoodTask, LastGoodVersions, RecoveredState};
use crate::seal::{OptionalSeal, TextSeal};
use crate::state::{Authorship, Revision, StoreCommit, StoreState};
use crate::store::{ConfirmFn, FollowerFn, Proposal, Store, StoreError};
use mirror::{EtcdMirror, FROM};
use shared::EtcdShared;
use write::WriteRequest;

/// Subdirectory of the data directory for the last good state.
pub const DIRECTORY: &str = "etcd";

/// File in that directory with the id of the node.
const NODE_ID: &str = "node";

/// Maximum time for the runtime to shut down.
const END_WAIT: Duration = Duration::from_secs(1);
/// Maximum time for one lookup in etcd's history.
const LOOK_BACK: Duration = Duration::from_secs(10);

/// A node's view of a cluster, kept up to date by a background thread.
pub struct EtcdStore {
    shared: Arc<EtcdShared>,
    requests: UnboundedSender<WriteRequest>,
    looks: UnboundedSender<HistoryLookup>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    runtime: tokio::runtime::Handle,
    /// Directory of this node's files.
    path: PathBuf,
}

/// Request for the state as of a past revision.
struct HistoryLookup {
    revision: Revision,
    answer: mpsc::SyncSender<Result<StoreState, StoreError>>,
}

/// An opened store with its directory guard, which is dropped first.
pub struct OpenedEtcdStore {
    /// Directory lock and the task that saves the last good state.
    pub directory_lock: Arc<EtcdDataDir>,
    /// The store.
    pub store: Arc<EtcdStore>,
    /// State served by the previous process.
    pub former: FormerState,
}

/// The data directory of a node with the last good state; one process at a time may hold the directory.
///
/// The store also works without the directory, since another process may keep it after a handover.
pub struct EtcdDataDir {
    store: Arc<EtcdStore>,
    seal: Option<Arc<dyn TextSeal>>,
    versions: Arc<LastGoodVersions>,
    guard: Mutex<Option<DataDirGuard>>,
}

/// Fields drop in this order: the last save must finish before the release of the lock.
struct DataDirGuard {
    _keeper: LastGoodTask,
    _directory: DataDir,
}

impl EtcdDataDir {
    fn new(
        store: &Arc<EtcdStore>,
        seal: Option<Arc<dyn TextSeal>>,
        versions: Arc<LastGoodVersions>,
        directory: DataDir,
    ) -> Result<Self, StoreError> {
        let directory_lock = EtcdDataDir { store: store.clone(), seal, versions, guard: Mutex::default() };
        directory_lock.keep(directory)?;
        Ok(directory_lock)
    }

    fn keep(&self, directory: DataDir) -> Result<(), StoreError> {
        let (seal, versions) = (self.seal.clone(), self.versions.clone());
        let task = LastGoodTask::start(directory.path(), self.store.clone(), seal, versions)?;
        *self.guard() = Some(DataDirGuard { _keeper: task, _directory: directory });
        Ok(())
    }

    /// Saves the last good state and releases the directory to another process.
    pub fn release_for_handover(&self) {
        drop(self.guard().take());
    }

    /// Locks the directory again after a failed handover.
    pub fn take_back(&self) -> Result<(), StoreError> {
        // The directory is still locked by this process.
        if self.guard().is_some() {
            return Ok(());
        }
        self.keep(DataDir::lock(&self.store.path)?)
    }

    fn guard(&self) -> MutexGuard<'_, Option<DataDirGuard>> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EtcdStore {
    /// Opens the store; starts with the last good state in `data_dir` if the cluster does not answer in time.
    ///
    /// Fails if neither is available, if another process has locked the directory, or if settings or files
    /// are invalid.
    pub fn open(
        data_dir: &Path,
        seal: Option<Arc<dyn TextSeal>>,
        settings: EtcdSettings,
        on_problems: OnProblems,
        versions: Arc<LastGoodVersions>,
    ) -> Result<OpenedEtcdStore, StoreError> {
        // Locked before anything is read, so that no other process changes the files meanwhile.
        let directory = DataDir::lock(&data_dir.join(DIRECTORY))?;
        let path = directory.path().to_owned();
        let client = EtcdClient::new(settings.client.clone())
            .map_err(|wrong| StoreError::Unreachable(format!("etcd cannot be used: {wrong}")))?;
        let last_good = last_good_of(&path, &OptionalSeal(seal.clone()), &settings.prefix);
        // The state itself moves into the mirror; the message needs only the outcome.
        let found = last_good.as_ref().map(|found| found.as_ref().map(|_| ()).map_err(Clone::clone));
        let (wait, last_good) = (settings.start_timeout, last_good.and_then(Result::ok));
        // The former versions belong to this cluster only if the last good state does.
        let former = last_good
            .as_ref()
            .map(|(found, _)| FormerState::read(&path, seal.clone()).with(found.state.clone()));
        let shared = Arc::new(EtcdShared::new(settings, client, last_good, on_problems));
        let store = Arc::new(EtcdStore::start(shared, path)?);
        store.wait_for_cluster(wait, found.is_none());
        // Still unreachable after the wait. An empty configuration would look like success (decision 16).
        if let Some(error) = store.shared.error() {
            match found {
                Some(Ok(())) => {
                    let revision = store.state().revision.0;
                    tracing::error!(error, revision, "etcd unreachable, serving the last good state");
                    store.shared.report_last_good();
                }
                Some(Err(damaged)) => return Err(no_state_error(&error, &damaged.to_string())),
                None => return Err(no_state_error(&error, "no last good state for this prefix")),
            }
        }
        let directory_lock = Arc::new(EtcdDataDir::new(&store, seal, versions, directory)?);
        Ok(OpenedEtcdStore { directory_lock, store, former: former.unwrap_or_default() })
    }

    fn start(shared: Arc<EtcdShared>, path: PathBuf) -> Result<EtcdStore, StoreError> {
        // One worker for the watch and one for decisions, which may run long.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("yumen-etcd")
            .enable_all()
            .build()?;
        let (requests, request_receiver) = unbounded_channel();
        let (looks, looked) = unbounded_channel();
        let (end, ended) = oneshot::channel();
        let handle = runtime.handle().clone();
        let used = shared.clone();
        let run = move || {
            runtime.block_on(async move {
                tokio::spawn(follow::run(used.clone()));
                tokio::spawn(serve_lookups(used.clone(), looked));
                tokio::spawn(write::run(used, request_receiver));
                // Dropping the sender ends the wait, so no message is needed.
                let _ = ended.await;
            });
            // A pending name lookup must not block the shutdown.
            runtime.shutdown_timeout(END_WAIT);
        };
        let thread = std::thread::Builder::new().name("yumen-etcd".into()).spawn(run)?;
        Ok(EtcdStore { shared, requests, looks, end: Some(end), thread: Some(thread), runtime: handle, path })
    }

    /// Waits for the first listing. Without a last good state, the first attempt is awaited regardless of
    /// `at_most`.
    fn wait_for_cluster(&self, at_most: Duration, is_needed: bool) {
        const LOOK_EVERY: Duration = Duration::from_millis(2);
        let begin = Instant::now();
        // Without a saved state the process cannot serve, so it reports the reason of the first failure.
        let is_early = || begin.elapsed() < at_most || (is_needed && !self.shared.is_tried());
        while self.shared.error().is_some() && is_early() {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Connection state, staleness and held deletions.
    pub fn status(&self) -> EtcdStatus {
        self.shared.status()
    }

    /// Revisions that this node has seen, serves and has changed at.
    pub fn position(&self) -> MirrorPosition {
        self.shared.position()
    }

    /// Id of this node, created at the first start and stored in the data directory.
    pub fn node_id(&self) -> Result<String, StoreError> {
        let path = self.path.join(NODE_ID);
        let saved = match std::fs::read(&path) {
            Ok(saved) => saved,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(directory::about(&path, &error).into()),
        };
        // A damaged file, even one that is not UTF-8, is replaced by a new id.
        if let Some(id) = std::str::from_utf8(&saved).ok().map(str::trim).filter(|id| is_node_id(id)) {
            return Ok(id.to_owned());
        }
        // Written to a draft and renamed: a crash leaves either no id or a whole one.
        let (id, draft) = (random_name(), directory::suffixed(&path, ".draft"));
        std::io::Write::write_all(&mut directory::create_private(&draft)?, id.as_bytes())?;
        directory::rename_durably(&draft, &path)?;
        Ok(id)
    }

    /// Publishes this node's record under a lease until the returned value is dropped.
    pub fn announce(&self, what: NodeAnnouncement) -> AnnouncedNode {
        announce::begin(self.shared.clone(), &self.runtime, what)
    }

    /// Latest record of each live node by id. During an outage of etcd, the records received last.
    pub fn nodes(&self) -> BTreeMap<Arc<str>, NodeRecord> {
        self.shared.nodes.records()
    }

    /// Notifies when a node record changes.
    pub fn nodes_moved(&self) -> watch::Receiver<u64> {
        self.shared.nodes.moves()
    }

    /// Keys that nodes share besides the configuration.
    pub fn board(&self) -> SharedKeys {
        SharedKeys::new(self.shared.clone())
    }

    /// The client of this store, for other uses of the cluster by this node.
    pub fn client(&self) -> EtcdClient {
        self.shared.client.clone()
    }

    /// Prefix of all keys of this store, with a trailing slash.
    pub fn root(&self) -> &str {
        self.shared.layout.root()
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        drop(self.end.take());
        // A follower or a proposal may drop the last reference on this thread, and a thread cannot join
        // itself.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Store for EtcdStore {
    fn state(&self) -> StoreState {
        self.shared.state()
    }

    fn propose(&self, proposal: Proposal) {
        if let Err(refused) = self.requests.send(WriteRequest::Propose(proposal))
            && let WriteRequest::Propose(proposal) = refused.0
        {
            // A proposal that is never answered would block its caller.
            (proposal.done)(Err(StoreError::Ended));
        }
    }

    fn follow(&self, follower: FollowerFn) -> StoreState {
        self.shared.follow(follower)
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Arc<StoreCommit>>, StoreError> {
        Ok(self.shared.with_past(|past| past.history(before, limit)))
    }

    /// A write to etcd is durable once a quorum acknowledged it; nothing is left to check.
    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The problems of the node report the connection to etcd.
    fn failure(&self) -> Option<StoreError> {
        None
    }

    fn confirm(&self, by: Authorship, done: ConfirmFn) {
        if let Err(refused) = self.requests.send(WriteRequest::Confirm(by, done))
            && let WriteRequest::Confirm(_, done) = refused.0
        {
            done(Err(StoreError::Ended));
        }
    }

    /// Reconstructs the state from this node's history, or reads it from etcd if not yet compacted there.
    fn state_at(&self, revision: Revision) -> Result<StoreState, StoreError> {
        let newest = self.state();
        if let Some(state) = self.shared.with_past(|past| past.state_at(revision, &newest)) {
            return Ok(state);
        }
        // A revision of the future, and the state before the first revision, exist nowhere.
        if revision > newest.revision || revision == Revision::default() {
            return Err(StoreError::Compacted(revision));
        }
        // Bounded by one response; the sender never blocks.
        let (answer, answered) = mpsc::sync_channel(1);
        self.looks.send(HistoryLookup { revision, answer }).map_err(|_| StoreError::Ended)?;
        let late = |_| StoreError::Unreachable("etcd history lookup timed out".into());
        answered.recv_timeout(LOOK_BACK).map_err(late)?
    }
}

async fn serve_lookups(shared: Arc<EtcdShared>, mut looks: UnboundedReceiver<HistoryLookup>) {
    while let Some(HistoryLookup { revision, answer }) = looks.recv().await {
        let listed = shared.client.get_prefix(shared.layout.root(), Some(revision.0)).await;
        let state = match listed {
            Ok(listing) => {
                // Without a hold: the state is only read.
                let mut past = EtcdMirror::new(shared.layout.clone(), StoreState::default(), 0);
                past.take_list(&listing, 0);
                let mut state = past.state().clone();
                state.revision = revision;
                Ok(state)
            }
            Err(RpcError::Status { code: GrpcCode::OutOfRange, .. }) => Err(StoreError::Compacted(revision)),
            Err(error) => Err(StoreError::Unreachable(format!("etcd cannot be read: {error}"))),
        };
        // The receiver is dropped after `LOOK_BACK`; the result is discarded.
        let _ = answer.send(state);
    }
}

/// Loads the last good state of this prefix and its age. `None` if there is none or its prefix differs.
fn last_good_of(
    directory: &Path,
    edge: &OptionalSeal,
    prefix: &str,
) -> Option<Result<(RecoveredState, Duration), StoreError>> {
    let file = directory.join(last_good::FILE);
    let saved = std::fs::metadata(&file).and_then(|about| about.modified()).ok()?;
    // A file that is newer than the clock has no known age.
    let age = SystemTime::now().duration_since(saved).unwrap_or_default();
    let root = format!("{prefix}/");
    match LastGood::recover(directory, edge) {
        // A state of another prefix belongs to another cluster or tenant.
        Ok(found) if found.state.setting(FROM).is_some_and(|from| **from == root) => Some(Ok((found, age))),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    }
}

/// Whether a text is valid as an id in a key: 1 to 64 characters of `A-Z a-z 0-9 -`.
fn is_node_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn no_state_error(error: &str, last_good: &str) -> StoreError {
    StoreError::Unreachable(format!(
        "etcd cannot be reached: {error}; nor is there a last good state: {last_good}"
    ))
}

/// Random number below `end`, to spread the nodes.
fn random_below(end: usize) -> usize {
    let mut bytes = [0; 8];
    // Without randomness every node picks the first value, which is valid.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    (u64::from_le_bytes(bytes) % end.max(1) as u64) as usize
}

/// Random name of 128 bits.
fn random_name() -> String {
    let mut bytes = [0; 16];
    // Without randomness, the compared revision still distinguishes two writes.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
