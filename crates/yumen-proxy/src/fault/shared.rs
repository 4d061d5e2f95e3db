//! Failures that several attempts waited for together, such as a failed connection that all of them would have used.

use std::cell::RefCell;

use yumen_snapshot::Upstream;

/// Notes for which upstreams a shared failure was counted, so that it counts once for each.
#[derive(Default)]
pub(crate) struct SharedFailure(RefCell<Vec<usize>>);

impl SharedFailure {
    /// Notes the failure for an upstream. Returns false if it was noted for that upstream before.
    pub(crate) fn note(&self, upstream: &Upstream) -> bool {
        let (mut noted, upstream) = (self.0.borrow_mut(), std::ptr::from_ref(upstream).addr());
        let is_first = !noted.contains(&upstream);
        if is_first {
            noted.push(upstream);
        }
        is_first
    }
}
