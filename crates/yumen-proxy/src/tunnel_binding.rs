//! Tunnels that end when their route or endpoint changes, where either says so.
//!
//! Looked at with the chores of a worker; a tunnel without such a wish is not known here.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Context;

use yumen_snapshot::{Endpoint, Route, RouteLifetime, Snapshot, Upstream, UpstreamSlotId};

use crate::timers::{Timer, Timers};

/// What a tunnel depends on.
pub(crate) struct TunnelBinding {
    route: Option<Arc<RouteLifetime>>,
    slot: UpstreamSlotId,
    /// The upstream's name: a slot may be taken by another.
    origin: Arc<str>,
    endpoint: u64,
    /// How long it may go on after a change, in milliseconds.
    grace_ms: u64,
    has_changed: Cell<bool>,
    timer: Timer,
}

impl TunnelBinding {
    /// Whether the tunnel shall end now; otherwise its task is woken when it shall.
    pub(crate) fn is_over(&self, cx: &mut Context<'_>) -> bool {
        self.timer.is_over(cx)
    }

    /// Allows so many milliseconds from now on.
    pub(crate) fn give(&self, ms: u64) {
        self.timer.set(ms);
    }

    fn holds(&self, snapshot: &Snapshot) -> bool {
        let upstream = snapshot.upstream(self.slot).filter(|upstream| *upstream.origin == *self.origin);
        let is_there = upstream
            .is_some_and(|upstream| upstream.endpoints.iter().any(|one| one.state.id == self.endpoint));
        is_there && !self.route.as_ref().is_some_and(|route| route.is_over())
    }
}

/// A worker's tied tunnels.
#[derive(Default)]
pub(crate) struct TunnelBindings {
    tied: RefCell<Vec<Weak<TunnelBinding>>>,
}

impl TunnelBindings {
    /// Ties a tunnel, where its route or else its upstream wants that.
    pub(crate) fn tie(
        &self,
        timers: &Rc<Timers>,
        route: &Route,
        upstream: &Upstream,
        endpoint: usize,
    ) -> Option<Rc<TunnelBinding>> {
        let grace_ms = route.on_change.unwrap_or(upstream.on_change).grace_ms()?;
        let endpoint = upstream.endpoints.get(endpoint)?;
        Some(self.keep(timers, Some(route.life.clone()), (upstream, endpoint), grace_ms))
    }

    /// Ties a stream, where its upstream wants that.
    pub(crate) fn bind_stream(
        &self,
        timers: &Rc<Timers>,
        upstream: &Upstream,
        endpoint: Option<SocketAddr>,
    ) -> Option<Rc<TunnelBinding>> {
        let grace_ms = upstream.on_change.grace_ms()?;
        let endpoint = upstream.endpoints.iter().find(|one| Some(one.addr) == endpoint)?;
        Some(self.keep(timers, None, (upstream, endpoint), grace_ms))
    }

    fn keep(
        &self,
        timers: &Rc<Timers>,
        route: Option<Arc<RouteLifetime>>,
        (upstream, endpoint): (&Upstream, &Endpoint),
        grace_ms: u64,
    ) -> Rc<TunnelBinding> {
        let tie = Rc::new(TunnelBinding {
            route,
            // That of the upstream in use, which a plugin may have chosen instead of the route's.
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

    /// Compares with what is in force now; says how many begin to end.
    pub(crate) fn review(&self, snapshot: &Snapshot) -> usize {
        let mut ending = 0;
        self.tied.borrow_mut().retain(|tie| {
            let Some(tie) = tie.upgrade() else { return false };
            if !tie.has_changed.get() && !tie.holds(snapshot) {
                tie.has_changed.set(true);
                tie.timer.set(tie.grace_ms.max(1));
                ending += 1;
            }
            true
        });
        ending
    }
}
