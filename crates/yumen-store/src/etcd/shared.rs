//! Data shared by the tasks of the store: mirror, served state, followers and status.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;
use yumen_base::Problem;

use super::client::{ClusterHead, EtcdClient, KeyListing};
use super::history::MirrorHistory;
use super::layout::KeyLayout;
use super::mirror::{EtcdMirror, MirrorNeed, MirrorUpdate};
use super::nodes::NodeRecords;
use super::proto::KeyEvent;
use super::settings::EtcdSettings;
use crate::engine::now_ms;
use crate::fallback::StateOrigin;
use crate::last_good::{self, RecoveredState};
use crate::state::StoreState;
use crate::store::FollowerFn;

/// Called with all current problems when they change. Must not block.
pub type OnProblems = Box<dyn FnMut(Vec<Problem>) + Send>;

/// Status of the store for operators.
#[derive(Debug, Clone, PartialEq)]
pub struct EtcdStatus {
    /// Source of the served state.
    pub origin: StateOrigin,
    /// URL of the connected member; `None` while disconnected.
    pub endpoint: Option<Arc<str>>,
    /// Reason for being disconnected.
    pub error: Option<String>,
    /// Time since the served state was last known to be current.
    pub staleness: Duration,
    /// Newest known revision of the cluster.
    pub cluster_revision: u64,
    /// Revisions not yet processed, including those of keys outside the store.
    pub lag_revisions: u64,
    /// Number of held deletions.
    pub held: usize,
}

/// Progress of a node in the revisions of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MirrorPosition {
    /// Newest revision known to have changed an object.
    pub changed: u64,
    /// Revision of the served state.
    pub served: u64,
    /// Last processed revision. Revisions between `served` and this one changed no object.
    pub seen: u64,
}

impl MirrorPosition {
    /// Revision up to which all changes are effective on a node with workers that have applied `applied`.
    pub fn reached(&self, applied: u64) -> u64 {
        // A larger `applied` stems from another cluster, or from a newer copy of this one.
        // While no change is in progress, all revisions up to `seen` are effective (decision 29).
        if applied == self.served { self.seen } else { applied.min(self.seen) }
    }
}

/// Connection state of the cluster.
#[derive(Debug)]
struct ClusterReachability {
    /// Start of serving the last good state; `None` once the cluster was listed.
    last_good_since: Option<SystemTime>,
    /// Reason why the watch is down.
    error: Option<String>,
    /// Start of the outage.
    cut_at: Option<Instant>,
    /// Whether a connection attempt has ended.
    is_tried: bool,
    /// Time at which the mirror was last known to be complete.
    in_step_at: Instant,
    /// Age of the last good state at start.
    age_at_start: Duration,
    head: u64,
    published_up_to: u64,
}

struct MirrorCore {
    mirror: EtcdMirror,
    /// Damage of the last good state that the mirror started with.
    damage: Option<String>,
    past: MirrorHistory,
    /// Reason why the cluster refuses this node's record.
    announce_error: Option<String>,
    problems: Vec<Problem>,
}

impl MirrorCore {
    /// Damage of the last good state, until the first listing replaces that state.
    fn damage_in_force(&self) -> Option<&str> {
        // A listing replaces the damaged state, so its damage does not matter any more.
        self.damage.as_deref().filter(|_| !self.mirror.is_listed())
    }

    /// Returns all problems if they have changed.
    fn news(&mut self) -> Option<Vec<Problem>> {
        let mut problems = self.mirror.problems();
        problems.extend(self.damage_in_force().map(last_good::damage_problem));
        problems.extend(self.announce_error.as_ref().map(|error| {
            let found = format!(
                "this node's record in etcd cannot be renewed, so other nodes consider it absent: {error}"
            );
            Problem::warning("store", "", found)
        }));
        // Followers are notified of changes only, not of each event.
        let is_news = problems != self.problems;
        self.problems = problems;
        is_news.then(|| self.problems.clone())
    }
}

pub(super) struct EtcdShared {
    pub(super) settings: EtcdSettings,
    pub(super) client: EtcdClient,
    pub(super) layout: KeyLayout,
    pub(super) nodes: NodeRecords,
    /// Shared keys of the nodes.
    pub(super) board: NodeRecords,
    core: Mutex<MirrorCore>,
    state: RwLock<StoreState>,
    followers: Mutex<Vec<FollowerFn>>,
    reachability: Mutex<ClusterReachability>,
    on_problems: Mutex<OnProblems>,
    moved: watch::Sender<u64>,
}

