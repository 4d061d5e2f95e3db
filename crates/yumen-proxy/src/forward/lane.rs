//! An attempt over a connection that carries many: HTTP/2 to an endpoint.
//!
//! Knows how a request gets onto such a connection; waiting for the answer is as with any other.

use std::pin::pin;
use std::rc::Rc;

use yumen_http::{Framing, Known};
use yumen_snapshot::Scheme;

use super::Attempt;
use crate::buffer::Inbox;
use crate::fault::SharedFailure;
use crate::fault::{Fault, Kind};
use crate::http2::{self, Duplex, StreamPermit};
use crate::stream::Stream;
use crate::upstream::connection::UpstreamConnection;
use crate::upstream::h2_pool::StreamAcquisition;
use crate::upstream::pool::PoolKey;
use crate::wait::Wait;

impl Attempt<'_, '_, '_> {
    /// A WebSocket goes over HTTP/1.1: few servers take one over HTTP/2 (RFC 8441), and those that speak both
    /// take it there. Services of gRPC speak nothing else.
    pub(super) fn speaks_http2(&self) -> bool {
        self.upstream.http2
            && self.ex.upstream.scheme.is_none()
            && (matches!(self.upstream.scheme, Scheme::Grpc | Scheme::Grpcs) || !self.wants_upgrade())
    }

    /// Takes a place on a connection to the endpoint if there is one with room; says whether it carried
    /// requests before.
    // Out of the way of requests over HTTP/1, which pass here too.
    #[inline(never)]
    pub(super) fn take_free_place(&mut self, pool_key: PoolKey) -> Option<bool> {
        let occupied = self.conn.worker.lanes.free(pool_key, &self.upstream.keepalive)?;
        Some(self.occupy(occupied))
    }

    fn occupy(&mut self, occupied: StreamPermit) -> bool {
        let was_used = occupied.requests_before() > 0;
        self.conn.worker.counters.reuses.add(u64::from(was_used));
        self.relay.place = Some(occupied);
        was_used
    }

    /// Waits for a place on a connection to the endpoint, or establishes one; says whether it carried requests
    /// before.
    pub(super) async fn take_place(&mut self, tls: bool, pool_key: PoolKey) -> Result<bool, Fault> {
        let watch = self.chains.explaining();
        watch.inspect(|watch| watch.lap());
        let found = self.find_place(tls, pool_key).await;
        watch.inspect(|watch| watch.connected());
        Ok(self.occupy(found.map_err(|kind| Fault { kind, unsent: true })?))
    }

    async fn find_place(&mut self, tls: bool, pool_key: PoolKey) -> Result<StreamPermit, Kind> {
        let worker = self.conn.worker.clone();
        let keep = self.upstream.keepalive;
        // Once: who is passed over again and again waits no longer in all than one who connects by himself.
        let (mut wait, connect_ms) = (Wait::new(), self.timeouts().connect_ms);
        wait.begin(self.conn, connect_ms);
        loop {
            match worker.lanes.way(pool_key, &keep, connect_ms) {
                StreamAcquisition::Ready(occupied) => return Ok(occupied),
                StreamAcquisition::AwaitSettings(lane) => {
                    let over = wait.on(self.conn, Kind::ConnectTimeout, pin!(lane.settled())).await;
                    self.waited(over, &lane.failure)?;
                }
                StreamAcquisition::AwaitConnect(coming) => {
                    let over = wait.on(self.conn, Kind::ConnectTimeout, pin!(coming.over())).await;
                    self.waited(over, &coming.failure)?;
                }
                StreamAcquisition::Connect(connecting) => connecting.begin(&worker, self.dial(tls)?, keep),
            }
        }
    }

    /// What a wait ended with that others shared.
    fn waited(
        &mut self,
        over: Result<Result<(), Kind>, Kind>,
        failure: &Rc<SharedFailure>,
    ) -> Result<(), Kind> {
        if let Ok(Err(_)) | Err(Kind::ConnectTimeout) = over {
            self.relay.shared = Some(failure.clone());
        }
        over?
    }

    /// Sends a head on the place that was taken; the body follows as with any other connection.
    // As above.
    #[inline(never)]
    pub(super) fn send_on_lane(&mut self, text: &[u8]) -> Result<(), Fault> {
        let Some(occupied) = self.relay.place.take() else { return Ok(()) };
        let tls = self.is_tls();
        let authority = &self.endpoint.authority;
        let mut last = self.conn.peer.last_fields.borrow_mut();
        let request = http2::heads::request(text, tls, authority, last.get_or_insert_default());
        let request = request.ok_or(Kind::NotHttp2)?;
        drop(last);
        let is_whole = match &self.ex.body {
            Some(body) => body.is_empty(),
            None => self.ex.request.framing == Framing::None,
        };
        let requests = occupied.requests_before();
        let sent = occupied.send(request, is_whole);
        let (answer, outgoing) = sent.map_err(|_| Fault { kind: Kind::UpstreamClosed, unsent: true })?;
        let limits = &self.conn.worker.settings.response_head;
        let duplex = Duplex::asked(answer, outgoing, is_whole, occupied, limits);
        let stream = Stream::Http2(Box::new(duplex));
        let pool_key = self.pool_key(tls);
        self.relay.link = Some(UpstreamConnection { stream, inbox: Inbox::default(), requests, pool_key });
        Ok(())
    }

    /// Whether the endpoint may send trailers: where the client takes them, and for gRPC, which is made of
    /// them.
    pub(super) fn wants_trailers(&self) -> bool {
        let mut te = self.ex.request.fields.all_known(Known::Te).flat_map(yumen_http::head::tokens);
        matches!(self.upstream.scheme, Scheme::Grpc | Scheme::Grpcs)
            || te.any(|token| token.eq_ignore_ascii_case(b"trailers"))
    }
}
