//! gRPC over one HTTP/2 connection: unary calls and bidirectional streams.
//!
//! Independent of the called methods and of the choice of the endpoint.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Maximum size of a received message: 256 MiB.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// Length of the gRPC message prefix: compression flag and message length.
const PREFIX_BYTES: usize = 5;
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Error of a call.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RpcError {
    /// The peer returned an error status.
    #[error("{message}")]
    Status {
        /// Status code.
        code: GrpcCode,
        /// Status message.
        message: String,
    },
    /// The connection failed; the call may have taken effect.
    #[error("{0}")]
    Transport(String),
    /// No member accepted a connection, so the call was not sent.
    #[error("{0}")]
    Unconnected(String),
    /// The call timed out; the call may have taken effect.
    #[error("no response within {0} ms")]
    Late(u128),
}

/// gRPC status codes that callers distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrpcCode {
    /// Invalid arguments, independent of the state.
    InvalidArgument,
    /// The user lacks permission.
    PermissionDenied,
    /// Out of space or over a limit.
    ResourceExhausted,
    /// The argument is out of range, such as a compacted revision.
    OutOfRange,
    /// No leader, or the member is stopping.
    Unavailable,
    /// The token is invalid or has expired.
    Unauthenticated,
    /// Any other code.
    Other(u32),
}

impl From<u32> for GrpcCode {
    fn from(code: u32) -> GrpcCode {
        match code {
            3 => GrpcCode::InvalidArgument,
            7 => GrpcCode::PermissionDenied,
            8 => GrpcCode::ResourceExhausted,
            11 => GrpcCode::OutOfRange,
            14 => GrpcCode::Unavailable,
            16 => GrpcCode::Unauthenticated,
            other => GrpcCode::Other(other),
        }
    }
}

impl RpcError {
    pub(super) fn transport(error: impl std::fmt::Display) -> RpcError {
        RpcError::Transport(error.to_string())
    }

    /// Whether the call may succeed on another member or later.
    pub fn is_passing(&self) -> bool {
        match self {
            RpcError::Transport(_) | RpcError::Unconnected(_) | RpcError::Late(_) => true,
            // Other statuses are decisions of the cluster, which another member would repeat.
            RpcError::Status { code, .. } => matches!(code, GrpcCode::Unavailable),
        }
    }
}

/// An open connection, shared by all calls.
#[derive(Debug)]
pub(super) struct EtcdConnection {
    send: SendRequest<Bytes>,
    /// URL prefix of each request: scheme, host and port.
    origin: String,
    token: Option<HeaderValue>,
    ended: watch::Receiver<Option<Arc<str>>>,
    end: watch::Sender<Option<Arc<str>>>,
    driver: AbortHandle,
}

impl EtcdConnection {
    /// Starts HTTP/2 on `stream`; `origin` is the URL of the peer.
    pub(super) async fn begin<S>(stream: S, origin: String) -> Result<EtcdConnection, RpcError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (send, connection) = h2::client::Builder::new()
            // The default of 65 535 bytes (RFC 9113 §6.9.2) would interrupt a listing for window updates.
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .enable_push(false)
            .handshake(stream)
            .await
            .map_err(RpcError::transport)?;
        let (end, ended) = watch::channel(None);
        let end_writer = end.clone();
        let driver = tokio::spawn(async move {
            let why = match connection.await {
                Ok(()) => "the peer closed the connection".to_owned(),
                Err(error) => error.to_string(),
            };
            // The first reason counts; `fail` may have set one.
            end_writer.send_if_modified(|ended| {
                let is_first = ended.is_none();
                ended.get_or_insert_with(|| why.into());
                is_first
            });
        });
        Ok(EtcdConnection { send, origin, token: None, ended, end, driver: driver.abort_handle() })
    }

    /// Sends `token` with every later call.
    pub(super) fn authorize(&mut self, token: &str) -> Result<(), RpcError> {
        self.token = Some(HeaderValue::from_str(token).map_err(RpcError::transport)?);
        Ok(())
    }

    /// Whether calls carry a token.
    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Whether the connection is closed.
    pub(super) fn is_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Closes the connection for all users.
    pub(super) fn fail(&self, why: &str) {
        // Before the abort, so that waiting calls report this reason.
        self.end.send_replace(Some(why.into()));
        self.driver.abort();
    }

    /// Unary call.
    pub(super) async fn call<Q: Message, A: Message + Default>(
        &self,
        path: &str,
        question: &Q,
    ) -> Result<A, RpcError> {
        let mut stream = self.open(path).await?;
        // END_STREAM with the only message, as a unary call requires.
        stream.send_last(question)?;
        let answer = stream.next().await?;
        let none = || RpcError::Transport("the response has no message".into());
        let answer = answer.ok_or_else(none)?;
        // The call succeeds only with the status in the trailers, which this read evaluates.
        match stream.next().await? {
            None => Ok(answer),
            Some(_) => Err(RpcError::Transport("the response has more than one message".into())),
        }
    }

    /// Bidirectional stream.
    pub(super) async fn open<A: Message + Default>(&self, path: &str) -> Result<RpcStream<A>, RpcError> {
        let ended = || match &*self.ended.borrow() {
            Some(why) => RpcError::Transport(why.to_string()),
            None => RpcError::Transport("the connection is closing".into()),
        };
        // Waits while the peer's limit of concurrent streams is reached.
        let mut send = self.send.clone().ready().await.map_err(|_| ended())?;
        let mut request = Request::post(format!("{}{path}", self.origin))
            .version(http::Version::HTTP_2)
            .header("content-type", "application/grpc")
            // gRPC over HTTP/2 requires this field.
            .header("te", "trailers")
            // A member without a leader then returns an error instead of waiting.
            .header("hasleader", "true");
        if let Some(token) = &self.token {
            request = request.header("authorization", token);
        }
        let request = request.body(()).map_err(RpcError::transport)?;
        let (answer, body) = send.send_request(request, false).map_err(RpcError::transport)?;
        let ended = self.ended.clone();
        Ok(RpcStream {
            body,
            answer: PendingRpcResponse::Awaited(answer),
            ended,
            inbox: BytesMut::new(),
            kind: std::marker::PhantomData,
        })
    }
}

