//! Connections to endpoints that the configuration knows no more: those that wait for a request are closed
//! soon, those under way when they are done.
//!
//! Looked at with the chores of a worker, never on the way of a request.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use yumen_snapshot::upstream::EndpointState;

use crate::upstream::h2_pool::H2ConnectionPool;
use crate::upstream::pool::ConnectionPool;

/// The endpoints a worker has connected to, by the key of their connections.
#[derive(Default)]
pub(crate) struct RemovedEndpoints {
    endpoints: RefCell<HashMap<u64, Arc<EndpointState>, foldhash::fast::RandomState>>,
}

impl RemovedEndpoints {
    /// Notes that there will be connections under a key.
    pub(crate) fn connected(&self, key: u64, endpoint: &Arc<EndpointState>) {
        self.endpoints.borrow_mut().entry(key).or_insert_with(|| endpoint.clone());
    }

    /// Whether there may still be connections under a key: those given back would else be forgotten.
    pub(crate) fn knows(&self, key: u64) -> bool {
        self.endpoints.borrow().contains_key(&key)
    }

    /// Closes what nobody will use; says how many connections that were.
    pub(crate) fn close(&self, pool: &mut ConnectionPool, lanes: &H2ConnectionPool) -> usize {
        let mut closed = 0;
        self.endpoints.borrow_mut().retain(|key, endpoint| {
            if !endpoint.has_departed() {
                return true;
            }
            closed += pool.remove(*key) + lanes.close_idle(*key);
            // While a configuration of before is in use, more may be given back.
            Arc::strong_count(endpoint) > 1
        });
        closed
    }
}
