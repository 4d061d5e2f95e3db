//! The loop between the watches and the store: translates batches of changes, commits resources, then statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use yumen_base::Problem;
use yumen_config::Resource;
use yumen_config::node::{KubernetesConfig, SecretText};
use yumen_kubernetes::{
    ClusterChange, ClusterKind, ClusterTranslator, DesiredObject, ObjectKey, ResourceChange, ResourceName,
    TranslationDelta, TranslationSettings, WatchedContent, decode,
};
use yumen_kubernetes_client::{
    ApiClient, LeaseElection, LeaseSettings, LeaseView, RawObject, RawObjectChange, StatusWriter,
    WatchOutput, WatchReport, WatchSet, WatchStage, WatchTarget,
};
use yumen_store::{LastGoodTask, MemoryStore, StateOrigin, Store, TextSeal, load_last_good, open_keyring};

use super::api_paths::{self, ServedVersions};
use super::certificate_reader::CertificateReader;
use super::cluster_gaps::ClusterGaps;
use super::commit::{commit_changes, propose};
use super::controller_status::{KubernetesStatus, StartStage, WritesEnd};
use super::controller_tasks::ControllerTasks;
use super::event_writer::EventWriter;
use super::object_applier::ObjectApplier;
use super::object_gate::ObjectGate;
use super::reference_reader::{ReferenceRead, ReferenceReader};
use super::status_board::{ProcessFacts, StatusBoard};
use super::webhook::{CertificateKeeper, PendingReview, WebhookParts, next_review};
use crate::control::{ControlHandle, ControlMessage, ProblemSource, follow_store};
use crate::serving::listener_supervisor::ListenerStates;
use yumen_proxy::clock::exact as wall_clock;

/// Bound on a request of the lease, well below its 15 s.
pub(super) const LEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Changes translated at once: a compilation must stay within milliseconds.
const BATCH_MAX: usize = 256;
/// Reports that wait; a full channel pauses the watches.
const REPORTS_MAX: usize = 1024;
/// Interval of checks of slow facts: staleness of kinds, failed writes.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Pause before a controller that failed is replaced.
const RESTART_AFTER: Duration = Duration::from_secs(2);
/// Name of the Lease that chooses the writer.
const LEASE: &str = "yumen-controller";

/// The parts that a controller starts from.
#[derive(Clone)]
pub(super) struct ControllerParts {
    pub(super) client: ApiClient,
    /// A client of its own, so that no other request delays a renewal of the lease.
    pub(super) lease_client: ApiClient,
    pub(super) namespace: String,
    pub(super) identity: String,
    pub(super) settings: TranslationSettings,
    pub(super) config: KubernetesConfig,
    pub(super) data_dir: PathBuf,
    pub(super) keyring: Vec<SecretText>,
    pub(super) store: Arc<MemoryStore>,
    pub(super) control: ControlHandle,
    pub(super) listeners: watch::Receiver<ListenerStates>,
    pub(super) status: Arc<KubernetesStatus>,
    pub(super) writes_end: watch::Receiver<Option<WritesEnd>>,
    pub(super) webhook: WebhookParts,
}

/// Changes of one round of the loop.
#[derive(Default)]
struct ChangeBatch {
    changes: Vec<ClusterChange>,
    /// Objects with a draft whose status changed.
    observed: Vec<ObjectKey>,
}

/// The owner of the translation.
struct ClusterController {
    parts: ControllerParts,
    translator: ClusterTranslator,
    kinds: Vec<ClusterKind>,
    versions: Arc<Mutex<ServedVersions>>,
    references: ReferenceReader,
    board: Arc<StatusBoard>,
    stage: StartStage,
    /// Kinds without a first result.
    unlisted: BTreeSet<ClusterKind>,
    /// All translated resources, until they are published for the first time.
    first: BTreeMap<ResourceName, Arc<str>>,
    gaps: ClusterGaps,
    translation_problems: Vec<Problem>,
    last_good: Option<LastGoodTask>,
    gate: ObjectGate,
}

