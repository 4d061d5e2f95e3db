//! Endpoints of upstreams, and their state across snapshots.
//!
//! Knows no upstream and no policy that chooses between endpoints.

mod tried;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::protection::EndpointCounts;

pub use tried::TriedEndpoints;

/// The health of an endpoint by active and passive checks. One per endpoint and check settings; outlives snapshots.
#[derive(Debug)]
pub struct EndpointHealth {
    up: AtomicBool,
    /// Results of active checks.
    pub active: HealthCounts,
    /// Results of traffic. The counts are separate: successful traffic must not hide an endpoint that reports itself as
    /// unhealthy, and a healthy status page must not hide an endpoint that fails requests.
    pub passive: HealthCounts,
}

/// Observations in a row since the last change of state.
#[derive(Debug, Default)]
pub struct HealthCounts {
    /// Responses with a healthy status.
    pub successes: AtomicU32,
    /// Responses with an unhealthy status.
    pub http_failures: AtomicU32,
    /// Failed connections.
    pub tcp_failures: AtomicU32,
    /// Attempts that timed out.
    pub timeouts: AtomicU32,
}

impl Default for EndpointHealth {
    fn default() -> Self {
        EndpointHealth::new(true)
    }
}

impl EndpointHealth {
    /// The health of an endpoint before the first observation.
    pub fn new(is_up: bool) -> EndpointHealth {
        EndpointHealth {
            up: AtomicBool::new(is_up),
            active: HealthCounts::default(),
            passive: HealthCounts::default(),
        }
    }

    /// Whether the endpoint is up.
    pub fn is_up(&self) -> bool {
        // The flag stands alone: no other memory is read on the strength of it.
        self.up.load(Relaxed)
    }

    /// Sets the state; returns whether it changed.
    pub fn set(&self, up: bool) -> bool {
        // The swap elects the caller that logs the change, whichever workers and probes observe it together.
        self.up.swap(up, Relaxed) != up
    }
}

/// The state of an endpoint that outlives snapshots, shared by all workers.
#[derive(Debug)]
pub struct EndpointState {
    /// Unique in this process and never reused, since connection pools are found by it.
    pub id: u64,
    /// Exchanges in flight, for the balancers that count them.
    pub active: AtomicU32,
    /// Peak-sensitive moving average of response time, in microseconds.
    pub ewma_us: AtomicU64,
    /// The time of the last change of the average, in microseconds of the monotonic clock.
    pub ewma_at_us: AtomicU64,
    /// Idle connections of all workers at their last sweeps.
    pub idle: AtomicU32,
    /// The number of upstreams in force with this endpoint.
    named_by: AtomicU32,
    has_departed: AtomicBool,
}

impl EndpointState {
    /// The state of an endpoint before the first request.
    pub fn new() -> EndpointState {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        EndpointState {
            id: NEXT.fetch_add(1, Relaxed),
            active: AtomicU32::new(0),
            ewma_us: AtomicU64::new(0),
            ewma_at_us: AtomicU64::new(0),
            idle: AtomicU32::new(0),
            named_by: AtomicU32::new(0),
            has_departed: AtomicBool::new(false),
        }
    }

    /// Whether no upstream in force has the endpoint, so that its idle connections can be closed.
    pub fn has_departed(&self) -> bool {
        self.has_departed.load(Relaxed)
    }

    /// Counts an upstream in force with this endpoint. One [`EndpointState::released`] reverts it.
    pub(crate) fn named(&self) {
        // The compiler alone counts references, so the two stores need no order between them.
        self.named_by.fetch_add(1, Relaxed);
        self.has_departed.store(false, Relaxed);
    }

    /// Reverts one [`EndpointState::named`].
    pub(crate) fn released(&self) {
        if self.named_by.fetch_sub(1, Relaxed) == 1 {
            self.has_departed.store(true, Relaxed);
        }
    }
}

impl Default for EndpointState {
    fn default() -> Self {
        EndpointState::new()
    }
}

/// One address of an upstream.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The address.
    pub addr: SocketAddr,
    /// The host of the node, and the port unless it is the default of the scheme.
    pub authority: Box<str>,
    /// The host of the node, for TLS.
    pub host: Box<str>,
    /// The share of the requests; 0 excludes the endpoint.
    pub weight: u32,
    /// Endpoints of the highest priority are used first.
    pub priority: i32,
    /// The state across snapshots.
    pub state: Arc<EndpointState>,
    /// The health, if the upstream has checks.
    pub health: Option<Arc<EndpointHealth>>,
    /// The counts of outlier detection, if the upstream has it.
    pub outlier: Option<Arc<EndpointCounts>>,
}
