//! Configuration sources: opens the store of the node and forwards every revision to the control thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use yumen_base::{Problem, ProblemLevel, keep_last_good};
use yumen_config::node::{self, StoreKind};
use yumen_config::resource::PluginRole;
use yumen_config::{Kind, NodeConfig, Resource, document};
use yumen_store::embedded::{EmbeddedOptions, MissingStorePolicy, holds_store};
use yumen_store::etcd::{
    EtcdClientSettings, EtcdDataDir, EtcdSettings, EtcdStore, EtcdTlsFiles, OpenedEtcdStore, RetryPauses,
};
use yumen_store::file::{FileEvent, FileStore, WatchGuard};
use yumen_store::starter::STARTER;
use yumen_store::{
    Authorship, FormerState, HistoryRetention, LastGoodVersions, MemoryMedium, Proposal, ReadOnlyStore,
    ResourceKey, Revision, Store, StoreEntry, StoreState,
};
use yumen_store::{open_keyring, open_or_last_good};

use super::exclusive_store::ExclusiveStore;
use super::given::GivenResources;
use super::handover_store::HandoverStore;
use super::origin::ConfigSource;
use super::trial::TrialCompiler;
use crate::control::{ControlHandle, ControlMessage, ProblemSource, follow_store};
use crate::diagnostics::SourceText;
use crate::environment;
use crate::kubernetes::KubernetesSource;
use crate::serving::listener_supervisor::ListenerStates;
use crate::tls::ACME_SHARED_KEYS;

/// Revisions kept of a watched file: for inspection only, since the file is authoritative.
const FILE_REVISIONS_MAX: usize = 100;

/// Opened store of a node.
pub(crate) struct OpenedConfigSource {
    /// Store of the resources.
    pub(crate) store: Arc<dyn Store>,
    /// Origin of the store's content.
    pub(crate) source: ConfigSource,
    _watch: Option<WatchGuard>,
    /// Resource file, for the store kind `file`.
    document: Option<FileStore>,
    /// Exclusive data directory, for a store in etcd.
    directory_lock: Option<Arc<EtcdDataDir>>,
    /// The controller, for the store kind `kubernetes`.
    pub(crate) kubernetes: Option<KubernetesSource>,
}

impl OpenedConfigSource {
    /// Opens the configured store, or one in memory with the given resources; from then on every revision reaches the
    /// control thread.
    pub(crate) fn open(
        node: &NodeConfig,
        given: Option<&GivenResources>,
        start: &StoreStart,
        control: &ControlHandle,
        trial: Arc<TrialCompiler>,
        versions: Arc<LastGoodVersions>,
        runtime: &Runtime,
    ) -> anyhow::Result<OpenedConfigSource> {
        let name = match node.store.kind {
            StoreKind::File => node.store.file.clone(),
            _ => String::new(),
        };
        let reader = DocumentReader { messages: control.messages.clone(), trial, name };
        if let Some(given) = given {
            return open_given(&node.store, given, &reader);
        }
        match node.store.kind {
            StoreKind::File => open_file(&node.store, start, reader),
            StoreKind::Embedded => open_embedded(node, start, reader, versions),
            StoreKind::Etcd => open_etcd(node, &control.messages, versions),
            StoreKind::Kubernetes => open_kubernetes(node, control, runtime),
        }
    }
}

/// Start-up mode of a process with respect to its store.
pub(crate) enum StoreStart {
    /// First process of the gateway: creates a missing store.
    First,
    /// Successor of a serving process: must not replace its configuration by an empty one.
    TakesOver {
        /// Resource file of the predecessor, if its text ended with `#END`.
        ended_file: Option<PathBuf>,
    },
}

