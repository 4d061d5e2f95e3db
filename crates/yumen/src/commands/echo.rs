//! `yumen echo`: a service that answers requests with their content, for trials and guides.
//!
//! Serves HTTP/1.1, HTTP/2 with prior knowledge (RFC 9113 §3.3), and gRPC. Independent of the gateway.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Map, Value, json};
use tokio::net::{TcpListener, TcpStream};

use super::output;
use crate::node::listen_address;

/// Longest body that comes back.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest delay.
const DELAY_MS_MAX: u64 = 600_000;
/// First bytes of a connection with HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2";
/// A gRPC message: `grpc.health.v1.HealthCheckResponse` with the status SERVING.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];

#[derive(Debug, Args)]
pub(crate) struct EchoArgs {
    /// Addresses, such as 127.0.0.1:1980 or :1980
    #[arg(value_name = "ADDR", value_parser = listen_address, default_value = "127.0.0.1:1980")]
    addresses: Vec<SocketAddr>,
}

type EchoBody = BoxBody<Bytes, hyper::Error>;

/// Serves until the process is ended.
pub(crate) fn run(args: &EchoArgs) -> anyhow::Result<ExitCode> {
    let services = EchoServices::bind(&args.addresses)?;
    for bound in services.addresses()? {
        output::print(&format!("echo on http://{bound}: HTTP/1.1, HTTP/2 without TLS, gRPC\n"))?;
    }
    services.serve()?;
    Ok(ExitCode::SUCCESS)
}

/// Bound echo services with their runtime.
pub(super) struct EchoServices {
    runtime: tokio::runtime::Runtime,
    listeners: Vec<TcpListener>,
}

impl EchoServices {
    pub(super) fn bind(addresses: &[SocketAddr]) -> anyhow::Result<EchoServices> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let bind = |address: &SocketAddr| {
            let listener = runtime.block_on(TcpListener::bind(address));
            listener.with_context(|| format!("cannot listen on {address}"))
        };
        let listeners = addresses.iter().map(bind).collect::<anyhow::Result<_>>()?;
        Ok(EchoServices { runtime, listeners })
    }

    /// Bound addresses, in the order of the request.
    pub(super) fn addresses(&self) -> std::io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Serves until the process ends.
    pub(super) fn serve(self) -> anyhow::Result<()> {
        let EchoServices { runtime, listeners } = self;
        runtime.block_on(async {
            let mut serving: tokio::task::JoinSet<()> = listeners.into_iter().map(accept).collect();
            while serving.join_next().await.is_some() {}
            Ok(())
        })
    }
}

async fn accept(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(stream))),
            // Such as without file descriptors: an immediate retry would fail too.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve(stream: TcpStream) {
    let Ok(address) = stream.local_addr() else { return };
    let is_http2 = starts_with_preface(&stream).await;
    let respond =
        service_fn(move |request| async move { Ok::<_, Infallible>(respond(address, request).await) });
    let io = TokioIo::new(stream);
    // A client that leaves ends its connection; the error has no receiver.
    if is_http2 {
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(io, respond)
            .await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, respond).await;
    }
}

/// Whether the first bytes are those of HTTP/2. Waits for enough bytes to decide.
async fn starts_with_preface(stream: &TcpStream) -> bool {
    let mut first = [0; PREFACE.len()];
    loop {
        match stream.peek(&mut first).await {
            Ok(0) | Err(_) => return false,
            Ok(count) if count == first.len() => return first == PREFACE,
            Ok(count) if !PREFACE.starts_with(&first[..count]) => return false,
            // The peeked bytes stay, so the next call returns at once.
            Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn respond(address: SocketAddr, request: Request<Incoming>) -> Response<EchoBody> {
    let wanted = EchoWishes::of(request.uri().path(), request.uri().query().unwrap_or_default());
    if let Some(delay) = wanted.delay {
        tokio::time::sleep(delay).await;
    }
    let media_type = request.headers().get(CONTENT_TYPE).cloned();
    match media_type.filter(|media_type| media_type.as_bytes().starts_with(b"application/grpc")) {
        Some(media_type) => grpc(request, media_type),
        None => described(address, request, wanted.status).await,
    }
}

/// The messages of a call come back as its response, each as it arrives.
fn grpc(request: Request<Incoming>, media_type: HeaderValue) -> Response<EchoBody> {
    let is_health_check = request.uri().path() == "/grpc.health.v1.Health/Check";
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let trailers = async move { Some(Ok(trailers)) };
    let body = match is_health_check {
        true => whole(SERVING.into()).with_trailers(trailers).boxed(),
        false => request.into_body().with_trailers(trailers).boxed(),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

/// The request as JSON.
async fn described(
    address: SocketAddr,
    request: Request<Incoming>,
    status: StatusCode,
) -> Response<EchoBody> {
    let (head, body) = request.into_parts();
    let (status, body) = match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => (status, String::from_utf8_lossy(&body.to_bytes()).into_owned()),
        Err(_) => (StatusCode::PAYLOAD_TOO_LARGE, String::new()),
    };
    let mut headers: Map<String, Value> = Map::new();
    for (name, value) in &head.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let field = headers.entry(name.as_str()).or_insert_with(|| "".into());
        let former = field.as_str().unwrap_or_default();
        *field = if former.is_empty() { value.into() } else { format!("{former}, {value}").into() };
    }
    let document = json!({
        "served_by": address.to_string(),
        "version": format!("{:?}", head.version),
        "method": head.method.as_str(),
        "path": head.uri.path_and_query().map_or("*", |path| path.as_str()),
        "headers": headers,
        "body": body,
    });
    let mut response = Response::new(whole(format!("{document:#}\n").into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn whole(body: Bytes) -> EchoBody {
    Full::new(body).map_err(|never| match never {}).boxed()
}

/// The response that path and query ask for.
#[derive(Debug, PartialEq)]
struct EchoWishes {
    status: StatusCode,
    delay: Option<Duration>,
}

impl EchoWishes {
    fn of(path: &str, query: &str) -> EchoWishes {
        let in_query =
            |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        // The last two segments, so that the service can be behind a route with a prefix.
        let mut segments = path.rsplit('/');
        let (last, before) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
        let in_path = |name: &str| (before == name).then_some(last);
        // Informational statuses end no exchange (RFC 9110 §15.2).
        let status = in_query("status")
            .or(in_path("status"))
            .and_then(|text| text.parse().ok())
            .filter(|status| (200..1000).contains(status));
        let status = status.and_then(|status: u16| StatusCode::from_u16(status).ok());
        let delay = in_query("delay_ms").or(in_path("delay")).and_then(|text| text.parse::<u64>().ok());
        EchoWishes {
            status: status.unwrap_or(StatusCode::OK),
            delay: delay.map(|delay| Duration::from_millis(delay.min(DELAY_MS_MAX))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(target: &str, status: u16, delay_ms: Option<u64>) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let wishes = EchoWishes::of(path, query);
        assert_eq!(
            (wishes.status.as_u16(), wishes.delay),
            (status, delay_ms.map(Duration::from_millis)),
            "{target}"
        );
    }

    #[test]
    fn the_query_sets_status_and_delay() {
        check("/", 200, None);
        check("/?status=503&delay_ms=20", 503, Some(20));
        check("/?status=100&delay_ms=soon", 200, None);
    }

    #[test]
    fn the_end_of_the_path_sets_status_or_delay() {
        check("/status/418", 418, None);
        check("/api/delay/20", 200, Some(20));
        check("/status/503/more", 200, None);
        check("/status/100", 200, None);
        check("/status/503?status=404&delay_ms=5", 404, Some(5));
    }
}