impl ClusterController {
    fn new(parts: ControllerParts) -> ClusterController {
        let kinds: Vec<ClusterKind> = ClusterKind::all().collect();
        // After a failure of an earlier controller its state is in force, like the last good one.
        let stage = match parts.status.is_published.load(Relaxed) {
            true => StartStage::Bridged,
            false => StartStage::Listing,
        };
        parts.status.is_settled.store(false, Relaxed);
        ClusterController {
            translator: ClusterTranslator::new(parts.settings.clone(), Arc::new(CertificateReader)),
            versions: Arc::default(),
            references: ReferenceReader::new(parts.client.clone()),
            board: Arc::new(StatusBoard::new(parts.settings.controller_name.clone())),
            stage,
            unlisted: kinds.iter().copied().collect(),
            first: BTreeMap::new(),
            gaps: ClusterGaps::default(),
            translation_problems: Vec::new(),
            last_good: None,
            gate: ObjectGate::new(),
            kinds,
            parts,
        }
    }

    fn start_tasks(&self, reports: &mpsc::Sender<WatchReport>) -> ControllerTasks {
        let parts = &self.parts;
        let keeper = parts.config.take_over.then(|| {
            let settings = LeaseSettings {
                namespace: parts.namespace.clone(),
                name: LEASE.to_owned(),
                identity: parts.identity.clone(),
            };
            LeaseElection::start(parts.lease_client.clone(), settings)
        });
        let lease = keeper.as_ref().map_or_else(LeaseView::never, LeaseElection::view);
        let watched = self.kinds.iter().map(|kind| self.watched(*kind)).collect();
        // Two replicas that start together differ in their pauses.
        let seed = parts
            .identity
            .bytes()
            .fold(7_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
        ControllerTasks {
            watches: WatchSet::start(&parts.client, watched, seed, reports),
            applier: ObjectApplier::start(parts.client.clone(), lease.clone(), self.versions.clone()),
            writer: StatusWriter::start(parts.client.clone(), lease.clone(), self.board.clone()),
            events: EventWriter::start(parts.client.clone(), lease.clone()),
            certificates: parts.webhook.keep_certificate(&parts.client, &lease, &parts.namespace),
            lease,
            keeper,
        }
    }

    fn watched(&self, kind: ClusterKind) -> WatchTarget {
        let whole = api_paths::watched(kind);
        match kind.api().content {
            WatchedContent::Full => whole,
            WatchedContent::Metadata | WatchedContent::Referenced => whole.metadata_only(),
            WatchedContent::OwnPods => WatchTarget {
                namespace: Some(self.parts.namespace.clone()),
                label_selector: Some(self.parts.config.pod_selector.clone()),
                ..whole
            },
        }
    }

    /// Follows the API server until the task is ended.
    async fn run(mut self) {
        let (sender, mut reports) = mpsc::channel(REPORTS_MAX);
        let mut tasks = self.start_tasks(&sender);
        let (mut applied, mut listeners) = (self.parts.control.applied.clone(), self.parts.listeners.clone());
        let deadline = Instant::now() + Duration::from_millis(self.parts.config.start_wait_ms);
        let mut looks = tokio::time::interval(LOOK_EVERY);
        let mut writes_end = self.parts.writes_end.clone();
        // The guard of a controller that failed is released.
        let mut reviews = self.parts.webhook.reviews.clone().lock_owned().await;
        let mut rested_at = Instant::now();
        loop {
            self.references.start_due(&self.versions.lock().unwrap_or_else(PoisonError::into_inner));
            let mut batch = ChangeBatch::default();
            tokio::select! {
                report = reports.recv() => {
                    let Some(report) = report else { return };
                    self.take(report, &tasks, &mut batch);
                    while batch.changes.len() < BATCH_MAX && let Ok(report) = reports.try_recv() {
                        self.take(report, &tasks, &mut batch);
                    }
                }
                Some(pending) = next_review(&mut reviews, rested_at) => rested_at = self.review(pending),
                read = self.references.next() => {
                    self.take_reference(read, &mut batch);
                    while batch.changes.len() < BATCH_MAX && let Some(read) = self.references.try_next() {
                        self.take_reference(Some(read), &mut batch);
                    }
                }
                Ok(()) = applied.changed() => self.resume_statuses(&tasks, self.board.waiting()),
                Ok(()) = listeners.changed() => self.resume_statuses(&tasks, self.board.depending()),
                held = tasks.next_leadership() => self.take_leadership(&tasks, held),
                () = tokio::time::sleep_until(deadline), if self.stage == StartStage::Listing => self.bridge().await,
                Ok(()) = writes_end.changed() => tasks.end_writes(*writes_end.borrow_and_update()),
                _ = looks.tick() => {
                    self.retry_ports(&tasks).await;
                    self.forget_mended(&tasks);
                    self.report_problems(&tasks);
                    self.resume_statuses(&tasks, self.board.depending());
                }
            }
            if !batch.changes.is_empty() {
                self.translate(batch, &tasks).await;
            }
            self.settle(&tasks).await;
        }
    }

    /// Takes a report of a watch, as changes for the translation.
    fn take(&mut self, report: WatchReport, tasks: &ControllerTasks, batch: &mut ChangeBatch) {
        let Some(&kind) = self.kinds.get(report.kind) else { return };
        let content = kind.api().content;
        if let Some(version) = report.version {
            self.versions.lock().unwrap_or_else(PoisonError::into_inner).set(kind, version);
        }
        match &report.output {
            WatchOutput::Failed(error) => {
                tracing::debug!(%kind, %error, "the API server cannot be followed");
                self.gaps.refusals.insert(kind, error.to_string());
            }
            WatchOutput::Denied(rule) => {
                self.gaps.refusals.insert(kind, rule.clone());
                self.unlisted.remove(&kind);
                self.report_problems(tasks);
            }
            WatchOutput::Absent => {
                self.gaps.absent.insert(kind);
                if self.gaps.refusals.remove(&kind).is_some() {
                    self.report_problems(tasks);
                }
                self.unlisted.remove(&kind);
                self.gate.observe_list(kind);
            }
            WatchOutput::Replaced(_) | WatchOutput::Changed(_) => {
                self.gaps.absent.remove(&kind);
                if self.gaps.refusals.remove(&kind).is_some() {
                    self.report_problems(tasks);
                }
                self.unlisted.remove(&kind);
                self.gate.observe_list(kind);
            }
        }
        if content == WatchedContent::Referenced {
            self.references.observe(kind, &report.output);
            return;
        }
        if kind == ClusterKind::CustomResourceDefinition {
            api_paths::recheck_groups(&report.output, &tasks.watches);
        }
        match report.output {
            WatchOutput::Replaced(objects) => {
                batch.changes.push(ClusterChange::Installed(kind, true));
                self.board.retain_listed(kind, &objects);
                let decoded = objects.iter().filter_map(|object| self.decoded(kind, object, batch)).collect();
                batch.changes.push(ClusterChange::Replace(kind, decoded));
            }
            WatchOutput::Changed(RawObjectChange::Put(object)) => {
                if let Some(decoded) = self.decoded(kind, &object, batch) {
                    tasks.applier.restore(&decoded.key(), Some(&object.resource_version));
                    batch.changes.push(ClusterChange::Put(decoded));
                }
            }
            WatchOutput::Changed(RawObjectChange::Delete(object)) => {
                let key = ObjectKey::new(kind, &object.namespace, &object.name);
                self.board.forget(&key);
                tasks.applier.restore(&key, None);
                batch.changes.push(ClusterChange::Delete(key));
            }
            // Objects of a kind that is gone stay in force until the watch reports an empty list.
            WatchOutput::Absent if !self.is_settled() => {
                batch.changes.push(ClusterChange::Installed(kind, false))
            }
            WatchOutput::Absent | WatchOutput::Denied(_) | WatchOutput::Failed(_) => {}
        }
    }

    /// The object for the translation; one that does not decode becomes a problem there.
    fn decoded(
        &self,
        kind: ClusterKind,
        object: &RawObject,
        batch: &mut ChangeBatch,
    ) -> Option<yumen_kubernetes::ClusterObject> {
        match decode(kind, &object.json) {
            Ok(decoded) => {
                let meta = decoded.meta();
                let key = decoded.key();
                if self.board.observe(&key, &meta.version, meta.status.as_ref()) {
                    batch.observed.push(key);
                }
                Some(decoded)
            }
            Err(error) => {
                let key = ObjectKey::new(kind, &object.namespace, &object.name);
                batch.changes.push(ClusterChange::Undecodable(key, error.message));
                None
            }
        }
    }

    fn take_reference(&mut self, read: Option<ReferenceRead>, batch: &mut ChangeBatch) {
        match read {
            Some(ReferenceRead::Answer(change)) => {
                let key = match &*change {
                    ClusterChange::Put(object) => Some(object.key()),
                    ClusterChange::Delete(key) | ClusterChange::Undecodable(key, _) => Some(key.clone()),
                    ClusterChange::Replace(..) | ClusterChange::Installed(..) => None,
                };
                key.and_then(|key| self.gaps.denied_references.remove(&key));
                batch.changes.push(*change);
            }
            Some(ReferenceRead::Denied { key, rule, is_kept }) => {
                if !is_kept {
                    // The objects that refer to it must not wait for a right that may never be granted.
                    batch.changes.push(ClusterChange::Delete(key.clone()));
                }
                self.gaps.denied_references.insert(key, rule);
            }
            None => {}
        }
    }

    /// Answers a review, and returns the earliest time of the next one. Before all kinds were listed a review gets no
    /// answer, and the API server follows its `failurePolicy`.
    fn review(&mut self, pending: PendingReview) -> Instant {
        let begin = Instant::now();
        if self.is_settled() {
            self.parts.webhook.answer(pending, &mut self.translator, wall_clock());
        }
        // Every client of the network can ask. Reviews take half of the time at most, so that endpoints stay current.
        Instant::now() + begin.elapsed()
    }

    fn is_settled(&self) -> bool {
        self.stage == StartStage::Settled
    }

    /// Translates a batch and publishes the result.
    async fn translate(&mut self, batch: ChangeBatch, tasks: &ControllerTasks) {
        let delta = self.translator.apply(batch.changes, wall_clock());
        self.parts.status.translations.fetch_add(1, Relaxed);
        self.publish(delta, batch.observed, tasks).await;
    }

    async fn retry_ports(&mut self, tasks: &ControllerTasks) {
        let delta = self.translator.retry_ports(wall_clock());
        if delta != TranslationDelta::default() {
            self.publish(delta, Vec::new(), tasks).await;
        }
    }

    /// Commits the resources of a translation, and then submits statuses and objects.
    async fn publish(&mut self, delta: TranslationDelta, observed: Vec<ObjectKey>, tasks: &ControllerTasks) {
        let TranslationDelta { resources, statuses, objects, wanted, problems } = delta;
        if let Some(wanted) = wanted {
            self.gaps.denied_references.retain(|key, _| wanted.contains(key));
            self.references.require(wanted);
        }
        if let Some(problems) = problems {
            tasks.events.observe(&problems);
            self.translation_problems = problems;
            self.report_problems(tasks);
        }
        self.commit(resources).await;
        let mut keys = observed;
        keys.extend(statuses.iter().map(|(key, _)| key.clone()));
        self.board.set_drafts(statuses);
        self.submit_objects(objects, tasks);
        if self.is_settled() {
            self.resume_statuses(tasks, keys);
        }
    }

    fn submit_objects(&mut self, changes: Vec<DesiredObject>, tasks: &ControllerTasks) {
        let is_settled = self.is_settled();
        tasks.applier.submit(self.gate.admit(is_settled, changes, &self.translator));
    }

    /// Commits changes of resources as one revision.
    async fn commit(&mut self, changes: Vec<ResourceChange>) {
        if changes.is_empty() {
            return;
        }
        if !self.is_settled() {
            for change in changes {
                match change {
                    ResourceChange::Put(resource) => drop(self.first.insert(resource.name, resource.json)),
                    ResourceChange::Delete(name) => drop(self.first.remove(&name)),
                }
            }
            return;
        }
        commit_changes(self.parts.store.clone(), changes).await;
    }

    /// Publishes the translation once every kind and every referenced object was read.
    async fn settle(&mut self, tasks: &ControllerTasks) {
        if self.is_settled() || !self.unlisted.is_empty() || !self.references.is_settled() {
            return;
        }
        // The last good state serves a little longer than a translation that lacks kinds.
        if self.stage == StartStage::Bridged && self.gaps.is_doubtful() {
            return;
        }
        let resources: Vec<Resource> = std::mem::take(&mut self.first)
            .into_iter()
            .filter_map(|(name, json)| Some(Resource { kind: name.kind.kind()?, id: name.id, json }))
            .collect();
        propose(self.parts.store.clone(), move |draft| draft.replace_all(&resources, &[])).await;
        if self.stage != StartStage::Bridged {
            let state = follow_store(&*self.parts.store, &self.parts.control.messages);
            let _ = self.parts.control.messages.send(ControlMessage::State(state, Vec::new()));
        }
        self.stage = StartStage::Settled;
        self.parts.status.set_origin(StateOrigin::Store);
        self.parts.status.is_published.store(true, Relaxed);
        self.parts.status.is_settled.store(true, Relaxed);
        self.keep_last_good();
        self.report_problems(tasks);
        self.submit_objects(Vec::new(), tasks);
        self.resume_statuses(tasks, self.board.all());
    }

    /// Serves the last good state while the API server does not answer.
    async fn bridge(&mut self) {
        let missing: Vec<&str> = self.unlisted.iter().map(|kind| kind.name()).collect();
        let reason = self.gaps.refusals.values().next().cloned().unwrap_or_else(|| "no answer".to_owned());
        let loaded =
            self.keyring().and_then(|keyring| Ok(load_last_good(&self.parts.data_dir, Some(keyring))?));
        let messages = &self.parts.control.messages;
        match loaded {
            Ok(state) => {
                tracing::warn!(reason, ?missing, "API server unavailable, serving the last good state");
                self.stage = StartStage::Bridged;
                let since = SystemTime::now();
                self.parts.status.set_origin(StateOrigin::LastGood {
                    reason: reason.clone(),
                    since,
                    damage: None,
                });
                self.parts.status.is_published.store(true, Relaxed);
                let resources = state.resources();
                // Before the state is sent: an empty state would count as a configuration in force.
                propose(self.parts.store.clone(), move |draft| draft.replace_all(&resources, &[])).await;
                let state = follow_store(&*self.parts.store, messages);
                let _ = messages.send(ControlMessage::State(state, Vec::new()));
            }
            Err(error) => {
                tracing::warn!(reason, ?missing, %error, "API server unavailable, and there is no last good state");
                self.stage = StartStage::Unready;
                let _ = messages.send(ControlMessage::NoState);
            }
        }
        let hint = "statuses and changes wait until it answers";
        let problem =
            Problem::error("kubernetes", "", format!("API server unreachable: {reason}")).hint(hint);
        let _ = messages.send(ControlMessage::Problems(ProblemSource::Kubernetes, vec![problem]));
    }

    /// The key of the last good state.
    fn keyring(&self) -> anyhow::Result<Arc<dyn TextSeal>> {
        let directory = &self.parts.data_dir;
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(Arc::new(open_keyring(directory, &self.parts.keyring)?))
    }

    fn keep_last_good(&mut self) {
        let parts = &self.parts;
        let (store, versions) = (parts.store.clone(), parts.control.versions.clone());
        let kept = self
            .keyring()
            .and_then(|keyring| Ok(LastGoodTask::start(&parts.data_dir, store, Some(keyring), versions)?));
        match kept {
            Ok(task) => self.last_good = Some(task),
            Err(error) => {
                tracing::warn!(%error, "the last good state cannot be kept: the next start needs the API server")
            }
        }
    }

    /// Decides statuses again by the newest facts, and submits those that differ.
    fn resume_statuses(&self, tasks: &ControllerTasks, keys: Vec<ObjectKey>) {
        if !self.is_settled() {
            return;
        }
        let problems = self.parts.control.status.problems();
        self.board.set_facts(ProcessFacts {
            state: self.parts.store.state(),
            applied: *self.parts.control.applied.borrow(),
            listeners: self.parts.listeners.borrow().clone(),
            defects: ProcessFacts::defects_of(&problems),
        });
        if !tasks.lease.is_held() {
            return;
        }
        let now = wall_clock();
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            if let Some(write) = self.board.write_of(&key, now) {
                tasks.writer.submit(versions.path(&key), write);
            }
        }
    }

