//! Computations that would block a worker, run in other threads through a bounded queue.
//!
//! Knows no thread; the host of an exchange decides where a job runs.

use std::fmt;
use std::sync::mpsc;

use crate::PluginHost;
use crate::plugin::LocalFuture;

/// A job for another thread.
pub type OffloadJob = Box<dyn FnOnce() + Send>;

/// The decision of a host about a job.
pub enum Offload {
    /// The host has no other threads; the caller runs the job.
    Inline(OffloadJob),
    /// The job runs in another thread; completes when it has run or was dropped.
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

/// A result, or the future of it.
pub enum Computation<T> {
    /// The computation was run at once, or refused.
    Ready(Result<T, OffloadRefused>),
    /// The computation runs in another thread.
    Pending(LocalFuture<'static, Result<T, OffloadRefused>>),
}

/// Maximum input of a computation that runs on the worker, in bytes. Parsed to a tree of one node per two
/// bytes, it takes half a millisecond.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;

/// Runs a computation on `bytes` bytes of input: at once if they are few, else in another thread.
pub fn compute<T: Send + 'static>(
    host: &dyn PluginHost,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Computation<T> {
    if bytes <= INLINE_BYTES_MAX {
        return Computation::Ready(Ok(work()));
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    // The receiver is gone if the client has disconnected.
    let job = Box::new(move || drop(sender.send(work())));
    let result = move || receiver.try_recv().map_err(|_| OffloadRefused);
    match host.offload(bytes, job) {
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
