//! Connections to endpoints that left the configuration: idle ones are closed soon, busy ones after their
//! requests.
//!
//! Used by the housekeeping of a worker, not on the request path.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use yumen_snapshot::upstream::EndpointState;

use crate::upstream::h2_pool::H2ConnectionPool;
use crate::upstream::pool::ConnectionPool;

/// The endpoints that a worker has connected to, by the key of their connections.
#[derive(Default)]
pub(crate) struct RemovedEndpoints {
    endpoints: RefCell<HashMap<u64, Arc<EndpointState>, foldhash::fast::RandomState>>,
}

impl RemovedEndpoints {
    /// Notes an endpoint to which connections are opened.
    pub(crate) fn connected(&self, key: u64, endpoint: &Arc<EndpointState>) {
        self.endpoints.borrow_mut().entry(key).or_insert_with(|| endpoint.clone());
    }

    /// Whether the key is watched. Connections of an unwatched endpoint must not return to the pool, because
    /// no sweep would close them.
    pub(crate) fn contains(&self, key: u64) -> bool {
        self.endpoints.borrow().contains_key(&key)
    }

    /// Closes the idle connections to removed endpoints and returns their number.
    pub(crate) fn close(&self, pool: &mut ConnectionPool, h2_pool: &H2ConnectionPool) -> usize {
        let mut closed = 0;
        self.endpoints.borrow_mut().retain(|key, endpoint| {
            if !endpoint.has_departed() {
                return true;
            }
            closed += pool.remove(*key) + h2_pool.close_idle(*key);
            // Further connections may return while an exchange still uses an older snapshot.
            Arc::strong_count(endpoint) > 1
        });
        closed
    }
}
