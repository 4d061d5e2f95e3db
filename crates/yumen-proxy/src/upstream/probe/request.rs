//! One probe of one endpoint: a connection, or a request on it. Independent of thresholds or intervals.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use yumen_http::proxy_protocol;
use yumen_http::{HeadLimits, Method, ParsedHead, ResponseHead, parse};
use yumen_snapshot::UpstreamTls;
use yumen_snapshot::upstream::{ActiveChecks, Endpoint, ProbeKind, ProbeMessage};

use super::grpc::HealthCall;
use crate::observe::log_suppression::{SuppressionKey, should_log};
use crate::tls;
use crate::upstream::health::HealthObservation;

/// A prepared probe of an endpoint.
pub(super) struct ProbeRequest {
    addr: SocketAddr,
    /// The PROXY header, sent before TLS.
    opening: Vec<u8>,
    /// The request in HTTP/1 format; empty for a TCP probe.
    request: Vec<u8>,
    tls: Option<Result<(Arc<tls::UpstreamTlsClient>, ServerName<'static>), String>>,
    /// The gRPC call that replaces the request.
    call: Option<HealthCall>,
}

impl ProbeRequest {
    /// Uses the CA and the client certificate of the upstream. The check settings decide whether the
    /// endpoint's certificate is verified.
    pub(super) fn new(
        checks: &ActiveChecks,
        endpoint: &Endpoint,
        upstream_tls: &UpstreamTls,
    ) -> ProbeRequest {
        let addr = SocketAddr::new(endpoint.addr.ip(), checks.port.unwrap_or(endpoint.addr.port()));
        // A separate port for checks does not expect the PROXY header of the endpoint's own port.
        let version = checks.proxy_protocol.filter(|_| addr == endpoint.addr);
        let opening = version.map(proxy_protocol::own).unwrap_or_default();
        let mut call = None;
        let (request, tls) = match &checks.probe {
            ProbeKind::Grpc { host, service, verify } => {
                let port = if verify.is_some() { 443 } else { 80 };
                let host = host
                    .as_deref()
                    .map_or_else(|| authority(&endpoint.host, addr.port(), port), str::to_owned);
                let tls = verify.map(|verify| tls_of(host_of(&host), addr, verify, upstream_tls, true));
                call = Some(HealthCall::new(&host, service, verify.is_some()));
                (Vec::new(), tls)
            }
            ProbeKind::Tcp => (Vec::new(), None),
            ProbeKind::Http { path, host, fields } => {
                let host =
                    host.as_deref().map_or_else(|| authority(&endpoint.host, addr.port(), 80), str::to_owned);
                (request(&checks.message, path, &host, fields), None)
            }
            ProbeKind::Https { path, host, fields, verify } => {
                let name = host.as_deref().map_or(&*endpoint.host, host_of);
                let tls = tls_of(name, addr, *verify, upstream_tls, false);
                let host = host
                    .as_deref()
                    .map_or_else(|| authority(&endpoint.host, addr.port(), 443), str::to_owned);
                (request(&checks.message, path, &host, fields), Some(tls))
            }
        };
        if let Some(Err(error)) = &tls {
            tracing::warn!(endpoint = %addr, error, "endpoint probe disabled: invalid TLS settings");
        }
        ProbeRequest { addr, opening, request, tls, call }
    }

    /// Performs the probe.
    pub(super) async fn send(&self, timeout_ms: u64) -> HealthObservation {
        let bound = Duration::from_millis(timeout_ms.max(1));
        timeout(bound, self.send_unbounded()).await.unwrap_or(HealthObservation::Timeout)
    }

    async fn send_unbounded(&self) -> HealthObservation {
        let Ok(mut stream) = TcpStream::connect(self.addr).await else {
            return HealthObservation::TcpFailure;
        };
        if stream.write_all(&self.opening).await.is_err() {
            return HealthObservation::TcpFailure;
        }
        if self.request.is_empty() && self.call.is_none() {
            return HealthObservation::Connected;
        }
        match &self.tls {
            None => self.talk(stream).await,
            Some(Err(_)) => HealthObservation::TcpFailure,
            Some(Ok((client, name))) => {
                let connector = tokio_rustls::TlsConnector::from(client.config());
                match connector.connect(name.clone(), stream).await {
                    Ok(stream) if self.is_spoken_on(stream.get_ref().1.alpn_protocol()) => {
                        self.talk(stream).await
                    }
                    Ok(_) => self.failed("the endpoint did not agree on HTTP/2"),
                    Err(error) => self.failed(&error.to_string()),
                }
            }
        }
    }

    /// Whether the negotiated protocol suits the probe.
    fn is_spoken_on(&self, settled: Option<&[u8]>) -> bool {
        self.call.is_none() || settled == Some(tls::HTTP2)
    }

    #[cold]
    fn failed(&self, error: &str) -> HealthObservation {
        if let Some(untold) = should_log(self.addr, SuppressionKey::Probe) {
            tracing::warn!(endpoint = %self.addr, error, untold, "probe failed: TLS handshake");
        }
        HealthObservation::TcpFailure
    }

