//! Room at an upstream that is protected: who gets in, who waits, who is refused.
//!
//! Knows how waiting is done; what there is room for is counted in `yumen-snapshot`.

use std::future::poll_fn;
use std::task::{Context, Poll};

use yumen_plugin::Exchange;
use yumen_snapshot::protection::{Full, Protection, Ticket};
use yumen_snapshot::{Tried, Upstream};

use super::{is_tls, pool_key};
use crate::clock;
use crate::connection::Connection;
use crate::fault::{Fault, Kind};
use crate::relay::Relay;
use crate::wait::{End, Wait};

/// One who wants to ask a protected upstream.
pub(super) struct Asking<'a, 's, 'u> {
    pub(super) conn: &'a mut Connection,
    pub(super) ex: &'a Exchange<'s>,
    pub(super) upstream: &'a Upstream,
    pub(super) protection: &'a Protection,
    pub(super) relay: &'a mut Relay<'u>,
    pub(super) tried: &'a Tried,
}

impl Asking<'_, '_, '_> {
    /// The endpoint to ask. `last` is what to say where there is none. Only a first attempt waits: to ask
    /// again what has no room helps nobody.
    pub(super) async fn admit(mut self, last: Fault) -> Result<usize, Fault> {
        self.protection.revive(clock::now().mono_ms());
        self.relay.permit = None;
        let is_retry = self.tried.count() > 0;
        if is_retry || self.protection.gate.waiting() == 0 {
            match self.try_in() {
                Ok(found) => return found.ok_or(last),
                Err(Full) if is_retry => return Err(last),
                Err(Full) => {}
            }
        }
        let limits = self.protection.limits.ok_or(last)?;
        let (worker, now_ms) = (self.conn.worker.id, clock::now().mono_ms());
        let timeout_ms = limits.pending_timeout_ms;
        let Some(ticket) = self.protection.gate.wait(limits.pending_max, worker, now_ms, timeout_ms) else {
            return Err(Fault { kind: Kind::UpstreamFull, unsent: true });
        };
        let mut wait = Wait::new();
        wait.begin(self.conn, timeout_ms);
        let outcome = poll_fn(|cx| self.poll_in(cx, &ticket, &wait)).await;
        match outcome {
            Ok(found) => found.ok_or(last),
            Err(kind) => {
                ticket.give_up();
                Err(Fault { kind, unsent: true })
            }
        }
    }

    fn poll_in(
        &mut self,
        cx: &mut Context<'_>,
        ticket: &Ticket,
        wait: &Wait,
    ) -> Poll<Result<Option<usize>, Kind>> {
        if ticket.is_called(cx.waker(), clock::now().mono_ms()) {
            self.protection.revive(clock::now().mono_ms());
            if let Ok(found) = self.try_in() {
                return Poll::Ready(Ok(found));
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

    fn try_in(&mut self) -> Result<Option<usize>, Full> {
        let (upstream, ex) = (self.upstream, self.ex);
        let tls = is_tls(ex, upstream);
        let pool = &self.conn.worker.pool;
        let gate = self.protection.counts_connections();
        let idles = |index: usize| {
            let key = pool_key(ex, upstream, &upstream.endpoints[index], tls);
            pool.borrow_mut().has(key, gate, clock::now().mono_ms())
        };
        let mut admitted = upstream.admit(self.protection, ex, self.tried, &mut self.relay.turn, idles);
        if admitted == Err(Full) && self.protection.is_out_of_connections() {
            // One that idles at another endpoint is worth less than one that is waited for.
            let made_room = pool.borrow_mut().drop_one(&self.protection.gate);
            if made_room {
                admitted = upstream.admit(self.protection, ex, self.tried, &mut self.relay.turn, idles);
            }
        }
        Ok(admitted?.map(|admission| {
            self.relay.permit = admission.permit;
            admission.index
        }))
    }
}
