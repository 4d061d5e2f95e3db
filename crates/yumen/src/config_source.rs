//! The doors configuration comes in by: opens the node's store and has every revision told to the control thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context, bail};
use yumen_base::{Problem, ProblemLevel, keep_last_good};
use yumen_config::node::{self, StoreKind};
use yumen_config::{NodeConfig, Resource, document};
use yumen_store::embedded::{EmbeddedOptions, MissingStorePolicy, holds_store};
use yumen_store::etcd::{
    EtcdClientSettings, EtcdDataDir, EtcdSettings, EtcdStore, EtcdTlsFiles, OpenedEtcdStore,
};
use yumen_store::file::{FileEvent, FileStore, WatchGuard};
use yumen_store::starter::STARTER;
use yumen_store::{
    Authorship, Draft, FormerState, HistoryRetention, LastGoodVersions, MemoryMedium, Proposal,
    ReadOnlyStore, ResourceKey, Revision, Store, StoreEntry, StoreState,
};
use yumen_store::{open_keyring, open_or_last_good};

use crate::compiler;
use crate::config_origin::ConfigSource;
use crate::control::{ControlHandle, ControlMessage, ProblemSource};
use crate::tls::BOARD;
use crate::trial::TrialCompiler;
use crate::upgrade::{ExclusiveStore, HandoverStore};

/// Revisions a node keeps of a file it watches: they are there to look at, the file is what counts.
const FILE_REVISIONS_MAX: usize = 100;

/// A node's store, open.
pub(crate) struct OpenedConfigSource {
    /// Where resources live.
    pub(crate) store: Arc<dyn Store>,
    /// What tells where its content is from.
    pub(crate) source: ConfigSource,
    _watch: Option<WatchGuard>,
    /// The resource file, where the store is one.
    document: Option<FileStore>,
    /// What only one process has of a store in etcd.
    home: Option<Arc<EtcdDataDir>>,
}

impl OpenedConfigSource {
    /// Opens what the node's configuration names; from then on every revision reaches the control thread.
    pub(crate) fn open(
        node: &NodeConfig,
        start: &StoreStart,
        control: &ControlHandle,
        trial: Arc<TrialCompiler>,
        versions: Arc<LastGoodVersions>,
    ) -> anyhow::Result<OpenedConfigSource> {
        let reader = DocumentReader { messages: control.messages.clone(), trial };
        match node.store.kind {
            StoreKind::File => open_file(&node.store, start, reader),
            StoreKind::Embedded => open_embedded(node, start, reader, versions),
            StoreKind::Etcd => open_etcd(node, &control.messages, versions),
        }
    }
}

/// How a process comes to its store.
pub(crate) enum StoreStart {
    /// It is the gateway's first: what is not there is begun.
    First,
    /// It takes over from one that serves, whose configuration is not replaced by the beginnings of another.
    TakesOver {
        /// The resource file of the process before, if its text ended with `#END`.
        ended_file: Option<PathBuf>,
    },
}

impl StoreStart {
    /// Refuses to go on where a store would have to be begun that must be there; makes nothing.
    pub(crate) fn check(&self, store: &node::StoreConfig) -> anyhow::Result<()> {
        let dir = Path::new(&store.data_dir);
        match self {
            StoreStart::TakesOver { .. } if store.kind == StoreKind::Embedded && !holds_store(dir) => bail!(
                "there is no store in {}, and a process that takes over begins none: it would serve nothing of what \
                 is served now (to begin with an empty store, end the gateway and start it)",
                dir.display()
            ),
            _ => Ok(()),
        }
    }

    fn absent(&self) -> MissingStorePolicy {
        match self {
            StoreStart::First => MissingStorePolicy::Create,
            StoreStart::TakesOver { .. } => MissingStorePolicy::Fail,
        }
    }

    /// Whether a file is known to have ended with `#END`.
    fn expects_end(&self, path: &Path) -> bool {
        matches!(self, StoreStart::TakesOver { ended_file: Some(ended) } if ended == path)
    }
}

