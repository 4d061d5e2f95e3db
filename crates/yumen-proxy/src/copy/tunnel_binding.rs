//! Bindings of tunnels to their route and endpoint: a change of either ends the tunnel, if `on_change`
//! requires it.
//!
//! A worker reviews them during its housekeeping. Tunnels without such a setting have no binding.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Context;

use yumen_snapshot::{Endpoint, Route, RouteLifetime, Snapshot, Upstream, UpstreamSlotId};

use crate::runtime::timers::{Timer, Timers};

/// The route and endpoint on which a tunnel depends.
pub(crate) struct TunnelBinding {
    route: Option<Arc<RouteLifetime>>,
    slot: UpstreamSlotId,
    /// The name of the upstream: a slot may be reused by another.
    origin: Arc<str>,
    endpoint: u64,
    /// Time from a change to the end of the tunnel, in milliseconds.
    grace_ms: u64,
    has_changed: Cell<bool>,
    timer: Timer,
}

impl TunnelBinding {
    /// Whether the tunnel is to end now; otherwise registers the task to be woken then.
    pub(crate) fn is_over(&self, cx: &mut Context<'_>) -> bool {
        self.timer.is_over(cx)
    }

    /// Sets the deadline to `ms` milliseconds from now.
    pub(crate) fn set_deadline(&self, ms: u64) {
        self.timer.set(ms);
    }

    fn holds(&self, snapshot: &Snapshot) -> bool {
        // The slot may belong to another upstream by now.
        let upstream = snapshot.upstream(self.slot).filter(|upstream| *upstream.origin == *self.origin);
        let exists = upstream
            .is_some_and(|upstream| upstream.endpoints.iter().any(|one| one.state.id == self.endpoint));
        exists && !self.route.as_ref().is_some_and(|route| route.is_over())
    }
}

/// The bindings of a worker.
#[derive(Default)]
pub(crate) struct TunnelBindings {
    tied: RefCell<Vec<Weak<TunnelBinding>>>,
}

impl TunnelBindings {
    /// Binds a tunnel, if its route, or else its upstream, sets `on_change`.
    pub(crate) fn tie(
        &self,
        timers: &Rc<Timers>,
        route: &Route,
        upstream: &Upstream,
        endpoint: usize,
    ) -> Option<Rc<TunnelBinding>> {
        let grace_ms = route.on_change.unwrap_or(upstream.on_change).grace_ms()?;
        let endpoint = upstream.endpoints.get(endpoint)?;
        Some(self.keep(timers, Some(route.life.clone()), upstream, endpoint, grace_ms))
    }

    /// Binds a stream, if its upstream sets `on_change`.
    pub(crate) fn bind_stream(
        &self,
        timers: &Rc<Timers>,
        upstream: &Upstream,
        endpoint: Option<SocketAddr>,
    ) -> Option<Rc<TunnelBinding>> {
        let grace_ms = upstream.on_change.grace_ms()?;
        let endpoint = upstream.endpoints.iter().find(|one| Some(one.addr) == endpoint)?;
        Some(self.keep(timers, None, upstream, endpoint, grace_ms))
    }

    fn keep(
        &self,
        timers: &Rc<Timers>,
        route: Option<Arc<RouteLifetime>>,
        upstream: &Upstream,
        endpoint: &Endpoint,
        grace_ms: u64,
    ) -> Rc<TunnelBinding> {
        let tie = Rc::new(TunnelBinding {
            route,
            // The slot of the upstream in use: a plugin may have chosen another than the route's.
            slot: upstream.slot,
            origin: upstream.origin.clone(),
            endpoint: endpoint.state.id,
            grace_ms,
            has_changed: Cell::new(false),
            timer: timers.timer(),
        });
        self.tied.borrow_mut().push(Rc::downgrade(&tie));
        tie
    }

    /// Compares all bindings with `snapshot` and returns the number of tunnels that begin to end.
    pub(crate) fn review(&self, snapshot: &Snapshot) -> usize {
        let mut ending = 0;
        self.tied.borrow_mut().retain(|tie| {
            let Some(tie) = tie.upgrade() else { return false };
            if !tie.has_changed.get() && !tie.holds(snapshot) {
                tie.has_changed.set(true);
                // A timer of 0 ms would be unset.
                tie.timer.set(tie.grace_ms.max(1));
                ending += 1;
            }
            true
        });
        ending
    }
}
