//! The loop of the control thread: batches messages, compiles, publishes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use yumen_config::Resource;
use yumen_plugin::Carry;
use yumen_proxy::clock;
use yumen_snapshot::compile::{CompileOutput, Compiler, ConfigChange};
use yumen_store::{Revision, StoreCommit, StoreState};

use super::first_publication::FirstPublication;
use super::huge_pages::HugePages;
use super::lifetimes::ObjectLifetimes;
use super::local_objects::LocalObjects;
use super::published_snapshots::PublishedSnapshots;
use super::reported_problems::{self, ReportedProblems};
use super::required_endpoints::RequiredEndpoints;
use super::{ConfigDelta, ControlContext, ControlHandle, ControlMessage, ControlStatus};
use crate::endpoints::inputs::{RequiredHosts, RequiredServices};
use crate::fetched::RequiredFetches;

/// Publications with fewer changes than this are logged at debug level; the history records them anyway.
const FEW_CHANGES: usize = 10;

/// Minimum time between two publications, so that frequent changes are batched.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// Pause as a multiple of the last publication's duration: leaves the CPUs to traffic.
const PAUSE_PER_WORK: u32 = 4;
/// Maximum pause, which bounds the delay of a change.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Maximum time between two checks of retired snapshots.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// State of the control thread.
struct ControlThread {
    compiler: Compiler,
    carry: Arc<Carry>,
    status: Arc<ControlStatus>,
    first: watch::Sender<FirstPublication>,
    source: ActiveSource,
    lifetimes: ObjectLifetimes,
    problems: ReportedProblems,
    local_objects: LocalObjects,
    endpoints: RequiredEndpoints,
    published: PublishedSnapshots,
    /// Earliest time of the next compilation.
    rests_until: Instant,
    /// `None` unless huge pages are enabled.
    huge_pages: Option<HugePages>,
}

/// Source of the compiled configuration.
enum ActiveSource {
    /// The store has not delivered its state; these commits arrived earlier.
    AwaitedStore(Vec<Arc<StoreCommit>>),
    Store,
    /// The successor of this draining process.
    Successor,
}

impl ActiveSource {
    fn has_started(&self) -> bool {
        !matches!(self, ActiveSource::AwaitedStore(_))
    }
}

/// Starts the control thread.
pub(crate) fn start(compiler: Compiler, context: ControlContext) -> std::io::Result<ControlHandle> {
    let ControlContext { carry, publisher, versions, applied_tracker, initial_inputs, huge_pages } = context;
    let (messages, inbox) = channel();
    let (snapshots_out, snapshots) = watch::channel(publisher.load());
    let (hosts_out, hosts) = watch::channel(RequiredHosts::default());
    let (services_out, services) = watch::channel(RequiredServices::default());
    let (fetches_out, fetches) = watch::channel(RequiredFetches::default());
    let (first_out, first) = watch::channel(FirstPublication::Awaited);
    let (status, applied_tracker) = (Arc::new(ControlStatus::new(publisher)), Arc::new(applied_tracker));
    let thread = ControlThread {
        compiler,
        carry,
        status: status.clone(),
        first: first_out,
        source: ActiveSource::AwaitedStore(Vec::new()),
        lifetimes: ObjectLifetimes::default(),
        problems: ReportedProblems::default(),
        local_objects: LocalObjects::default(),
        endpoints: RequiredEndpoints::new(initial_inputs, hosts_out, services_out, fetches_out),
        published: PublishedSnapshots::new(snapshots_out, applied_tracker.clone(), versions.clone()),
        rests_until: Instant::now(),
        huge_pages: huge_pages.then(HugePages::default),
    };
    std::thread::Builder::new().name("yumen-control".into()).spawn(move || thread.run(&inbox))?;
    let applied = applied_tracker.applied();
    Ok(ControlHandle {
        messages,
        status,
        snapshots,
        hosts,
        services,
        fetches,
        first,
        applied,
        applied_tracker,
        versions,
    })
}