impl OpenedConfigSource {
    /// What of the store another process of this node would have to be given.
    pub(crate) fn exclusive(&self) -> ExclusiveStore {
        match (&self.source, &self.home) {
            (ConfigSource::Embedded(fallback), _) => ExclusiveStore::Database(Arc::downgrade(fallback)),
            (_, Some(home)) => ExclusiveStore::Directory(Arc::downgrade(home)),
            _ => ExclusiveStore::Nothing,
        }
    }

    /// What the next process would have to make as much of.
    pub(crate) fn held(&self) -> Arc<HandoverStore> {
        Arc::new(HandoverStore::new(&self.store, self.document.clone()))
    }
}

/// Has the state and every revision after it sent to the control thread.
fn follow(store: &dyn Store, messages: &Sender<ControlMessage>) -> StoreState {
    let follower = messages.clone();
    // The control thread ends with the process.
    store.follow(Box::new(move |committed| drop(follower.send(ControlMessage::Committed(committed.clone())))))
}

/// The store in the data directory; where it is new it starts with what says hello.
fn open_embedded(
    node: &NodeConfig,
    start: &StoreStart,
    reader: DocumentReader,
    versions: Arc<LastGoodVersions>,
) -> anyhow::Result<OpenedConfigSource> {
    let dir = Path::new(&node.store.data_dir);
    let options = EmbeddedOptions { versions, ..options(&node.store, start.absent())? };
    let former = FormerState::read(dir, options.seal.clone());
    let opened = open_or_last_good(dir, options);
    let fallback =
        opened.with_context(|| format!("cannot serve from the data directory {}", dir.display()))?;
    let store: Arc<dyn Store> = fallback.clone();
    if matches!(start, StoreStart::First) && store.state().revision == Revision::default() {
        write_first(&*store, &reader)?;
    }
    let state = follow(&*store, &reader.messages);
    let former = former.of(&state);
    let _ = reader.messages.send(ControlMessage::State(state, former));
    Ok(OpenedConfigSource {
        store,
        source: ConfigSource::Embedded(fallback),
        _watch: None,
        document: None,
        home: None,
    })
}

/// What the nodes of a cluster share; what they share may be nothing yet.
fn open_etcd(
    node: &NodeConfig,
    messages: &Sender<ControlMessage>,
    versions: Arc<LastGoodVersions>,
) -> anyhow::Result<OpenedConfigSource> {
    let dir = Path::new(&node.store.data_dir);
    let keyring = Arc::new(open_keyring(dir, &node.store.keyring)?);
    let teller = messages.clone();
    // The control thread ends with the process.
    let on_problems =
        Box::new(move |problems| drop(teller.send(ControlMessage::Problems(ProblemSource::Store, problems))));
    let OpenedEtcdStore { home, store: opened, former } =
        EtcdStore::open(dir, Some(keyring), etcd_settings(&node.store), on_problems, versions)?;
    let store: Arc<dyn Store> = opened.clone();
    let state = follow(&*store, messages);
    let former = former.of(&state);
    let _ = messages.send(ControlMessage::State(state, former));
    Ok(OpenedConfigSource {
        store,
        source: ConfigSource::Etcd(opened),
        _watch: None,
        document: None,
        home: Some(home),
    })
}

/// How the node's configuration wants the cluster treated.
fn etcd_settings(store: &node::StoreConfig) -> EtcdSettings {
    let written = &store.etcd;
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let file = |text: &str| given(text).map(PathBuf::from);
    let defaults = EtcdSettings::new(written.host.clone(), &written.prefix);
    EtcdSettings {
        client: EtcdClientSettings {
            user: given(&written.user).map(|user| (user, written.password.0.clone())),
            tls: EtcdTlsFiles {
                authorities: file(&written.tls.ca),
                certificate: file(&written.tls.cert).zip(file(&written.tls.key)),
                server_name: given(&written.tls.sni),
            },
            connect_timeout: Duration::from_millis(written.connect_ms),
            call_timeout: Duration::from_millis(written.timeout_ms),
            ..defaults.client
        },
        start_timeout: Duration::from_millis(written.start_wait_ms),
        probe_every: Duration::from_millis(written.silence_ms / 3),
        probe_timeout: Duration::from_millis(written.silence_ms),
        retry: (defaults.retry.0, Duration::from_millis(written.retry_ms_max)),
        write_timeout: Duration::from_millis(written.write_ms),
        txn_steps_max: written.txn_steps_max as usize,
        retention: retention(store, store.revisions_max as usize),
        hold_percent: written.hold_deletions_percent,
        board: BOARD.to_owned(),
        ..defaults
    }
}

