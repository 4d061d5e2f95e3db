//! TLS handshakes with endpoints: the server name, and the attribution of failures to endpoint or client.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError};
use tokio_rustls::TlsConnector;
use yumen_snapshot::{Endpoint, Upstream};

use super::HTTP2;
use super::sessions::UpstreamTlsClient;
use super::upstream::client_of;
use crate::fault::FaultKind;
use crate::observe::log_suppression::{SuppressionKey, should_log};
use crate::transport::stream::{RecordStream, TransportStream};
use crate::transport::tcp::TcpConnection;

/// The server name of an upstream handshake, against which the certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TlsName<'n> {
    pub(crate) host: &'n [u8],
    /// Whether the name comes from the request. Failures with such a name do not count against the endpoint:
    /// otherwise a client could mark every endpoint as unhealthy.
    pub(crate) is_explicit: bool,
}

impl<'n> TlsName<'n> {
    /// The name in the TLS settings of the upstream.
    pub(crate) fn of_settings(upstream: &'n Upstream) -> Option<TlsName<'n>> {
        let host = upstream.tls.settings.server_name.as_deref()?.as_bytes();
        Some(TlsName { host, is_explicit: false })
    }
}

/// A prepared handshake with an endpoint.
pub(crate) struct UpstreamHandshake {
    client: Arc<UpstreamTlsClient>,
    name: ServerName<'static>,
    is_explicit: bool,
    http2: bool,
    /// The name of the upstream, for logs.
    origin: Arc<str>,
    endpoint: SocketAddr,
}

impl UpstreamHandshake {
    /// Prepares a handshake. `http2` requests HTTP/2 by ALPN. The error is the fault of the attempt.
    pub(crate) fn new(
        upstream: &Upstream,
        endpoint: &Endpoint,
        name: TlsName<'_>,
        http2: bool,
    ) -> Result<UpstreamHandshake, FaultKind> {
        let client = client_of(upstream, http2).map_err(|error| {
            warn(&upstream.origin, endpoint.addr, FaultKind::UpstreamTls, &error);
            FaultKind::UpstreamTls
        })?;
        let name_of =
            || server_name(std::str::from_utf8(name.host).ok()?, endpoint.addr, upstream.tls.settings.verify);
        let Some(server_name) = name_of() else {
            let kind = if name.is_explicit { FaultKind::RequestedName } else { FaultKind::UpstreamTls };
            warn(
                &upstream.origin,
                endpoint.addr,
                kind,
                "the name to ask for is none that a certificate can have",
            );
            return Err(kind);
        };
        let (is_explicit, endpoint) = (name.is_explicit, endpoint.addr);
        let origin = upstream.origin.clone();
        Ok(UpstreamHandshake { client, name: server_name, is_explicit, http2, origin, endpoint })
    }

    /// Performs the handshake on a new connection.
    pub(crate) async fn shake(self, tcp: TcpConnection) -> Result<TransportStream, FaultKind> {
        let connector = TlsConnector::from(self.client.config());
        let shaken = connector.connect(self.name, RecordStream::new(tcp)).await;
        let stream = shaken.map_err(|error| {
            let kind = kind_of(&error, self.is_explicit);
            warn(&self.origin, self.endpoint, kind, &error.to_string());
            kind
        })?;
        // HTTP/2 over TLS requires agreement by ALPN (RFC 9113 §3.3).
        if self.http2 && stream.get_ref().1.alpn_protocol() != Some(HTTP2) {
            let kind = other_version(self.is_explicit);
            warn(&self.origin, self.endpoint, kind, "the endpoint did not agree on HTTP/2");
            return Err(kind);
        }
        Ok(TransportStream::Connected(Box::new(stream)))
    }
}

/// The server name for a handshake. An invalid name is replaced by the address if the certificate is not
/// verified.
pub(crate) fn server_name(host: &str, address: SocketAddr, verify: bool) -> Option<ServerName<'static>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match ServerName::try_from(bare.to_owned()) {
        Ok(name) => Some(name),
        Err(_) if !verify => Some(ServerName::from(address.ip())),
        Err(_) => None,
    }
}

