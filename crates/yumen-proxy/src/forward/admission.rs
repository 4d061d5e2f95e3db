//! Room at an upstream that is protected: who gets in, who waits, who is refused.
//!
//! Knows how waiting is done; what there is room for is counted in `yumen-snapshot`.

use std::future::poll_fn;
use std::task::{Context, Poll};

use yumen_base::Now;
use yumen_plugin::Exchange;
use yumen_snapshot::protection::{Full, Limits, Place, Ticket};
use yumen_snapshot::{Tried, Upstream};

use super::{is_tls, pool_key};
use crate::chosen::Chosen;
use crate::clock;
use crate::connection::Connection;
use crate::fault::{Fault, Kind};
use crate::relay::Relay;
use crate::wait::{End, Wait};

/// What became of a request so far.
#[derive(Default)]
pub(super) struct Attempts {
    pub(super) tried: Tried,
    /// Whether any endpoint may have acted on it.
    pub(super) may_have_acted: bool,
    /// How long it has waited for room, in milliseconds.
    waited_ms: u64,
}

/// One who wants to ask a protected upstream.
pub(super) struct Asking<'a, 's, 'u> {
    pub(super) conn: &'a mut Connection,
    pub(super) ex: &'a Exchange<'s>,
    pub(super) chosen: &'a mut Chosen<'u>,
    pub(super) relay: &'a mut Relay<'u>,
    pub(super) attempts: &'a mut Attempts,
    /// When endpoints began to be looked for.
    pub(super) started: Now,
}

