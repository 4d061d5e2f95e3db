//! The client of an exchange: its connection, and the address that rules apply to.

use std::net::{IpAddr, SocketAddr};

use crate::TlsInfo;

/// A downstream connection.
#[derive(Debug, Clone)]
pub struct ClientInfo {
    /// The address of the peer.
    pub peer: SocketAddr,
    /// The address of the listener, as the client reached it.
    pub local: SocketAddr,
    /// The result of the TLS handshake; `None` on a plaintext connection.
    pub tls: Option<TlsInfo>,
    /// Number of the connection, unique in the process.
    pub connection_id: u64,
}

impl ClientInfo {
    /// Returns `https` or `http`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

/// A TCP stream or UDP session that the gateway forwards without reading HTTP.
#[derive(Debug, Clone, Default)]
pub struct StreamInfo {
    /// `tcp`, `tls`, `tls_passthrough` or `udp`.
    pub protocol: &'static str,
    /// The client identifier of an MQTT CONNECT packet.
    pub mqtt_client_id: Option<Box<str>>,
}

/// The client of an exchange.
#[derive(Debug, Clone)]
pub struct ExchangeClient<'s> {
    /// The connection that the client opened.
    pub connection: &'s ClientInfo,
    /// The address that rules and limits apply to: of the peer, or as a trusted proxy forwarded it.
    pub ip: IpAddr,
    /// The port that belongs to `ip`; 0 if the proxy forwarded an address without a port.
    pub port: u16,
    /// Set for a stream, `None` for a request.
    pub stream: Option<StreamInfo>,
}

impl<'s> ExchangeClient<'s> {
    pub(super) fn new(connection: &'s ClientInfo) -> ExchangeClient<'s> {
        ExchangeClient {
            connection,
            // A dual-stack socket reports IPv4 clients as IPv4-mapped addresses (RFC 4291 §2.5.5.2).
            ip: connection.peer.ip().to_canonical(),
            port: connection.peer.port(),
            stream: None,
        }
    }

    /// Returns `https` or `http`.
    pub fn scheme(&self) -> &'static str {
        self.connection.scheme()
    }

    /// The TLS session of the connection.
    pub fn tls(&self) -> Option<&'s TlsInfo> {
        self.connection.tls.as_ref()
    }
}
