//! The control thread: sole owner of the compiler. Receives changes from all configuration sources and
//! publishes snapshots.

mod first_publication;
mod lifetimes;
mod metrics;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use yumen_base::{Histogram, Problem, ProblemLevel};
use yumen_config::{Kind, Resource};
use yumen_plugin::Carry;
use yumen_proxy::clock;
use yumen_snapshot::compile::{CompileOutput, Compiler, ConfigChange, DiscoveryQuery, DiscoveryResult};
use yumen_snapshot::{Publisher, Snapshot};
use yumen_store::{
    EntryChange, LastGoodVersion, LastGoodVersions, ResourceKey, Revision, StoreCommit, StoreState,
};

use crate::applied_tracker::AppliedTracker;
use crate::discovery::Services;
use crate::huge_pages::HugePages;
use crate::known_inputs::KnownInputs;
use first_publication::FirstPublication;
use lifetimes::ObjectLifetimes;
pub(crate) use metrics::describe;

/// Messages to the control thread.
pub(crate) enum ControlMessage {
    /// Complete state of the store, with the last good texts of objects from earlier processes.
    State(StoreState, Vec<Resource>),
    /// The store has no usable configuration yet; start-up does not wait for one.
    NoState,
    /// A new revision of the store.
    Committed(Arc<StoreCommit>),
    /// Problems of the resource file as a whole, beside those of its objects.
    Document(Vec<Problem>),
    /// Addresses of a host name.
    Resolved(Box<str>, Vec<IpAddr>),
    /// Result of service discovery for one service.
    Discovered(Arc<DiscoveryQuery>, DiscoveryResult),
    /// Configuration of the successor; the reply is the publication number. From then on, the local store's
    /// messages are ignored.
    SuccessorConfig(ConfigDelta, Sender<u64>),
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
}

/// Publications with fewer changes than this are logged at debug level; the history records them anyway.
const FEW_CHANGES: usize = 10;

/// Minimum time between two publications, so that frequent changes are batched.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// Pause as a multiple of the last publication's duration: leaves the CPUs to traffic.
const PAUSE_PER_WORK: u32 = 4;
/// Maximum pause, which bounds the delay of a change.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Histogram bounds of compile times, in microseconds.
static COMPILE_BOUNDS_US: &[u64] =
    &[100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000];

/// Histogram bounds of the time from commit to publication, in milliseconds.
static PROPAGATION_BOUNDS_MS: &[u64] = &[1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000];

/// Host names to resolve, each with a request number. A changed number invalidates earlier results.
pub(crate) type Hosts = Arc<BTreeMap<Box<str>, u64>>;

/// State that the control thread exports to other threads.
pub(crate) struct ControlStatus {
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) revision: AtomicU64,
    pub(crate) problems: Mutex<Vec<Problem>>,
    propagation: Histogram,
    compile: Histogram,
    compile_last_us: AtomicU64,
    unresolved: AtomicU64,
}

impl ControlStatus {
    fn new(publisher: Arc<Publisher>) -> ControlStatus {
        ControlStatus {
            publisher,
            revision: AtomicU64::new(0),
            problems: Mutex::default(),
            propagation: Histogram::new(PROPAGATION_BOUNDS_MS),
            compile: Histogram::new(COMPILE_BOUNDS_US),
            compile_last_us: AtomicU64::new(0),
            unresolved: AtomicU64::new(0),
        }
    }

    /// Names of objects with errors.
    pub(crate) fn broken(&self) -> Vec<String> {
        let problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        let errors = problems.iter().filter(|problem| problem.level == ProblemLevel::Error);
        errors.map(|problem| problem.object.clone()).collect()
    }

