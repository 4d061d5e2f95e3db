//! The retry loop: from a request to the head of an endpoint's response.
//!
//! Owns the choice of the endpoint and the decision to retry. Connections and attempts belong to `upstream`.

mod admission;
mod head_wait;
mod refused;
mod request;
mod resend;

use yumen_base::Now;
use yumen_plugin::{Phase, UpstreamRequestPhase};
use yumen_snapshot::protection::{LimiterFull, RequestPermit, RetryPermit};
use yumen_snapshot::{StatusRetry, TriedEndpoints, Upstream};

use crate::exchange::client_wait::ClientWait;
use crate::exchange::deadline;
use crate::exchange::proxied::ProxiedExchange;
use crate::fault::{Fault, FaultKind};
use crate::grpc;
use crate::runtime::buffer::InboxMark;
use crate::runtime::clock;
use crate::runtime::cold_future::box_cold;
use crate::upstream::admission::AdmittedEndpoint;
use crate::upstream::attempt::{Attempt, EndpointChosen, EndpointConnected, FailedAttempt, ResponseStarted};
use crate::upstream::health;
use crate::upstream::replay::RequestReplay;
use refused::RefusedResponse;
use request::SendResult;
use resend::ResendSource;

/// The attempts of an exchange so far.
pub(super) struct AttemptHistory {
    tried: TriedEndpoints,
    /// Start of the first attempt.
    started: Now,
    /// Start of the request body in the inbox.
    body_mark: InboxMark,
    /// The fault of the last attempt.
    last: Fault,
    /// Whether an endpoint may have acted on the request.
    may_have_acted: bool,
    /// Time in the queue for admission so far, in milliseconds.
    waited_ms: u64,
    /// Permit at an upstream that limits requests, while no attempt holds it.
    request_permit: Option<RequestPermit>,
}

impl AttemptHistory {
    fn new(body_mark: InboxMark) -> AttemptHistory {
        AttemptHistory {
            tried: TriedEndpoints::default(),
            started: clock::now(),
            body_mark,
            last: FaultKind::NoEndpoint.into(),
            may_have_acted: false,
            waited_ms: 0,
            request_permit: None,
        }
    }

    /// Whether no further attempt is allowed: `retries` are used up or `retry_timeout_ms` has passed.
    fn is_over(&self, upstream: &Upstream, retry: Option<&StatusRetry>) -> bool {
        let retries_max = upstream.retry.retries_max.max(retry.map_or(0, |retry| retry.attempts));
        self.tried.count() > retries_max || self.is_late(upstream)
    }

    /// Whether `retry_timeout_ms` has passed since the first attempt.
    fn is_late(&self, upstream: &Upstream) -> bool {
        let passed_ms = clock::now().mono_ms() - self.started.mono_ms();
        upstream.retry.timeout_ms != 0 && passed_ms >= upstream.retry.timeout_ms
    }
}

/// Tries endpoints until one responds, the request may not be repeated, or no attempt is left. Every exit of
/// the loop is in this function.
pub(crate) async fn forward<'s>(
    proxied: &mut ProxiedExchange<'_, 's>,
) -> Result<Attempt<'s, ResponseStarted>, Fault> {
    let mut history = AttemptHistory::new(proxied.conn.inbox.mark());
    proxied.flow.upstream_started_us = Some(history.started.mono_us);
    proxied.upload.replay = RequestReplay::of(proxied.ex, proxied.pinned.upstream, proxied.retry());
    let mut readmitted: Option<AdmittedEndpoint> = None;
    loop {
        let admitted = match (readmitted.take(), &proxied.pinned.upstream.protection) {
            (Some(admitted), _) => admitted,
            (None, None) => {
                // `last` is `NoEndpoint` until an attempt has failed.
                let index = proxied.pinned.upstream.pick(proxied.ex, &history.tried).ok_or(history.last)?;
                AdmittedEndpoint::without_limits(index)
            }
            (None, Some(_)) => box_cold(proxied.admit(&mut history)).await?,
        };
        // Admission may have replaced the pinned upstream by a newer version, so the upstream is read after
        // it.
        let (upstream, index) = (proxied.pinned.upstream, admitted.index);
        if proxied.ex.upstream.deadline_ms != 0 {
            deadline::check(proxied.conn)?;
        }
        history.tried.push(index);
        proxied.flow.attempts += 1;
        let endpoint = &upstream.endpoints[index];
        proxied.ex.endpoint.address = Some(endpoint.addr);
        proxied.ex.endpoint.host = &endpoint.host;
        let outcome = proxied.attempt(admitted, &mut history).await;
        if let Some(watch) = proxied.chains.recording_attempts() {
            watch.attempted(endpoint.addr, outcome.as_ref().err().map(|failed| failed.fault));
        }
        match outcome {
            Ok(attempt) => {
                health::observe_answer(upstream, index, proxied.ex, attempt.head());
                if upstream.retry.grpc_statuses.is_empty() && proxied.retry().is_none() {
                    return Ok(attempt);
                }
                // A status is a response: the endpoint has processed the request.
                history.may_have_acted = true;
                if !proxied.may_retry_status(&attempt, &history) {
                    // No attempt follows, so the replay buffer is released.
                    proxied.upload.replay = RequestReplay::Off;
                    return Ok(attempt);
                }
                match box_cold(proxied.retry_refused(attempt, &mut history)).await? {
                    RefusedResponse::PassOn(attempt) => return Ok(attempt),
                    RefusedResponse::TryElsewhere(admitted) => readmitted = Some(admitted),
                }
            }
            Err(failed) => {
                let uploaded_bytes = proxied.upload.transfer.read_bytes();
                // The endpoint is chosen here and not in the next round: an attempt that never begins is no retry.
                match box_cold(proxied.next_endpoint(&mut history, failed, index)).await {
                    Ok(admitted) => readmitted = Some(admitted),
                    Err(fault) => {
                        // Bytes that a further attempt reads again must be counted once, so only the last
                        // attempt adds its count.
                        proxied.flow.received_bytes += uploaded_bytes;
                        return Err(fault);
                    }
                }
            }
        }
        proxied.conn.worker.counters.upstream.retries.add(1);
    }
}