impl Asking<'_, '_, '_> {
    /// The endpoint to ask. `last` is what to say where there is none. To ask again what has no room helps nobody; but
    /// what no endpoint has seen yet is asked for the first time, and waits.
    pub(super) async fn admit(mut self, last: Fault) -> Result<usize, Fault> {
        self.relay.permit = None;
        match self.try_at_once() {
            Ok(found) => return found.ok_or(last),
            Err(Full) if self.attempts.may_have_acted => return Err(last),
            Err(Full) => {}
        }
        let limits = self.chosen.upstream.protection.as_ref().and_then(|protection| protection.limits);
        self.wait_for_room(limits.ok_or(last)?, last).await
    }

    /// A first attempt leaves room to those who wait for it.
    fn try_at_once(&mut self) -> Result<Option<usize>, Full> {
        let tried = self.attempts.tried.clone();
        let Some(protection) = self.chosen.upstream.protection.as_ref().filter(|_| tried.count() == 0) else {
            return self.try_in(&tried);
        };
        let free_for_all = protection.gate.avoided_by_all();
        if free_for_all == 0 {
            return Err(Full);
        }
        match self.try_in(&tried.without(!free_for_all)) {
            Ok(None) if free_for_all != u128::MAX => Err(Full),
            found => found,
        }
    }

    async fn wait_for_room(&mut self, limits: Limits, last: Fault) -> Result<usize, Fault> {
        let full = Fault { kind: Kind::UpstreamFull, unsent: true };
        let gate = self.chosen.upstream.protection.as_ref().map(|protection| protection.gate.clone());
        let (worker, now_ms) = (self.conn.worker.id, clock::now().mono_ms());
        let timeout_ms = self.patience_ms(&limits);
        // Two who failed at one endpoint each would wait for the other's place.
        let leave = self.relay.turn.take().and_then(Place::give_back);
        let ticket = gate.and_then(|gate| gate.wait(limits.pending_max, worker, now_ms, timeout_ms));
        let ticket = ticket.ok_or(full)?;
        self.follow_changes(&ticket);
        let mut wait = Wait::begun(self.conn, timeout_ms);
        let outcome = poll_fn(|cx| self.poll_in(cx, &ticket, &mut wait)).await;
        self.attempts.waited_ms += clock::now().mono_ms() - now_ms;
        match outcome {
            Ok(found) => {
                self.relay.note_retry(leave);
                found.ok_or(last)
            }
            Err(kind) => {
                ticket.give_up();
                Err(Fault { kind, unsent: true })
            }
        }
    }

    /// How long it may wait now: not longer in all than anybody may, and a retry not beyond the time for retries.
    fn patience_ms(&self, limits: &Limits) -> u64 {
        let left_ms = limits.pending_timeout_ms.saturating_sub(self.attempts.waited_ms);
        let retry_timeout_ms = self.chosen.upstream.retry_timeout_ms;
        if retry_timeout_ms == 0 || self.attempts.tried.count() == 0 {
            return left_ms.max(1);
        }
        let passed_ms = clock::now().mono_ms() - self.started.mono_ms();
        left_ms.min(retry_timeout_ms.saturating_sub(passed_ms)).max(1)
    }

    fn poll_in(
        &mut self,
        cx: &mut Context<'_>,
        ticket: &Ticket,
        wait: &mut Wait,
    ) -> Poll<Result<Option<usize>, Kind>> {
        if ticket.is_called(cx.waker(), clock::now().mono_ms()) {
            self.follow_changes(ticket);
            let tried = self.attempts.tried.clone();
            match self.try_in(&tried) {
                Ok(found) => return Poll::Ready(Ok(found)),
                Err(Full) => ticket.pass_on(),
            }
        }
        if let Some(kind) = self.conn.stream.given_up(cx) {
            return Poll::Ready(Err(kind));
        }
        match wait.poll(cx, self.conn, true) {
            None => Poll::Pending,
            Some(End::Late) => Poll::Ready(Err(Kind::UpstreamQueue)),
            Some(End::ClientLeft) => Poll::Ready(Err(Kind::ClientGone)),
        }
    }

    /// Waits for the endpoints there are now: those of its own snapshot may be gone, or full for ever. One whose
    /// upstream is gone can use nothing that is free now.
    fn follow_changes(&mut self, ticket: &Ticket) {
        let before = self.chosen.upstream;
        let is_in_force = self.chosen.renew(&self.conn.worker.pinned());
        let now = self.chosen.upstream;
        if !std::ptr::eq(before, now) {
            self.attempts.tried = self.attempts.tried.carried_over(&before.endpoints, &now.endpoints);
        }
        ticket.avoid(if is_in_force { self.attempts.tried.bits() } else { u128::MAX });
    }

    fn try_in(&mut self, tried: &Tried) -> Result<Option<usize>, Full> {
        try_in(self.conn, self.ex, self.chosen.upstream, self.relay, tried)
    }
}

/// Takes a place at an endpoint that has room, and leave to connect where that is bounded; `Ok(None)` where there is
/// no endpoint to pick.
pub(super) fn try_in(
    conn: &Connection,
    ex: &Exchange<'_>,
    upstream: &Upstream,
    relay: &mut Relay<'_>,
    tried: &Tried,
) -> Result<Option<usize>, Full> {
    let Some(protection) = &upstream.protection else { return Ok(upstream.pick(ex, tried)) };
    protection.revive(clock::now().mono_ms());
    let tls = is_tls(ex, upstream);
    let pool = &conn.worker.pool;
    let gate = protection.counts_connections();
    let idles = |index: usize| {
        let key = pool_key(ex, upstream, &upstream.endpoints[index], tls);
        pool.borrow_mut().has(key, gate, clock::now().mono_ms())
    };
    let mut admitted = upstream.admit(protection, ex, tried, &mut relay.turn, idles);
    if admitted == Err(Full) && protection.is_out_of_connections() {
        // One that idles at another endpoint is worth less than one that is waited for.
        let made_room = pool.borrow_mut().drop_one(&protection.gate);
        if made_room {
            admitted = upstream.admit(protection, ex, tried, &mut relay.turn, idles);
        }
    }
    Ok(admitted?.map(|admission| {
        relay.permit = admission.permit;
        admission.index
    }))
}