impl ControlThread {
    /// Runs until all senders of messages are dropped.
    fn run(mut self, inbox: &Receiver<ControlMessage>) {
        loop {
            // Expiry must not wait for a message.
            let until_due = self.lifetimes.until_due(now_ms()).unwrap_or(Duration::MAX);
            match inbox.recv_timeout(until_due.min(SWEEP_EVERY)) {
                Ok(message) => {
                    // Messages that arrive during the pause are compiled together.
                    std::thread::sleep(self.rests_until.saturating_duration_since(Instant::now()));
                    let mut batch = vec![message];
                    batch.extend(inbox.try_iter());
                    self.handle(batch);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.end_lifetimes();
            self.published.free_retired();
        }
    }

    /// One publication covers all queued messages, however many revisions they contain.
    fn handle(&mut self, batch: Vec<ControlMessage>) {
        let mut resolved = Vec::new();
        let mut committed = Vec::new();
        for message in batch {
            match message {
                ControlMessage::SuccessorConfig(delta, done) => {
                    // A process with a successor follows that alone; commits of its own store are stale (decision 32).
                    committed.clear();
                    self.apply_successor_config(delta, &done);
                }
                ControlMessage::State(state, former) => self.start(&state, former),
                ControlMessage::NoState if self.source.has_started() => {}
                ControlMessage::NoState => drop(self.first.send_replace(FirstPublication::Absent)),
                ControlMessage::Committed(commit) => match &mut self.source {
                    // Commits may overtake the state that contains them; `start` sorts out which.
                    ActiveSource::AwaitedStore(early) => early.push(commit),
                    ActiveSource::Store => committed.push(commit),
                    ActiveSource::Successor => {}
                },
                ControlMessage::Source(source) => self.problems.set_source(*source),
                ControlMessage::Document(problems) => {
                    self.problems.set_document(problems);
                    self.export_problems();
                }
                ControlMessage::LocalObjects(changes, done) => self.apply_local_objects(changes, done),
                ControlMessage::Problems(source, problems) => {
                    if self.problems.set(source, problems) {
                        self.export_problems();
                    }
                }
                ControlMessage::Resolved(host, addrs) => {
                    self.endpoints.note_lookup(&host);
                    resolved.push(ConfigChange::Resolved { host, addrs });
                }
                ControlMessage::Discovered(service, result) => {
                    self.endpoints.note_discovery(&service);
                    resolved.push(ConfigChange::Discovered(service, result));
                }
                ControlMessage::Fetched(request, result) => {
                    self.endpoints.note_fetch(&request);
                    resolved.push(ConfigChange::Fetched(request, result));
                }
            }
        }
        // Inputs after the commits, which may have added the names.
        self.apply_commits(&committed);
        if !resolved.is_empty() {
            self.compile("inputs applied", resolved, self.published.revision());
        }
    }

    fn apply_commits(&mut self, committed: &[Arc<StoreCommit>]) {
        let Some(newest) = committed.last() else { return };
        let now_ms = now_ms();
        let changed = committed.iter().flat_map(|commit| &commit.changes);
        // Expired objects become deletions here, before the compiler sees them.
        let changes = changed.map(|changed| self.lifetimes.change(changed, now_ms)).collect();
        self.compile("configuration applied", changes, newest.revision);
        for commit in committed {
            self.status.propagation.observe(self::now_ms().saturating_sub(commit.time_ms));
        }
    }

    /// Compiles the state of the store. A process with a successor follows that instead.
    fn start(&mut self, state: &StoreState, former: Vec<Resource>) {
        let early = match std::mem::replace(&mut self.source, ActiveSource::Store) {
            ActiveSource::AwaitedStore(early) => early,
            ActiveSource::Store => Vec::new(),
            ActiveSource::Successor => {
                self.source = ActiveSource::Successor;
                return;
            }
        };
        self.compiler.begin_from(former);
        let changes = self.whole(state);
        self.compile("configuration applied", changes, state.revision);
        // Start-up skips the pause before the next publication.
        self.rests_until = Instant::now();
        let later: Vec<Arc<StoreCommit>> =
            // Commits up to the state's revision are contained in it.
            early.into_iter().filter(|commit| commit.revision > state.revision).collect();
        self.apply_commits(&later);
        // Sent last: waiters read the problems next.
        self.first.send_replace(FirstPublication::InForce);
    }

    /// Changes from the compiled set to a complete state plus the node's own objects.
    fn whole(&mut self, state: &StoreState) -> Vec<ConfigChange> {
        let resources = self.lifetimes.begin(state, now_ms());
        self.compiler.diff(resources.into_iter().chain(self.local_objects.resources()).collect())
    }

    /// Publishes an update of the successor, so that draining connections use the same configuration.
    fn apply_successor_config(&mut self, delta: ConfigDelta, done: &Sender<()>) {
        // From the first update on, the own store is not followed any more.
        self.source = ActiveSource::Successor;
        let now_ms = now_ms();
        let (changes, revision) = match delta {
            ConfigDelta::Changes(changed, revision) => {
                (changed.iter().map(|one| self.lifetimes.change(one, now_ms)).collect(), revision)
            }
            ConfigDelta::Whole(state) => (self.whole(&state), state.revision),
        };
        self.compile("configuration of the successor applied", changes, revision);
        // The receiver is closed if this process is about to end.
        let _ = done.send(());
    }

    /// Withdraws expired objects that the store has not deleted, so that a full disk extends no access.
    fn end_lifetimes(&mut self) {
        let due = self.lifetimes.due(now_ms());
        if !due.is_empty() {
            tracing::warn!(
                objects = due.len(),
                "expired objects not deleted from the store; removed from service"
            );
            self.compile("expired objects removed from service", due, self.published.revision());
        }
    }

    /// Objects that arrive before the state of the store are compiled with it: a node must not serve its own
    /// objects alone.
    fn apply_local_objects(&mut self, changes: Vec<ConfigChange>, done: Option<oneshot::Sender<()>>) {
        // Recorded even before the start, so that the first compilation includes them.
        self.local_objects.apply(&changes);
        if self.source.has_started() {
            self.compile("the node's own objects applied", changes, self.published.revision());
        }
        if let Some(done) = done {
            // The requester may have dropped the receiver.
            let _ = done.send(());
        }
    }

    /// Compiles and publishes changes.
    fn compile(&mut self, event: &'static str, changes: Vec<ConfigChange>, revision: Revision) {
        let started = Instant::now();
        let changed = changes.len();
        let mut compiled = self.apply(changes, revision);
        // Before publication: waiters for the snapshot also wait for the endpoints of its names.
        let awaited = self.endpoints.export(&self.compiler);
        self.status.awaited_secrets.store(awaited.secrets, Ordering::Release);
        self.status.unresolved.store(awaited.all, Ordering::Release);
        // Workers first: traffic must not wait for followers.
        self.published.publish_to_workers(&self.status.publisher, compiled.snapshot.clone());
        let compile_us = started.elapsed().as_micros() as u64;
        self.status.compile.observe(compile_us);
        self.status.compile_last_us.store(compile_us, Ordering::Relaxed);
        self.published.publish_to_followers(compiled.snapshot);
        self.export_problems();
        let in_store = |one: &(Resource, &Arc<str>)| !self.local_objects.contains(&one.0);
        self.published.export_versions(revision, self.compiler.last_good().filter(in_store));
        self.status.revision.store(revision.0, Ordering::Release);
        // Last: waiters for the revision read problems and versions next.
        self.published.record(revision);
        let (problems, carried) = (self.status.problems().len(), self.carry.len());
        // The first publication is always logged: it marks the start.
        match changed < FEW_CHANGES && self.status.publisher.version() > 1 {
            true => tracing::debug!(revision = revision.0, changed, compile_us, problems, carried, "{event}"),
            false => tracing::info!(revision = revision.0, changed, compile_us, problems, carried, "{event}"),
        }
        self.problems.locate(&mut compiled.problems);
        reported_problems::log(&compiled.problems);
        if let Some(huge_pages) = &mut self.huge_pages {
            huge_pages.note_changes(changed);
        }
        // In proportion to the work, so that frequent changes take a bounded share of a CPU.
        self.rests_until = Instant::now() + pause_after(started.elapsed());
    }

    /// Compiles changes. The first compilation includes the predecessor's inputs, so that a successor serves before name
    /// servers, registries and secret managers answer.
    fn apply(&mut self, changes: Vec<ConfigChange>, revision: Revision) -> CompileOutput {
        let mut compiled = self.compiler.apply(changes, revision.0);
        let mut initial = self.endpoints.take_initial();
        // Ends, since each round compiles inputs that are taken out of `initial`.
        loop {
            // Endpoints of a discovered service may be host names themselves; a document may name servers.
            let known = self.endpoints.changes_from(&mut initial, &self.compiler);
            if known.is_empty() {
                return compiled;
            }
            compiled.snapshot = self.compiler.apply(known, revision.0).snapshot;
        }
    }

    fn export_problems(&self) {
        let mut compiled = self.compiler.problems();
        self.problems.locate(&mut compiled);
        compiled.extend(self.lifetimes.problems());
        self.status.set_problems(self.problems.with(compiled.into_iter()));
    }
}

/// Pause before the next publication, in proportion to the duration of the last one.
fn pause_after(work: Duration) -> Duration {
    (work * PAUSE_PER_WORK).clamp(PAUSE_MIN, PAUSE_MAX)
}

fn now_ms() -> u64 {
    clock::exact().unix_ms
}