impl StoreStart {
    /// Fails if a successor would have to create the store. Creates nothing.
    pub(crate) fn check(&self, store: &node::StoreConfig) -> anyhow::Result<()> {
        let dir = Path::new(&store.data_dir);
        match self {
            // Refused before anything is created: an empty store would look like a successful upgrade (decision 16).
            StoreStart::TakesOver { .. } if store.kind == StoreKind::Embedded && !holds_store(dir) => bail!(
                "there is no store in {}: a successor never creates one, since it would lose all objects (to begin \
                 with an empty store, stop the gateway and start it)",
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

    /// Whether the predecessor has read `#END` at the end of this file.
    fn expects_end(&self, path: &Path) -> bool {
        matches!(self, StoreStart::TakesOver { ended_file: Some(ended) } if ended == path)
    }
}

impl OpenedConfigSource {
    /// Part of the store that a successor must receive exclusively.
    pub(crate) fn exclusive(&self) -> ExclusiveStore {
        match &self.source {
            ConfigSource::File | ConfigSource::Kubernetes(_) => ExclusiveStore::Nothing,
            ConfigSource::Embedded(fallback) => ExclusiveStore::Database(Arc::downgrade(fallback)),
            ConfigSource::Etcd(_) => match &self.directory_lock {
                Some(lock) => ExclusiveStore::Directory(Arc::downgrade(lock)),
                None => ExclusiveStore::Nothing,
            },
        }
    }

    /// Passes the states of listeners on to a source that reports them to the origin of its objects.
    pub(crate) fn follow_listeners(&self, runtime: &Runtime, states: watch::Receiver<ListenerStates>) {
        if let Some(kubernetes) = &self.kubernetes {
            kubernetes.follow_listeners(runtime, states);
        }
    }

    /// Configuration state against which a successor is compared.
    pub(crate) fn handover_store(&self) -> Arc<HandoverStore> {
        Arc::new(HandoverStore::new(&self.store, self.document.clone()))
    }
}

/// Opens the store in the data directory. A new store of a first process starts with the example
/// configuration.
fn open_embedded(
    node: &NodeConfig,
    start: &StoreStart,
    reader: DocumentReader,
    versions: Arc<LastGoodVersions>,
) -> anyhow::Result<OpenedConfigSource> {
    let dir = Path::new(&node.store.data_dir);
    let options = EmbeddedOptions { versions, ..options(&node.store, start.absent())? };
    // Read before the store is opened, whose task may replace the file.
    let former = FormerState::read(dir, options.seal.clone());
    let opened = open_or_last_good(dir, options);
    let fallback =
        opened.with_context(|| format!("cannot serve from the data directory {}", dir.display()))?;
    let store: Arc<dyn Store> = fallback.clone();
    // A store with revisions, such as a restored one, does not get the example configuration.
    // Only a store that was never written; a successor must not fill one.
    if matches!(start, StoreStart::First) && store.state().revision == Revision::default() {
        write_first(&*store, &reader)?;
    }
    let state = follow_store(&*store, &reader.messages);
    let former = former.of(&state);
    let _ = reader.messages.send(ControlMessage::State(state, former));
    Ok(OpenedConfigSource {
        store,
        source: ConfigSource::Embedded(fallback),
        _watch: None,
        document: None,
        directory_lock: None,
        kubernetes: None,
    })
}

/// Opens the store shared by a cluster, which may be empty.
fn open_etcd(
    node: &NodeConfig,
    messages: &Sender<ControlMessage>,
    versions: Arc<LastGoodVersions>,
) -> anyhow::Result<OpenedConfigSource> {
    let dir = Path::new(&node.store.data_dir);
    let keyring = Arc::new(open_keyring(dir, &node.store.keyring)?);
    let reporter = messages.clone();
    // Fails only if the process is ending and the control thread with it.
    let on_problems = Box::new(move |problems| {
        drop(reporter.send(ControlMessage::Problems(ProblemSource::Store, problems)))
    });
    let OpenedEtcdStore { directory_lock, store: opened, former } =
        EtcdStore::open(dir, Some(keyring), etcd_settings(&node.store), on_problems, versions)?;
    let store: Arc<dyn Store> = opened.clone();
    let state = follow_store(&*store, messages);
    let former = former.of(&state);
    let _ = messages.send(ControlMessage::State(state, former));
    Ok(OpenedConfigSource {
        store,
        source: ConfigSource::Etcd(opened),
        _watch: None,
        document: None,
        directory_lock: Some(directory_lock),
        kubernetes: None,
    })
}

/// Follows the API server of a Kubernetes cluster. The store in memory is filled by the controller.
fn open_kubernetes(
    node: &NodeConfig,
    control: &ControlHandle,
    runtime: &Runtime,
) -> anyhow::Result<OpenedConfigSource> {
    let retention = retention(&node.store, FILE_REVISIONS_MAX);
    let store = Arc::new(MemoryMedium::store_of(StoreState::default(), retention)?);
    let kubernetes = KubernetesSource::start(node, store.clone(), control.clone(), runtime)?;
    let reason = "resources are translated from Kubernetes objects: change those".to_owned();
    Ok(OpenedConfigSource {
        store: Arc::new(ReadOnlyStore::new(store, reason)),
        source: ConfigSource::Kubernetes(kubernetes.status.clone()),
        _watch: None,
        document: None,
        directory_lock: None,
        kubernetes: Some(kubernetes),
    })
}

/// Settings of the etcd store from the node settings.
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
        // Three probes fit into the silence that ends a connection.
        probe_every: Duration::from_millis(written.silence_ms / 3),
        probe_timeout: Duration::from_millis(written.silence_ms),
        retry: RetryPauses { max: Duration::from_millis(written.retry_ms_max), ..defaults.retry },
        write_timeout: Duration::from_millis(written.write_ms),
        txn_steps_max: written.txn_steps_max as usize,
        retention: retention(store, store.revisions_max as usize),
        hold_percent: written.hold_deletions_percent,
        board: ACME_SHARED_KEYS.to_owned(),
        ..defaults
    }
}

/// Bounds of the history in memory.
fn retention(store: &node::StoreConfig, revisions_max: usize) -> HistoryRetention {
    HistoryRetention { revisions_max, bytes_max: store.history_bytes_max, age_max: age_max(store) }
}

fn age_max(store: &node::StoreConfig) -> Option<Duration> {
    (store.revisions_age_max_s > 0).then(|| Duration::from_secs(store.revisions_age_max_s))
}

/// Options of the embedded store from the node settings.
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
    let read =
        reader.read(STARTER, DocumentFallback::Nothing).context("the first configuration cannot be read")?;
    let resources = read.resources;
    let (done, committed) = std::sync::mpsc::channel();
    store.propose(Proposal {
        by: Authorship::by("first start"),
        decide: Box::new(move |draft| {
            draft.replace_all(&resources, &[]);
            true
        }),
        done: Box::new(move |result| drop(done.send(result))),
    });
    // The start waits until the first configuration is durable.
    committed.recv().context("the store has ended")?.context("the first configuration cannot be written")?;
    Ok(())
}

