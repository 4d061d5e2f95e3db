//! One attempt on one endpoint, from the choice of the endpoint to the release of all it holds.
//!
//! Each state has a type, and a transition consumes the previous state:
//!
//! ```text
//! EndpointChosen -> EndpointConnected -> RequestSent -> ResponseStarted -> FinishedAttempt
//!       ^                                     |
//!       +--------- UnansweredAttempt <--------+
//!                          |
//!                          +-> FailedAttempt
//! ```
//!
//! An attempt that is dropped in any state closes its connection and returns its permits.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};

use yumen_base::Now;
use yumen_http::ResponseHead;
use yumen_snapshot::protection::{EndpointPermit, RequestPermit};
use yumen_snapshot::upstream::KeepaliveLimits;
use yumen_snapshot::{InFlight, Upstream};

use crate::fault::{Fault, FaultKind, SharedFailure};
use crate::runtime::clock;
use crate::transport::http2::heads::{self, CachedFields};
use crate::transport::http2::{Http2Duplex, StreamPermit};
use crate::transport::stream::{HeadSent, TransportStream};
use crate::upstream::UpstreamClient;
use crate::upstream::connection::{HeadRead, UpstreamConnection};
use crate::upstream::health;
use crate::upstream::pool::PoolKey;
use crate::upstream::target::EndpointTarget;
use crate::upstream::wait::AttemptWait;

/// An attempt in the state `S`. The fields drop in order: the next holder of a permit must find the
/// connection closed.
#[must_use = "a dropped attempt is over"]
pub(crate) struct Attempt<'u, S> {
    state: S,
    in_flight: InFlight<'u>,
    request_permit: Option<RequestPermit>,
}

/// The endpoint is chosen; there is no connection yet.
pub(crate) struct EndpointChosen {
    /// The right to open a connection, if admission has given one.
    endpoint_permit: Option<EndpointPermit>,
}

/// The attempt holds a connection, or a stream permit of a shared one. Nothing was sent.
pub(crate) struct EndpointConnected(AttemptTransport);

/// The request head was sent, or leaves with the first bytes of the body.
pub(crate) struct RequestSent {
    connection: Box<UpstreamConnection>,
    head: Box<ResponseHead>,
}

/// The final response head has arrived.
pub(crate) struct ResponseStarted {
    connection: Box<UpstreamConnection>,
    head: Box<ResponseHead>,
    is_upgrade: bool,
}

enum AttemptTransport {
    /// A connection for one request at a time.
    Exclusive(Box<UpstreamConnection>),
    /// Room for one stream on a shared connection.
    Shared { stream: StreamPermit, pool_key: PoolKey, endpoint_permit: Option<EndpointPermit> },
}

/// A request head to send.
pub(crate) struct RequestText<'a> {
    /// The head in the format of HTTP/1.
    pub(crate) text: &'a [u8],
    pub(crate) is_tls: bool,
    /// The authority for requests without an authority.
    pub(crate) authority: &'a str,
    /// No body follows.
    pub(crate) is_complete: bool,
    /// The fields of the client's last request over HTTP/2 (decision 39).
    pub(crate) last_fields: &'a RefCell<Option<Box<CachedFields>>>,
}

/// An attempt that got no response. Its connection is closed.
#[must_use = "the endpoint is tried again, or the attempt fails"]
pub(crate) struct UnansweredAttempt<'u> {
    pub(crate) attempt: Attempt<'u, EndpointChosen>,
    pub(crate) fault: Fault,
    /// The connection had carried requests before.
    was_reused: bool,
}

/// A failed attempt, which has released everything of the endpoint.
pub(crate) struct FailedAttempt {
    pub(crate) fault: Fault,
    pub(crate) request_permit: Option<RequestPermit>,
    was_reused: bool,
    shared_failure: Option<Rc<SharedFailure>>,
}

/// An attempt whose response was read or aborted. Only its connection is still to be released.
#[must_use = "a connection that is dropped is closed"]
pub(crate) struct FinishedAttempt {
    pub(crate) connection: Box<UpstreamConnection>,
    pub(crate) head: Box<ResponseHead>,
    pub(super) request_permit: Option<RequestPermit>,
}

/// A failure to connect.
pub(super) struct ConnectFailure {
    pub(super) kind: FaultKind,
    /// Set if other attempts waited for the same connection.
    pub(super) shared_failure: Option<Rc<SharedFailure>>,
}

