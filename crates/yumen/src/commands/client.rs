//! HTTP client for the listeners of a running gateway: one request per connection.
//!
//! Has no knowledge of the endpoints.

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;

use crate::admin_socket;
pub(crate) use tls_files::OperatorTlsArgs;

/// Maximum response body: 256 MiB, since responses are documents of the control plane.
const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit for a whole download; the admin listener has a shorter one.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(3600);

/// The listener of a gateway.
#[derive(Debug, Clone)]
pub(crate) enum OperatorTarget {
    /// A base URL such as `http://127.0.0.1:9180`.
    Url(Uri),
    /// The admin socket in a data directory.
    Socket(PathBuf),
}

impl OperatorTarget {
    /// Parses a base URL.
    pub(crate) fn url(text: &str) -> anyhow::Result<OperatorTarget> {
        let base: Uri = text.parse().with_context(|| format!("\"{text}\" is no address"))?;
        if !matches!(base.scheme_str(), Some("http" | "https")) || base.host().is_none() {
            bail!("\"{text}\" is not a URL of the form http://HOST:PORT or https://HOST:PORT");
        }
        Ok(OperatorTarget::Url(base))
    }
}

impl fmt::Display for OperatorTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperatorTarget::Url(base) => f.write_str(base.to_string().trim_end_matches('/')),
            OperatorTarget::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Client of one operators' listener.
pub(crate) struct OperatorClient {
    target: OperatorTarget,
    key: Option<String>,
    tls: OperatorTlsArgs,
    runtime: Runtime,
}

/// Response with its whole body.
#[derive(Debug)]
pub(crate) struct OperatorResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl OperatorClient {
    /// Creates a client; `key` is sent as `X-API-KEY`.
    pub(crate) fn new(target: OperatorTarget, key: Option<String>) -> anyhow::Result<OperatorClient> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(OperatorClient { target, key, tls: OperatorTlsArgs::default(), runtime })
    }

    /// The listener of the client.
    pub(crate) fn target(&self) -> &OperatorTarget {
        &self.target
    }

    /// The same client with files for TLS.
    pub(crate) fn with_tls(self, tls: OperatorTlsArgs) -> OperatorClient {
        OperatorClient { tls, ..self }
    }

    /// Sends a GET request.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<OperatorResponse> {
        self.send(&Method::GET, path, &[], None)
    }

    /// Streams the body at `path` into `sink` and returns its length in bytes. Fails on a status other than
    /// 2xx, or after 60 s without data.
    pub(crate) fn download(&self, path: &str, sink: &mut dyn Write) -> anyhow::Result<u64> {
        let mut counted = CountedDownload { sink, bytes: 0 };
        let request = self.request(&Method::GET, path, &[], None)?;
        let answer = self.runtime.block_on(self.exchange(request, Some(&mut counted)));
        let answer = answer.with_context(|| format!("GET {}", self.url(path)))?;
        answer.text().map(|_| counted.bytes)
    }

    /// Sends a request and reads the whole response, whatever its status. `path` begins with a slash.
    pub(crate) fn send(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Bytes>,
    ) -> anyhow::Result<OperatorResponse> {
        let request = self.request(method, path, headers, body)?;
        let answer = self.runtime.block_on(self.exchange(request, None));
        answer.with_context(|| format!("{method} {}", self.url(path)))
    }

    fn request(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Bytes>,
    ) -> anyhow::Result<Request<Full<Bytes>>> {
        let (base, authority) = match &self.target {
            OperatorTarget::Url(base) => (
                base.path().trim_end_matches('/'),
                base.authority().map_or("", |authority| authority.as_str()),
            ),
            OperatorTarget::Socket(_) => ("", "localhost"),
        };
        let mut request = Request::new(Full::new(body.unwrap_or_default()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = format!("{base}{path}").parse().with_context(|| format!("path {path}"))?;
        let fields = request.headers_mut();
        fields.insert(hyper::header::HOST, HeaderValue::from_str(authority)?);
        // One request per connection (RFC 9112 §9.6).
        fields.insert(hyper::header::CONNECTION, HeaderValue::from_static("close"));
        if let Some(key) = &self.key {
            fields.insert("x-api-key", HeaderValue::from_str(key).context("the API key")?);
        }
        for (name, value) in headers {
            let name: HeaderName = name.parse().with_context(|| format!("header {name}"))?;
            fields.append(name, HeaderValue::from_str(value)?);
        }
        Ok(request)
    }

    fn url(&self, path: &str) -> String {
        match &self.target {
            OperatorTarget::Url(_) => format!("{}{path}", self.target),
            // The path of the socket and that of the request would read as one.
            OperatorTarget::Socket(_) => path.to_owned(),
        }
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        sink: Option<&mut CountedDownload<'_>>,
    ) -> anyhow::Result<OperatorResponse> {
        let limit = if sink.is_some() { DOWNLOAD_TIMEOUT } else { ANSWER_TIMEOUT };
        let base = match &self.target {
            OperatorTarget::Url(base) => base,
            OperatorTarget::Socket(path) => {
                let stream = admin_socket::connect(path).map_err(|error| unreachable_socket(path, error))?;
                stream.set_nonblocking(true)?;
                let stream = UnixStream::from_std(stream)?;
                return within(limit, send_request(stream, request, sink)).await?;
            }
        };
        let is_tls = base.scheme_str() == Some("https");
        let host = base.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = base.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port)));
        let hint = "start a gateway (yumen run), or name a running one by --data-dir, --config or --admin";
        let tcp = match connecting.await {
            Ok(connected) => {
                connected.with_context(|| format!("no gateway answers at {host}:{port}; {hint}"))?
            }
            Err(_) => bail!("{host}:{port} did not take a connection within 5 s; {hint}"),
        };
        let answer = async {
            if is_tls {
                let stream = handshake(host, &self.tls, tcp).await.with_context(|| {
                    format!("TLS with {host}:{port}; a listener without TLS has a URL with http://")
                })?;
                send_request(stream, request, sink).await
            } else {
                send_request(tcp, request, sink).await
            }
        };
        within(limit, answer).await?
    }
}

