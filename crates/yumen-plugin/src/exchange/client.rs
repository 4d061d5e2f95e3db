//! The client of an exchange: its connection, and the address that rules apply to.

use std::net::{IpAddr, SocketAddr};

use crate::TlsInfo;

/// The listener that accepted a connection, in the snapshots of one process.
///
/// Slot 0 stands for all listeners of the node's settings. A slot is used again after its listener is gone, with
/// another epoch, so that connections of the former listener do not count as those of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ListenerNumber {
    /// The position in the tables of a snapshot.
    pub slot: u16,
    /// Counts the listeners that had the slot.
    pub epoch: u16,
}

impl ListenerNumber {
    /// The listeners of the node's settings.
    pub const STATIC: ListenerNumber = ListenerNumber { slot: 0, epoch: 0 };

    /// Whether the listener is one of the node's settings.
    #[inline]
    pub fn is_static(self) -> bool {
        self.slot == 0
    }
}

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
    /// The listener that accepted the connection.
    pub listener: ListenerNumber,
    /// The port that the client dialed, if a load balancer maps it to that of `local`; 0 if not.
    pub mapped_port: u16,
}

impl ClientInfo {
    /// Returns `https` or `http`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The port that the client dialed.
    pub fn dialed_port(&self) -> u16 {
        if self.mapped_port == 0 { self.local.port() } else { self.mapped_port }
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
