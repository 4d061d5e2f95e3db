//! What the parts of the store share: the mirror, what is served, who follows it, and what operators see.

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

/// Told of everything that is wrong now, when that changed. It must not block.
pub type OnProblems = Box<dyn FnMut(Vec<Problem>) + Send>;

/// How a store stands to its cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct EtcdStatus {
    /// Where what is served comes from.
    pub origin: StateOrigin,
    /// The member in use; `None` while there is none.
    pub endpoint: Option<Arc<str>>,
    /// Why there is none.
    pub error: Option<String>,
    /// Since when the cluster might have changed without this node's knowing.
    pub staleness: Duration,
    /// The newest revision of the cluster this node heard of.
    pub cluster_revision: u64,
    /// How many of these are still to come; keys of others count too.
    pub lag_revisions: u64,
    /// Deletions that wait for somebody's word.
    pub held: usize,
}

/// Up to where a node knows its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MirrorPosition {
    /// The newest revision that is known to have changed an object.
    pub changed: u64,
    /// The revision of what is served.
    pub served: u64,
    /// What is served holds everything up to here: later revisions up to this one changed nothing.
    pub seen: u64,
}

impl MirrorPosition {
    /// Up to where everything is in force in a node whose workers have `applied`.
    pub fn reached(&self, applied: u64) -> u64 {
        // More than is served was applied of another cluster, or of a newer copy of this one.
        if applied == self.served { self.seen } else { applied.min(self.seen) }
    }
}

/// What is known of the cluster besides its keys.
#[derive(Debug)]
struct ClusterReachability {
    /// Served from disk since, until the cluster speaks.
    last_good_since: Option<SystemTime>,
    /// Why it cannot be followed at the moment.
    error: Option<String>,
    /// Since when.
    cut_at: Option<Instant>,
    /// Whether it was tried at all.
    is_tried: bool,
    /// When it was last certain that nothing is missing.
    in_step_at: Instant,
    /// How old what is served was when the process began.
    age_at_start: Duration,
    head: u64,
    published_up_to: u64,
}

struct MirrorCore {
    mirror: EtcdMirror,
    /// What is missing from the last good state that the mirror began with.
    damage: Option<String>,
    past: MirrorHistory,
    /// Why this node cannot say in the cluster that it is there.
    announce_error: Option<String>,
    problems: Vec<Problem>,
}

impl MirrorCore {
    /// The damage of the last good state, until the cluster has told what there is.
    fn damage_in_force(&self) -> Option<&str> {
        self.damage.as_deref().filter(|_| !self.mirror.is_listed())
    }

    /// What is wrong now, if that is news.
    fn news(&mut self) -> Option<Vec<Problem>> {
        let mut problems = self.mirror.problems();
        problems.extend(self.damage_in_force().map(last_good::damage_problem));
        problems.extend(self.announce_error.as_ref().map(|error| {
            let found =
                format!("this node's record in etcd cannot be renewed, so others take it for gone: {error}");
            Problem::warning("store", "", found)
        }));
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
    /// What they tell one another.
    pub(super) board: NodeRecords,
    core: Mutex<MirrorCore>,
    state: RwLock<StoreState>,
    followers: Mutex<Vec<FollowerFn>>,
    sight: Mutex<ClusterReachability>,
    on_problems: Mutex<OnProblems>,
    moved: watch::Sender<u64>,
}

impl EtcdShared {
    /// Begins with what was served last, so long ago.
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
        let sight = ClusterReachability {
            last_good_since,
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
            sight: Mutex::new(sight),
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
        // A state is published and told under this lock.
        let mut followers = lock(&self.followers);
        followers.push(follower);
        self.state()
    }

