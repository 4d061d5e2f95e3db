//! Leader election by a Lease of `coordination.k8s.io`: the task around [`LeaseMachine`], and the view for writers.

mod machine;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use yumen_base::Now;

use crate::client::{ApiClient, ObjectPatch, PatchMethod};
use crate::error::ApiError;
use crate::object::ObjectPath;
use machine::{LeaseMachine, LeaseStep};

/// The bound on the release of the lease at a stop.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The name of a lease and the identity of this process in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSettings {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// The holder identity, such as the name of the pod. A successor process with the same identity continues the lease.
    pub identity: String,
}

/// The answer to "may this process write now", for readers in other tasks.
#[derive(Debug, Clone)]
pub struct LeaseView {
    /// Microseconds since `started_at` until which the lease is held for certain; zero if it is not.
    held_until_us: Arc<AtomicU64>,
    started_at: Instant,
    changes: watch::Receiver<bool>,
    failure: Arc<Mutex<Option<ApiError>>>,
}

impl LeaseView {
    /// Whether the lease is held at this moment. Exact: false 10 s after the last renewal began, even if its task hangs.
    pub fn is_held(&self) -> bool {
        elapsed_us(self.started_at) < self.held_until_us.load(Relaxed)
    }

    /// Waits for the next gain or loss and returns whether the lease is held; `None` once the election has ended.
    pub async fn changed(&mut self) -> Option<bool> {
        self.changes.changed().await.ok()?;
        Some(*self.changes.borrow_and_update())
    }

    /// The error of the last request for the lease; `None` once one succeeded. Without the rights on leases no replica
    /// ever becomes the leader.
    pub fn failure(&self) -> Option<ApiError> {
        self.lock_failure().clone()
    }

    fn lock_failure(&self) -> MutexGuard<'_, Option<ApiError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A view that holds for ever, for a single writer without election.
    pub fn always() -> LeaseView {
        let (_, changes) = watch::channel(true);
        LeaseView {
            held_until_us: Arc::new(AtomicU64::new(u64::MAX)),
            started_at: Instant::now(),
            changes,
            failure: Arc::default(),
        }
    }
}

/// Takes and renews a lease in a task. Dropping it ends writing without a release: a successor with the same identity
/// continues the lease.
pub struct LeaseElection {
    view: LeaseView,
    stop: Arc<Notify>,
    task: JoinHandle<()>,
}

struct LeaseTask {
    client: ApiClient,
    machine: LeaseMachine,
    at: ObjectPath,
    view: LeaseView,
    changes: watch::Sender<bool>,
    stop: Arc<Notify>,
}

impl LeaseElection {
    /// Starts to compete for the lease. Give it a client of its own with a request timeout of about 5 s, so that no
    /// other request delays a renewal.
    pub fn start(client: ApiClient, settings: LeaseSettings) -> LeaseElection {
        let started_at = Instant::now();
        let (changes, receiver) = watch::channel(false);
        let view = LeaseView {
            held_until_us: Arc::default(),
            started_at,
            changes: receiver,
            failure: Arc::default(),
        };
        let stop = Arc::new(Notify::new());
        let at = ObjectPath {
            group: "coordination.k8s.io".into(),
            version: "v1".into(),
            plural: "leases".into(),
            namespace: Some(settings.namespace.as_str().into()),
            name: settings.name.as_str().into(),
        };
        let machine = LeaseMachine::new(settings);
        let task = LeaseTask { client, machine, at, view: view.clone(), changes, stop: Arc::clone(&stop) };
        LeaseElection { view, stop, task: tokio::spawn(task.run()) }
    }

    /// The view for writers. [`LeaseView::changed`] reports gains and losses from now on.
    pub fn view(&self) -> LeaseView {
        let mut view = self.view.clone();
        view.changes.mark_unchanged();
        view
    }

    /// Ends writing at once and releases the lease, within 2 s, so that another replica need not wait for its end.
    pub async fn stop(mut self) {
        self.view.held_until_us.store(0, Relaxed);
        self.stop.notify_one();
        // An aborted release leaves the lease to its end.
        let _ = timeout(RELEASE_TIMEOUT, &mut self.task).await;
    }
}

impl Drop for LeaseElection {
    fn drop(&mut self) {
        self.view.held_until_us.store(0, Relaxed);
        self.task.abort();
    }
}

impl LeaseTask {
    async fn run(mut self) {
        let stop = Arc::clone(&self.stop);
        loop {
            let held_until_ms = self.machine.held_until_ms();
            let deadline = self.view.started_at + Duration::from_millis(held_until_ms.unwrap_or(0));
            tokio::select! {
                () = self.perform() => {}
                // A renewal that hangs must not delay the news of the loss.
                () = sleep_until(deadline), if held_until_ms.is_some() => self.machine.lose(),
                () = stop.notified() => break,
            }
            self.announce();
        }
        self.view.held_until_us.store(0, Relaxed);
        self.changes.send_replace(false);
        self.release().await;
    }

    async fn perform(&mut self) {
        let now = self.now();
        match self.machine.next(now) {
            LeaseStep::Pause { until_ms } => {
                let until = self.view.started_at + Duration::from_millis(until_ms);
                sleep_until(until).await;
            }
            LeaseStep::Read => {
                let result = self.client.get(&self.at).await;
                self.note(result.as_ref().err());
                self.machine.take_read(result.map(|object| object.json), self.now());
            }
            LeaseStep::Create { body } => {
                let result = self.client.create(&self.at, &body).await;
                self.take_write(result.map(|object| object.json), now);
            }
            LeaseStep::Patch { body } => {
                let patch = ObjectPatch { method: PatchMethod::Merge, is_status: false, body: &body };
                let result = self.client.patch(&self.at, patch).await;
                self.take_write(result.map(|object| object.json), now);
            }
        }
    }

    /// `sent` is the moment before the request: the lease counts from there, whenever the API server wrote it.
    fn take_write(&mut self, result: Result<bytes::Bytes, ApiError>, sent: Now) {
        self.note(result.as_ref().err());
        self.machine.take_write(result, sent, self.now());
    }

    /// Keeps the error for operators. A missing Lease and a conflict are ordinary.
    fn note(&self, error: Option<&ApiError>) {
        let failure = error.filter(|error| !matches!(error, ApiError::NotFound(_) | ApiError::Conflict(_)));
        if let Some(error) = failure {
            tracing::debug!(error = %error, "lease request failed");
        }
        *self.view.lock_failure() = failure.cloned();
    }

    fn announce(&mut self) {
        let now = self.now();
        let held_until_ms = self.machine.held_until_ms().filter(|&until_ms| until_ms > now.mono_ms());
        self.view.held_until_us.store(held_until_ms.unwrap_or(0) * 1000, Relaxed);
        let is_held = held_until_ms.is_some();
        self.changes.send_if_modified(|held| std::mem::replace(held, is_held) != is_held);
    }

    async fn release(&mut self) {
        let Some(body) = self.machine.release(self.now()) else { return };
        let patch = ObjectPatch { method: PatchMethod::Merge, is_status: false, body: &body };
        if let Err(error) = self.client.patch(&self.at, patch).await {
            tracing::warn!(error = %error, "lease release failed");
        }
    }

    fn now(&self) -> Now {
        let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis());
        Now { mono_us: elapsed_us(self.view.started_at), unix_ms: u64::try_from(unix_ms).unwrap_or(u64::MAX) }
    }
}

fn elapsed_us(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
