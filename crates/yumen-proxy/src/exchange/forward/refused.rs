//! Retries by response status: of gRPC calls (`grpc_retry_statuses`) and of routes (`retry`).
//!
//! The client receives the refused response if no endpoint admits the request, so the response is discarded
//! only after admission.

use std::future::poll_fn;

use yumen_snapshot::StatusRetry;

use super::{AttemptHistory, note_retry, retry_permit};
use crate::exchange::client_wait::Wait;
use crate::exchange::deadline;
use crate::exchange::forward::resend::ResendSource;
use crate::exchange::proxied::ProxiedExchange;
use crate::fault::{Fault, FaultKind};
use crate::grpc;
use crate::runtime::clock;
use crate::upstream::admission::AdmittedEndpoint;
use crate::upstream::attempt::{Attempt, ResponseStarted};
use crate::upstream::replay::RequestReplay;

/// Use of a response at a route or upstream with retry statuses.
pub(super) enum RefusedResponse<'u> {
    PassOn(Attempt<'u, ResponseStarted>),
    /// The response was discarded.
    TryElsewhere(AdmittedEndpoint),
}

impl<'s> ProxiedExchange<'_, 's> {
    /// The retries of the route by status.
    pub(super) fn retry(&self) -> Option<&'s StatusRetry> {
        self.route.forwarding.as_ref()?.retry.as_ref()
    }

    /// Admits the request to an endpoint after a response with a retry status. Fails if the client leaves during
    /// the pause.
    pub(super) async fn retry_refused(
        &mut self,
        mut attempt: Attempt<'s, ResponseStarted>,
        history: &mut AttemptHistory,
    ) -> Result<RefusedResponse<'s>, Fault> {
        deadline::end_attempt(self.conn, self.ex);
        if let Some(retry) = self.retry() {
            self.pause(retry, history).await?;
        }
        let Some(admitted) = self.admit_again(&mut attempt, history) else {
            self.upload.replay = RequestReplay::Off;
            return Ok(RefusedResponse::PassOn(attempt));
        };
        self.flow.failed_statuses.push(attempt.head().status);
        let client = &self.conn.worker.upstream;
        history.request_permit = attempt.finish(clock::now()).discard(client);
        Ok(RefusedResponse::TryElsewhere(admitted))
    }

    /// Whether the response has a retry status and another attempt is allowed, by conditions that acquire nothing.
    pub(super) fn may_retry_status(
        &self,
        attempt: &Attempt<'s, ResponseStarted>,
        history: &AttemptHistory,
    ) -> bool {
        let (upstream, attempts) = (self.pinned.upstream, history.tried.count());
        let is_of_route = self.retry().is_some_and(|retry| {
            attempts <= retry.attempts && retry.statuses.contains(&attempt.head().status)
        });
        let is_of_call = || attempts <= upstream.retry.retries_max && self.is_refused_call(attempt);
        (is_of_route || is_of_call())
            && !history.is_late(upstream)
            && deadline::check(self.conn).is_ok()
            && self.has_time_to_retry(history)
            && ResendSource::of(self, history.body_mark).is_some()
    }

    fn admit_again(
        &mut self,
        attempt: &mut Attempt<'s, ResponseStarted>,
        history: &mut AttemptHistory,
    ) -> Option<AdmittedEndpoint> {
        let resend = ResendSource::of(self, history.body_mark)?;
        if self.retry().is_some() {
            self.forget_tried(history);
        }
        let request_permit = attempt.request_permit();
        let permit = retry_permit(self.pinned.upstream, request_permit.as_ref()).ok()?;
        // If no endpoint has capacity, the permit stays with the response.
        let admitted = self.try_admit(&history.tried, request_permit).ok()??;
        resend.rewind(self, history.body_mark);
        note_retry(request_permit, permit);
        Some(admitted)
    }

    /// Whether a refused gRPC call may be retried at another endpoint.
    fn is_refused_call(&self, attempt: &Attempt<'s, ResponseStarted>) -> bool {
        grpc::is_grpc(&self.ex.request)
            && grpc::status_of(&attempt.head().fields)
                .is_some_and(|status| self.pinned.upstream.retry.grpc_statuses.contains(&status))
    }

    /// Whether the pause before the next attempt ends before the deadline.
    pub(super) fn has_time_to_retry(&self, history: &AttemptHistory) -> bool {
        self.retry().is_none_or(|retry| deadline::is_within(self.ex, retry.pause_ms(history.tried.count())))
    }

    /// Waits before the next attempt; fails if the client leaves meanwhile.
    pub(super) async fn pause(&mut self, retry: &StatusRetry, history: &AttemptHistory) -> Result<(), Fault> {
        let pause_ms = retry.pause_ms(history.tried.count());
        if pause_ms == 0 {
            return Ok(());
        }
        let mut wait = Wait::begun(self.conn, pause_ms);
        match poll_fn(|cx| wait.poll_end(cx, self.conn, FaultKind::ReadTimeout)).await {
            FaultKind::ReadTimeout => Ok(()),
            left => Err(left.into()),
        }
    }

    /// Lets endpoints be tried again once each was: the retries of a route may go to one endpoint.
    pub(super) fn forget_tried(&self, history: &mut AttemptHistory) {
        if !self.pinned.upstream.has_untried(&history.tried) {
            history.tried.forget();
        }
    }
}