/// The fault of a failed handshake.
fn kind_of(error: &io::Error, is_explicit: bool) -> FaultKind {
    use rustls::Error::{AlertReceived, InvalidCertificate};
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        // HTTP/2 is the only protocol that the gateway offers.
        Some(AlertReceived(AlertDescription::NoApplicationProtocol)) => other_version(is_explicit),
        _ if !is_explicit => FaultKind::UpstreamTls,
        Some(InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => FaultKind::RequestedName,
        // Servers reject an unknown name in several ways: alerts, the certificate of another site, or a
        // close.
        _ => FaultKind::RequestedTls,
    }
}

/// The fault of an endpoint that does not agree on HTTP/2. It may agree under another server name.
fn other_version(is_explicit: bool) -> FaultKind {
    if is_explicit { FaultKind::RequestedVersion } else { FaultKind::UpstreamVersion }
}

/// Logs the reason of a failed handshake.
#[cold]
fn warn(upstream: &str, endpoint: SocketAddr, kind: FaultKind, error: &str) {
    let which = match kind {
        FaultKind::RequestedName => SuppressionKey::Name,
        FaultKind::RequestedTls | FaultKind::RequestedVersion => SuppressionKey::Requested,
        _ => SuppressionKey::Own,
    };
    if let Some(untold) = should_log(endpoint, which) {
        tracing::warn!(%endpoint, upstream, error, untold, "upstream TLS handshake failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(error: rustls::Error) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }

    #[test]
    fn a_name_the_client_chose_is_not_held_against_the_endpoint() {
        use rustls::Error::{AlertReceived, InvalidCertificate};
        let not_for_name = || failed(InvalidCertificate(CertificateError::NotValidForName));
        let unknown_issuer = || failed(InvalidCertificate(CertificateError::UnknownIssuer));
        let alert = || failed(AlertReceived(AlertDescription::UnrecognisedName));
        let end = || io::Error::from(io::ErrorKind::UnexpectedEof);
        for (error, expected) in [
            (not_for_name(), FaultKind::RequestedName),
            (unknown_issuer(), FaultKind::RequestedTls),
            (alert(), FaultKind::RequestedTls),
            (end(), FaultKind::RequestedTls),
        ] {
            assert_eq!(kind_of(&error, true), expected, "{error}");
            assert_eq!(kind_of(&error, false), FaultKind::UpstreamTls, "{error}");
        }
        let other_version = || failed(AlertReceived(AlertDescription::NoApplicationProtocol));
        assert_eq!(kind_of(&other_version(), true), FaultKind::RequestedVersion);
        assert_eq!(kind_of(&other_version(), false), FaultKind::UpstreamVersion);
    }

    #[test]
    fn repeated_failures_are_logged_at_intervals() {
        let [one, other] = [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        assert_eq!(should_log(one, SuppressionKey::Name), Some(0));
        assert_eq!(should_log(one, SuppressionKey::Name), None);
        assert_eq!(should_log(one, SuppressionKey::Own), Some(0), "another failure is news");
        assert_eq!(should_log(other, SuppressionKey::Name), Some(0), "so is another endpoint");
    }

    #[test]
    fn a_name_no_certificate_can_have_matters_where_certificates_are_verified() {
        let address = SocketAddr::from(([127, 0, 0, 1], 443));
        let label = "a".repeat(64);
        for host in ["-", "foo.123", "a..b", "", "*.a.test", "a b", &label] {
            assert_eq!(server_name(host, address, true), None, "{host}");
            assert_eq!(server_name(host, address, false), Some(address.ip().into()), "{host}");
        }
        for host in ["a.test", "a_b.test", "[::1]", "10.0.0.1"] {
            assert!(server_name(host, address, true).is_some(), "{host}");
        }
    }
}