    fn take_leadership(&self, tasks: &ControllerTasks, is_held: bool) {
        self.parts.status.is_leader.store(is_held, Relaxed);
        if is_held {
            self.board.forget_submitted();
            self.resume_statuses(tasks, self.board.all());
        }
    }

    /// Forgets failures of kinds that are followed again: without a change, no report shows it.
    fn forget_mended(&mut self, tasks: &ControllerTasks) {
        let kinds = &self.kinds;
        self.gaps.refusals.retain(|kind, _| {
            let health = kinds.iter().position(|one| one == kind).and_then(|at| tasks.watches.health(at));
            health.is_none_or(|health| health.stage != WatchStage::Following)
        });
    }

    fn report_problems(&self, tasks: &ControllerTasks) {
        if matches!(self.stage, StartStage::Bridged | StartStage::Unready) {
            return;
        }
        let mut problems = self.translation_problems.clone();
        problems.extend(self.gaps.problems());
        problems.extend(tasks.applier.problems());
        problems.extend(tasks.certificates.as_ref().and_then(CertificateKeeper::problem));
        problems.extend(tasks.lease.failure().map(|error| {
            let message = format!("no replica can become the leader: {error}");
            Problem::warning("kubernetes/lease", "", message)
                .hint("statuses and Services are not written meanwhile")
        }));
        let message = ControlMessage::Problems(ProblemSource::Kubernetes, problems);
        // Fails only if the process is ending and the control thread with it.
        let _ = self.parts.control.messages.send(message);
    }
}

/// Runs controllers until the task is ended. One that panics is replaced: traffic goes on meanwhile, but without a
/// controller endpoints would grow stale for ever.
pub(super) async fn keep_running(parts: ControllerParts) {
    loop {
        // A set, whose drop aborts the controller together with this task.
        let mut running = JoinSet::new();
        running.spawn(ClusterController::new(parts.clone()).run());
        match running.join_next().await {
            Some(Err(error)) if error.is_panic() => tracing::error!(%error, "Kubernetes controller failed"),
            _ => return,
        }
        let message = "the controller failed and starts again: changes of the cluster wait";
        let problem =
            Problem::error("kubernetes", "", message).hint("the node log has the reason; report it");
        let problems = ControlMessage::Problems(ProblemSource::Kubernetes, vec![problem]);
        // Fails only if the process is ending and the control thread with it.
        let _ = parts.control.messages.send(problems);
        tokio::time::sleep(RESTART_AFTER).await;
    }
}
