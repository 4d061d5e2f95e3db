//! Endpoints with connections of a worker: counts of idle connections, and the end of those whose endpoint left the
//! configuration. Idle ones are closed soon, busy ones after their requests.
//!
//! Used by the housekeeping of a worker, not on the request path.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use yumen_snapshot::upstream::EndpointState;

use crate::upstream::h2_pool::H2ConnectionPool;
use crate::upstream::pool::ConnectionPool;

/// The endpoints that a worker has connected to, by the key of their connections.
#[derive(Default)]
pub(crate) struct ConnectedEndpoints {
    endpoints: RefCell<HashMap<u64, ConnectedEndpoint, foldhash::fast::RandomState>>,
}

/// An endpoint with connections of a worker, and the number of idle ones that the worker has counted in its state.
struct ConnectedEndpoint {
    state: Arc<EndpointState>,
    idle: u32,
}

impl ConnectedEndpoint {
    fn new(state: Arc<EndpointState>) -> ConnectedEndpoint {
        ConnectedEndpoint { state, idle: 0 }
    }

    /// Replaces this worker's part of the count of idle connections.
    fn count_idle(&mut self, idle: usize) {
        let idle = u32::try_from(idle).unwrap_or(u32::MAX);
        // The sum wraps around zero and back if a worker takes its part away before another adds its own.
        self.state.idle.fetch_add(idle.wrapping_sub(self.idle), Relaxed);
        self.idle = idle;
    }
}

impl Drop for ConnectedEndpoint {
    fn drop(&mut self) {
        self.count_idle(0);
    }
}

impl ConnectedEndpoints {
    /// Notes an endpoint to which connections are opened.
    pub(crate) fn connected(&self, key: u64, endpoint: &Arc<EndpointState>) {
        let mut endpoints = self.endpoints.borrow_mut();
        endpoints.entry(key).or_insert_with(|| ConnectedEndpoint::new(endpoint.clone()));
    }

    /// Whether the key is watched. Connections of an unwatched endpoint must not return to the pool, because
    /// no sweep would close them.
    pub(crate) fn contains(&self, key: u64) -> bool {
        self.endpoints.borrow().contains_key(&key)
    }

    /// Closes the idle connections to removed endpoints and returns their number.
    pub(crate) fn close_removed(&self, pool: &mut ConnectionPool, h2_pool: &H2ConnectionPool) -> usize {
        let mut closed = 0;
        self.endpoints.borrow_mut().retain(|key, endpoint| {
            if !endpoint.state.has_departed() {
                return true;
            }
            closed += pool.remove(*key) + h2_pool.close_idle(*key);
            // Further connections may return while an exchange still uses an older snapshot.
            Arc::strong_count(&endpoint.state) > 1
        });
        closed
    }

    /// Counts the idle connections of this worker in the states of their endpoints.
    pub(crate) fn count_idle(&self, pool: &ConnectionPool, h2_pool: &H2ConnectionPool) {
        for (key, endpoint) in self.endpoints.borrow_mut().iter_mut() {
            endpoint.count_idle(pool.len_of(*key) + h2_pool.idle_of(*key));
        }
    }
}
