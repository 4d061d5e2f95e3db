//! Idle connections of a worker to endpoints, for one request at a time.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use yumen_snapshot::protection::{EndpointPermit, UpstreamLimiter};
use yumen_snapshot::upstream::{Endpoint, KeepaliveLimits};

use crate::upstream::connection::UpstreamConnection;

/// The key of connections that can carry the same requests, with HTTP/1 or HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolKey {
    /// The endpoint, which has another key under other TLS settings, and whether the connection uses TLS.
    endpoint: u64,
    /// The hash of the TLS server name if it differs from the endpoint's default; else 0. The certificate was
    /// verified for that name, and a server may refuse requests for another (RFC 9110 §15.5.20).
    tls_name: u64,
}

impl PoolKey {
    /// The key of connections to an endpoint; `tls_name` is the server name, if they use TLS.
    pub(crate) fn new(endpoint: &Endpoint, tls_name: Option<&[u8]>) -> PoolKey {
        let own = endpoint.host.as_bytes();
        let number = tls_name.filter(|name| *name != own).map_or(0, |name| {
            let mut hasher = DefaultHasher::new();
            hasher.write(name);
            // 0 stands for the default name of the endpoint.
            hasher.finish() | 1
        });
        // The lowest bit separates TLS from cleartext.
        PoolKey { endpoint: endpoint.state.id * 2 + u64::from(tls_name.is_some()), tls_name: number }
    }

    /// The part of the key that is common to all server names.
    pub(crate) fn endpoint(self) -> u64 {
        self.endpoint
    }

    pub(crate) fn tls_name(self) -> u64 {
        self.tls_name
    }
}

/// A connection without a request.
struct IdleConnection {
    connection: Box<UpstreamConnection>,
    since_ms: u64,
    timeout_ms: u64,
}

impl IdleConnection {
    fn permit(&self) -> Option<&EndpointPermit> {
        self.connection.permit.as_ref()
    }

    fn stands_in(&self, key: PoolKey, gate: Option<&Arc<UpstreamLimiter>>) -> bool {
        self.connection.pool_key.tls_name == key.tls_name && self.is_counted_at(gate)
    }

    fn is_good(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.since_ms) < self.timeout_ms
            && self.connection.stream.is_quiet()
            && !self.permit().is_some_and(EndpointPermit::is_excess)
    }

    /// Whether the limiter `gate` counts the connection, or neither is limited: upstreams may share an
    /// endpoint, but not their limits.
    fn is_counted_at(&self, gate: Option<&Arc<UpstreamLimiter>>) -> bool {
        match (self.permit(), gate) {
            (None, None) => true,
            (Some(permit), Some(gate)) => permit.is_of(gate),
            _ => false,
        }
    }
}

/// The idle connections of a worker, by endpoint, the most recently used last.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    by_endpoint: HashMap<u64, VecDeque<IdleConnection>, foldhash::fast::RandomState>,
}

impl ConnectionPool {
    /// The most recently used connection; `gate` is the limiter of the upstream. Connections whose peer has
    /// closed or sent something are dropped.
    pub(crate) fn take(
        &mut self,
        key: PoolKey,
        gate: Option<&Arc<UpstreamLimiter>>,
        now_ms: u64,
    ) -> Option<Box<UpstreamConnection>> {
        let idle = self.by_endpoint.get_mut(&key.endpoint)?;
        let stands_in = |one: &IdleConnection| one.stands_in(key, gate);
        loop {
            // The most recently used connection usually fits, without a search.
            let candidate = if stands_in(idle.back()?) {
                idle.pop_back()?
            } else {
                let at = idle.iter().rposition(stands_in)?;
                idle.remove(at)?
            };
            if candidate.is_good(now_ms) {
                return Some(candidate.connection);
            }
        }
    }

    /// Whether [`ConnectionPool::take`] would return a connection.
    pub(crate) fn has(&mut self, key: PoolKey, gate: Option<&Arc<UpstreamLimiter>>, now_ms: u64) -> bool {
        let Some(idle) = self.by_endpoint.get_mut(&key.endpoint) else { return false };
        let stands_in = |one: &IdleConnection| one.stands_in(key, gate);
        idle.back().is_some_and(|one| stands_in(one) && one.is_good(now_ms)) || {
            idle.retain(|one| one.is_good(now_ms));
            idle.iter().any(stands_in)
        }
    }

    /// Stores a connection, unless it has reached its request limit. The longest idle one is closed to make
    /// room.
    pub(crate) fn give(
        &mut self,
        mut connection: Box<UpstreamConnection>,
        keep: &KeepaliveLimits,
        now_ms: u64,
    ) {
        connection.requests += 1;
        if connection.requests >= keep.requests || keep.size == 0 {
            return;
        }
        let endpoint = connection.pool_key.endpoint;
        let idle = match self.by_endpoint.get_mut(&endpoint) {
            Some(idle) => idle,
            None => self.by_endpoint.entry(endpoint).or_default(),
        };
        if idle.len() >= keep.size as usize {
            idle.pop_front();
        }
        idle.push_back(IdleConnection { connection, since_ms: now_ms, timeout_ms: keep.idle_timeout_ms });
    }

    /// Closes one idle connection of an upstream at its limit; false if there is none.
    pub(crate) fn drop_one(&mut self, gate: &Arc<UpstreamLimiter>) -> bool {
        let is_of = |one: &IdleConnection| one.permit().is_some_and(|permit| permit.is_of(gate));
        for idle in self.by_endpoint.values_mut() {
            if let Some(at) = idle.iter().position(is_of) {
                idle.remove(at);
                return true;
            }
        }
        false
    }

    /// Closes connections that idled too long or whose peer has closed, and those whose permit a request
    /// waits for.
    pub(crate) fn sweep(&mut self, now_ms: u64) {
        self.by_endpoint.retain(|_, idle| {
            idle.retain(|one| one.is_good(now_ms) && !one.permit().is_some_and(EndpointPermit::is_awaited));
            !idle.is_empty()
        });
    }

    /// Closes the connections to an endpoint and returns their number.
    pub(crate) fn remove(&mut self, endpoint: u64) -> usize {
        self.by_endpoint.remove(&endpoint).map_or(0, |idle| idle.len())
    }

    /// Closes all connections.
    pub(crate) fn clear(&mut self) {
        self.by_endpoint.clear();
    }

    /// The number of connections to an endpoint.
    pub(crate) fn len_of(&self, endpoint: u64) -> usize {
        self.by_endpoint.get(&endpoint).map_or(0, VecDeque::len)
    }

    /// The number of connections.
    pub(crate) fn len(&self) -> usize {
        self.by_endpoint.values().map(VecDeque::len).sum()
    }
}
