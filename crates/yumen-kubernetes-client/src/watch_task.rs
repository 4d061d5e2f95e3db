//! The tasks that perform the steps of watch machines over an [`ApiClient`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::client::ApiClient;
use crate::error::ApiError;
use crate::kind::WatchTarget;
use crate::watch_machine::{SILENCE_MS, WatchInput, WatchMachine, WatchOutput, WatchStep};

/// An event of one kind.
#[derive(Debug)]
pub struct WatchReport {
    /// The index of the kind in the list that [`WatchSet::start`] took.
    pub kind: usize,
    /// The API version in use; absent before discovery.
    pub version: Option<Box<str>>,
    /// The event.
    pub output: WatchOutput,
}

/// The progress of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchStage {
    /// No result yet.
    Starting,
    /// Listed, and kept in step by a watch.
    Following,
    /// The kind is not installed.
    Absent,
    /// The identity may not read the kind.
    Denied,
    /// The last request failed; it is repeated.
    Failing,
}

/// The state of one kind, for metrics and readiness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindHealth {
    /// The progress.
    pub stage: WatchStage,
    /// Milliseconds since a list, a change or a bookmark confirmed the objects; absent before the first list. Up
    /// to about 120 000 on a healthy watch of a quiet kind, because API servers send a bookmark each minute.
    pub stale_ms: Option<u64>,
}

/// The watches of several kinds. Dropping it ends them.
pub struct WatchSet {
    shared: Vec<Arc<SharedWatch>>,
    groups: Vec<String>,
    started_at: Instant,
    // Held for its drop, which aborts the tasks.
    _tasks: JoinSet<()>,
}

/// The part of a watch that its task and readers share.
#[derive(Debug)]
struct SharedWatch {
    stage: AtomicU8,
    /// Milliseconds since the start of the set, plus one; zero before the first list.
    confirmed: AtomicU64,
    recheck: Notify,
    /// Notified at the first event.
    first_event: Notify,
}

struct WatchTask {
    index: usize,
    client: ApiClient,
    machine: WatchMachine,
    shared: Arc<SharedWatch>,
    reports: mpsc::Sender<WatchReport>,
    started_at: Instant,
}

/// The receiver of reports was dropped.
struct ReceiverClosed;

impl WatchSet {
    /// Starts the kinds one after another, so that their first lists do not fall on the API server at once. Events come
    /// through `reports`; a full channel pauses the watches. `seed` varies the jitter of pauses.
    ///
    /// Call it within a Tokio runtime.
    pub fn start(
        client: &ApiClient,
        kinds: Vec<WatchTarget>,
        seed: u64,
        reports: &mpsc::Sender<WatchReport>,
    ) -> WatchSet {
        let started_at = Instant::now();
        let shared: Vec<_> = kinds.iter().map(|_| Arc::new(SharedWatch::new())).collect();
        let groups = kinds.iter().map(|kind| kind.group.clone()).collect();
        let tasks: Vec<WatchTask> = kinds
            .into_iter()
            .enumerate()
            .map(|(index, kind)| WatchTask {
                index,
                client: client.clone(),
                machine: WatchMachine::new(
                    kind,
                    seed.wrapping_add(index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                ),
                shared: Arc::clone(&shared[index]),
                reports: reports.clone(),
                started_at,
            })
            .collect();
        let mut set = JoinSet::new();
        set.spawn(run_in_turn(tasks));
        WatchSet { shared, groups, started_at, _tasks: set }
    }

    /// The state of a kind, by its index.
    pub fn health(&self, kind: usize) -> Option<KindHealth> {
        let shared = self.shared.get(kind)?;
        let now_ms = elapsed_ms(self.started_at);
        let stale_ms =
            shared.confirmed.load(Relaxed).checked_sub(1).map(|at_ms| now_ms.saturating_sub(at_ms));
        Some(KindHealth { stage: WatchStage::from_code(shared.stage.load(Relaxed)), stale_ms })
    }

    /// Looks up the versions of a group again, after one of its definitions changed. Absent kinds are tried at once.
    pub fn recheck_group(&self, group: &str) {
        for (shared, _) in self.shared.iter().zip(&self.groups).filter(|(_, one)| *one == group) {
            shared.recheck.notify_one();
        }
    }
}

impl SharedWatch {
    fn new() -> SharedWatch {
        SharedWatch {
            stage: AtomicU8::new(WatchStage::Starting as u8),
            confirmed: AtomicU64::new(0),
            recheck: Notify::new(),
            first_event: Notify::new(),
        }
    }
}

impl WatchStage {
    fn from_code(code: u8) -> WatchStage {
        let stages = [WatchStage::Following, WatchStage::Absent, WatchStage::Denied, WatchStage::Failing];
        stages.into_iter().find(|&stage| stage as u8 == code).unwrap_or(WatchStage::Starting)
    }
}

/// Starts each task after the first event of the one before; ends when the tasks end.
async fn run_in_turn(tasks: Vec<WatchTask>) {
    let mut running = JoinSet::new();
    for task in tasks {
        let shared = Arc::clone(&task.shared);
        running.spawn(task.run());
        shared.first_event.notified().await;
    }
    while running.join_next().await.is_some() {}
}

impl WatchTask {
    async fn run(mut self) {
        // Without a receiver there is nothing left to do.
        while self.perform().await.is_ok() {}
    }

