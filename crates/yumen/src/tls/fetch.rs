//! One HTTP request to a server of the outside: of ACME, or one that tells the status of certificates.

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

/// Answers are certificates and small documents.
const BODY_BYTES_MAX: usize = 1024 * 1024;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends a request whose target is a whole address, and reads the whole answer.
pub(super) async fn send(
    request: Request<Full<Bytes>>,
    tls: Option<&Arc<ClientConfig>>,
) -> anyhow::Result<Response<Full<Bytes>>> {
    match tokio::time::timeout(TIMEOUT, exchange(request, tls)).await {
        Ok(answer) => answer,
        Err(_) => bail!("no answer within {} s", TIMEOUT.as_secs()),
    }
}

async fn exchange(
    mut request: Request<Full<Bytes>>,
    tls: Option<&Arc<ClientConfig>>,
) -> anyhow::Result<Response<Full<Bytes>>> {
    let address = request.uri().clone();
    let authority = address.authority().with_context(|| format!("{address} names no host"))?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let is_tls = address.scheme_str() == Some("https");
    let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let path = address.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse()?;
    request.headers_mut().insert(HOST, HeaderValue::from_str(authority.as_str())?);
    let agent = HeaderValue::from_static(concat!("yumen/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().entry(USER_AGENT).or_insert(agent);
    let tcp = TcpStream::connect((host.as_str(), port)).await;
    let tcp = tcp.with_context(|| format!("cannot connect to {host}:{port}"))?;
    match (is_tls, tls) {
        (false, _) => ask(tcp, request).await,
        (true, None) => bail!("{address} is asked for in the clear only"),
        (true, Some(config)) => {
            let connector = tokio_rustls::TlsConnector::from(config.clone());
            let stream = connector.connect(ServerName::try_from(host.clone())?, tcp).await;
            ask(stream.with_context(|| format!("TLS with {host}:{port}"))?, request).await
        }
    }
}

async fn ask<S>(stream: S, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
    driver.abort();
    let body = body.map_err(|error| anyhow::anyhow!("the answer cannot be read: {error}"))?;
    Ok(Response::from_parts(head, Full::new(body.to_bytes())))
}
