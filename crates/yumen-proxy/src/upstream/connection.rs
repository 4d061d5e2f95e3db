//! A connection to an endpoint, or one stream of it, while it carries an exchange.

use std::task::{Context, Poll};

use yumen_http::parse::{self, ParsedHead};
use yumen_http::{Method, ResponseHead};
use yumen_snapshot::protection::EndpointPermit;

use crate::fault::{Fault, FaultKind};
use crate::runtime::buffer::Inbox;
use crate::transport::http2::ResponseHeadTarget;
use crate::transport::stream::TransportStream;
use crate::upstream::UpstreamClient;
use crate::upstream::pool::PoolKey;

/// A connection to an endpoint while it carries an exchange. The fields drop in order: the next holder of the
/// permit next must find the connection closed.
pub(crate) struct UpstreamConnection {
    pub(crate) stream: TransportStream,
    pub(crate) inbox: Inbox,
    /// Earlier requests on the connection.
    pub(crate) requests: u64,
    /// The key of the connection in the pool.
    pub(crate) pool_key: PoolKey,
    /// The permit of the connection, if the upstream limits connections.
    pub(crate) permit: Option<EndpointPermit>,
}

/// The progress of reading one response head.
pub(crate) struct HeadRead {
    method: Method,
    /// The most bytes of one read.
    bytes_max: usize,
    /// Bytes that were searched for the end of the head.
    scanned: usize,
    /// Bytes have arrived since this was last reset.
    pub(crate) has_received: bool,
}

impl HeadRead {
    /// Starts to read the head of a response to a request with this method.
    pub(crate) fn new(method: Method, bytes_max: usize) -> HeadRead {
        HeadRead { method, bytes_max, scanned: 0, has_received: false }
    }
}

impl UpstreamConnection {
    pub(crate) fn new(
        stream: TransportStream,
        pool_key: PoolKey,
        permit: Option<EndpointPermit>,
    ) -> UpstreamConnection {
        UpstreamConnection { stream, inbox: Inbox::default(), requests: 0, pool_key, permit }
    }

    /// Whether the connection may carry another request after a response that was read to its end.
    ///
    /// Bytes behind that response belong to no request and must not become the next response. Bytes that
    /// arrived and were not read show when the connection is taken from the pool.
    #[inline]
    pub(crate) fn is_reusable(&self) -> bool {
        !self.stream.is_shared() && self.inbox.is_empty()
    }

    /// Ends the stream and releases all that belongs to it.
    pub(super) fn clear(&mut self) {
        // The stream ends before the permit is released, for the next holder of the permit.
        drop(self.stream.take());
        self.inbox = Inbox::default();
        self.permit = None;
    }

    /// Closes the connection and returns its permit, for its replacement.
    pub(crate) fn close(self) -> Option<EndpointPermit> {
        let UpstreamConnection { stream, permit, .. } = self;
        drop(stream);
        permit
    }

    /// Reads the next response head, interim or final. Pending also registers the task for more bytes.
    #[inline]
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        client: &UpstreamClient,
        read: &mut HeadRead,
        head: &mut ResponseHead,
    ) -> Poll<Result<(), Fault>> {
        let limits = &client.settings.limits.response_head;
        if let TransportStream::Http2(duplex) = &mut self.stream {
            let polled = duplex.poll_head(cx, ResponseHeadTarget { limits, method: read.method, head });
            if polled.is_ready() {
                // Body bytes that have arrived leave with the head. An error here returns when the body is
                // read.
                let bytes_max = client.buffers.backlog.read_ahead(0);
                let _ = duplex.poll_fill(cx, &mut self.inbox, &client.buffers, bytes_max);
            }
            return polled;
        }
        // Endpoints are reached over HTTP/1 and HTTP/2 only.
        if self.stream.is_shared() {
            return Poll::Pending;
        }
        loop {
            if self.inbox.len() > read.scanned {
                match parse::response(self.inbox.bytes(), read.scanned, limits, read.method, head) {
                    Ok(ParsedHead::Head(used)) => {
                        self.inbox.consume(used);
                        return Poll::Ready(Ok(()));
                    }
                    Ok(ParsedHead::Partial) => read.scanned = self.inbox.len(),
                    Err(error) => return Poll::Ready(Err(FaultKind::UpstreamHead(error).into())),
                }
            }
            let bytes_max = client.buffers.backlog.read_ahead(0).min(read.bytes_max);
            match self.stream.poll_fill_some(cx, &mut self.inbox, &client.buffers, bytes_max) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(FaultKind::UpstreamClosed.into())),
                Poll::Ready(Ok(_)) => read.has_received = true,
                Poll::Pending => {
                    self.inbox.park(&client.buffers);
                    return Poll::Pending;
                }
            }
        }
    }
}
