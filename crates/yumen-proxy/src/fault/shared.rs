//! Failures that several attempts share, such as that of a connection for which all of them waited.

use std::cell::RefCell;

use yumen_snapshot::Upstream;

/// Upstreams for which a shared failure was counted, so that it counts once for each.
#[derive(Default)]
pub(crate) struct SharedFailure(RefCell<Vec<usize>>);

impl SharedFailure {
    /// Records the failure for an upstream; false if it was recorded before.
    pub(crate) fn note(&self, upstream: &Upstream) -> bool {
        let (mut recorded, upstream) = (self.0.borrow_mut(), std::ptr::from_ref(upstream).addr());
        let is_first = !recorded.contains(&upstream);
        if is_first {
            recorded.push(upstream);
        }
        is_first
    }
}
