//! Offloaded plugin jobs: one thread per worker, with a bounded queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;
use yumen_plugin::{Offload, OffloadJob};

/// Number of offload threads per worker.
pub(crate) const OFFLOAD_THREADS: usize = 1;
/// Limits of the queued and running jobs of a worker: number, and bytes of input. An empty queue accepts a
/// job of any size.
const OFFLOADED_JOBS_MAX: usize = 1024;
const OFFLOADED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The queued and running jobs of one worker.
#[derive(Debug, Default)]
pub(crate) struct OffloadQueue(Arc<OffloadLoad>);

#[derive(Debug, Default)]
struct OffloadLoad {
    jobs: AtomicUsize,
    bytes: AtomicUsize,
}

/// Slot of a job in the queue; released on drop. A job may outlive its exchange.
struct QueuedJob {
    load: Arc<OffloadLoad>,
    bytes: usize,
}

impl Drop for QueuedJob {
    fn drop(&mut self) {
        self.load.jobs.fetch_sub(1, Ordering::Relaxed);
        self.load.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl OffloadQueue {
    /// Queues a job with an input of `bytes` bytes.
    pub(crate) fn submit(&self, bytes: usize, job: OffloadJob) -> Offload {
        // The simulation has no runtime, so the worker runs the job itself.
        let Ok(runtime) = Handle::try_current() else { return Offload::Inline(job) };
        let Some(queued) = self.reserve(bytes) else { return Offload::Refused };
        let running = runtime.spawn_blocking(move || {
            job();
            drop(queued);
        });
        Offload::Queued(Box::pin(async move {
            if let Err(error) = running.await {
                tracing::error!(%error, "an offloaded job failed");
            }
        }))
    }
}

impl OffloadQueue {
    /// Reserves a slot. Check and increment need not be atomic, since only the worker adds.
    fn reserve(&self, bytes: usize) -> Option<QueuedJob> {
        let load = &self.0;
        let (jobs, queued_bytes) = (load.jobs.load(Ordering::Relaxed), load.bytes.load(Ordering::Relaxed));
        let has_room = jobs < OFFLOADED_JOBS_MAX && queued_bytes.saturating_add(bytes) <= OFFLOADED_BYTES_MAX;
        if jobs > 0 && !has_room {
            return None;
        }
        load.jobs.fetch_add(1, Ordering::Relaxed);
        load.bytes.fetch_add(bytes, Ordering::Relaxed);
        Some(QueuedJob { load: load.clone(), bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_by_jobs_and_bytes() {
        let queue = OffloadQueue::default();
        let jobs: Vec<QueuedJob> = std::iter::from_fn(|| queue.reserve(1)).collect();
        assert_eq!(jobs.len(), OFFLOADED_JOBS_MAX);
        drop(jobs);
        let long = queue.reserve(OFFLOADED_BYTES_MAX + 1);
        assert!(long.is_some() && queue.reserve(1).is_none());
        drop(long);
        assert!(queue.reserve(1).is_some());
    }

    #[tokio::test]
    async fn a_job_frees_its_place_when_it_ran() {
        let queue = OffloadQueue::default();
        let Offload::Queued(done) = queue.submit(7, Box::new(|| ())) else { panic!("the queue is empty") };
        assert_eq!(queue.0.bytes.load(Ordering::Relaxed), 7);
        done.await;
        assert_eq!((queue.0.jobs.load(Ordering::Relaxed), queue.0.bytes.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn a_worker_without_a_runtime_computes_by_itself() {
        assert!(matches!(OffloadQueue::default().submit(0, Box::new(|| ())), Offload::Inline(_)));
    }
}
