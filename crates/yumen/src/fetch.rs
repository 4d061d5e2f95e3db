//! One HTTP request to an external server: ACME, OCSP, or service discovery.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Time limits and maximum body length of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchBounds {
    pub(crate) connect: Duration,
    pub(crate) whole: Duration,
    pub(crate) body_bytes_max: usize,
}

impl FetchBounds {
    /// Bounds for certificates and small documents.
    pub(crate) const SMALL: FetchBounds = FetchBounds {
        connect: Duration::from_secs(30),
        whole: Duration::from_secs(30),
        body_bytes_max: 1024 * 1024,
    };
}

/// Sends a request with an absolute URI, and reads the whole response.
pub(crate) async fn send(
    request: Request<Full<Bytes>>,
    tls: Option<&Arc<ClientConfig>>,
    bounds: FetchBounds,
) -> anyhow::Result<Response<Full<Bytes>>> {
    let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
    match tokio::time::timeout(bounds.whole, exchange(request, tls, bounds)).await {
        Ok(answer) => answer,
        Err(_) => bail!("no answer from {authority} within {} s", bounds.whole.as_secs_f64()),
    }
}

async fn exchange(
    mut request: Request<Full<Bytes>>,
    tls: Option<&Arc<ClientConfig>>,
    bounds: FetchBounds,
) -> anyhow::Result<Response<Full<Bytes>>> {
    let address = request.uri().clone();
    let authority = address.authority().with_context(|| format!("{address} names no host"))?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let is_tls = address.scheme_str() == Some("https");
    let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let path = address.path_and_query().map_or("/", |path| path.as_str());
    // Origin-form, with the authority in Host (RFC 9112 §3.2.1).
    *request.uri_mut() = path.parse()?;
    request.headers_mut().insert(HOST, HeaderValue::from_str(authority.as_str())?);
    let agent = HeaderValue::from_static(concat!("yumen/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().entry(USER_AGENT).or_insert(agent);
    let connecting = TcpStream::connect((host.as_str(), port));
    let Ok(tcp) = tokio::time::timeout(bounds.connect, connecting).await else {
        bail!("cannot connect to {host}:{port} within {} s", bounds.connect.as_secs_f64());
    };
    let tcp = tcp.with_context(|| format!("cannot connect to {host}:{port}"))?;
    match (is_tls, tls) {
        (false, _) => send_request(tcp, request, bounds).await,
        (true, None) => bail!("{address}: only http is supported"),
        (true, Some(config)) => {
            let connector = tokio_rustls::TlsConnector::from(config.clone());
            let stream = connector.connect(ServerName::try_from(host.clone())?, tcp).await;
            send_request(stream.with_context(|| format!("TLS with {host}:{port}"))?, request, bounds).await
        }
    }
}

async fn send_request<S>(
    stream: S,
    request: Request<Full<Bytes>>,
    bounds: FetchBounds,
) -> anyhow::Result<Response<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, bounds.body_bytes_max).collect().await;
    driver.abort();
    let body = body.map_err(|error| anyhow::anyhow!("the answer cannot be read: {error}"))?;
    Ok(Response::from_parts(head, Full::new(body.to_bytes())))
}
