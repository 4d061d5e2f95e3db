//! Sinks that are HTTP servers: HTTP/1.1, a kept connection per server.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use yumen_plugin::{SinkReply, SinkRequest, SinkTls};

use crate::connector::{OutboundConnector, SendFault};

/// Bytes of a response body that are read.
const REPLY_BYTES_MAX: usize = 64 * 1024;

/// HTTP servers that share the batches of one sink.
pub(crate) struct HttpSink {
    servers: Vec<HttpServer>,
    /// Index of the next server.
    next: usize,
    tls: SinkTls,
    timeout: Duration,
    idle: Duration,
    connector: OutboundConnector,
}

/// The origin of an HTTP server.
pub(crate) struct SinkOrigin {
    pub(crate) is_tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The value of `Host`.
    pub(crate) authority: String,
}

impl SinkOrigin {
    /// Parses an origin such as `https://host:port`.
    pub(crate) fn parse(origin: &str) -> Option<SinkOrigin> {
        let (scheme, authority) = origin.split_once("://")?;
        let is_tls = scheme == "https";
        let (host, port) = match authority.rsplit_once(':') {
            // In an IPv6 address in brackets, the last colon begins no port.
            Some((host, port)) if !authority.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, if is_tls { 443 } else { 80 }),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(SinkOrigin { is_tls, host, port, authority: authority.to_owned() })
    }
}

struct HttpServer {
    origin: SinkOrigin,
    kept: Option<(SendRequest<PartsBody>, Instant)>,
}

impl HttpSink {
    pub(crate) fn new(
        endpoints: &[String],
        tls: SinkTls,
        timeout_ms: u64,
        idle_ms: u64,
        connector: OutboundConnector,
    ) -> HttpSink {
        let servers: Vec<HttpServer> = endpoints.iter().filter_map(|origin| HttpServer::of(origin)).collect();
        // Senders of several nodes must not all begin with the first server.
        let next = getrandom::u32().unwrap_or(0) as usize;
        let (timeout, idle) = (Duration::from_millis(timeout_ms), Duration::from_millis(idle_ms));
        HttpSink { servers, next, tls, timeout, idle, connector }
    }

    /// Sends a request to the next server.
    pub(crate) async fn send(&mut self, request: &SinkRequest) -> Result<SinkReply, SendFault> {
        if self.servers.is_empty() {
            return Err(SendFault::Refused("no valid server address".to_owned()));
        }
        self.next = (self.next + 1) % self.servers.len();
        let server = &mut self.servers[self.next];
        let tls = server.origin.is_tls.then_some(&self.tls);
        let exchange = server.exchange(request, &self.connector, tls, self.timeout, self.idle);
        match tokio::time::timeout(self.timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(SendFault::Failed(format!(
                "failed to request {}: timeout",
                self.servers[self.next].origin.authority
            ))),
        }
    }
}

impl HttpServer {
    /// The server of an origin such as `https://host:port`.
    fn of(origin: &str) -> Option<HttpServer> {
        Some(HttpServer { origin: SinkOrigin::parse(origin)?, kept: None })
    }

    async fn exchange(
        &mut self,
        request: &SinkRequest,
        connector: &OutboundConnector,
        tls: Option<&SinkTls>,
        timeout: Duration,
        idle: Duration,
    ) -> Result<SinkReply, SendFault> {
        let failed =
            |why: String| SendFault::Failed(format!("failed to request {}: {why}", self.origin.authority));
        let kept = self.kept.take().filter(|(sender, since)| !sender.is_closed() && since.elapsed() < idle);
        let is_kept = kept.is_some();
        let mut sender = match kept {
            Some((sender, _)) => sender,
            None => self.connect(connector, tls, timeout).await?,
        };
        let mut result = sender.send_request(self.request(request)?).await;
        if result.is_err() && is_kept {
            // The server may close an idle connection at any time (RFC 9112 §9.5): the batch is sent again on a new
            // one. Sinks take entries at least once.
            sender = self.connect(connector, tls, timeout).await?;
            result = sender.send_request(self.request(request)?).await;
        }
        let response = result.map_err(|error| failed(error.to_string()))?;
        let (reply, is_whole) = read(response).await.map_err(|error| failed(error.to_string()))?;
        if is_whole && !idle.is_zero() {
            self.kept = Some((sender, Instant::now()));
        }
        Ok(reply)
    }

    async fn connect(
        &self,
        connector: &OutboundConnector,
        tls: Option<&SinkTls>,
        timeout: Duration,
    ) -> Result<SendRequest<PartsBody>, SendFault> {
        let stream = connector.connect(&self.origin.host, self.origin.port, tls, timeout).await?;
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(|error| SendFault::Failed(error.to_string()))?;
        // Ends with the connection.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    fn request(&self, request: &SinkRequest) -> Result<Request<PartsBody>, SendFault> {
        let refused = |error: hyper::http::Error| SendFault::Refused(error.to_string());
        let mut builder = Request::builder()
            .method(request.method)
            .uri(request.target.as_str())
            .header(HOST, self.origin.authority.as_str())
            .header(USER_AGENT, HeaderValue::from_static(concat!("yumen/", env!("CARGO_PKG_VERSION"))));
        for (name, value) in &request.fields {
            builder = builder.header(name.as_str(), value.as_str());
        }
        let mut built = builder.body(PartsBody::new(&request.body)).map_err(refused)?;
        if request.body.is_empty() {
            built.headers_mut().remove(CONTENT_TYPE);
        }
        Ok(built)
    }
}

/// Reads a response; false if its body was longer than the limit.
async fn read(response: Response<Incoming>) -> Result<(SinkReply, bool), hyper::Error> {
    let (head, mut body) = response.into_parts();
    let retry_after_s = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let mut reply = SinkReply { status: head.status.as_u16(), retry_after_s, body: Vec::new() };
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            let room = REPLY_BYTES_MAX - reply.body.len();
            reply.body.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                return Ok((reply, false));
            }
        }
    }
    Ok((reply, true))
}

/// A request body in parts, which are not copied.
pub(crate) struct PartsBody {
    parts: VecDeque<Bytes>,
}

impl PartsBody {
    pub(crate) fn new(parts: &[Bytes]) -> PartsBody {
        PartsBody { parts: parts.iter().filter(|part| !part.is_empty()).cloned().collect() }
    }
}

impl Body for PartsBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.parts.pop_front().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.parts.iter().map(|part| part.len() as u64).sum())
    }
}
