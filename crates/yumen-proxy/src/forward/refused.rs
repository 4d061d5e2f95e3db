//! Calls that an endpoint answered with a status after which another is asked.
//!
//! What the endpoint said is all there is to tell the client, so it is let go only when it is certain that another
//! one is asked.

use yumen_base::Now;
use yumen_plugin::Exchange;
use yumen_snapshot::{Tried, Upstream};

use super::admission::try_in;
use super::{Again, is_late, leave_to_retry};
use crate::connection::Connection;
use crate::deadline;
use crate::flow::Flow;
use crate::grpc;
use crate::relay::Relay;
use crate::upstream::replay::RequestReplay;

/// An attempt that was answered, at an upstream that names such statuses.
pub(super) struct Refused<'a, 's, 'u> {
    pub(super) conn: &'a mut Connection,
    pub(super) ex: &'a Exchange<'s>,
    pub(super) upstream: &'a Upstream,
    pub(super) relay: &'a mut Relay<'u>,
    pub(super) flow: &'a mut Flow,
    pub(super) tried: &'a Tried,
    /// When the first attempt began.
    pub(super) started: Now,
    /// Where the request body begins in the inbox.
    pub(super) body_mark: (usize, u64),
}

impl Refused<'_, '_, '_> {
    /// The endpoint that is asked instead, where the answer is such a status and there is one; the answer is gone
    /// then. Whatever can be known without taking anything is asked first.
    pub(super) fn elsewhere(mut self) -> Option<usize> {
        let found = if self.is_refused() && !self.is_over() { self.find() } else { None };
        if found.is_none() {
            // Nobody is asked again: what is kept for that is given back.
            self.relay.replay = RequestReplay::Off;
        }
        found
    }

    #[cold]
    fn find(&mut self) -> Option<usize> {
        let again = Again::of(self.conn, self.ex, &self.relay.replay, self.body_mark)?;
        let leave = leave_to_retry(self.upstream, self.relay).ok()?;
        // It belongs to the connection the answer came on.
        let permit = self.relay.permit.take();
        // Where none has room, the place stays where the answer came from.
        let Ok(Some(index)) = try_in(self.conn, self.ex, self.upstream, self.relay, self.tried) else {
            self.relay.permit = permit;
            return None;
        };
        again.resend(self.conn, self.relay, self.body_mark, self.flow);
        self.relay.note_retry(leave);
        self.relay.link = None;
        self.relay.end_attempt();
        Some(index)
    }

    fn is_over(&self) -> bool {
        self.tried.count() > self.upstream.retries
            || is_late(self.upstream, self.started)
            || deadline::check(self.conn).is_err()
    }

    fn is_refused(&self) -> bool {
        grpc::is_grpc(&self.ex.request)
            && grpc::status_of(&self.relay.head.fields)
                .is_some_and(|status| self.upstream.grpc_retry_statuses.contains(&status))
    }
}
