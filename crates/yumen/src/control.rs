//! The control thread: it alone holds the compiler. Changes come in from every door; snapshots go out.

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

/// What doors tell the control thread.
pub(crate) enum ControlMessage {
    /// What the store holds, where compiling starts, and texts of its objects that were in force before the process began.
    State(StoreState, Vec<Resource>),
    /// The store has no configuration that can be used yet: there is nothing to wait for.
    NoState,
    /// The store has a new revision.
    Committed(Arc<StoreCommit>),
    /// The findings of the resource file itself, beside those of its objects.
    Document(Vec<Problem>),
    /// A host name has these addresses.
    Resolved(Box<str>, Vec<IpAddr>),
    /// Service discovery says this of a service.
    Discovered(Arc<DiscoveryQuery>, DiscoveryResult),
    /// What the process that took over serves; answered with the number of the publication. What this process's own
    /// store says counts no more from then on.
    SuccessorConfig(ConfigDelta, Sender<u64>),
    /// Objects of the node itself, which no store holds; answered when they are in force.
    LocalObjects(Vec<ConfigChange>, Option<oneshot::Sender<()>>),
    /// All that somebody who watches over the node finds wrong now.
    Problems(ProblemSource, Vec<Problem>),
}

/// What a process that has been taken over from hears of the configuration.
pub(crate) enum ConfigDelta {
    /// All there is.
    Whole(StoreState),
    /// What differs from what was told before.
    Changes(Vec<EntryChange>, Revision),
}

/// Who watches over the node and tells what is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProblemSource {
    /// The end of certificates.
    Expiry,
    /// The ACME client.
    Acme,
    /// The store.
    Store,
    /// The nodes that share the store.
    Cluster,
    /// The one that tells the process before what changes.
    Upgrade,
    /// The tests in the configuration.
    Tests,
    /// The tables of counters that limits keep here.
    Limits,
}

/// Fewer changes at once are everyday: the history has them, the log need not.
const FEW_CHANGES: usize = 10;

/// Between two publications passes at least this: changes that come by the millisecond go in force together.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// And so many times what the last one took, so that this thread leaves the processors to traffic.
const PAUSE_PER_WORK: u32 = 4;
/// But no more than this: a change is not kept waiting for long.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Upper bounds of compile times, in microseconds.
static COMPILE_BOUNDS_US: &[u64] =
    &[100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000];

/// Upper bounds of the time from a commit to its being in force, in milliseconds.
static PROPAGATION_BOUNDS_MS: &[u64] = &[1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000];

/// Host names whose addresses are wanted, each with the number of that want: where it is another one, nothing is
/// known of the name any more.
pub(crate) type Hosts = Arc<BTreeMap<Box<str>, u64>>;

/// What the control thread shows to everyone else.
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

    /// The objects with errors.
    pub(crate) fn broken(&self) -> Vec<String> {
        let problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        let errors = problems.iter().filter(|problem| problem.level == ProblemLevel::Error);
        errors.map(|problem| problem.object.clone()).collect()
    }

    /// The findings in force.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The doors' end of the control thread.
#[derive(Clone)]
pub(crate) struct ControlHandle {
    pub(crate) messages: Sender<ControlMessage>,
    pub(crate) shown: Arc<ControlStatus>,
    pub(crate) snapshots: watch::Receiver<Arc<Snapshot>>,
    pub(crate) hosts: watch::Receiver<Hosts>,
    pub(crate) services: watch::Receiver<Services>,
    first: watch::Receiver<FirstPublication>,
    /// The newest revision of the store that every next request is served by.
    pub(crate) applied: watch::Receiver<Revision>,
    /// How that is known.
    pub(crate) reach: Arc<AppliedTracker>,
    /// What is in force in place of broken objects.
    pub(crate) versions: Arc<LastGoodVersions>,
}

impl ControlHandle {
    /// How many host names and services were not looked up yet.
    pub(crate) fn unresolved(&self) -> u64 {
        self.shown.unresolved.load(Ordering::Acquire)
    }
}

