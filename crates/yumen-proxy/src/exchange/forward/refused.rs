//! Retries of gRPC calls by response status (`grpc_retry_statuses`).
//!
//! The client receives the refused response if no other endpoint admits the call, so the response is
//! discarded only after admission elsewhere.

use super::{AttemptHistory, note_retry, retry_permit};
use crate::exchange::deadline;
use crate::exchange::forward::resend::ResendSource;
use crate::exchange::proxied::ProxiedExchange;
use crate::grpc;
use crate::runtime::clock;
use crate::upstream::admission::AdmittedEndpoint;
use crate::upstream::attempt::{Attempt, ResponseStarted};
use crate::upstream::replay::RequestReplay;

/// Use of a response at an upstream with retry statuses.
pub(super) enum RefusedCall<'u> {
    PassOn(Attempt<'u, ResponseStarted>),
    /// The response was discarded.
    TryElsewhere(AdmittedEndpoint),
}

impl<'s> ProxiedExchange<'_, 's> {
    /// Admits the call to another endpoint if the response has a retry status. Conditions that acquire
    /// nothing are checked first.
    pub(super) fn retry_refused(
        &mut self,
        mut attempt: Attempt<'s, ResponseStarted>,
        history: &mut AttemptHistory,
    ) -> RefusedCall<'s> {
        let upstream = self.pinned.upstream;
        let is_over = || history.is_over(upstream) || deadline::check(self.conn).is_err();
        let admitted = match self.is_refused(&attempt) && !is_over() {
            true => self.admit_other_endpoint(&mut attempt, history),
            false => None,
        };
        let Some(admitted) = admitted else {
            // No attempt follows, so the replay buffer is released.
            self.upload.replay = RequestReplay::Off;
            return RefusedCall::PassOn(attempt);
        };
        self.flow.failed_statuses.push(attempt.head().status);
        let client = &self.conn.worker.upstream;
        history.request_permit = attempt.finish(clock::now()).discard(client);
        RefusedCall::TryElsewhere(admitted)
    }

    #[cold]
    fn admit_other_endpoint(
        &mut self,
        attempt: &mut Attempt<'s, ResponseStarted>,
        history: &AttemptHistory,
    ) -> Option<AdmittedEndpoint> {
        let resend = ResendSource::of(self, history.body_mark)?;
        let request_permit = attempt.request_permit();
        let permit = retry_permit(self.pinned.upstream, request_permit.as_ref()).ok()?;
        // If no other endpoint has capacity, the permit stays with the response.
        let admitted = self.try_admit(&history.tried, request_permit).ok()??;
        resend.rewind(self, history.body_mark);
        note_retry(request_permit, permit);
        Some(admitted)
    }

    fn is_refused(&self, attempt: &Attempt<'s, ResponseStarted>) -> bool {
        grpc::is_grpc(&self.ex.request)
            && grpc::status_of(&attempt.head().fields)
                .is_some_and(|status| self.pinned.upstream.retry.grpc_statuses.contains(&status))
    }
}