impl Drop for EtcdConnection {
    fn drop(&mut self) {
        // The driver is a task of its own and would keep the socket open.
        self.driver.abort();
    }
}

#[derive(Debug)]
enum PendingRpcResponse {
    Awaited(ResponseFuture),
    Coming(RecvStream),
}

/// Messages in both directions.
#[derive(Debug)]
pub(super) struct RpcStream<A> {
    body: SendStream<Bytes>,
    answer: PendingRpcResponse,
    ended: watch::Receiver<Option<Arc<str>>>,
    /// Received bytes of the next message.
    inbox: BytesMut,
    kind: std::marker::PhantomData<fn() -> A>,
}

impl<A: Message + Default> RpcStream<A> {
    /// Queues a message; h2 buffers bytes beyond the flow control window.
    pub(super) fn send(&mut self, message: &impl Message) -> Result<(), RpcError> {
        self.body.send_data(framed(message), false).map_err(RpcError::transport)
    }

    fn send_last(&mut self, message: &impl Message) -> Result<(), RpcError> {
        self.body.send_data(framed(message), true).map_err(RpcError::transport)
    }

    /// Returns the next message; `None` at a regular end of the stream. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<A>, RpcError> {
        loop {
            // A received chunk may hold several messages.
            if let Some(message) = self.take_message()? {
                return Ok(Some(message));
            }
            let mut ended = self.ended.clone();
            let piece = tokio::select! {
                piece = std::future::poll_fn(|cx| self.poll_piece(cx)) => piece?,
                // `fail` ends the stream at once, with its reason.
                why = ended.wait_for(Option::is_some) => {
                    let why = why.ok().and_then(|why| why.clone());
                    return Err(RpcError::transport(why.as_deref().unwrap_or("connection closed")));
                }
            };
            match piece {
                Some(piece) => self.inbox.extend_from_slice(&piece),
                None => return self.end().await,
            }
        }
    }

    /// Removes the next complete message from the buffer.
    fn take_message(&mut self) -> Result<Option<A>, RpcError> {
        // Gathers the prefix first; a chunk may end inside of it.
        if self.inbox.len() < PREFIX_BYTES {
            return Ok(None);
        }
        let bytes = u32::from_be_bytes([self.inbox[1], self.inbox[2], self.inbox[3], self.inbox[4]]) as usize;
        // Requests have no `grpc-accept-encoding`, so responses must not be compressed.
        if self.inbox[0] != 0 || bytes > MESSAGE_BYTES_MAX {
            return Err(RpcError::Transport("the response is compressed or too large".into()));
        }
        if self.inbox.len() < PREFIX_BYTES + bytes {
            return Ok(None);
        }
        self.inbox.advance(PREFIX_BYTES);
        let message = self.inbox.split_to(bytes).freeze();
        A::decode(message).map(Some).map_err(RpcError::transport)
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, RpcError>> {
        loop {
            match &mut self.answer {
                PendingRpcResponse::Awaited(answer) => {
                    let answer = ready!(Pin::new(answer).poll(cx)).map_err(RpcError::transport)?;
                    let (head, body) = answer.into_parts();
                    // A proxy in front of etcd may answer instead.
                    if !head.status.is_success() {
                        let message = format!("the peer does not support gRPC: status {}", head.status);
                        return Poll::Ready(Err(RpcError::Transport(message)));
                    }
                    // A trailers-only response carries the status in its head.
                    status(&head.headers)?;
                    self.answer = PendingRpcResponse::Coming(body);
                }
                PendingRpcResponse::Coming(body) => {
                    let piece = ready!(body.poll_data(cx)).transpose().map_err(RpcError::transport)?;
                    if let Some(piece) = &piece {
                        // Otherwise the window is exhausted and the peer stops sending (RFC 9113 §5.2).
                        body.flow_control().release_capacity(piece.len()).map_err(RpcError::transport)?;
                    }
                    return Poll::Ready(Ok(piece));
                }
            }
        }
    }

    /// Evaluates the trailers at the end of the stream.
    async fn end(&mut self) -> Result<Option<A>, RpcError> {
        if let PendingRpcResponse::Coming(body) = &mut self.answer
            && let Some(trailers) = body.trailers().await.map_err(RpcError::transport)?
        {
            status(&trailers)?;
        }
        match self.inbox.is_empty() {
            true => Ok(None),
            false => Err(RpcError::Transport("the response is truncated".into())),
        }
    }
}

/// Returns an error for a status other than OK. An absent status is still to follow in the trailers.
fn status(fields: &HeaderMap) -> Result<(), RpcError> {
    let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok());
    let Some(code) = text("grpc-status") else { return Ok(()) };
    match code.parse::<u32>() {
        Ok(0) => Ok(()),
        Ok(code) => {
            let message = text("grpc-message").unwrap_or("no reason given").to_owned();
            Err(RpcError::Status { code: code.into(), message })
        }
        Err(_) => Err(RpcError::Transport(format!("the status {code} is no number"))),
    }
}

fn framed(message: &impl Message) -> Bytes {
    let bytes = message.encoded_len();
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + bytes);
    // Compression flag: not compressed.
    framed.put_u8(0);
    framed.put_u32(u32::try_from(bytes).expect("messages are far below four gigabytes"));
    message.encode(&mut framed).expect("the buffer grows");
    framed.freeze()
}
