//! An exchange that an endpoint answers, as `forward` and `reply` share it.

use yumen_plugin::Exchange;
use yumen_snapshot::{AttemptTimeouts, Route};

use crate::chains::ExchangeChains;
use crate::connection::DownstreamConnection;
use crate::exchange_stats::ExchangeStats;
use crate::pinned_upstream::PinnedUpstream;
use crate::upstream::interim::InterimCount;
use crate::upstream::upload::RequestUpload;

/// An exchange that an endpoint answers. Attempts come and go; what they share is here.
pub(crate) struct ProxiedExchange<'a, 's> {
    /// The client's connection, or its stream.
    pub(crate) conn: &'a mut DownstreamConnection,
    pub(crate) ex: &'a mut Exchange<'s>,
    pub(crate) chains: &'a ExchangeChains<'a>,
    pub(crate) route: &'a Route,
    /// The upstream, in the version that the exchange goes on with.
    pub(crate) pinned: PinnedUpstream<'s>,
    pub(crate) flow: &'a mut ExchangeStats,
    /// The request body, which may still be sent when the response arrives.
    pub(crate) upload: RequestUpload,
    /// Interim responses, of all attempts together.
    pub(crate) interim: InterimCount,
}

impl ProxiedExchange<'_, '_> {
    /// The timeouts of the route, or of the upstream.
    #[inline]
    pub(crate) fn timeouts(&self) -> AttemptTimeouts {
        *self.route.timeouts.as_deref().unwrap_or(&self.pinned.upstream.timeouts)
    }
}
