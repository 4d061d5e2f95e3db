//! Memory that was freed and is still held. Knows not when it is too much.

/// Gives it back to the system. Threads that allocate may wait for some milliseconds, for tens of them where there are
/// hundreds of megabytes.
pub fn give_back() {
    crate::sys::give_memory_back();
}