/// Opens a resource file and mirrors it into a store in memory.
fn open_file(
    settings: &node::StoreConfig,
    start: &StoreStart,
    reader: DocumentReader,
) -> anyhow::Result<OpenedConfigSource> {
    let path = Path::new(&settings.file);
    let mut file = FileStore::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    // The predecessor's knowledge survives the upgrade: a half-written file must not be read as whole.
    if start.expects_end(file.path()) {
        file = file.expecting_end();
    }
    let text = file.read().with_context(|| format!("cannot read {}", path.display()))?;
    let read = reader.read(&text, DocumentFallback::Nothing);
    let messages = &reader.messages;
    let is_started = read.is_some();
    let store = Arc::new(MemoryMedium::store_of(
        first_state(read.map_or_else(Vec::new, |read| read.resources)),
        retention(settings, FILE_REVISIONS_MAX),
    )?);
    let state = follow_store(&*store, messages);
    // Fails only if the process is ending and the control thread with it.
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
    Ok(OpenedConfigSource {
        store,
        source: ConfigSource::File,
        _watch: Some(watch),
        document,
        directory_lock: None,
        kubernetes: None,
    })
}

/// Opens a store in memory with the resources of a command.
fn open_given(
    settings: &node::StoreConfig,
    given: &GivenResources,
    reader: &DocumentReader,
) -> anyhow::Result<OpenedConfigSource> {
    let read = reader.read(&given.document, DocumentFallback::Nothing);
    let resources = read.context("the resources of the command are invalid: see the log")?.resources;
    let retention = retention(settings, settings.revisions_max as usize);
    let store = Arc::new(MemoryMedium::store_of(first_state(resources), retention)?);
    let state = follow_store(&*store, &reader.messages);
    let _ = reader.messages.send(ControlMessage::State(state, Vec::new()));
    let store: Arc<dyn Store> = match &given.refusal {
        Some(reason) => Arc::new(ReadOnlyStore::new(store, reason.clone())),
        None => store,
    };
    Ok(OpenedConfigSource {
        store,
        source: ConfigSource::File,
        _watch: None,
        document: None,
        directory_lock: None,
        kubernetes: None,
    })
}

fn first_state(resources: Vec<Resource>) -> StoreState {
    let first = Revision(1);
    let entry = |json| StoreEntry { json, created: first, modified: first, expires_ms: None };
    let entries = resources.into_iter().map(|one| (ResourceKey::new(one.kind, one.id), entry(one.json)));
    StoreState::new(first, entries, [])
}

/// Configuration that stays active if a document is rejected.
#[derive(Debug, Clone, Copy)]
enum DocumentFallback {
    /// None: no valid document since the process started.
    Nothing,
    /// The last valid document.
    LastGood,
}

/// Parses documents and reports their problems to the control thread.
struct DocumentReader {
    messages: Sender<ControlMessage>,
    trial: Arc<TrialCompiler>,
    /// Name of the file in places of problems; empty for a text without a file.
    name: String,
}

/// Content of a readable document.
struct ReadDocument {
    resources: Vec<Resource>,
    /// Sections whose objects are unknown; those in force stay.
    unreadable: Vec<Kind>,
}

