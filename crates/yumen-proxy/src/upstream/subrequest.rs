//! Requests that the gateway makes on its own behalf, for plugins and mirrors.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use yumen_http::{Framing, Method};
use yumen_snapshot::Upstream;
use yumen_snapshot::upstream::KeepaliveLimits;

use crate::copy::transfer::Transfer;
use crate::fault::{Fault, FaultKind};
use crate::runtime::clock;
use crate::transport::body::{BodyDecoder, BodyEncoding};
use crate::transport::stream::HeadSent;
use crate::upstream::UpstreamClient;
use crate::upstream::attempt::{
    Attempt, EndpointConnected, RequestSent, RequestText, ResponseStarted, UnansweredAttempt,
};
use crate::upstream::connection::{HeadRead, UpstreamConnection};
use crate::upstream::target::EndpointTarget;

/// The most bytes of a discarded response body that are read, so that its connection can be reused.
const DISCARDED_BYTES_MAX: usize = 1024 * 1024;

/// Whether a request goes over an idle connection, which the endpoint may close at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionReuse {
    /// A request that was lost with such a connection is sent once more.
    Repeat,
    /// A request that was lost fails.
    Once,
    /// The request has a connection of its own, since it must be sent once and should not be lost.
    Fresh,
}

/// A request of the gateway itself.
pub(crate) struct Subrequest {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) method: Method,
    /// The treatment of idle connections, which the endpoint may have closed.
    pub(crate) reuse: ConnectionReuse,
    /// The head in the format of HTTP/1.
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// The reason why a subrequest got no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubrequestError {
    /// The connection failed, so the request was not sent.
    Connect,
    /// The connection closed, or the response could not be read.
    Lost,
}

/// A response body that was read.
#[derive(Debug, Default)]
pub(crate) struct ReadResponseBody {
    /// `None` if the body is longer than the limit of its use.
    pub(crate) data: Option<Vec<u8>>,
    /// The lines of the trailers.
    pub(crate) trailers: Vec<u8>,
}

/// The response body was truncated or malformed.
pub(crate) struct BrokenResponse;

/// Whether a response body is collected or discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseBodyUse {
    /// A longer body is not returned.
    Collect {
        bytes_max: usize,
    },
    Discard,
}

impl ResponseBodyUse {
    /// The most bytes that are read.
    fn bytes_max(self) -> usize {
        match self {
            ResponseBodyUse::Collect { bytes_max } => bytes_max,
            ResponseBodyUse::Discard => DISCARDED_BYTES_MAX,
        }
    }
}

/// An attempt that got no response.
struct LostAttempt<'u> {
    unanswered: Box<UnansweredAttempt<'u>>,
    /// The endpoint may have acted on the request: bytes of a response arrived, or it did not close the
    /// connection.
    is_final: bool,
}

impl Subrequest {
    /// Sends the request to the endpoint with this index and reads the response head. A request that a closed
    /// connection lost is sent once more.
    pub(crate) async fn send(
        &self,
        client: &Rc<UpstreamClient>,
        index: usize,
    ) -> Result<Attempt<'_, ResponseStarted>, SubrequestError> {
        let target = EndpointTarget::of_upstream(&self.upstream, index);
        let mut attempt = Attempt::begin(&self.upstream, index, None, None);
        let mut is_repeated = false;
        loop {
            // The repeat uses a new connection: other idle ones may be stale as well.
            let is_fresh = is_repeated || self.reuse == ConnectionReuse::Fresh;
            let open =
                if is_fresh && !target.is_http2 { Err(attempt) } else { attempt.take_open(client, &target) };
            let connected = match open {
                Ok(connected) => connected,
                Err(attempt) => {
                    let timer = client.timers.timer();
                    attempt
                        .connect(client, &target, &mut &timer)
                        .await
                        .map_err(|_| SubrequestError::Connect)?
                }
            };
            let was_reused = connected.is_reused();
            let lost = match self.exchange(client, connected, &target).await {
                Ok(attempt) => return Ok(attempt),
                Err(lost) => lost,
            };
            // The endpoint has not processed the stream, so any request may be repeated (RFC 9113 §8.7).
            let is_unseen = target.is_http2 && lost.unanswered.fault.unsent;
            let is_stale = was_reused && self.reuse == ConnectionReuse::Repeat && !lost.is_final;
            if is_repeated || !(is_unseen || is_stale) {
                drop(lost.unanswered.fail());
                return Err(SubrequestError::Lost);
            }
            attempt = lost.unanswered.attempt;
            is_repeated = true;
        }
    }

    async fn exchange<'u>(
        &self,
        client: &UpstreamClient,
        connected: Attempt<'u, EndpointConnected>,
        target: &EndpointTarget<'_>,
    ) -> Result<Attempt<'u, ResponseStarted>, LostAttempt<'u>> {
        let stream_head = if connected.is_stream() { self.head_for_stream() } else { Vec::new() };
        let request = RequestText {
            text: &stream_head,
            is_tls: target.tls_name.is_some(),
            authority: &target.endpoint().authority,
            is_complete: self.body.is_empty(),
            last_fields: &RefCell::default(),
        };
        let (mut sent, head_sent) = connected
            .send_head(client, &request)
            .map_err(|unanswered| LostAttempt { unanswered, is_final: true })?;
        let text = match head_sent {
            HeadSent::InBand => [&self.head[..], &self.body].concat(),
            HeadSent::Separately => self.body.clone(),
        };
        let received = match send_text(sent.connection(), text).await {
            Ok(()) => self.read_head(client, &mut sent).await,
            // The write may be the first to find a reused connection closed, so the request may be repeated.
            Err(fault) => Err((fault, false)),
        };
        match received {
            Ok(()) => Ok(sent.answered(false)),
            Err((fault, is_final)) => Err(LostAttempt { unanswered: sent.give_up(client, fault), is_final }),
        }
    }

    /// The head for a stream: without `TE`, a server of gRPC may refuse the request.
    fn head_for_stream(&self) -> Vec<u8> {
        let lines = self.head.strip_suffix(b"\r\n").unwrap_or(&self.head);
        [lines, b"TE: trailers\r\n\r\n"].concat()
    }

    /// Reads the final head. The flag beside the fault is true if the request must not be repeated.
    async fn read_head(
        &self,
        client: &UpstreamClient,
        sent: &mut Attempt<'_, RequestSent>,
    ) -> Result<(), (Fault, bool)> {
        let mut is_interim = false;
        loop {
            let mut read = HeadRead::new(self.method, usize::MAX);
            if let Err(fault) = poll_fn(|cx| sent.poll_head(cx, client, &mut read)).await {
                // Any byte of a response proves that the endpoint has received the request.
                let is_partial = is_interim || !sent.connection().inbox.is_empty();
                return Err((fault, is_partial || fault.kind != FaultKind::UpstreamClosed));
            }
            if sent.head().status >= 200 {
                return Ok(());
            }
            is_interim = true;
            sent.clear_head();
        }
    }
}

