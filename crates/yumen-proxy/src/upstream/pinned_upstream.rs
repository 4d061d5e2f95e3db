//! The upstream of an exchange: the version of its snapshot, or a newer one if the endpoints changed while
//! the exchange was in the pending queue.

use std::cell::OnceCell;
use std::sync::Arc;

use yumen_snapshot::{Snapshot, Upstream};

/// Newer versions of the upstream, retained for the duration of the exchange.
#[derive(Default)]
pub(crate) struct UpstreamVersions {
    upstream: OnceCell<Arc<Upstream>>,
    next: OnceCell<Box<UpstreamVersions>>,
}

impl UpstreamVersions {
    fn keep(&self, upstream: &Arc<Upstream>) -> &Upstream {
        // Earlier versions stay borrowed by the exchange, so each version gets a cell of its own.
        let mut slot = self;
        while slot.upstream.get().is_some() {
            slot = slot.next.get_or_init(Box::default);
        }
        slot.upstream.get_or_init(|| upstream.clone())
    }
}

/// The version of the upstream in use.
pub(crate) struct PinnedUpstream<'u> {
    pub(crate) upstream: &'u Upstream,
    newer: &'u UpstreamVersions,
}

impl<'u> PinnedUpstream<'u> {
    pub(crate) fn new(upstream: &'u Upstream, newer: &'u UpstreamVersions) -> PinnedUpstream<'u> {
        PinnedUpstream { upstream, newer }
    }

    /// Switches to the version in `newest`. Returns false, without a change, if the upstream no longer
    /// exists.
    pub(crate) fn renew(&mut self, newest: &Snapshot) -> bool {
        let found = newest.shared_upstream(self.upstream.slot);
        // The slot may have been reused for another upstream.
        let Some(found) = found.filter(|found| found.origin == self.upstream.origin) else { return false };
        if !std::ptr::eq(&**found, self.upstream) {
            self.upstream = self.newer.keep(found);
        }
        true
    }
}