    /// One step of the machine.
    async fn perform(&mut self) -> Result<(), ReceiverClosed> {
        match self.machine.next(self.now_ms()) {
            WatchStep::Pause { until_ms } => {
                let until = self.started_at + Duration::from_millis(until_ms);
                tokio::select! {
                    () = sleep_until(until) => Ok(()),
                    () = self.shared.recheck.notified() => self.feed(WatchInput::Recheck).await,
                }
            }
            WatchStep::Discover => match self.client.served_version(self.machine.kind()).await {
                Ok(version) => self.feed(WatchInput::Served(version)).await,
                Err(error) => self.feed(WatchInput::Failed(error)).await,
            },
            WatchStep::List { version, limit, continue_token } => {
                let kind = self.machine.kind();
                match self.client.list_page(kind, &version, limit, continue_token.as_deref()).await {
                    Ok(page) => self.feed(WatchInput::Page(&page)).await,
                    Err(error) => self.feed(WatchInput::Failed(error)).await,
                }
            }
            WatchStep::Watch { version, resource_version } => self.watch(&version, &resource_version).await,
        }
    }

    async fn watch(&mut self, version: &str, resource_version: &str) -> Result<(), ReceiverClosed> {
        let mut lines = match self.client.watch(self.machine.kind(), version, resource_version).await {
            Ok(lines) => lines,
            Err(error) => return self.feed(WatchInput::Failed(error)).await,
        };
        self.shared.stage.store(WatchStage::Following as u8, Relaxed);
        while self.machine.is_watching() {
            let next = tokio::select! {
                next = lines.next_line_within(Duration::from_millis(SILENCE_MS)) => next,
                () = self.shared.recheck.notified() => {
                    self.feed(WatchInput::Recheck).await?;
                    continue;
                }
            };
            match next {
                Ok(Some(line)) => self.feed(WatchInput::Line(&line)).await?,
                Ok(None) => return self.feed(WatchInput::Ended).await,
                Err(Some(error)) => return self.feed(WatchInput::Failed(error)).await,
                Err(None) => return self.feed(WatchInput::Silent).await,
            }
        }
        Ok(())
    }

    async fn feed(&mut self, input: WatchInput<'_>) -> Result<(), ReceiverClosed> {
        let outputs = self.machine.take(input, self.now_ms());
        if let Some(confirmed_ms) = self.machine.confirmed_ms() {
            self.shared.confirmed.store(confirmed_ms + 1, Relaxed);
        }
        for output in outputs {
            let stage = match &output {
                WatchOutput::Replaced(_) | WatchOutput::Changed(_) => WatchStage::Following,
                WatchOutput::Absent => WatchStage::Absent,
                WatchOutput::Denied(_) => WatchStage::Denied,
                WatchOutput::Failed(error) => {
                    self.log_failure(error);
                    WatchStage::Failing
                }
            };
            self.shared.stage.store(stage as u8, Relaxed);
            let version = self.machine.api_version().map(Into::into);
            let report = WatchReport { kind: self.index, version, output };
            self.reports.send(report).await.map_err(|_| ReceiverClosed)?;
            // A permit is stored if the starter does not wait yet; later ones are not awaited.
            self.shared.first_event.notify_one();
        }
        Ok(())
    }

    fn log_failure(&self, error: &ApiError) {
        tracing::debug!(kind = self.machine.kind().kind, error = %error, "kubernetes watch failed");
    }

    fn now_ms(&self) -> u64 {
        elapsed_ms(self.started_at)
    }
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