/// How much of the past is kept in memory.
fn retention(store: &node::StoreConfig, revisions_max: usize) -> HistoryRetention {
    HistoryRetention { revisions_max, bytes_max: store.history_bytes_max, age_max: age_max(store) }
}

fn age_max(store: &node::StoreConfig) -> Option<Duration> {
    (store.revisions_age_max_s > 0).then(|| Duration::from_secs(store.revisions_age_max_s))
}

/// How the node's configuration wants its store kept.
fn options(store: &node::StoreConfig, absent: MissingStorePolicy) -> anyhow::Result<EmbeddedOptions> {
    let keyring = open_keyring(Path::new(&store.data_dir), &store.keyring)?;
    Ok(EmbeddedOptions {
        revisions_max: store.revisions_max as usize,
        revisions_age_max: age_max(store),
        history_bytes_max: store.history_bytes_max,
        seal: Some(Arc::new(keyring)),
        absent,
        ..EmbeddedOptions::default()
    })
}

fn write_first(store: &dyn Store, reader: &DocumentReader) -> anyhow::Result<()> {
    let resources =
        reader.read(STARTER, DocumentFallback::Nothing).context("the first configuration cannot be read")?;
    let (tell, told) = std::sync::mpsc::channel();
    store.propose(Proposal {
        by: Authorship::by("first start"),
        decide: Box::new(move |draft| {
            replace_all(draft, &resources);
            true
        }),
        done: Box::new(move |result| drop(tell.send(result))),
    });
    told.recv().context("the store has ended")?.context("the first configuration cannot be written")?;
    Ok(())
}

/// A watched document: what it says is mirrored into a store in memory.
fn open_file(
    settings: &node::StoreConfig,
    start: &StoreStart,
    reader: DocumentReader,
) -> anyhow::Result<OpenedConfigSource> {
    let path = Path::new(&settings.file);
    let mut file = FileStore::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    if start.expects_end(file.path()) {
        file = file.expecting_end();
    }
    let text = file.read().with_context(|| format!("cannot read {}", path.display()))?;
    let read = reader.read(&text, DocumentFallback::Nothing);
    let messages = &reader.messages;
    let is_started = read.is_some();
    let store = Arc::new(MemoryMedium::store_of(
        first_state(read.unwrap_or_default()),
        retention(settings, FILE_REVISIONS_MAX),
    )?);
    let state = follow(&*store, messages);
    // The control thread ends with the process.
    let _ = messages.send(if is_started {
        ControlMessage::State(state, Vec::new())
    } else {
        ControlMessage::NoState
    });
    let mut mirror = DocumentMirror { store: store.clone(), reader, is_started };
    let document = Some(file.clone());
    let watch = file.watch(move |event| mirror.take(event))?;
    let reason = format!("resources come from {}: change them there", path.display());
    let store = Arc::new(ReadOnlyStore::new(store, reason));
    Ok(OpenedConfigSource { store, source: ConfigSource::File, _watch: Some(watch), document, home: None })
}

fn first_state(resources: Vec<Resource>) -> StoreState {
    let first = Revision(1);
    let entry = |json| StoreEntry { json, created: first, modified: first, expires_ms: None };
    let entries = resources.into_iter().map(|one| (ResourceKey::new(one.kind, one.id), entry(one.json)));
    StoreState::new(first, entries, [])
}

/// What is in force where a document cannot be used.
#[derive(Debug, Clone, Copy)]
enum DocumentFallback {
    /// None could be used since the process began.
    Nothing,
    /// The last one that could.
    LastGood,
}

