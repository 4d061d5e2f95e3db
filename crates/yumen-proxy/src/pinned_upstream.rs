//! The upstream an exchange goes to. It is that of the exchange's snapshot, until one waits for room and finds
//! that its endpoints were changed meanwhile.

use std::cell::OnceCell;
use std::sync::Arc;

use yumen_snapshot::{Snapshot, Upstream};

/// Keeps upstreams of later snapshots than the exchange's own, for as long as the exchange lasts.
#[derive(Default)]
pub(crate) struct UpstreamVersions {
    upstream: OnceCell<Arc<Upstream>>,
    next: OnceCell<Box<UpstreamVersions>>,
}

impl UpstreamVersions {
    fn keep(&self, upstream: &Arc<Upstream>) -> &Upstream {
        let mut place = self;
        while place.upstream.get().is_some() {
            place = place.next.get_or_init(Box::default);
        }
        place.upstream.get_or_init(|| upstream.clone())
    }
}

/// The upstream in use.
pub(crate) struct PinnedUpstream<'u> {
    pub(crate) upstream: &'u Upstream,
    newer: &'u UpstreamVersions,
}

impl<'u> PinnedUpstream<'u> {
    pub(crate) fn new(upstream: &'u Upstream, newer: &'u UpstreamVersions) -> PinnedUpstream<'u> {
        PinnedUpstream { upstream, newer }
    }

    /// Goes on with the upstream as it is in `newest`; says whether it is there. Otherwise all stays as it is.
    pub(crate) fn renew(&mut self, newest: &Snapshot) -> bool {
        let found = newest.shared_upstream(self.upstream.slot);
        // A slot may be taken by another.
        let Some(found) = found.filter(|found| found.origin == self.upstream.origin) else { return false };
        if !std::ptr::eq(&**found, self.upstream) {
            self.upstream = self.newer.keep(found);
        }
        true
    }
}