struct ControlThread {
    compiler: Compiler,
    /// What the process before knew of endpoints, for the first configuration.
    initial_inputs: KnownInputs,
    carry: Arc<Carry>,
    shown: Arc<ControlStatus>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    hosts: watch::Sender<Hosts>,
    services: watch::Sender<Services>,
    first: watch::Sender<FirstPublication>,
    reach: Arc<AppliedTracker>,
    /// Whether the store has said what it holds, and what came before that.
    started: bool,
    /// Whether another process says what is in force, instead of the store.
    follows_successor: bool,
    early: Vec<Arc<StoreCommit>>,
    lifetimes: ObjectLifetimes,
    /// The findings of the document itself, beside those of its objects.
    document_problems: Vec<Problem>,
    /// What those who watch over the node find wrong.
    told: BTreeMap<ProblemSource, Vec<Problem>>,
    /// The node's own objects.
    own: BTreeMap<(Kind, Box<str>), Resource>,
    /// Snapshots some worker may still hold: freeing a table is this thread's business.
    retired: Vec<Arc<Snapshot>>,
    /// Host names that were looked up at least once, with or without success.
    looked_up: BTreeSet<Box<str>>,
    /// The same of services.
    asked_for: BTreeSet<Arc<DiscoveryQuery>>,
    /// As of which count of the compiler everybody knows what is wanted.
    wants: Option<u64>,
    /// Nothing is compiled before.
    rests_until: Instant,
    huge_pages: HugePages,
    /// Where the last good versions in force are told.
    versions: Arc<LastGoodVersions>,
}

/// Starts the control thread.
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

    /// What waits is compiled at once: a thousand revisions cost one publication.
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
        // A process that begins is in a hurry.
        self.rests_until = Instant::now();
        let later = self.early.drain(..).filter(|one| one.revision > state.revision);
        let later: Vec<ControlMessage> = later.map(ControlMessage::Committed).collect();
        if !later.is_empty() {
            self.handle(later);
        }
        // Last: whoever waited for it judges by its problems.
        self.first.send_replace(FirstPublication::InForce);
    }

    /// What leads to all that a state holds, and to the node's own objects.
    fn whole(&mut self, state: &StoreState) -> Vec<ConfigChange> {
        let resources = self.lifetimes.begin(state, now_ms());
        let own = self.own.values().cloned();
        self.compiler.diff(resources.into_iter().chain(own).collect())
    }

    /// What connections of this process are served by is what the other one serves its own by.
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
        // Nobody waits any more where this process is about to end.
        let _ = answer.send(number);
    }

    /// Takes out what the store should have deleted by now: nobody who was let in for a while stays for longer because
    /// a disk is full.
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

    /// What comes before the store has spoken waits for it: a node must not serve its own objects alone.
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
            // Whoever asked may be gone.
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

    /// Puts changes in force; the number of the publication.
    fn compile(&mut self, event: &'static str, changes: Vec<ConfigChange>, revision: Revision) -> u64 {
        let started = Instant::now();
        let changed = changes.len();
        let compiled = self.apply(changes, revision);
        // Before it is published: whoever waits for that waits for the endpoints it names, too.
        self.ask_for_endpoints();
        let before = self.shown.publisher.publish(compiled.snapshot.clone());
        let compile_us = started.elapsed().as_micros() as u64;
        self.shown.compile.observe(compile_us);
        self.shown.compile_last_us.store(compile_us, Ordering::Relaxed);
        self.retired.push(before);
        // Nobody listening is no fault.
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

    /// Compiles changes. What the process before knew of endpoints is in the first configuration already: it serves
    /// whether or not those who are asked answer.
    fn apply(&mut self, changes: Vec<ConfigChange>, revision: Revision) -> CompileOutput {
        let mut compiled = self.compiler.apply(changes, revision.0);
        let mut known = std::mem::take(&mut self.initial_inputs);
        loop {
            // Nodes of services may be names.
            let endpoints = self.take_known(&mut known);
            if endpoints.is_empty() {
                return compiled;
            }
            compiled.snapshot = self.compiler.apply(endpoints, revision.0).snapshot;
        }
    }

    /// Takes out what was known of the names and services that are wanted.
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

    /// Says which names and services are wanted now.
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

/// How long what comes next is gathered, after a publication that took so long.
fn pause_after(work: Duration) -> Duration {
    (work * PAUSE_PER_WORK).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// Whether something is wanted still, and was not let go in between. What was known before anybody was told that it is
/// wanted stays known.
fn is_same<K: Ord>(next: &BTreeMap<K, u64>, before: &BTreeMap<K, u64>, what: &K) -> bool {
    next.get(what).is_some_and(|number| before.get(what).is_none_or(|known| known == number))
}

/// Tells those who follow only where something differs.
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

/// Problems in the log, each with all it says; bounded, since the status listener has them all.
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