impl EtcdShared {
    /// Starts with the last good state and its age, if available.
    pub(super) fn new(
        settings: EtcdSettings,
        client: EtcdClient,
        last_good: Option<(RecoveredState, Duration)>,
        on_problems: OnProblems,
    ) -> EtcdShared {
        let layout = KeyLayout::new(&settings.prefix);
        let age_at_start = last_good.as_ref().map_or(Duration::ZERO, |(_, age)| *age);
        let last_good_since = last_good.is_some().then(SystemTime::now);
        let (state, damage) =
            last_good.map(|(recovered, _)| (recovered.state, recovered.damage)).unwrap_or_default();
        let mirror = EtcdMirror::new(layout.clone(), state.clone(), settings.hold_percent);
        let past = MirrorHistory::new(settings.retention);
        let reachability = ClusterReachability {
            last_good_since,
            // An error from the start: without one the store would count as connected.
            error: Some("not connected yet".into()),
            cut_at: None,
            is_tried: false,
            in_step_at: Instant::now(),
            age_at_start,
            head: 0,
            published_up_to: 0,
        };
        EtcdShared {
            core: Mutex::new(MirrorCore { mirror, damage, past, announce_error: None, problems: Vec::new() }),
            state: RwLock::new(state),
            followers: Mutex::default(),
            reachability: Mutex::new(reachability),
            on_problems: Mutex::new(on_problems),
            moved: watch::Sender::new(0),
            nodes: NodeRecords::new(layout.nodes()),
            board: NodeRecords::new(layout.board(&settings.board)),
            settings,
            client,
            layout,
        }
    }

