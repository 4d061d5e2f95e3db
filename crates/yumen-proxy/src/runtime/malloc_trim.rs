//! Requests to return freed heap memory to the system. This file must not know the limits.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static IS_WANTED_BACK: AtomicBool = AtomicBool::new(false);

/// Requests that the process returns freed memory; called by workers.
pub(crate) fn request_trim() {
    IS_WANTED_BACK.store(true, Relaxed);
}

/// Whether a worker has requested it since the last call.
pub fn is_requested() -> bool {
    IS_WANTED_BACK.swap(false, Relaxed)
}

/// Returns free heap memory to the system. Threads that allocate may wait for some milliseconds, with
/// hundreds of megabytes for tens of milliseconds.
pub fn give_back() {
    crate::sys::trim_heap();
}