    async fn talk(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> HealthObservation {
        match &self.call {
            Some(call) => call.make(stream).await,
            None => self.get(stream).await,
        }
    }

    /// Sends the request and reads heads until the final one. The body is not read.
    async fn get(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> HealthObservation {
        if stream.write_all(&self.request).await.is_err() || stream.flush().await.is_err() {
            return HealthObservation::TcpFailure;
        }
        let mut received = Vec::with_capacity(1024);
        let mut head = ResponseHead::default();
        loop {
            head.clear();
            match parse::response(&received, 0, &HeadLimits::default(), Method::Get, &mut head) {
                // An interim response precedes another (RFC 9110 §15.2).
                Ok(ParsedHead::Head(length)) if matches!(head.status, 100..=199) => {
                    drop(received.drain(..length))
                }
                Ok(ParsedHead::Head(_)) => return HealthObservation::Status(head.status),
                Ok(ParsedHead::Partial) => match stream.read_buf(&mut received).await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return HealthObservation::TcpFailure,
                },
                Err(_) => return HealthObservation::Malformed,
            }
        }
    }
}

fn tls_of(
    host: &str,
    address: SocketAddr,
    verify: bool,
    upstream: &UpstreamTls,
    http2: bool,
) -> Result<(Arc<tls::UpstreamTlsClient>, ServerName<'static>), String> {
    let settings = UpstreamTls { verify, ..upstream.clone() };
    let host = upstream.server_name.as_deref().unwrap_or(host);
    let name = tls::server_name(host, address, verify);
    let name = name.ok_or_else(|| format!("`{host}` is none that a certificate can have"))?;
    Ok((tls::shared_client(&settings, http2)?, name))
}

/// The host of `host:port`.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.contains(':') => host,
        Some((host, _)) if host.ends_with(']') => host,
        _ => authority,
    }
}

/// A `Host` value (RFC 9110 §7.2): IPv6 in brackets, the port where it is not the scheme's own.
fn authority(host: &str, port: u16, default_port: u16) -> String {
    let host =
        if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    if port == default_port { host } else { format!("{host}:{port}") }
}

fn request(message: &ProbeMessage, path: &str, host: &str, fields: &[(Box<str>, Box<str>)]) -> Vec<u8> {
    let ProbeMessage { method, body } = message;
    let slash = if path.starts_with('/') { "" } else { "/" };
    // A space would end the request target (RFC 9112 §3).
    let path = clean(path).replace(' ', "%20");
    let mut text = format!("{method} {slash}{path} HTTP/1.1\r\n");
    let length = body.len().to_string();
    let own = [("Host", host), ("User-Agent", "yumen-healthcheck"), ("Connection", "close")];
    let own = own.into_iter().chain((!body.is_empty()).then_some(("Content-Length", length.as_str())));
    let is_given = |name: &str| fields.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    let own = own.filter(|(name, _)| !is_given(name));
    for (name, value) in own.chain(fields.iter().map(|(name, value)| (&**name, &**value))) {
        text.push_str(&format!("{}: {}\r\n", clean(name), clean(value)));
    }
    text.push_str("\r\n");
    text.push_str(body);
    text.into_bytes()
}

/// Removes control characters, which could end a line of the head.
fn clean(text: &str) -> String {
    text.chars().filter(|char| !char.is_ascii_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::{ProbeMessage, authority, host_of, request};

    #[test]
    fn a_request_names_its_host_once_and_cannot_be_split() {
        let field = |name: &str, value: &str| (Box::from(name), Box::from(value));
        let check = |path: &str, fields: &[(Box<str>, Box<str>)], expected: &str| {
            let sent = String::from_utf8(request(&ProbeMessage::default(), path, "a.test", fields)).unwrap();
            assert_eq!(sent.replace("\r\n", "|"), expected);
        };
        let own = "Host: a.test|User-Agent: yumen-healthcheck|Connection: close|";
        check("/up", &[], &format!("GET /up HTTP/1.1|{own}|"));
        check("up it", &[field("X-A", "1")], &format!("GET /up%20it HTTP/1.1|{own}X-A: 1||"));
        check(
            "/\r\nX: 1",
            &[field("X-A", "1\r\nX-B: 2")],
            &format!("GET /X:%201 HTTP/1.1|{own}X-A: 1X-B: 2||"),
        );
        let host = [field("host", "b.test")];
        check("/", &host, "GET / HTTP/1.1|User-Agent: yumen-healthcheck|Connection: close|host: b.test||");
    }

    #[test]
    fn a_request_has_the_method_and_the_body_of_its_settings() {
        let message = ProbeMessage { method: "POST", body: "a=1".into() };
        let sent = String::from_utf8(request(&message, "/up", "a.test", &[])).unwrap();
        let (head, body) = sent.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /up HTTP/1.1\r\nHost: a.test\r\n"), "{head}");
        assert!(head.ends_with("\r\nContent-Length: 3"), "{head}");
        assert_eq!(body, "a=1");
        let empty = ProbeMessage { method: "HEAD", ..ProbeMessage::default() };
        let sent = String::from_utf8(request(&empty, "/", "a.test", &[])).unwrap();
        assert!(sent.starts_with("HEAD / ") && !sent.contains("Content-Length"), "{sent}");
    }

    #[test]
    fn authorities_are_made_and_read() {
        for (host, port, expected) in [
            ("a.test", 80, "a.test"),
            ("a.test", 8080, "a.test:8080"),
            ("::1", 80, "[::1]"),
            ("[::1]", 81, "[::1]:81"),
        ] {
            assert_eq!(authority(host, port, 80), expected);
        }
        for (given, expected) in [
            ("a.test", "a.test"),
            ("a.test:1", "a.test"),
            ("::1", "::1"),
            ("[::1]:1", "[::1]"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(host_of(given), expected);
        }
    }
}