    pub(super) fn state(&self) -> StoreState {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn follow(&self, follower: FollowerFn) -> StoreState {
        // `take` updates the state and calls the followers under this lock.
        let mut followers = lock(&self.followers);
        followers.push(follower);
        self.state()
    }

    /// Notifies when the mirror or the connection state changes.
    pub(super) fn moves(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// A consistent copy of the mirror.
    pub(super) fn mirror(&self) -> EtcdMirror {
        lock(&self.core).mirror.clone()
    }

    /// Reads the mirror under its lock.
    pub(super) fn with_mirror<T>(&self, read: impl FnOnce(&EtcdMirror) -> T) -> T {
        read(&lock(&self.core).mirror)
    }

    pub(super) fn position(&self) -> MirrorPosition {
        self.with_mirror(|mirror| MirrorPosition {
            changed: mirror.changed_at(),
            served: mirror.state().revision.0,
            seen: mirror.seen(),
        })
    }

    pub(super) fn with_past<T>(&self, read: impl FnOnce(&MirrorHistory) -> T) -> T {
        read(&lock(&self.core).past)
    }

    pub(super) fn note_lease(&self, lease: i64, expires_ms: u64) {
        lock(&self.core).mirror.note_lease(lease, expires_ms, now_ms());
    }

    pub(super) fn need(&self, head: ClusterHead) -> MirrorNeed {
        self.note_head(head);
        self.with_mirror(|mirror| mirror.need(head))
    }

    /// Processes all keys as of one revision.
    pub(super) fn take_list(&self, listing: &KeyListing) {
        self.take(true, |mirror| mirror.take_list(listing, now_ms()));
        self.nodes.take_list(listing);
        self.board.take_list(listing);
        let mut reachability = lock(&self.reachability);
        (reachability.last_good_since, reachability.error, reachability.cut_at) = (None, None, None);
        // Assigned rather than raised: a restored cluster may have a lower revision.
        reachability.head = listing.head.revision;
        drop(reachability);
        self.set_in_step(listing.head.revision);
        self.moved.send_modify(|count| *count += 1);
    }

    /// Processes events of a watch; returns whether a listing is needed.
    #[must_use]
    pub(super) fn take_events(&self, head: ClusterHead, events: Vec<KeyEvent>) -> bool {
        // Records are applied even if the mirror is out of step; the listing replaces them anyway.
        self.nodes.take_events(&events);
        self.board.take_events(&events);
        let is_out_of_step = self.take(false, |mirror| mirror.take_events(events, now_ms()));
        let seen = self.with_mirror(EtcdMirror::seen);
        self.note_head(head);
        // Otherwise more events are on their way.
        if seen >= head.revision {
            self.set_in_step(seen);
        }
        self.moved.send_modify(|count| *count += 1);
        is_out_of_step
    }

    /// Processes a progress message: the store's keys have no events up to this revision.
    pub(super) fn take_progress(&self, head: ClusterHead) {
        self.note_head(head);
        self.set_in_step(head.revision);
    }

    fn take(&self, is_leap: bool, take: impl FnOnce(&mut EtcdMirror) -> MirrorUpdate) -> bool {
        // The followers are locked before the core, so that they receive commits in the order of the mirror.
        let mut followers = lock(&self.followers);
        let mut core = lock(&self.core);
        // The history links each step to the state before it.
        let mut from = core.mirror.state().revision;
        let taken = take(&mut core.mirror);
        for committed in &taken.commits {
            core.past.push(from, is_leap, committed.clone());
            from = committed.revision;
        }
        let (state, news) = (core.mirror.state().clone(), core.news());
        // Published under the mirror's lock: a writer that finds its revision in the mirror must also find it
        // in the state.
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
        // Unlocked before followers run, since they may read the mirror.
        drop(core);
        for committed in &taken.commits {
            followers.iter_mut().for_each(|follower| follower(committed));
        }
        drop(followers);
        if let Some(problems) = news {
            // Outside all locks of the mirror: the callback may call back into the store.
            lock(&self.on_problems)(problems);
        }
        taken.is_out_of_step
    }

    /// Records why this node's record is refused; `None` once it is accepted.
    pub(super) fn set_announce_error(&self, error: Option<String>) {
        let mut core = lock(&self.core);
        // Only the change between refused and accepted is news; the wording may vary with each attempt.
        if core.announce_error.is_none() == error.is_none() {
            return;
        }
        match &error {
            Some(error) => tracing::warn!(error, "etcd rejected the node record"),
            None => tracing::info!("etcd accepts the node record again"),
        }
        core.announce_error = error;
        let news = core.news();
        drop(core);
        if let Some(problems) = news {
            lock(&self.on_problems)(problems);
        }
    }

    /// Reports the damage of the last good state when that is served.
    pub(super) fn report_last_good(&self) {
        let news = lock(&self.core).news();
        if let Some(problems) = news {
            lock(&self.on_problems)(problems);
        }
    }

    fn note_head(&self, head: ClusterHead) {
        let mut reachability = lock(&self.reachability);
        // A late response of another member must not lower the head.
        reachability.head = reachability.head.max(head.revision);
    }

    fn set_in_step(&self, up_to: u64) {
        let mut reachability = lock(&self.reachability);
        reachability.published_up_to = up_to;
        reachability.in_step_at = Instant::now();
        reachability.age_at_start = Duration::ZERO;
    }

    /// Records that the watch is established.
    pub(super) fn note_followed(&self) {
        let mut reachability = lock(&self.reachability);
        (reachability.error, reachability.cut_at) = (None, None);
        drop(reachability);
        self.moved.send_modify(|count| *count += 1);
    }

    /// Records that the watch has failed.
    pub(super) fn set_disconnected(&self, error: &dyn std::fmt::Display) {
        let error = error.to_string();
        let mut reachability = lock(&self.reachability);
        reachability.is_tried = true;
        // Failed attempts of one outage keep its start.
        reachability.cut_at.get_or_insert_with(Instant::now);
        let before = reachability.error.replace(error.clone());
        drop(reachability);
        // Warned once per outage; repeated attempts are debug lines.
        if before.is_none() {
            tracing::warn!(error, "etcd watch failed, serving the last known state");
        } else if before.as_ref() != Some(&error) {
            tracing::debug!(error, "etcd watch failed");
        }
        self.moved.send_modify(|count| *count += 1);
    }

    /// Duration of the current outage; zero while connected.
    pub(super) fn outage(&self) -> Duration {
        lock(&self.reachability).cut_at.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Reason of the outage; `None` while connected.
    pub(super) fn error(&self) -> Option<String> {
        lock(&self.reachability).error.clone()
    }

    /// Whether the first attempt to follow the cluster has ended.
    pub(super) fn is_tried(&self) -> bool {
        let reachability = lock(&self.reachability);
        reachability.is_tried || reachability.error.is_none()
    }

    pub(super) fn status(&self) -> EtcdStatus {
        let core = lock(&self.core);
        // Copied under one lock, so that the two locks are never held together.
        let (held, damage) = (core.mirror.held(), core.damage_in_force().map(str::to_owned));
        drop(core);
        let reachability = lock(&self.reachability);
        let reason = || reachability.error.clone().unwrap_or_default();
        let origin = match reachability.last_good_since {
            Some(since) => StateOrigin::LastGood { reason: reason(), since, damage },
            None => StateOrigin::Store,
        };
        EtcdStatus {
            origin,
            endpoint: self.client.endpoint().filter(|_| reachability.error.is_none()),
            error: reachability.error.clone(),
            staleness: reachability.in_step_at.elapsed() + reachability.age_at_start,
            cluster_revision: reachability.head,
            lag_revisions: reachability.head.saturating_sub(reachability.published_up_to),
            held,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
