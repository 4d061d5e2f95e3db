//! The state of a proxied exchange that `forward` and `reply` share.

use yumen_plugin::Exchange;
use yumen_snapshot::{AttemptTimeouts, Route};

use crate::exchange::chains::ExchangeChains;
use crate::exchange::connection::DownstreamConnection;
use crate::exchange::exchange_stats::ExchangeStats;
use crate::upstream::interim::InterimCount;
use crate::upstream::pinned_upstream::PinnedUpstream;
use crate::upstream::upload::RequestUpload;

/// A proxied exchange: the state that all its attempts share.
pub(crate) struct ProxiedExchange<'a, 's> {
    /// The client connection, or the HTTP stream.
    pub(crate) conn: &'a mut DownstreamConnection,
    pub(crate) ex: &'a mut Exchange<'s>,
    pub(crate) chains: &'a ExchangeChains<'a>,
    pub(crate) route: &'s Route,
    /// The upstream, in the version that the exchange uses.
    pub(crate) pinned: PinnedUpstream<'s>,
    pub(crate) flow: &'a mut ExchangeStats,
    /// The request body, which may still be sent when the response arrives.
    pub(crate) upload: RequestUpload,
    /// Number of interim responses over all attempts.
    pub(crate) interim: InterimCount,
}

impl ProxiedExchange<'_, '_> {
    /// Returns the timeouts of the route, else those of the upstream.
    #[inline]
    pub(crate) fn timeouts(&self) -> AttemptTimeouts {
        *self.route.timeouts.as_deref().unwrap_or(&self.pinned.upstream.timeouts)
    }
}
