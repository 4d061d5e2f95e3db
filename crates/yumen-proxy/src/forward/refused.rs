//! Calls that an endpoint answered with a status after which another endpoint is tried.
//!
//! The client receives that response if no other endpoint can be tried, so it is let go only when one is certain.

use super::{AttemptHistory, note_retry, retry_permit};
use crate::clock;
use crate::deadline;
use crate::forward::resend::ResendSource;
use crate::grpc;
use crate::proxied::ProxiedExchange;
use crate::upstream::admission::AdmittedEndpoint;
use crate::upstream::attempt::{Attempt, ResponseStarted};
use crate::upstream::replay::RequestReplay;

/// The use of a response at an upstream that names such statuses.
pub(super) enum RefusedCall<'u> {
    PassOn(Attempt<'u, ResponseStarted>),
    /// The response is gone.
    TryElsewhere(AdmittedEndpoint),
}

impl<'s> ProxiedExchange<'_, 's> {
    /// Admits the call to another endpoint if the response has such a status. Conditions that take nothing are checked
    /// first.
    pub(super) fn retry_refused(
        &mut self,
        mut attempt: Attempt<'s, ResponseStarted>,
        history: &mut AttemptHistory,
    ) -> RefusedCall<'s> {
        let upstream = self.pinned.upstream;
        let is_over = || history.is_over(upstream) || deadline::check(self.conn).is_err();
        let admitted = match self.is_refused(&attempt) && !is_over() {
            true => self.admit_elsewhere(&mut attempt, history),
            false => None,
        };
        let Some(admitted) = admitted else {
            // No other attempt follows: the memory that is kept for one is released.
            self.upload.replay = RequestReplay::Off;
            return RefusedCall::PassOn(attempt);
        };
        let client = &self.conn.worker.upstream;
        history.request_permit = attempt.finish(clock::now()).discard(client);
        RefusedCall::TryElsewhere(admitted)
    }

    #[cold]
    fn admit_elsewhere(
        &mut self,
        attempt: &mut Attempt<'s, ResponseStarted>,
        history: &AttemptHistory,
    ) -> Option<AdmittedEndpoint> {
        let resend = ResendSource::of(self, history.body_mark)?;
        let request_permit = attempt.request_permit();
        let permit = retry_permit(self.pinned.upstream, request_permit.as_ref()).ok()?;
        // Without room elsewhere, the permit stays where the response came from.
        let admitted = self.try_admit(&history.tried, request_permit).ok()??;
        resend.rewind(self, history.body_mark);
        note_retry(request_permit, permit);
        Some(admitted)
    }

    fn is_refused(&self, attempt: &Attempt<'s, ResponseStarted>) -> bool {
        grpc::is_grpc(&self.ex.request)
            && grpc::status_of(&attempt.head().fields)
                .is_some_and(|status| self.pinned.upstream.grpc_retry_statuses.contains(&status))
    }
}