impl From<FaultKind> for ConnectFailure {
    fn from(kind: FaultKind) -> ConnectFailure {
        ConnectFailure { kind, shared_failure: None }
    }
}

impl<'u, S> Attempt<'u, S> {
    /// The index of the endpoint.
    pub(crate) fn index(&self) -> usize {
        self.in_flight.index()
    }

    pub(crate) fn request_permit(&mut self) -> &mut Option<RequestPermit> {
        &mut self.request_permit
    }

    fn with_state<T>(self, state: T) -> Attempt<'u, T> {
        Attempt { state, in_flight: self.in_flight, request_permit: self.request_permit }
    }
}

impl<'u> Attempt<'u, EndpointChosen> {
    /// Begins an attempt on an endpoint, with the permits that admission gave.
    #[inline]
    pub(crate) fn begin(
        upstream: &'u Upstream,
        index: usize,
        endpoint_permit: Option<EndpointPermit>,
        request_permit: Option<RequestPermit>,
    ) -> Attempt<'u, EndpointChosen> {
        let in_flight = upstream.started(index, clock::now().mono_us);
        Attempt { state: EndpointChosen { endpoint_permit }, in_flight, request_permit }
    }

    /// Takes a connection that is open and free.
    #[inline]
    pub(crate) fn take_open(
        self,
        client: &UpstreamClient,
        target: &EndpointTarget<'_>,
    ) -> Result<Attempt<'u, EndpointConnected>, Attempt<'u, EndpointChosen>> {
        if target.is_http2 { self.take_stream(client, target) } else { self.take_idle(client, target) }
    }

    #[inline]
    fn take_idle(
        self,
        client: &UpstreamClient,
        target: &EndpointTarget<'_>,
    ) -> Result<Attempt<'u, EndpointConnected>, Attempt<'u, EndpointChosen>> {
        let limiter = target.protection.and_then(|protection| protection.counts_connections());
        let now_ms = clock::now().mono_ms();
        let pooled = client.pool.borrow_mut().take(target.pool_key(), limiter, now_ms);
        let Some(mut connection) = pooled else { return Err(self) };
        client.counters.upstream.reuses.add(1);
        let Attempt { state: EndpointChosen { endpoint_permit }, in_flight, request_permit } = self;
        if connection.permit.is_none() {
            connection.permit = endpoint_permit;
        }
        Ok(Attempt {
            state: EndpointConnected(AttemptTransport::Exclusive(connection)),
            in_flight,
            request_permit,
        })
    }

    // Kept out of the path of requests over HTTP/1.
    #[inline(never)]
    fn take_stream(
        self,
        client: &UpstreamClient,
        target: &EndpointTarget<'_>,
    ) -> Result<Attempt<'u, EndpointConnected>, Attempt<'u, EndpointChosen>> {
        let pool_key = target.pool_key();
        match client.h2_pool.free(pool_key, target.keepalive()) {
            Some(stream) => Ok(self.with_stream(client, stream, pool_key)),
            None => Err(self),
        }
    }

    fn with_stream(
        mut self,
        client: &UpstreamClient,
        stream: StreamPermit,
        pool_key: PoolKey,
    ) -> Attempt<'u, EndpointConnected> {
        client.counters.upstream.reuses.add(u64::from(stream.requests_before() > 0));
        let endpoint_permit = self.state.endpoint_permit.take();
        self.with_state(EndpointConnected(AttemptTransport::Shared { stream, pool_key, endpoint_permit }))
    }

    /// Connects, or waits for a shared connection that others establish.
    pub(crate) async fn connect(
        mut self,
        client: &Rc<UpstreamClient>,
        target: &EndpointTarget<'_>,
        wait: &mut impl AttemptWait,
    ) -> Result<Attempt<'u, EndpointConnected>, FailedAttempt> {
        let permit = &mut self.state.endpoint_permit;
        if target.is_http2 {
            return match client.acquire_stream(target, permit, wait).await {
                Ok(stream) => Ok(self.with_stream(client, stream, target.pool_key())),
                Err(failure) => Err(self.fail_to_connect(failure)),
            };
        }
        match client.open(target, permit, wait).await {
            Ok(stream) => {
                let permit = self.state.endpoint_permit.take();
                let connection = Box::new(UpstreamConnection::new(stream, target.pool_key(), permit));
                Ok(self.with_state(EndpointConnected(AttemptTransport::Exclusive(connection))))
            }
            Err(kind) => Err(self.fail_to_connect(kind.into())),
        }
    }

    fn fail_to_connect(self, failure: ConnectFailure) -> FailedAttempt {
        let ConnectFailure { kind, shared_failure } = failure;
        let unanswered =
            UnansweredAttempt { attempt: self, fault: Fault { kind, unsent: true }, was_reused: false };
        FailedAttempt { shared_failure, ..unanswered.fail() }
    }
}

