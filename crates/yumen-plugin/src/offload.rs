//! Computations that would hold a worker up: beside it, in a bounded queue.
//!
//! Knows no thread; the host of an exchange decides where a job runs.

use std::fmt;
use std::sync::mpsc;

use crate::PluginHost;
use crate::plugin::LocalFuture;

/// A job for the threads beside a worker.
pub type OffloadJob = Box<dyn FnOnce() + Send>;

/// The answer of a host to a job.
pub enum Offload {
    /// The host has no threads beside its own; the caller runs the job.
    Inline(OffloadJob),
    /// The job runs beside the worker; done when it ran, or when it was given up.
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

/// A result, or the way to it.
pub enum Computation<T> {
    /// It was computed at once, or refused.
    Ready(Result<T, OffloadRefused>),
    /// It is computed beside the worker.
    Pending(LocalFuture<'static, Result<T, OffloadRefused>>),
}

/// The most input bytes of a computation that runs on the worker. Parsed to a tree of one node per two bytes, they take
/// half a millisecond.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;

/// Computes from `bytes` bytes of input: at once where they are few, else beside the worker.
pub fn compute<T: Send + 'static>(
    host: &dyn PluginHost,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Computation<T> {
    if bytes <= INLINE_BYTES_MAX {
        return Computation::Ready(Ok(work()));
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    // Nobody receives it where the client has left.
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
