//! State that each worker has for itself, in an object that all workers share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::PluginHost;

/// One value per worker. A worker locks only its own value, so the lock is never contended.
#[derive(Debug)]
pub struct PerWorker<T> {
    values: Box<[PaddedLock<T>]>,
}

/// On a cache line pair of its own, so that workers do not invalidate each other's lines.
#[derive(Debug)]
#[repr(align(128))]
struct PaddedLock<T>(Mutex<T>);

impl<T> PerWorker<T> {
    /// One value for each of `workers` workers, and at least one.
    pub fn new(workers: usize, mut make: impl FnMut() -> T) -> PerWorker<T> {
        PerWorker { values: (0..workers.max(1)).map(|_| PaddedLock(Mutex::new(make()))).collect() }
    }

    /// The value of the worker. Not held across a wait.
    pub fn lock(&self, host: &dyn PluginHost) -> MutexGuard<'_, T> {
        // More workers than planned share values, which costs waiting and no correctness.
        let PaddedLock(value) = &self.values[host.worker() % self.values.len()];
        value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
