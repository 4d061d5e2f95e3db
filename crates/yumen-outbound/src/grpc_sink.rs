//! Sinks that are gRPC servers: unary calls over one kept HTTP/2 connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::Instant;
use yumen_plugin::{SinkReply, SinkRequest, SinkTls};

use crate::connector::{OutboundConnector, SendFault};
use crate::http_sink::{PartsBody, SinkOrigin};

/// Bytes of a response message that are kept.
const REPLY_BYTES_MAX: usize = 64 * 1024;
/// Bytes in front of each message: a flag for compression and the length.
const PREFIX_BYTES: usize = 5;

/// A gRPC server.
pub(crate) struct GrpcSink {
    /// `None` for an address that is none.
    origin: Option<Arc<SinkOrigin>>,
    tls: SinkTls,
    timeout: Duration,
    idle: Duration,
    connector: OutboundConnector,
    kept: Option<(SendRequest<PartsBody>, Instant)>,
}

impl GrpcSink {
    pub(crate) fn new(
        endpoint: &str,
        tls: SinkTls,
        timeout_ms: u64,
        idle_ms: u64,
        connector: OutboundConnector,
    ) -> GrpcSink {
        let (timeout, idle) = (Duration::from_millis(timeout_ms), Duration::from_millis(idle_ms));
        let origin = SinkOrigin::parse(endpoint).map(Arc::new);
        GrpcSink { origin, tls, timeout, idle, connector, kept: None }
    }

    /// Calls the method in the target of the request with its body as the message. The status of the reply is 200 for
    /// the gRPC status OK.
    pub(crate) async fn send(&mut self, request: &SinkRequest) -> Result<SinkReply, SendFault> {
        let Some(origin) = self.origin.clone() else {
            return Err(SendFault::Refused("no valid server address".to_owned()));
        };
        let timeout = self.timeout;
        let result = tokio::time::timeout(timeout, self.call(&origin, request)).await;
        let failed =
            |why: String| SendFault::Failed(format!("failed to request {}: {why}", origin.authority));
        match result {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(CallFault::Send(fault))) => Err(fault),
            Ok(Err(CallFault::Broken(why))) => Err(failed(why)),
            Err(_) => {
                self.kept = None;
                Err(failed("timeout".to_owned()))
            }
        }
    }

    async fn call(&mut self, origin: &SinkOrigin, request: &SinkRequest) -> Result<SinkReply, CallFault> {
        let kept =
            self.kept.take().filter(|(sender, since)| !sender.is_closed() && since.elapsed() < self.idle);
        let is_kept = kept.is_some();
        let mut sender = match kept {
            Some((sender, _)) => sender,
            None => self.connect(origin).await?,
        };
        let mut result = sender.send_request(build(origin, request)?).await;
        if result.is_err() && is_kept {
            // As in `HttpServer::exchange`: the server may have closed an idle connection.
            sender = self.connect(origin).await?;
            result = sender.send_request(build(origin, request)?).await;
        }
        let reply = read(result?).await?;
        self.kept = Some((sender, Instant::now()));
        Ok(reply)
    }

    async fn connect(&self, origin: &SinkOrigin) -> Result<SendRequest<PartsBody>, CallFault> {
        let tls = origin.is_tls.then_some(&self.tls);
        let connecting =
            self.connector.connect_for(Some(b"h2"), &origin.host, origin.port, tls, self.timeout);
        let stream = connecting.await.map_err(CallFault::Send)?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        // Ends with the connection.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}

enum CallFault {
    Send(SendFault),
    Broken(String),
}

impl From<hyper::Error> for CallFault {
    fn from(error: hyper::Error) -> CallFault {
        CallFault::Broken(error.to_string())
    }
}

/// The request of a unary call (gRPC over HTTP2, "Requests").
fn build(origin: &SinkOrigin, request: &SinkRequest) -> Result<Request<PartsBody>, CallFault> {
    let refused = |error: hyper::http::Error| CallFault::Send(SendFault::Refused(error.to_string()));
    let scheme = if origin.is_tls { "https" } else { "http" };
    let length: usize = request.body.iter().map(Bytes::len).sum();
    let length = u32::try_from(length)
        .map_err(|_| CallFault::Send(SendFault::Refused("message of more than 4 GiB".to_owned())))?;
    let mut prefix = Vec::with_capacity(PREFIX_BYTES);
    prefix.push(0);
    prefix.extend_from_slice(&length.to_be_bytes());
    let parts: Vec<Bytes> = std::iter::once(prefix.into()).chain(request.body.iter().cloned()).collect();
    let mut builder = Request::post(format!("{scheme}://{}{}", origin.authority, request.target))
        .header(TE, HeaderValue::from_static("trailers"))
        .header(USER_AGENT, HeaderValue::from_static(concat!("yumen/", env!("CARGO_PKG_VERSION"))));
    for (name, value) in &request.fields {
        builder = builder.header(name.as_str(), value.as_str());
    }
    let mut built = builder.body(PartsBody::new(&parts)).map_err(refused)?;
    built.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(built)
}

/// Reads a response. Its status is in the trailers, or in the head if there is no message.
async fn read(response: Response<Incoming>) -> Result<SinkReply, CallFault> {
    let (head, mut body) = response.into_parts();
    if head.status != 200 {
        return Err(CallFault::Broken(format!("server returned status code[{}]", head.status.as_u16())));
    }
    let mut status = grpc_status(&head.headers);
    let mut message = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => {
                let room = (REPLY_BYTES_MAX + PREFIX_BYTES).saturating_sub(message.len());
                message.extend_from_slice(&data[..data.len().min(room)]);
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    status = grpc_status(&trailers).or(status);
                }
            }
        }
    }
    match status {
        Some((0, _)) => {
            message.drain(..message.len().min(PREFIX_BYTES));
            Ok(SinkReply { status: 200, retry_after_s: None, body: message })
        }
        Some((code, text)) => Err(CallFault::Broken(format!("server returned gRPC status {code}: {text}"))),
        None => Err(CallFault::Broken("server returned no gRPC status".to_owned())),
    }
}

fn grpc_status(fields: &HeaderMap) -> Option<(u32, String)> {
    let code = fields.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    let text = fields.get("grpc-message").and_then(|text| text.to_str().ok()).unwrap_or_default();
    Some((code, text.to_owned()))
}