/// Sink of a download, with the number of bytes written.
struct CountedDownload<'s> {
    sink: &'s mut dyn Write,
    bytes: u64,
}

async fn within<T>(limit: Duration, answer: impl Future<Output = T>) -> anyhow::Result<T> {
    let answer = tokio::time::timeout(limit, answer).await;
    answer.map_err(|_| anyhow::anyhow!("no answer within {} s", limit.as_secs()))
}

async fn send_request<S>(
    stream: S,
    request: Request<Full<Bytes>>,
    sink: Option<&mut CountedDownload<'_>>,
) -> anyhow::Result<OperatorResponse>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let (head, body) = within(ANSWER_TIMEOUT, sender.send_request(request)).await??.into_parts();
    let body = match sink {
        Some(sink) if head.status.is_success() => {
            pour(body, sink).await?;
            Bytes::new()
        }
        _ => match Limited::new(body, BODY_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => bail!("the answer cannot be read: {error}"),
        },
    };
    driver.abort();
    Ok(OperatorResponse { status: head.status.as_u16(), headers: head.headers, body })
}

/// Copies a body chunk by chunk.
async fn pour(mut body: Incoming, into: &mut CountedDownload<'_>) -> anyhow::Result<()> {
    while let Some(frame) = within(ANSWER_TIMEOUT, body.frame()).await? {
        let frame = frame.context("the answer ends early")?;
        if let Ok(piece) = frame.into_data() {
            into.bytes += piece.len() as u64;
            into.sink.write_all(&piece).context("cannot write the response")?;
        }
    }
    Ok(())
}

async fn handshake(
    host: &str,
    files: &OperatorTlsArgs,
    tcp: TcpStream,
) -> anyhow::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let name = rustls::pki_types::ServerName::try_from(host.to_owned())?;
    Ok(tokio_rustls::TlsConnector::from(files.config()?).connect(name, tcp).await?)
}

impl OperatorResponse {
    /// Body of a 2xx response as text; otherwise the gateway's message as an error.
    pub(crate) fn text(&self) -> anyhow::Result<String> {
        match (200..300).contains(&self.status) {
            true => Ok(String::from_utf8_lossy(&self.body).into_owned()),
            false => Err(self.failure()),
        }
    }

    fn failure(&self) -> anyhow::Error {
        let document: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let message = document["error_msg"].as_str().or_else(|| document["message"].as_str());
        let message = message.unwrap_or("no reason given");
        let hint = "give an admin key by --key or YUMEN_ADMIN_KEY, or use the admin socket: --data-dir DIR on the machine \
                    of the gateway needs no key";
        match (self.status, document["description"].as_str()) {
            (401, None) => anyhow::anyhow!("{message}: {hint}"),
            (401, Some(why)) => anyhow::anyhow!("{message}: {why}: {hint}"),
            _ => match document["hint"].as_str() {
                Some(hint) => anyhow::anyhow!("the gateway answered {}: {message}: {hint}", self.status),
                None => anyhow::anyhow!("the gateway answered {}: {message}", self.status),
            },
        }
    }

    /// Body of a 2xx response as JSON; otherwise the gateway's message as an error.
    pub(crate) fn json(&self) -> anyhow::Result<Value> {
        let document: Option<Value> = serde_json::from_slice(&self.body).ok();
        if !(200..300).contains(&self.status) {
            return Err(self.failure());
        }
        document.with_context(|| {
            let kind = self.headers.get(hyper::header::CONTENT_TYPE);
            let kind = kind.map_or("nothing", |kind| kind.to_str().unwrap_or("something"));
            format!("the answer is no JSON but {kind}: is that address a listener of yumen?")
        })
    }
}

mod tls_files;

/// The error of a socket that cannot be used, with the remedy.
pub(super) fn unreachable_socket(path: &Path, error: io::Error) -> anyhow::Error {
    let path = path.display();
    let message = match error.kind() {
        ErrorKind::PermissionDenied => {
            format!(
                "cannot use {path}: it admits the user of the gateway and root; run the command as one of them"
            )
        }
        // A socket address has at most 107 bytes (unix(7)).
        ErrorKind::InvalidInput => {
            format!("the path {path} is too long for a socket; to upgrade, send SIGUSR2 to the gateway")
        }
        _ => format!(
            "no gateway answers at {path}: start one (yumen run), or give the --config or the --data-dir it runs with"
        ),
    };
    anyhow::Error::from(error).context(message)
}

#[cfg(test)]
mod tests;