impl<'s> ProxiedExchange<'_, 's> {
    /// Runs one attempt. If a reused connection was closed by the endpoint, the request is sent once more on
    /// another connection; that is not a failure of the endpoint.
    ///
    /// An attempt is passed by value between functions only: an async callee would store it a second time in
    /// its future.
    async fn attempt(
        &mut self,
        admitted: AdmittedEndpoint,
        history: &mut AttemptHistory,
    ) -> Result<Attempt<'s, ResponseStarted>, FailedAttempt> {
        let (upstream, permit) = (self.pinned.upstream, history.request_permit.take());
        let mut attempt = Attempt::begin(upstream, admitted.index, admitted.endpoint_permit, permit);
        let attempt_ms = self.route.timeouts.as_deref().unwrap_or(&upstream.timeouts).attempt_ms;
        if attempt_ms != 0 {
            deadline::begin_attempt(self.conn, self.ex, attempt_ms);
        }
        let attempt_mark = self.conn.inbox.mark();
        if self.ex.upstream.deadline_ms != 0 {
            let left_ms = deadline::left_ms(self.ex);
            grpc::set_grpc_timeout(self.ex, left_ms);
        }
        self.chains.each(self.ex, Phase::UpstreamRequest, |plugin, ex| {
            plugin.upstream_request(&mut UpstreamRequestPhase::new(ex));
        });
        let mut may_repeat = true;
        loop {
            let body_mark = self.conn.inbox.mark();
            let sent = match self.send_on_open(attempt, may_repeat) {
                Ok(sent) => sent,
                Err(attempt) => box_cold(self.send_on_new(attempt)).await?,
            };
            let unanswered = match sent {
                // The only call site, so that the compiler can inline the future.
                Ok(mut sent) => match self.response_head(&mut sent).await {
                    Ok(is_upgrade) => return Ok(sent.answered(is_upgrade)),
                    Err(fault) => self.give_up(sent, fault, body_mark),
                },
                Err(unanswered) => unanswered,
            };
            // RFC 9110 §9.2.2: only an idempotent request may be repeated after it may have been processed.
            let is_repeatable = unanswered.fault.unsent || self.ex.request.method().is_idempotent();
            let resend = match unanswered.is_stale() && may_repeat && is_repeatable {
                true => ResendSource::of(self, attempt_mark),
                false => None,
            };
            let Some(resend) = resend else { return Err(unanswered.fail()) };
            resend.rewind(self, attempt_mark);
            // The repeated request uses a new connection, whose failure is the endpoint's.
            may_repeat = false;
            attempt = unanswered.attempt;
        }
    }

    /// Sends the request on an open connection; returns the attempt if there is none.
    #[inline]
    fn send_on_open(
        &mut self,
        attempt: Attempt<'s, EndpointChosen>,
        may_repeat: bool,
    ) -> Result<SendResult<'s>, Attempt<'s, EndpointChosen>> {
        let target = request::target(self.ex, self.route, self.pinned.upstream, attempt.index());
        self.chains.recording_attempts().inspect(|watch| watch.begin_attempt());
        // The repeated HTTP/1 request needs a new connection: other idle ones may be closed as well.
        if !may_repeat && !target.is_http2 {
            return Err(attempt);
        }
        let connected = attempt.take_open(&self.conn.worker.upstream, &target)?;
        Ok(self.send_head(connected))
    }

    /// Connects and sends the request.
    async fn send_on_new(
        &mut self,
        attempt: Attempt<'s, EndpointChosen>,
    ) -> Result<SendResult<'s>, FailedAttempt> {
        let connected = self.connect(attempt).await?;
        Ok(self.send_head(connected))
    }

    /// Connects to the endpoint; fails if the client leaves meanwhile.
    async fn connect(
        &mut self,
        attempt: Attempt<'s, EndpointChosen>,
    ) -> Result<Attempt<'s, EndpointConnected>, FailedAttempt> {
        let index = attempt.index();
        let ProxiedExchange { conn, ex, chains, route, pinned, .. } = self;
        let watch = chains.recording_attempts();
        watch.inspect(|watch| watch.begin_attempt());
        let client = conn.worker.upstream.clone();
        let target = request::target(ex, route, pinned.upstream, index);
        let connected = attempt.connect(&client, &target, &mut ClientWait::new(conn)).await;
        watch.inspect(|watch| watch.connected());
        connected
    }

    /// The endpoint of the next attempt after a failed one; fails with the fault of the exchange if none follows.
    async fn next_endpoint(
        &mut self,
        history: &mut AttemptHistory,
        failed: FailedAttempt,
        index: usize,
    ) -> Result<AdmittedEndpoint, Fault> {
        if !self.may_retry(history, failed, index) {
            return Err(history.last);
        }
        if let Some(retry) = self.retry() {
            self.pause(retry, history).await?;
            self.forget_tried(history);
        }
        let admitted = match &self.pinned.upstream.protection {
            None => {
                let index = self.pinned.upstream.pick(self.ex, &history.tried).ok_or(history.last)?;
                AdmittedEndpoint::without_limits(index)
            }
            Some(_) => self.admit(history).await?,
        };
        if self.ex.upstream.deadline_ms != 0 {
            deadline::check(self.conn)?;
        }
        Ok(admitted)
    }

    /// Records a failed attempt and decides whether the request goes to another endpoint. If so, rewinds the
    /// body and acquires a retry permit.
    #[cold]
    fn may_retry(&mut self, history: &mut AttemptHistory, failed: FailedAttempt, index: usize) -> bool {
        let upstream = self.pinned.upstream;
        let fault = deadline::settle(self.conn, self.ex, failed.fault);
        if self.conn.timer.cap_ms().is_some() {
            deadline::end_attempt(self.conn, self.ex);
        }
        failed.observe(upstream, index, fault.kind);
        if fault.kind.is_endpoints() || fault.kind == FaultKind::Deadline {
            self.flow.failed_statuses.push(fault.kind.facts().1);
        }
        history.request_permit = failed.request_permit;
        let passed_us = clock::now().mono_us.saturating_sub(history.started.mono_us);
        self.flow.upstream_us = Some(passed_us);
        history.last = fault;
        history.may_have_acted |= !fault.unsent;
        // RFC 9110 §9.2.2, as in `attempt`.
        let is_repeatable = fault.unsent || self.ex.request.method().is_idempotent();
        let is_over = history.is_over(upstream, self.retry()) || !self.has_time_to_retry(history);
        if is_over || !is_repeatable || !fault.kind.is_worth_retrying() {
            return false;
        }
        // The permit is acquired last, so that no other condition can waste it.
        let Some(resend) = ResendSource::of(self, history.body_mark) else { return false };
        let Ok(permit) = retry_permit(upstream, history.request_permit.as_ref()) else { return false };
        resend.rewind(self, history.body_mark);
        note_retry(&mut history.request_permit, permit);
        true
    }
}

/// Acquires a retry permit; `None` at upstreams without limits.
fn retry_permit(
    upstream: &Upstream,
    request_permit: Option<&RequestPermit>,
) -> Result<Option<RetryPermit>, LimiterFull> {
    upstream.protection.as_ref().map_or(Ok(None), |protection| protection.retry(request_permit))
}

/// Counts the request as a retry until its permit is released.
fn note_retry(request_permit: &mut Option<RequestPermit>, permit: Option<RetryPermit>) {
    if let Some(request_permit) = request_permit {
        request_permit.note_retry(permit);
    }
}
