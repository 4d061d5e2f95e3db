//! The means of one worker thread: clock, timers, tasks, buffers, and the bounds on work and memory.
//!
//! Must not depend on protocols, settings or the `Worker`, which owns most of these values.

pub(crate) mod backlog;
pub(crate) mod buffer;
pub mod clock;
pub(crate) mod close_signal;
pub(crate) mod cold_future;
pub(crate) mod date;
pub mod huge_pages;
pub mod malloc_trim;
pub(crate) mod minimum_rate;
pub(crate) mod offload_queue;
pub(crate) mod overload;
pub(crate) mod task;
pub(crate) mod timers;
pub(crate) mod turn_budget;
pub(crate) mod worker_duty;
