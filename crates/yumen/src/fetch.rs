//! One HTTP request to an external server: ACME, OCSP, service discovery, fetched values.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{HOST, HeaderName, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use yumen_plugin::OutboundProxy;

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
    send_through(request, tls, None, bounds).await
}

/// Sends a request through a proxy, if there is one.
pub(crate) async fn send_through(
    request: Request<Full<Bytes>>,
    tls: Option<&Arc<ClientConfig>>,
    proxy: Option<&OutboundProxy>,
    bounds: FetchBounds,
) -> anyhow::Result<Response<Full<Bytes>>> {
    let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
    match tokio::time::timeout(bounds.whole, exchange(request, tls, proxy, bounds)).await {
        Ok(answer) => answer,
        Err(_) => bail!("no answer from {authority} within {} s", bounds.whole.as_secs_f64()),
    }
}

/// The server of a request.
struct FetchTarget {
    uri: Uri,
    authority: String,
    host: String,
    port: u16,
    is_tls: bool,
}

impl FetchTarget {
    fn of(uri: &Uri) -> anyhow::Result<FetchTarget> {
        let authority = uri.authority().with_context(|| format!("{uri} names no host"))?;
        let is_tls = uri.scheme_str() == Some("https");
        // User information is no part of Host (RFC 9110 §4.2.4).
        let plain = authority.as_str().rsplit('@').next().unwrap_or_default().to_owned();
        Ok(FetchTarget {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            uri: uri.clone(),
            authority: plain,
            is_tls,
        })
    }
}

async fn exchange(
    mut request: Request<Full<Bytes>>,
    tls: Option<&Arc<ClientConfig>>,
    proxy: Option<&OutboundProxy>,
    bounds: FetchBounds,
) -> anyhow::Result<Response<Full<Bytes>>> {
    let target = FetchTarget::of(request.uri())?;
    let path = target.uri.path_and_query().map_or("/", |path| path.as_str());
    // Origin-form, with the authority in Host (RFC 9112 §3.2.1); the absolute form for a proxy (§3.2.2).
    *request.uri_mut() = match (proxy, target.is_tls) {
        (Some(_), false) => format!("http://{}{path}", target.authority).parse()?,
        _ => path.parse()?,
    };
    request.headers_mut().insert(HOST, HeaderValue::from_str(&target.authority)?);
    let agent = HeaderValue::from_static(concat!("yumen/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().entry(USER_AGENT).or_insert(agent);
    if target.is_tls && tls.is_none() {
        bail!("{}: only http is supported", target.authority);
    }
    let (host, port) = proxy.map_or((&*target.host, target.port), |proxy| (&*proxy.host, proxy.port));
    let tcp = connect(host, port, bounds).await?;
    match (tls.filter(|_| target.is_tls), proxy) {
        (None, None) => send_request(tcp, request, bounds).await,
        (None, Some(proxy)) => {
            if let Some((name, value)) = authorization(proxy)? {
                request.headers_mut().insert(name, value);
            }
            send_request(tcp, request, bounds).await
        }
        (Some(config), None) => send_over_tls(tcp, config, &target, request, bounds).await,
        (Some(config), Some(proxy)) => {
            let tunnel = open_tunnel(tcp, &target, proxy).await?;
            send_over_tls(tunnel, config, &target, request, bounds).await
        }
    }
}

async fn connect(host: &str, port: u16, bounds: FetchBounds) -> anyhow::Result<TcpStream> {
    let connecting = TcpStream::connect((host, port));
    let Ok(tcp) = tokio::time::timeout(bounds.connect, connecting).await else {
        bail!("cannot connect to {host}:{port} within {} s", bounds.connect.as_secs_f64());
    };
    tcp.with_context(|| format!("cannot connect to {host}:{port}"))
}

fn authorization(proxy: &OutboundProxy) -> anyhow::Result<Option<(HeaderName, HeaderValue)>> {
    let Some(value) = &proxy.authorization else { return Ok(None) };
    let value = HeaderValue::from_str(value).context("the proxy authorization is invalid")?;
    Ok(Some((PROXY_AUTHORIZATION, value)))
}

/// Opens a tunnel to the target (RFC 9110 §9.3.6).
async fn open_tunnel(
    tcp: TcpStream,
    target: &FetchTarget,
    proxy: &OutboundProxy,
) -> anyhow::Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static> {
    let bracketed =
        if target.host.contains(':') { format!("[{}]", target.host) } else { target.host.clone() };
    let authority = format!("{bracketed}:{}", target.port);
    let mut request = Request::builder().method(Method::CONNECT).uri(&authority).header(HOST, &authority);
    if let Some((name, value)) = authorization(proxy)? {
        request = request.header(name, value);
    }
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tcp)).await?;
    // Ends with the connection, which the tunnel takes over.
    tokio::spawn(connection.with_upgrades());
    let response = sender.send_request(request.body(Full::<Bytes>::default())?).await?;
    if !response.status().is_success() {
        bail!("the proxy {}:{} answered {}", proxy.host, proxy.port, response.status().as_u16());
    }
    Ok(TokioIo::new(hyper::upgrade::on(response).await?))
}

async fn send_over_tls(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    config: &Arc<ClientConfig>,
    target: &FetchTarget,
    request: Request<Full<Bytes>>,
    bounds: FetchBounds,
) -> anyhow::Result<Response<Full<Bytes>>> {
    let connector = tokio_rustls::TlsConnector::from(config.clone());
    let stream = connector.connect(ServerName::try_from(target.host.clone())?, stream).await;
    let stream = stream.with_context(|| format!("TLS with {}:{}", target.host, target.port))?;
    send_request(stream, request, bounds).await
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