impl<'u> Attempt<'u, EndpointConnected> {
    /// Whether the connection carried requests before. The endpoint may have closed the connection since.
    pub(crate) fn is_reused(&self) -> bool {
        match &self.state.0 {
            AttemptTransport::Exclusive(connection) => connection.requests > 0,
            AttemptTransport::Shared { stream, .. } => stream.requests_before() > 0,
        }
    }

    /// Whether the request is sent on a stream of a shared connection.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.state.0, AttemptTransport::Shared { .. })
    }

    /// Sends the request head, unless it leaves in band: then the caller sends it with the first bytes of the
    /// body.
    #[inline]
    pub(crate) fn send_head(
        self,
        client: &UpstreamClient,
        request: &RequestText<'_>,
    ) -> Result<(Attempt<'u, RequestSent>, HeadSent), Box<UnansweredAttempt<'u>>> {
        let Attempt { state: EndpointConnected(transport), in_flight, request_permit } = self;
        let (connection, sent) = match transport {
            AttemptTransport::Exclusive(connection) => (connection, HeadSent::InBand),
            AttemptTransport::Shared { stream, pool_key, endpoint_permit } => {
                let was_reused = stream.requests_before() > 0;
                match send_on_stream(client, stream, pool_key, request) {
                    Ok(mut connection) => {
                        connection.permit = endpoint_permit;
                        (connection, HeadSent::Separately)
                    }
                    Err(fault) => {
                        let state = EndpointChosen { endpoint_permit };
                        let attempt = Attempt { state, in_flight, request_permit };
                        return Err(Box::new(UnansweredAttempt { attempt, fault, was_reused }));
                    }
                }
            }
        };
        let state = RequestSent { connection, head: client.take_response() };
        Ok((Attempt { state, in_flight, request_permit }, sent))
    }
}

/// Opens the stream with its HEADERS frame. The body follows as on any connection.
// Kept out of the path of requests over HTTP/1.
#[inline(never)]
fn send_on_stream(
    client: &UpstreamClient,
    permit: StreamPermit,
    pool_key: PoolKey,
    request: &RequestText<'_>,
) -> Result<Box<UpstreamConnection>, Fault> {
    let mut last = request.last_fields.borrow_mut();
    let last = last.get_or_insert_default();
    let head =
        heads::request(request.text, request.is_tls, request.authority, last).ok_or(FaultKind::NotHttp2)?;
    let requests = permit.requests_before();
    let sent = permit.send(head, request.is_complete);
    // The library has not accepted the head, so nothing of the request was sent.
    let (answer, outgoing) = sent.map_err(|_| Fault { kind: FaultKind::UpstreamClosed, unsent: true })?;
    let duplex = Http2Duplex::client(answer, outgoing, request.is_complete, permit);
    let connection = UpstreamConnection::new(TransportStream::Http2(Box::new(duplex)), pool_key, None);
    Ok(client.box_stream(UpstreamConnection { requests, ..connection }))
}

impl<'u> Attempt<'u, RequestSent> {
    pub(crate) fn connection(&mut self) -> &mut UpstreamConnection {
        &mut self.state.connection
    }

    pub(crate) fn head(&self) -> &ResponseHead {
        &self.state.head
    }

    /// Clears the head after an interim response, for the next one.
    pub(crate) fn clear_head(&mut self) {
        self.state.head.clear();
    }

    /// Reads the next response head, interim or final.
    #[inline]
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        client: &UpstreamClient,
        read: &mut HeadRead,
    ) -> Poll<Result<(), Fault>> {
        let RequestSent { connection, head } = &mut self.state;
        connection.poll_head(cx, client, read, head)
    }

    /// The final head has arrived; with `is_upgrade`, the connection changes protocols.
    #[inline]
    pub(crate) fn answered(self, is_upgrade: bool) -> Attempt<'u, ResponseStarted> {
        let Attempt { state: RequestSent { connection, head }, in_flight, request_permit } = self;
        Attempt { state: ResponseStarted { connection, head, is_upgrade }, in_flight, request_permit }
    }

    /// Aborts the response and closes the connection.
    #[cold]
    pub(crate) fn give_up(self, client: &UpstreamClient, fault: Fault) -> Box<UnansweredAttempt<'u>> {
        let Attempt { state: RequestSent { connection, head }, in_flight, request_permit } = self;
        client.give_response(head);
        connection.note_fault(fault.kind);
        let was_reused = connection.requests > 0;
        let state = EndpointChosen { endpoint_permit: connection.close() };
        Box::new(UnansweredAttempt {
            attempt: Attempt { state, in_flight, request_permit },
            fault,
            was_reused,
        })
    }
}

