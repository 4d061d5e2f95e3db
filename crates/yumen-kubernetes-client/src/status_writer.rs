//! Writes statuses of objects while a lease is held: one queue over all objects, several writes at a time.

mod queue;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::client::{ApiClient, ObjectPatch, PatchMethod};
use crate::error::ApiError;
use crate::lease::LeaseView;
use crate::object::{ObjectAddress, RawObject};
use queue::{StatusOutcome, StatusQueue, StatusStep};

/// Conflicts of one write that are decided again at once; beyond, the write counts as failed and pauses.
const CONFLICTS_MAX: usize = 4;

/// The desired status of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusWrite {
    /// Lower ones are written first.
    pub priority: u8,
    /// The version of the object from which the status was derived; absent: the object is read and decided first.
    pub resource_version: Option<Box<str>>,
    /// The JSON of the member `status`, a merge patch (RFC 7396) of it: lists are replaced whole.
    pub status: Box<str>,
}

/// Decides again on the newest state of an object, and learns the results.
pub trait StatusDecider: Send + Sync + 'static {
    /// The JSON of `status` to write onto `current`; `None` if the object has the desired status already, or is not
    /// ours any more. Called after a conflict, and for drafts without a version.
    fn decide(&self, at: &ObjectAddress, current: &RawObject) -> Option<Box<str>>;

    /// Receives the result of a write. Called from the task of the writer: it must not block.
    fn report(&self, at: &ObjectAddress, report: StatusReport);
}

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatusReport {
    /// The API server holds this object now.
    Written(RawObject),
    /// The object had the desired status, so nothing was written.
    Unchanged,
    /// The object does not exist any more.
    Missing,
    /// The write failed and is tried again.
    Failed(ApiError),
}

/// A queue of status writes. Dropping it ends them.
pub struct StatusWriter {
    shared: Arc<SharedQueue>,
    lease: LeaseView,
    started_at: Instant,
    task: JoinHandle<()>,
}

struct SharedQueue {
    queue: Mutex<StatusQueue>,
    changed: Notify,
}

struct StatusTask<D> {
    client: ApiClient,
    decider: Arc<D>,
    lease: LeaseView,
    shared: Arc<SharedQueue>,
    started_at: Instant,
    writes: JoinSet<(Arc<ObjectAddress>, StatusOutcome)>,
    /// Objects of running writes, by task, for writes that panic in the decider.
    running: HashMap<tokio::task::Id, Arc<ObjectAddress>>,
}

impl StatusWriter {
    /// Starts the writer. Call it within a Tokio runtime.
    pub fn start(client: ApiClient, lease: LeaseView, decider: Arc<impl StatusDecider>) -> StatusWriter {
        let shared = Arc::new(SharedQueue { queue: Mutex::default(), changed: Notify::new() });
        let started_at = Instant::now();
        let task = StatusTask {
            client,
            decider,
            lease: lease.clone(),
            shared: Arc::clone(&shared),
            started_at,
            writes: JoinSet::new(),
            running: HashMap::new(),
        };
        StatusWriter { shared, lease, started_at, task: tokio::spawn(task.run()) }
    }

    /// Queues the status of an object, in place of an earlier draft. Returns false, and drops the draft, while the lease
    /// is not held: submit all statuses after [`LeaseView::changed`] reports a gain.
    pub fn submit(&self, at: ObjectAddress, draft: StatusWrite) -> bool {
        if !self.lease.is_held() {
            return false;
        }
        self.shared.lock().submit(at, draft, elapsed_ms(self.started_at));
        self.shared.changed.notify_one();
        true
    }

    /// Objects whose newest draft is not written yet.
    pub fn pending(&self) -> usize {
        self.shared.lock().pending()
    }
}

