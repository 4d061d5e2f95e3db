//! Offloading of long computations from workers to other threads, through a bounded queue.
//!
//! The host of an exchange decides where a job runs.

use std::fmt;
use std::sync::mpsc;

use crate::PluginHost;
use crate::plugin::LocalFuture;

/// A job for an offload thread.
pub type OffloadJob = Box<dyn FnOnce() + Send>;

/// The reply of a host to a job.
pub enum Offload {
    /// The host has no offload threads; the caller runs the job.
    Inline(OffloadJob),
    /// The job is queued; the future resolves when it has run or was dropped.
    Queued(LocalFuture<'static, ()>),
    /// The queue is full.
    Refused,
}

/// The queue of computations is full, or a computation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffloadRefused;

impl fmt::Display for OffloadRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the gateway has too much to compute")
    }
}

/// The result of a computation.
pub enum Computation<T> {
    /// Available, or refused.
    Ready(Result<T, OffloadRefused>),
    /// Running on an offload thread.
    Pending(LocalFuture<'static, Result<T, OffloadRefused>>),
}

/// Largest input of a computation that runs on the worker. Parsing it into a tree with a node per two bytes
/// takes half a millisecond.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;

/// Computes from `bytes` bytes of input: on the worker up to [`INLINE_BYTES_MAX`], else on an offload thread.
pub fn compute<T: Send + 'static>(
    host: &dyn PluginHost,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Computation<T> {
    if bytes <= INLINE_BYTES_MAX {
        return Computation::Ready(Ok(work()));
    }
    // Room for the only result, so that sending never blocks the thread.
    let (sender, receiver) = mpsc::sync_channel(1);
    // The receiver was dropped if the exchange was aborted.
    let job = Box::new(move || drop(sender.send(work())));
    // The receiver finds nothing if the computation panicked.
    let result = move || receiver.try_recv().map_err(|_| OffloadRefused);
    match host.offload(bytes, job) {
        // The host has no other threads.
        Offload::Inline(job) => {
            job();
            Computation::Ready(result())
        }
        Offload::Queued(done) => Computation::Pending(Box::pin(async move {
            done.await;
            result()
        })),
        Offload::Refused => Computation::Ready(Err(OffloadRefused)),
    }
}
