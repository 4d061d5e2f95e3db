//! State that all threads of a phase share: the start, the number of requests left, and the idle barrier.
//! Must not know connections or tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::alarm::RunClock;
use crate::prepared::PreparedPlan;

const MILLISECOND_NS: u64 = 1_000_000;
/// Time from the readiness of the last thread to the common start.
const START_DELAY_NS: u64 = 5 * MILLISECOND_NS;

/// Shared state of all threads of a phase.
pub(crate) struct PhaseShared {
    pub(crate) prepared: Arc<PreparedPlan>,
    pub(crate) clock: RunClock,
    /// Requests that may still start; unused without a count.
    requests_left: AtomicU64,
    /// Threads ready to start.
    ready: AtomicUsize,
    /// Common start time; 0 until all threads are ready.
    start_ns: AtomicU64,
    pub(crate) idle: IdleBarrier,
    pub(crate) ramp: Option<RampTarget>,
}

impl PhaseShared {
    pub(crate) fn new(prepared: Arc<PreparedPlan>, ramp: Option<RampTarget>) -> Arc<Self> {
        let requests_left = prepared.plan.limits.count.unwrap_or(u64::MAX);
        Arc::new(Self {
            prepared,
            clock: RunClock::start(),
            requests_left: AtomicU64::new(requests_left),
            ready: AtomicUsize::new(0),
            start_ns: AtomicU64::new(0),
            idle: IdleBarrier::default(),
            ramp,
        })
    }

    /// Counts a thread that is ready. The last one sets the common start time.
    pub(crate) fn thread_ready(&self) {
        if self.ready.fetch_add(1, Ordering::AcqRel) + 1 == self.prepared.plan.threads {
            // Some milliseconds ahead, so that every thread learns it in time.
            self.start_ns.store(self.clock.now_ns() + START_DELAY_NS, Ordering::Release);
        }
    }

    /// Common start time, once all threads are ready.
    pub(crate) fn start_ns(&self) -> Option<u64> {
        Some(self.start_ns.load(Ordering::Acquire)).filter(|start_ns| *start_ns > 0)
    }

    /// Start of counting, once all threads are ready.
    pub(crate) fn counted_from_ns(&self) -> Option<u64> {
        Some(self.start_ns()? + self.prepared.plan.limits.warmup_ms * MILLISECOND_NS)
    }

    /// Takes one of the planned requests; false if all have started.
    pub(crate) fn take_request(&self) -> bool {
        // A shared counter would cost a contended cache line per request.
        if self.prepared.plan.limits.count.is_none() {
            return true;
        }
        let take = |left: u64| left.checked_sub(1);
        // Relaxed: only the number matters, and it publishes no other data.
        self.requests_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// Synchronization between the threads and the memory measurement.
#[derive(Debug, Default)]
pub(crate) struct IdleBarrier {
    /// Connections open, with their first requests finished.
    pub(crate) opened: AtomicU64,
    /// Connections whose opening or first requests failed.
    pub(crate) failed: AtomicU64,
    /// Connections closed by the peer during the hold.
    pub(crate) lost: AtomicU64,
    /// Whether the hold has ended.
    pub(crate) released: AtomicBool,
}

/// Target of one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RampTarget {
    /// Connections per second over all threads.
    pub(crate) rate: f64,
    pub(crate) connections: u64,
    pub(crate) calls: u32,
}