impl Drop for StatusWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SharedQueue {
    fn lock(&self) -> std::sync::MutexGuard<'_, StatusQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: StatusDecider> StatusTask<D> {
    async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut lease = self.lease.clone();
        let mut is_followed = true;
        loop {
            let until_ms = self.begin_writes();
            let until = self.started_at + Duration::from_millis(until_ms.unwrap_or(0));
            tokio::select! {
                Some(ended) = self.writes.join_next_with_id() => self.end_write(ended),
                () = shared.changed.notified() => {}
                () = sleep_until(until), if until_ms.is_some() => {}
                held = lease.changed(), if is_followed => match held {
                    Some(true) => {}
                    // Others may write from now on, and this process must not assume any status as written.
                    Some(false) => self.forget(),
                    None => is_followed = false,
                },
            }
        }
    }

    /// Starts the writes that are due. Returns the end of the next pause.
    fn begin_writes(&mut self) -> Option<u64> {
        loop {
            let now_ms = elapsed_ms(self.started_at);
            if !self.lease.is_held() {
                self.forget();
            }
            let step = self.shared.lock().next(now_ms);
            let (at, draft) = match step {
                StatusStep::Write(at, draft) => (at, draft),
                StatusStep::Wait { until_ms } => return until_ms,
            };
            let write = StatusWriteTask {
                client: self.client.clone(),
                decider: Arc::clone(&self.decider),
                lease: self.lease.clone(),
                at: Arc::clone(&at),
            };
            let key = Arc::clone(&at);
            let handle = self.writes.spawn(async move { (key, write.run(draft).await) });
            self.running.insert(handle.id(), at);
        }
    }

    fn end_write(
        &mut self,
        ended: Result<(tokio::task::Id, (Arc<ObjectAddress>, StatusOutcome)), tokio::task::JoinError>,
    ) {
        let now_ms = elapsed_ms(self.started_at);
        match ended {
            // A write that ended while the queue was forgotten must not end a later one of the same object.
            Ok((id, (at, outcome))) if self.running.remove(&id).is_some() => {
                self.shared.lock().finish(&at, outcome, now_ms);
            }
            Ok(_) => {}
            Err(error) => {
                // Aborted after a loss of the lease, or a panic of the decider: the draft is dropped.
                if let Some(at) = self.running.remove(&error.id()) {
                    self.shared.lock().finish(&at, StatusOutcome::Done, now_ms);
                }
            }
        }
    }

    fn forget(&mut self) {
        self.writes.abort_all();
        self.running.clear();
        self.shared.lock().clear();
    }
}

/// One write of one object.
struct StatusWriteTask<D> {
    client: ApiClient,
    decider: Arc<D>,
    lease: LeaseView,
    at: Arc<ObjectAddress>,
}

impl<D: StatusDecider> StatusWriteTask<D> {
    async fn run(&self, draft: StatusWrite) -> StatusOutcome {
        match self.write(&draft).await {
            Ok(None) => StatusOutcome::Done,
            Ok(Some(report)) => {
                let outcome = if report == StatusReport::Missing {
                    StatusOutcome::Missing
                } else {
                    StatusOutcome::Done
                };
                self.decider.report(&self.at, report);
                outcome
            }
            Err(error) => {
                self.decider.report(&self.at, StatusReport::Failed(error.clone()));
                // The version may be the cause; the next attempt reads the object.
                StatusOutcome::Failed(StatusWrite { resource_version: None, ..draft }, error)
            }
        }
    }

    /// `None` if the lease ended on the way.
    async fn write(&self, draft: &StatusWrite) -> Result<Option<StatusReport>, ApiError> {
        let mut known = draft.resource_version.clone().map(|version| (version, draft.status.clone()));
        let mut conflict = None;
        for _ in 0..CONFLICTS_MAX {
            let (version, status) = match known.take() {
                Some(known) => known,
                None => {
                    let current = match self.client.get(&self.at).await {
                        Err(ApiError::NotFound(_)) => return Ok(Some(StatusReport::Missing)),
                        current => current?,
                    };
                    let Some(status) = self.decider.decide(&self.at, &current) else {
                        return Ok(Some(StatusReport::Unchanged));
                    };
                    (current.resource_version, status)
                }
            };
            // The lease may have ended during the read.
            if !self.lease.is_held() {
                return Ok(None);
            }
            let body = status_patch(&version, &status);
            let patch = ObjectPatch { method: PatchMethod::Merge, is_status: true, body: &body };
            match self.client.patch(&self.at, patch).await {
                Ok(object) => return Ok(Some(StatusReport::Written(object))),
                Err(ApiError::NotFound(_)) => return Ok(Some(StatusReport::Missing)),
                Err(error @ ApiError::Conflict(_)) => conflict = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(conflict.unwrap_or_else(|| ApiError::Conflict("no attempt".to_owned())))
    }
}

/// A merge patch of `status` with the version as precondition.
fn status_patch(version: &str, status: &str) -> String {
    let version = serde_json::Value::from(version);
    format!(r#"{{"metadata":{{"resourceVersion":{version}}},"status":{status}}}"#)
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
