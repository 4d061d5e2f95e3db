//! Admission to an upstream with limits, and the queue for it.
//!
//! The wait ends early if the client leaves. The limits themselves belong to `protection`.

use std::future::poll_fn;
use std::task::{Context, Poll};

use yumen_snapshot::TriedEndpoints;
use yumen_snapshot::protection::{LimiterFull, ProtectionLimits, QueueTicket, RequestPermit};

use super::{AttemptHistory, note_retry, request};
use crate::exchange::client_wait::{Wait, WaitEnd};
use crate::exchange::proxied::ProxiedExchange;
use crate::fault::{Fault, FaultKind};
use crate::runtime::clock;
use crate::upstream::admission::AdmittedEndpoint;

impl ProxiedExchange<'_, '_> {
    /// Admits the request to an endpoint of its protected upstream. If all are full, a request that no
    /// endpoint has seen waits, and a retry that may have been processed fails.
    pub(super) async fn admit(&mut self, history: &mut AttemptHistory) -> Result<AdmittedEndpoint, Fault> {
        let last = history.last;
        match self.admit_at_once(history) {
            Ok(found) => return found.ok_or(last),
            // A retry that may have been processed does not queue: repeating it adds load to a full upstream
            // (decision 33).
            Err(LimiterFull) if history.may_have_acted => return Err(last),
            Err(LimiterFull) => {}
        }
        let protection = self.pinned.upstream.protection.as_ref();
        let limits = protection.and_then(|protection| protection.limits);
        self.wait_for_room(limits.ok_or(last)?, history).await
    }

    /// Tries endpoints with free capacity. A first attempt passes over capacity that queued requests wait
    /// for.
    fn admit_at_once(&self, history: &mut AttemptHistory) -> Result<Option<AdmittedEndpoint>, LimiterFull> {
        let AttemptHistory { tried, request_permit, .. } = history;
        let Some(protection) = self.pinned.upstream.protection.as_ref().filter(|_| tried.count() == 0) else {
            return self.try_admit(tried, request_permit);
        };
        let free_for_all = protection.gate.avoided_by_all();
        // A queued request can use every endpoint, so capacity that is free now belongs to the queue.
        if free_for_all == 0 {
            return Err(LimiterFull);
        }
        match self.try_admit(&tried.without(!free_for_all), request_permit) {
            // The balancer saw only some of the endpoints: that none of them fits is a reason to wait, not to
            // fail.
            Ok(None) if free_for_all != u128::MAX => Err(LimiterFull),
            found => found,
        }
    }

    async fn wait_for_room(
        &mut self,
        limits: ProtectionLimits,
        history: &mut AttemptHistory,
    ) -> Result<AdmittedEndpoint, Fault> {
        let full = Fault { kind: FaultKind::UpstreamFull, unsent: true };
        let gate = self.pinned.upstream.protection.as_ref().map(|protection| protection.gate.clone());
        let (worker, now_ms) = (self.conn.worker.id, clock::now().mono_ms());
        let timeout_ms = self.queue_timeout_ms(&limits, history);
        // The retry slot is released before the wait: two requests that each hold the slot the other needs
        // would block each other.
        let retry_permit = history.request_permit.take().and_then(RequestPermit::give_back);
        let ticket = gate.and_then(|gate| gate.wait(limits.pending_max, worker, now_ms, timeout_ms));
        let ticket = ticket.ok_or(full)?;
        self.follow_changes(&ticket, history);
        let mut wait = Wait::begun(self.conn, timeout_ms);
        let outcome = poll_fn(|cx| self.poll_admit(cx, &ticket, &mut wait, history)).await;
        history.waited_ms += clock::now().mono_ms() - now_ms;
        match outcome {
            Ok(found) => {
                note_retry(&mut history.request_permit, retry_permit);
                found.ok_or(history.last)
            }
            Err(kind) => {
                ticket.give_up();
                Err(Fault { kind, unsent: true })
            }
        }
    }

    /// Time that the request may wait now, in milliseconds, at least 1. `pending_timeout_ms` bounds all waits
    /// together; `retry_timeout_ms` bounds those of a retry.
    fn queue_timeout_ms(&self, limits: &ProtectionLimits, history: &AttemptHistory) -> u64 {
        let left_ms = limits.pending_timeout_ms.saturating_sub(history.waited_ms);
        let retry_timeout_ms = self.pinned.upstream.retry.timeout_ms;
        if retry_timeout_ms == 0 || history.tried.count() == 0 {
            return left_ms.max(1);
        }
        let passed_ms = clock::now().mono_ms() - history.started.mono_ms();
        left_ms.min(retry_timeout_ms.saturating_sub(passed_ms)).max(1)
    }

    fn poll_admit(
        &mut self,
        cx: &mut Context<'_>,
        ticket: &QueueTicket,
        wait: &mut Wait,
        history: &mut AttemptHistory,
    ) -> Poll<Result<Option<AdmittedEndpoint>, FaultKind>> {
        if ticket.is_woken(cx.waker(), clock::now().mono_ms()) {
            self.follow_changes(ticket, history);
            let AttemptHistory { tried, request_permit, .. } = history;
            match self.try_admit(tried, request_permit) {
                Ok(found) => return Poll::Ready(Ok(found)),
                // The capacity is of no use to this request, so the next one in the queue is woken.
                Err(LimiterFull) => ticket.pass_on(),
            }
        }
        if let Some(kind) = self.conn.stream.client_gone(cx) {
            return Poll::Ready(Err(kind));
        }
        match wait.poll(cx, self.conn, true) {
            None => Poll::Pending,
            Some(WaitEnd::Timeout) => Poll::Ready(Err(FaultKind::UpstreamQueue)),
            Some(WaitEnd::ClientLeft) => Poll::Ready(Err(FaultKind::ClientGone)),
        }
    }

    /// Switches to the endpoints of the newest snapshot: those of the exchange's snapshot may be removed or
    /// full for good. If the upstream was removed, no freed capacity can admit the request.
    fn follow_changes(&mut self, ticket: &QueueTicket, history: &mut AttemptHistory) {
        let before = self.pinned.upstream;
        let is_in_force = self.pinned.renew(&self.conn.worker.pinned());
        let now = self.pinned.upstream;
        if !std::ptr::eq(before, now) {
            history.tried = history.tried.remap(&before.endpoints, &now.endpoints);
        }
        ticket.avoid(if is_in_force { history.tried.bits() } else { u128::MAX });
    }

    /// Admits the request to an endpoint with free capacity; `Ok(None)` if the balancer has none to pick.
    pub(super) fn try_admit(
        &self,
        tried: &TriedEndpoints,
        request_permit: &mut Option<RequestPermit>,
    ) -> Result<Option<AdmittedEndpoint>, LimiterFull> {
        let (ex, upstream) = (&*self.ex, self.pinned.upstream);
        let pool_key = |index| request::target(ex, self.route, upstream, index).pool_key();
        self.conn.worker.upstream.admit(upstream, ex, tried, request_permit, pool_key)
    }
}