impl DocumentReader {
    /// Content of a document; `None` if it is unreadable or fails its own tests.
    fn read(&self, text: &str, otherwise: DocumentFallback) -> Option<ReadDocument> {
        // Files may refer to environment variables, unlike documents that are written to a store.
        let (resources, mut problems) = document::parse(text, &environment::variable);
        let mut unreadable: Vec<Kind> = problems.iter().filter_map(document::unreadable_section).collect();
        // A list of consumers contains credentials as well.
        unreadable.extend(
            Kind::ALL
                .iter()
                .filter(|kind| kind.descriptor().parent.is_some_and(|of| unreadable.contains(&of)))
                .collect::<Vec<_>>(),
        );
        let is_fatal = |problem: &Problem| {
            problem.object == "file" && problem.level == ProblemLevel::Error && !may_stay(problem, otherwise)
        };
        // A document with failing tests is rejected whole (decision 19).
        let failed = self.trial.failing_tests(&resources);
        let is_usable = failed.is_empty() && !problems.iter().any(is_fatal);
        problems.extend(failed);
        let source = SourceText { name: self.name.clone(), text: text.to_owned() };
        source.locate(&mut problems);
        match is_usable {
            true => {
                // Before the objects: the control thread finds the places of their problems in this text.
                let _ = self.messages.send(ControlMessage::Source(Box::new(source)));
                self.report(mark_last_good_sections(problems, otherwise));
            }
            false => self.refuse(problems, otherwise),
        }
        is_usable.then_some(ReadDocument { resources, unreadable })
    }

    fn refuse(&self, mut problems: Vec<Problem>, otherwise: DocumentFallback) {
        match otherwise {
            DocumentFallback::Nothing => tracing::error!("resource file invalid, no configuration active"),
            DocumentFallback::LastGood => {
                tracing::error!("resource file invalid, last good configuration stays active");
                keep_last_good(&mut problems);
            }
        }
        self.report(problems);
    }

    fn report(&self, problems: Vec<Problem>) {
        // Fails only if the process is ending and the control thread with it.
        let _ = self.messages.send(ControlMessage::Document(problems));
    }
}

/// Whether a document with this problem is used, without one of its sections.
fn may_stay(problem: &Problem, otherwise: DocumentFallback) -> bool {
    let section = document::unreadable_section(problem);
    match otherwise {
        DocumentFallback::LastGood => section.is_some(),
        // Without objects in force, a missing section must not open routes. They refuse if an object that they refer to
        // is missing, but nothing refers to global rules.
        DocumentFallback::Nothing => {
            section.is_some_and(|kind| kind.descriptor().plugins != PluginRole::AllRequests)
        }
    }
}

/// The problems of a used document. Objects of unreadable sections stay in force.
fn mark_last_good_sections(mut problems: Vec<Problem>, otherwise: DocumentFallback) -> Vec<Problem> {
    if matches!(otherwise, DocumentFallback::LastGood) {
        for problem in &mut problems {
            problem.last_good |= document::unreadable_section(problem).is_some();
        }
    }
    problems
}

/// Writes the content of a resource file into the store in memory.
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
            // Parse again: the problems were replaced meanwhile, and the text may have been invalid before.
            FileEvent::Recovered(text) => {
                if self.replace(&text) {
                    tracing::info!("resource file valid again");
                }
                return;
            }
            FileEvent::Vanished => "the resource file was deleted".to_owned(),
            FileEvent::HalfWritten => "the resource file lost its last line #END: half written?".to_owned(),
            FileEvent::Unreadable(error) => format!("the resource file cannot be read: {error}"),
        };
        self.reader.refuse(vec![Problem::error("file", "", fault)], self.otherwise());
    }

    fn otherwise(&self) -> DocumentFallback {
        if self.is_started { DocumentFallback::LastGood } else { DocumentFallback::Nothing }
    }

    /// Replaces the content of the store; returns whether the text is valid.
    fn replace(&mut self, text: &str) -> bool {
        let Some(read) = self.reader.read(text, self.otherwise()) else { return false };
        let (messages, store) = (self.reader.messages.clone(), self.store.clone());
        let was_started = std::mem::replace(&mut self.is_started, true);
        self.store.propose(Proposal {
            by: Authorship::by("file"),
            decide: Box::new(move |draft| {
                draft.replace_all(&read.resources, &read.unreadable);
                true
            }),
            done: Box::new(move |_| {
                // The control thread still waits for its first state.
                if !was_started {
                    let _ = messages.send(ControlMessage::State(store.state(), Vec::new()));
                }
            }),
        });
        true
    }
}