    pub(crate) fn problems(&self) -> Vec<Problem> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Handle of the control thread: message sender and exported state.
#[derive(Clone)]
pub(crate) struct ControlHandle {
    pub(crate) messages: Sender<ControlMessage>,
    pub(crate) shown: Arc<ControlStatus>,
    pub(crate) snapshots: watch::Receiver<Arc<Snapshot>>,
    pub(crate) hosts: watch::Receiver<Hosts>,
    pub(crate) services: watch::Receiver<Services>,
    first: watch::Receiver<FirstPublication>,
    /// Newest revision of the store that every process of this node serves.
    pub(crate) applied: watch::Receiver<Revision>,
    /// Source of `applied`.
    pub(crate) reach: Arc<AppliedTracker>,
    /// Last good versions that are served in place of broken objects.
    pub(crate) versions: Arc<LastGoodVersions>,
}

impl ControlHandle {
    /// Number of host names and services without a first lookup result.
    pub(crate) fn unresolved(&self) -> u64 {
        self.shown.unresolved.load(Ordering::Acquire)
    }
}

struct ControlThread {
    compiler: Compiler,
    /// Endpoint data of the predecessor, for the first compilation.
    initial_inputs: KnownInputs,
    carry: Arc<Carry>,
    shown: Arc<ControlStatus>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    hosts: watch::Sender<Hosts>,
    services: watch::Sender<Services>,
    first: watch::Sender<FirstPublication>,
    reach: Arc<AppliedTracker>,
    /// Whether the store has delivered its state; commits that arrive earlier are in `early`.
    started: bool,
    /// Whether the successor provides the configuration, instead of the store.
    follows_successor: bool,
    early: Vec<Arc<StoreCommit>>,
    lifetimes: ObjectLifetimes,
    document_problems: Vec<Problem>,
    /// Current problems by reporter.
    told: BTreeMap<ProblemSource, Vec<Problem>>,
    /// Objects of the node itself, such as fetched certificates.
    own: BTreeMap<(Kind, Box<str>), Resource>,
    /// Snapshots that a worker may still hold. Their tables are freed here and not on a worker.
    retired: Vec<Arc<Snapshot>>,
    /// Host names with at least one lookup result, successful or not.
    looked_up: BTreeSet<Box<str>>,
    /// Services with at least one discovery result.
    asked_for: BTreeSet<Arc<DiscoveryQuery>>,
    /// Request counter of the compiler at the last export of host names and services.
    wants: Option<u64>,
    /// Earliest time of the next compilation.
    rests_until: Instant,
    huge_pages: HugePages,
    /// Receives the last good versions in use.
    versions: Arc<LastGoodVersions>,
}

pub(crate) fn start(
    compiler: Compiler,
    initial_inputs: KnownInputs,
    carry: Arc<Carry>,
    publisher: Arc<Publisher>,
    versions: Arc<LastGoodVersions>,
    reach: Arc<AppliedTracker>,
) -> std::io::Result<ControlHandle> {
    let (messages, inbox) = channel();
    let (snapshots_out, snapshots) = watch::channel(publisher.load());
    let (hosts_out, hosts) = watch::channel(Hosts::default());
    let (services_out, services) = watch::channel(Services::default());
    let (first_out, first) = watch::channel(FirstPublication::Awaited);
    let shown = Arc::new(ControlStatus::new(publisher));
    let thread = ControlThread {
        compiler,
        initial_inputs,
        carry,
        shown: shown.clone(),
        snapshots: snapshots_out,
        hosts: hosts_out,
        services: services_out,
        first: first_out,
        reach: reach.clone(),
        started: false,
        follows_successor: false,
        early: Vec::new(),
        lifetimes: ObjectLifetimes::default(),
        document_problems: Vec::new(),
        told: BTreeMap::new(),
        own: BTreeMap::new(),
        retired: Vec::new(),
        looked_up: BTreeSet::new(),
        asked_for: BTreeSet::new(),
        wants: None,
        rests_until: Instant::now(),
        huge_pages: HugePages::default(),
        versions: versions.clone(),
    };
    std::thread::Builder::new().name("yumen-control".into()).spawn(move || thread.run(&inbox))?;
    let applied = reach.applied();
    Ok(ControlHandle { messages, shown, snapshots, hosts, services, first, applied, reach, versions })
}

impl ControlThread {
    fn run(mut self, inbox: &Receiver<ControlMessage>) {
        loop {
            let until_due = self.lifetimes.until_due(now_ms()).unwrap_or(Duration::MAX);
            match inbox.recv_timeout(until_due.min(Duration::from_secs(1))) {
                Ok(message) => {
                    std::thread::sleep(self.rests_until.saturating_duration_since(Instant::now()));
                    let mut batch = vec![message];
                    batch.extend(inbox.try_iter());
                    self.handle(batch);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.end_lifetimes();
            self.retired.retain(|snapshot| Arc::strong_count(snapshot) > 1);
        }
    }

    /// One publication covers all queued messages, however many revisions they contain.
    fn handle(&mut self, batch: Vec<ControlMessage>) {
        let mut resolved = Vec::new();
        let mut committed = Vec::new();
        for message in batch {
            match message {
                ControlMessage::SuccessorConfig(news, answer) => {
                    committed.clear();
                    self.apply_successor_config(news, &answer);
                }
                ControlMessage::State(..) | ControlMessage::Committed(_) if self.follows_successor => {}
                ControlMessage::State(state, former) => self.start(&state, former),
                ControlMessage::NoState if self.started => {}
                ControlMessage::NoState => drop(self.first.send_replace(FirstPublication::Absent)),
                ControlMessage::Committed(one) if self.started => committed.push(one),
                ControlMessage::Committed(one) => self.early.push(one),
                ControlMessage::Document(problems) => self.set_document_problems(problems),
                ControlMessage::LocalObjects(changes, done) => self.apply_local_objects(changes, done),
                ControlMessage::Problems(teller, problems) => self.set_problems(teller, problems),
                ControlMessage::Resolved(host, addrs) => {
                    if self.hosts.borrow().contains_key(&host) {
                        self.looked_up.insert(host.clone());
                    }
                    resolved.push(ConfigChange::Resolved { host, addrs });
                }
                ControlMessage::Discovered(service, found) => {
                    if self.services.borrow().contains_key(&service) {
                        self.asked_for.insert(service.clone());
                    }
                    resolved.push(ConfigChange::Discovered(service, found));
                }
            }
        }
        if let Some(newest) = committed.last() {
            let revision = newest.revision;
            let now_ms = now_ms();
            let changed = committed.iter().flat_map(|one| &one.changes);
            let changes = changed.map(|changed| self.lifetimes.change(changed, now_ms)).collect();
            self.compile("configuration applied", changes, revision);
            for one in &committed {
                self.shown.propagation.observe(self::now_ms().saturating_sub(one.time_ms));
            }
        }
        if !resolved.is_empty() {
            let revision = self.reach.revision();
            self.compile("addresses resolved", resolved, revision);
        }
    }

    fn start(&mut self, state: &StoreState, former: Vec<Resource>) {
        self.started = true;
        self.compiler.begin_from(former);
        let changes = self.whole(state);
        self.compile("configuration applied", changes, state.revision);
        // Start-up skips the pause before the next publication.
        self.rests_until = Instant::now();
        let later = self.early.drain(..).filter(|one| one.revision > state.revision);
        let later: Vec<ControlMessage> = later.map(ControlMessage::Committed).collect();
        if !later.is_empty() {
            self.handle(later);
        }
        // Sent last: waiters read the problems next.
        self.first.send_replace(FirstPublication::InForce);
    }

    /// Changes from the compiled set to a complete state plus the node's own objects.
    fn whole(&mut self, state: &StoreState) -> Vec<ConfigChange> {
        let resources = self.lifetimes.begin(state, now_ms());
        let own = self.own.values().cloned();
        self.compiler.diff(resources.into_iter().chain(own).collect())
    }

    /// Publishes an update of the successor, so that draining connections use the same configuration.
    fn apply_successor_config(&mut self, news: ConfigDelta, answer: &Sender<u64>) {
        (self.follows_successor, self.started) = (true, true);
        let now_ms = now_ms();
        let (changes, revision) = match news {
            ConfigDelta::Changes(changed, revision) => {
                (changed.iter().map(|one| self.lifetimes.change(one, now_ms)).collect(), revision)
            }
            ConfigDelta::Whole(state) => (self.whole(&state), state.revision),
        };
        let number = self.compile("configuration of the process that serves applied", changes, revision);
        // The receiver is closed if this process is about to end.
        let _ = answer.send(number);
    }

    /// Withdraws expired objects that the store has not deleted, so that a full disk extends no access.
    fn end_lifetimes(&mut self) {
        let due = self.lifetimes.due(now_ms());
        if !due.is_empty() {
            tracing::warn!(
                objects = due.len(),
                "expired objects not deleted from the store; removed from service"
            );
            let revision = self.reach.revision();
            self.compile("objects taken out whose ttl is over", due, revision);
        }
    }

    /// Objects that arrive before the state of the store are compiled with it: a node must not serve its own
    /// objects alone.
    fn apply_local_objects(&mut self, changes: Vec<ConfigChange>, done: Option<oneshot::Sender<()>>) {
        for change in &changes {
            match change {
                ConfigChange::Put(resource) => {
                    let key = (resource.kind, resource.id.as_ref().into());
                    self.own.insert(key, resource.clone());
                }
                ConfigChange::Delete(kind, id) => drop(self.own.remove(&(*kind, id.clone()))),
                ConfigChange::Resolved { .. } | ConfigChange::Discovered(..) => {}
            }
        }
        if self.started {
            let revision = self.reach.revision();
            self.compile("the node's own objects applied", changes, revision);
        }
        if let Some(done) = done {
            // The requester may have dropped the receiver.
            let _ = done.send(());
        }
    }

    fn set_problems(&mut self, teller: ProblemSource, problems: Vec<Problem>) {
        let before = self.told.insert(teller, problems.clone()).unwrap_or_default();
        if before != problems {
            log(&problems);
            self.show();
        }
    }

    fn set_document_problems(&mut self, problems: Vec<Problem>) {
        log(&problems);
        self.document_problems = problems;
        self.show();
    }

    /// Compiles and publishes changes. Returns the publication number.
    fn compile(&mut self, event: &'static str, changes: Vec<ConfigChange>, revision: Revision) -> u64 {
        let started = Instant::now();
        let changed = changes.len();
        let compiled = self.apply(changes, revision);
        // Before publication: waiters for the snapshot also wait for the endpoints of its names.
        self.ask_for_endpoints();
        let before = self.shown.publisher.publish(compiled.snapshot.clone());
        let compile_us = started.elapsed().as_micros() as u64;
        self.shown.compile.observe(compile_us);
        self.shown.compile_last_us.store(compile_us, Ordering::Relaxed);
        self.retired.push(before);
        // The channel may have no receivers.
        let _ = self.snapshots.send(compiled.snapshot);
        self.show();
        let in_store =
            |one: &(Resource, &Arc<str>)| !self.own.contains_key(&(one.0.kind, one.0.id.as_ref().into()));
        let versions = self.compiler.last_good().filter(in_store).map(version).collect();
        self.versions.tell(revision, versions);
        self.shown.revision.store(revision.0, Ordering::Release);
        let number = self.reach.published_here(revision);
        let (problems, carried) = (self.shown.problems().len(), self.carry.len());
        match changed < FEW_CHANGES && self.shown.publisher.version() > 1 {
            true => tracing::debug!(revision = revision.0, changed, compile_us, problems, carried, "{event}"),
            false => tracing::info!(revision = revision.0, changed, compile_us, problems, carried, "{event}"),
        }
        log(&compiled.problems);
        self.huge_pages.changed(changed);
        self.rests_until = Instant::now() + pause_after(started.elapsed());
        number
    }

    /// Compiles changes. The first compilation includes the predecessor's endpoint data, so that a successor
    /// serves before name servers and registries answer.
    fn apply(&mut self, changes: Vec<ConfigChange>, revision: Revision) -> CompileOutput {
        let mut compiled = self.compiler.apply(changes, revision.0);
        let mut known = std::mem::take(&mut self.initial_inputs);
        loop {
            // Endpoints of a discovered service may be host names themselves.
            let endpoints = self.take_known(&mut known);
            if endpoints.is_empty() {
                return compiled;
            }
            compiled.snapshot = self.compiler.apply(endpoints, revision.0).snapshot;
        }
    }

    /// Removes the required names and services from `known` and returns them as changes.
    fn take_known(&mut self, known: &mut KnownInputs) -> Vec<ConfigChange> {
        let mut endpoints = Vec::new();
        for (host, _) in self.compiler.hosts() {
            if let Some(change) = known.take_name(host) {
                self.looked_up.insert(host.into());
                endpoints.push(change);
            }
        }
        for (service, _) in self.compiler.services() {
            if let Some(change) = known.take_service(service) {
                self.asked_for.insert(service.clone());
                endpoints.push(change);
            }
        }
        endpoints
    }

    /// Exports the names and services that the compiler requires now.
    fn ask_for_endpoints(&mut self) {
        if self.wants != Some(self.compiler.wants()) {
            self.wants = Some(self.compiler.wants());
            let hosts = self.compiler.hosts().map(|(host, number)| (Box::from(host), number)).collect();
            let services =
                self.compiler.services().map(|(service, number)| (service.clone(), number)).collect();
            self.looked_up.retain(|host| is_same(&hosts, &self.hosts.borrow(), host));
            self.asked_for.retain(|service| is_same(&services, &self.services.borrow(), service));
            renew(&self.hosts, hosts);
            renew(&self.services, services);
        }
        let wanted = self.hosts.borrow().len() + self.services.borrow().len();
        let unknown = wanted.saturating_sub(self.looked_up.len() + self.asked_for.len());
        self.shown.unresolved.store(unknown as u64, Ordering::Release);
    }

    fn show(&self) {
        let mut all = self.document_problems.clone();
        all.extend(self.compiler.problems());
        all.extend(self.lifetimes.problems());
        all.extend(self.told.values().flatten().cloned());
        *self.shown.problems.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

/// Pause before the next publication, in proportion to the duration of the last one.
fn pause_after(work: Duration) -> Duration {
    (work * PAUSE_PER_WORK).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// Whether `what` is still required under the same request number. Results that precede the first export stay
/// valid.
fn is_same<K: Ord>(next: &BTreeMap<K, u64>, before: &BTreeMap<K, u64>, what: &K) -> bool {
    next.get(what).is_some_and(|number| before.get(what).is_none_or(|known| known == number))
}

/// Replaces the value, and notifies receivers only if it differs.
fn renew<T: PartialEq>(told: &watch::Sender<Arc<T>>, next: T) {
    told.send_if_modified(|known| {
        let is_new = **known != next;
        *known = Arc::new(next);
        is_new
    });
}

fn version((resource, instead_of): (Resource, &Arc<str>)) -> LastGoodVersion {
    let Resource { kind, id, json } = resource;
    LastGoodVersion { key: ResourceKey::new(kind, id), json, instead_of: instead_of.clone() }
}

fn now_ms() -> u64 {
    clock::exact().unix_ms
}

/// Logs at most `LOGGED_MAX` problems; the status listener has all of them.
fn log(problems: &[Problem]) {
    const LOGGED_MAX: usize = 20;
    for problem in problems.iter().take(LOGGED_MAX) {
        let Problem { object, path, message, hint, .. } = problem;
        let hint = hint.as_deref().unwrap_or_default();
        match problem.level {
            ProblemLevel::Error => tracing::error!(object, path, message, hint, "configuration problem"),
            ProblemLevel::Warning => tracing::warn!(object, path, message, hint, "configuration problem"),
        }
    }
    if problems.len() > LOGGED_MAX {
        tracing::warn!(more = problems.len() - LOGGED_MAX, "more configuration problems");
    }
}