impl<'u> UnansweredAttempt<'u> {
    /// Whether a reused connection was found closed, which its endpoint may do at any time (RFC 9112 §9.5).
    pub(crate) fn is_stale(&self) -> bool {
        self.was_reused && self.fault.kind == FaultKind::UpstreamClosed
    }

    /// Ends the attempt as failed.
    #[cold]
    pub(crate) fn fail(self) -> FailedAttempt {
        let UnansweredAttempt { attempt: Attempt { state, in_flight, request_permit }, fault, was_reused } =
            self;
        drop(state);
        // A timeout shows that the endpoint is slow. A quick failure does not show that it is fast: its time would
        // attract the traffic of `ewma` to an endpoint that refuses connections.
        if fault.kind.is_upstream_timeout() {
            in_flight.end_now(clock::now().mono_us);
        }
        FailedAttempt { fault, request_permit, was_reused, shared_failure: None }
    }
}

impl FailedAttempt {
    /// Counts the failure for the health of the endpoint. `kind` is the fault as the exchange sees it.
    #[cold]
    pub(crate) fn observe(&self, upstream: &Upstream, index: usize, kind: FaultKind) {
        // A reused connection may have been closed for its idleness, which is no failure of the endpoint.
        let was_stale = self.was_reused && kind == FaultKind::UpstreamClosed;
        if !was_stale {
            health::observe_fault(upstream, index, kind, self.shared_failure.as_deref());
        }
    }
}

impl<'u> Attempt<'u, ResponseStarted> {
    pub(crate) fn connection(&mut self) -> &mut UpstreamConnection {
        &mut self.state.connection
    }

    pub(crate) fn head(&self) -> &ResponseHead {
        &self.state.head
    }

    /// The connection and the head of its response.
    pub(crate) fn parts(&mut self) -> (&mut UpstreamConnection, &mut ResponseHead) {
        (&mut self.state.connection, &mut self.state.head)
    }

    /// Whether the connection changes protocols.
    pub(crate) fn is_upgrade(&self) -> bool {
        self.state.is_upgrade
    }

    /// Ends the exchange with the endpoint, at `now`.
    #[inline]
    pub(crate) fn finish(self, now: Now) -> FinishedAttempt {
        let Attempt { state, in_flight, request_permit } = self;
        let ResponseStarted { connection, head, is_upgrade } = state;
        // The life of a tunnel is no response time: `ewma` would avoid an endpoint whose WebSockets last.
        if !is_upgrade {
            in_flight.end_now(now.mono_us);
        }
        FinishedAttempt { connection, head, request_permit }
    }
}

impl FinishedAttempt {
    /// Keeps the connection for other requests.
    #[inline]
    pub(crate) fn keep(self, client: &UpstreamClient, keepalive: &KeepaliveLimits, now: Now) {
        let FinishedAttempt { connection, head, request_permit } = self;
        client.give_response(head);
        client.keep(connection, keepalive, now);
        // A request that this admits finds the connection in the pool.
        drop(request_permit);
    }

    /// Closes the connection.
    pub(crate) fn close(self, client: &UpstreamClient) {
        self.discard(client);
    }

    /// Closes the connection and returns the request permit, for another attempt.
    pub(crate) fn discard(self, client: &UpstreamClient) -> Option<RequestPermit> {
        let FinishedAttempt { connection, head, request_permit } = self;
        client.close(connection);
        client.give_response(head);
        request_permit
    }

    /// Whether other requests may wait for the permits of the attempt.
    pub(crate) fn is_limited(&self) -> bool {
        self.connection.permit.is_some() || self.request_permit.is_some()
    }
}

impl UpstreamConnection {
    /// Reports a timeout to the streams that share the connection, as the connection itself may have failed.
    #[cold]
    pub(crate) fn note_fault(&self, kind: FaultKind) {
        if kind.is_silence() {
            self.stream.report_timeout();
        }
    }
}

#[cfg(test)]
mod tests;
