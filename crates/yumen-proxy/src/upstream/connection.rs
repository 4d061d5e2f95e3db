//! A connection to an endpoint, or a stream of one, while it carries an exchange.

use crate::buffer::Inbox;
use crate::stream::Stream;
use crate::upstream::pool::PoolKey;

/// A connection to an endpoint while it carries an exchange.
pub(crate) struct UpstreamConnection {
    pub(crate) stream: Stream,
    pub(crate) inbox: Inbox,
    /// Requests that it carried before this one.
    pub(crate) requests: u64,
    /// The key under which the pool keeps it.
    pub(crate) pool_key: PoolKey,
}

impl UpstreamConnection {
    /// Whether it may carry another request after a response that was read to its end.
    ///
    /// Bytes behind that response belong to no request and must not become the next response. Bytes that arrived and
    /// were not read show when the connection is taken from the pool.
    #[inline]
    pub(crate) fn is_reusable(&self) -> bool {
        !self.stream.is_shared() && self.inbox.is_empty()
    }
}