    /// Tells whoever waits that something moved.
    pub(super) fn moves(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// The mirror as of now.
    pub(super) fn mirror(&self) -> EtcdMirror {
        lock(&self.core).mirror.clone()
    }

    /// Reads the mirror.
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

    /// All keys, as of one revision.
    pub(super) fn take_list(&self, listing: &KeyListing) {
        self.take(true, |mirror| mirror.take_list(listing, now_ms()));
        self.nodes.take_list(listing);
        self.board.take_list(listing);
        let mut sight = lock(&self.sight);
        (sight.last_good_since, sight.error, sight.cut_at) = (None, None, None);
        // Whatever was heard of before: an older copy, or another cluster, may stand in its place.
        sight.head = listing.head.revision;
        drop(sight);
        self.set_in_step(listing.head.revision);
        self.moved.send_modify(|count| *count += 1);
    }

    /// What a watch told; whether a list is needed to be in step again.
    #[must_use]
    pub(super) fn take_events(&self, head: ClusterHead, events: Vec<KeyEvent>) -> bool {
        self.nodes.take_events(&events);
        self.board.take_events(&events);
        let is_out_of_step = self.take(false, |mirror| mirror.take_events(events, now_ms()));
        let seen = self.with_mirror(EtcdMirror::seen);
        self.note_head(head);
        if seen >= head.revision {
            self.set_in_step(seen);
        }
        self.moved.send_modify(|count| *count += 1);
        is_out_of_step
    }

    /// Nothing of ours happened up to here.
    pub(super) fn take_progress(&self, head: ClusterHead) {
        self.note_head(head);
        self.set_in_step(head.revision);
    }

    fn take(&self, is_leap: bool, take: impl FnOnce(&mut EtcdMirror) -> MirrorUpdate) -> bool {
        let mut followers = lock(&self.followers);
        let mut core = lock(&self.core);
        let mut from = core.mirror.state().revision;
        let taken = take(&mut core.mirror);
        for committed in &taken.commits {
            core.past.push(from, is_leap, committed.clone());
            from = committed.revision;
        }
        let (state, news) = (core.mirror.state().clone(), core.news());
        // Before anybody can see in the mirror that it was told: an answered write is there to be read.
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
        drop(core);
        for committed in &taken.commits {
            followers.iter_mut().for_each(|follower| follower(committed));
        }
        drop(followers);
        if let Some(problems) = news {
            lock(&self.on_problems)(problems);
        }
        taken.is_out_of_step
    }

    /// Why this node's record is refused; `None` once it is not.
    pub(super) fn set_announce_error(&self, error: Option<String>) {
        let mut core = lock(&self.core);
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

    /// Reports what is wrong with the last good state, which is served now.
    pub(super) fn report_last_good(&self) {
        let news = lock(&self.core).news();
        if let Some(problems) = news {
            lock(&self.on_problems)(problems);
        }
    }

    fn note_head(&self, head: ClusterHead) {
        let mut sight = lock(&self.sight);
        sight.head = sight.head.max(head.revision);
    }

    fn set_in_step(&self, up_to: u64) {
        let mut sight = lock(&self.sight);
        sight.published_up_to = up_to;
        sight.in_step_at = Instant::now();
        sight.age_at_start = Duration::ZERO;
    }

    /// The watch stands; whatever comes, comes.
    pub(super) fn note_followed(&self) {
        let mut sight = lock(&self.sight);
        (sight.error, sight.cut_at) = (None, None);
        drop(sight);
        self.moved.send_modify(|count| *count += 1);
    }

    /// The cluster cannot be followed.
    pub(super) fn set_disconnected(&self, error: &dyn std::fmt::Display) {
        let error = error.to_string();
        let mut sight = lock(&self.sight);
        sight.is_tried = true;
        sight.cut_at.get_or_insert_with(Instant::now);
        let before = sight.error.replace(error.clone());
        drop(sight);
        if before.is_none() {
            tracing::warn!(error, "etcd watch failed, serving the last known state");
        } else if before.as_ref() != Some(&error) {
            tracing::debug!(error, "etcd watch failed");
        }
        self.moved.send_modify(|count| *count += 1);
    }

    /// For how long the cluster could not be followed now.
    pub(super) fn outage(&self) -> Duration {
        lock(&self.sight).cut_at.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Why the cluster cannot be followed; `None` while it is.
    pub(super) fn error(&self) -> Option<String> {
        lock(&self.sight).error.clone()
    }

    /// Whether an attempt to follow it has come to an end, good or bad.
    pub(super) fn is_tried(&self) -> bool {
        let sight = lock(&self.sight);
        sight.is_tried || sight.error.is_none()
    }

    pub(super) fn status(&self) -> EtcdStatus {
        let core = lock(&self.core);
        let (held, damage) = (core.mirror.held(), core.damage_in_force().map(str::to_owned));
        drop(core);
        let sight = lock(&self.sight);
        let reason = || sight.error.clone().unwrap_or_default();
        let origin = match sight.last_good_since {
            Some(since) => StateOrigin::LastGood { reason: reason(), since, damage },
            None => StateOrigin::Store,
        };
        EtcdStatus {
            origin,
            endpoint: self.client.endpoint().filter(|_| sight.error.is_none()),
            error: sight.error.clone(),
            staleness: sight.in_step_at.elapsed() + sight.age_at_start,
            cluster_revision: sight.head,
            lag_revisions: sight.head.saturating_sub(sight.published_up_to),
            held,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