/// Takes documents apart and tells the control thread what is wrong with them.
struct DocumentReader {
    messages: Sender<ControlMessage>,
    trial: Arc<TrialCompiler>,
}

impl DocumentReader {
    /// The resources of a document, or none where it says nothing that can be used or fails its own tests.
    fn read(&self, text: &str, otherwise: DocumentFallback) -> Option<Vec<Resource>> {
        let (resources, mut problems) = document::parse(text, &compiler::environment);
        let is_unreadable =
            |problem: &Problem| problem.object == "file" && problem.level == ProblemLevel::Error;
        let failed = self.trial.failing_tests(&resources);
        let is_usable = failed.is_empty() && !problems.iter().any(is_unreadable);
        problems.extend(failed);
        match is_usable {
            true => self.tell(problems),
            false => self.refuse(problems, otherwise),
        }
        is_usable.then_some(resources)
    }

    fn refuse(&self, mut problems: Vec<Problem>, otherwise: DocumentFallback) {
        match otherwise {
            DocumentFallback::Nothing => tracing::error!("resource file invalid, no configuration active"),
            DocumentFallback::LastGood => {
                tracing::error!("resource file invalid, last good configuration stays active");
                keep_last_good(&mut problems);
            }
        }
        self.tell(problems);
    }

    fn tell(&self, problems: Vec<Problem>) {
        // The control thread ends with the process.
        let _ = self.messages.send(ControlMessage::Document(problems));
    }
}

/// Writes what a document says into the store beside it.
struct DocumentMirror {
    store: Arc<dyn Store>,
    reader: DocumentReader,
    is_started: bool,
}

impl DocumentMirror {
    fn take(&mut self, event: FileEvent) {
        let fault = match event {
            FileEvent::Changed(text) => {
                self.replace(&text);
                return;
            }
            // What was found in it then is found again: it may not have been usable before either.
            FileEvent::Recovered(text) => {
                if self.replace(&text) {
                    tracing::info!("resource file valid again");
                }
                return;
            }
            FileEvent::Vanished => "the resource file is gone".to_owned(),
            FileEvent::HalfWritten => "the resource file lost its last line #END: half written?".to_owned(),
            FileEvent::Unreadable(error) => format!("the resource file cannot be read: {error}"),
        };
        self.reader.refuse(vec![Problem::error("file", "", fault)], self.otherwise());
    }

    fn otherwise(&self) -> DocumentFallback {
        if self.is_started { DocumentFallback::LastGood } else { DocumentFallback::Nothing }
    }

    /// Has the store hold what a text says; whether the text can be used.
    fn replace(&mut self, text: &str) -> bool {
        let Some(resources) = self.reader.read(text, self.otherwise()) else { return false };
        let (messages, store) = (self.reader.messages.clone(), self.store.clone());
        let was_started = std::mem::replace(&mut self.is_started, true);
        self.store.propose(Proposal {
            by: Authorship::by("file"),
            decide: Box::new(move |draft| {
                replace_all(draft, &resources);
                true
            }),
            done: Box::new(move |_| {
                if !was_started {
                    let _ = messages.send(ControlMessage::State(store.state(), Vec::new()));
                }
            }),
        });
        true
    }
}

/// Makes a draft hold these resources and nothing else, touching only what differs.
pub(crate) fn replace_all(draft: &mut Draft, resources: &[Resource]) {
    let named: std::collections::HashSet<(yumen_config::Kind, &str)> =
        resources.iter().map(|one| (one.kind, &*one.id)).collect();
    let gone: Vec<ResourceKey> = draft
        .state()
        .entries()
        .map(|(key, _)| key)
        .filter(|key| !named.contains(&(key.kind, &key.id)))
        .cloned()
        .collect();
    for key in gone {
        draft.delete(key.kind, &key.id);
    }
    for one in resources {
        if draft.state().get(one.kind, &one.id).is_none_or(|entry| entry.json != one.json) {
            draft.put(ResourceKey::new(one.kind, one.id.clone()), one.json.clone(), None);
        }
    }
}