/// Sends the bytes of a request, and its end.
async fn send_text(connection: &mut UpstreamConnection, text: Vec<u8>) -> Result<(), Fault> {
    let UpstreamConnection { stream, inbox, .. } = connection;
    let ending = stream.ending(false);
    let mut transfer = Transfer::new(Framing::None, ending, text, 0);
    let closed = Fault::from(FaultKind::UpstreamClosed);
    poll_fn(|cx| transfer.poll_flush(cx, inbox, stream)).await.map_err(|_| closed)?;
    poll_fn(|cx| stream.poll_flush(cx)).await.map_err(|_| closed)?;
    if ending == BodyEncoding::Stream {
        stream.finish(b"").map_err(|_| Fault::from(FaultKind::UpstreamReset))?;
    }
    Ok(())
}

impl Attempt<'_, ResponseStarted> {
    /// Reads the body of a response and releases the attempt.
    pub(crate) async fn read_body(
        mut self,
        client: &UpstreamClient,
        keepalive: &KeepaliveLimits,
        body_use: ResponseBodyUse,
    ) -> Result<ReadResponseBody, BrokenResponse> {
        let (connection, head) = self.parts();
        let persists = head.persistent();
        let rest = BodyDecoder::from(connection.stream.incoming(head.framing));
        let mut body = ResponseBody { rest, body_use, data: Vec::new(), read_bytes: 0 };
        while !body.rest.is_done() && body.read_bytes <= body_use.bytes_max() {
            poll_fn(|cx| body.poll_more(cx, client, connection)).await?;
        }
        connection.inbox.release(&client.buffers);
        let is_whole = body.rest.is_done();
        let now = clock::now();
        let finished = self.finish(now);
        if persists && is_whole && finished.connection.is_reusable() {
            finished.keep(client, keepalive, now);
        } else {
            finished.close(client);
        }
        let trailers = body.rest.trailers().to_vec();
        Ok(ReadResponseBody { data: is_whole.then_some(body.data), trailers })
    }
}

struct ResponseBody {
    rest: BodyDecoder,
    body_use: ResponseBodyUse,
    data: Vec<u8>,
    read_bytes: usize,
}

impl ResponseBody {
    /// Decodes the bytes that have arrived, or reads more.
    fn poll_more(
        &mut self,
        cx: &mut Context<'_>,
        client: &UpstreamClient,
        connection: &mut UpstreamConnection,
    ) -> Poll<Result<(), BrokenResponse>> {
        let UpstreamConnection { stream, inbox, .. } = connection;
        let piece = self.rest.decode(inbox).map_err(|_| BrokenResponse)?;
        if self.body_use != ResponseBodyUse::Discard {
            self.data.extend_from_slice(&inbox.bytes()[..piece.data]);
        }
        self.read_bytes += piece.data;
        inbox.consume(piece.data + piece.skip);
        if piece.data > 0 || self.rest.is_done() {
            return Poll::Ready(Ok(()));
        }
        match stream.poll_fill(cx, inbox, &client.buffers) {
            Poll::Pending => {
                inbox.park(&client.buffers);
                Poll::Pending
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(BrokenResponse)),
            Poll::Ready(Ok(count)) => {
                match self.rest {
                    BodyDecoder::UntilClose => {
                        if let Some(ended) = stream.end(count, inbox.len()) {
                            self.rest = ended;
                        }
                    }
                    _ if count == 0 => return Poll::Ready(Err(BrokenResponse)),
                    _ => {}
                }
                Poll::Ready(Ok(()))
            }
        }
    }
}
