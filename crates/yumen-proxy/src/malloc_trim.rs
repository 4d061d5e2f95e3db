//! Memory that was freed and is still held. Knows not when it is too much.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static IS_WANTED_BACK: AtomicBool = AtomicBool::new(false);

/// Asks whoever watches the memory of the process to give back what a worker has freed.
pub(crate) fn ask_to_give_back() {
    IS_WANTED_BACK.store(true, Relaxed);
}

/// Whether a worker has asked since this was last asked.
pub fn is_wanted_back() -> bool {
    IS_WANTED_BACK.swap(false, Relaxed)
}

/// Gives it back to the system. Threads that allocate may wait for some milliseconds, for tens of them where there are
/// hundreds of megabytes.
pub fn give_back() {
    crate::sys::give_memory_back();
}
