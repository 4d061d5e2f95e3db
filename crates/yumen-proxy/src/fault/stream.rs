//! Faults of TCP and UDP streams, with the word and status of each in logs.

/// Reason that a stream was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamFault {
    /// A trusted peer sent no valid PROXY header.
    ProxyHeader,
    /// The client did not send enough in time.
    ClientTimeout,
    /// The TLS handshake with the client failed.
    ClientTls,
    /// No ssl object matches the server name of the client, and some ssl objects require client certificates.
    UnknownName,
    /// The client does not use TLS on a TLS listener.
    NotTls,
    /// The client closed before any byte was forwarded.
    ClientGone,
    /// No stream route matches.
    NoRoute,
    /// A plugin refused the stream with this status.
    Refused(u16),
    /// The first bytes do not match the protocol of the route.
    Protocol,
    /// The route or its upstream cannot be used.
    Unavailable,
    /// No endpoint is available.
    NoEndpoint,
    /// A connection to the endpoint was refused or failed.
    Connect,
    /// The connection to the endpoint timed out.
    ConnectTimeout,
    /// The TLS handshake with the endpoint failed.
    UpstreamTls,
    /// The endpoint has no valid certificate for the server name of the client.
    UpstreamName,
    /// The client reset the connection.
    ClientReset,
    /// The endpoint reset the connection.
    UpstreamReset,
    /// Neither side sent for the idle timeout.
    Idle,
    /// The endpoint was removed, and `on_change` ends such streams.
    Changed,
    /// The limit of UDP sessions is reached.
    TooManySessions,
}

impl StreamFault {
    /// All faults. `Refused` occurs once, for all statuses.
    pub(crate) const ALL: [StreamFault; 20] = [
        StreamFault::ProxyHeader,
        StreamFault::ClientTimeout,
        StreamFault::ClientTls,
        StreamFault::UnknownName,
        StreamFault::NotTls,
        StreamFault::ClientGone,
        StreamFault::NoRoute,
        StreamFault::Refused(403),
        StreamFault::Protocol,
        StreamFault::Unavailable,
        StreamFault::NoEndpoint,
        StreamFault::Connect,
        StreamFault::ConnectTimeout,
        StreamFault::UpstreamTls,
        StreamFault::UpstreamName,
        StreamFault::ClientReset,
        StreamFault::UpstreamReset,
        StreamFault::Idle,
        StreamFault::Changed,
        StreamFault::TooManySessions,
    ];

    /// Word of the fault in logs and metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            StreamFault::ProxyHeader => "proxy_header",
            StreamFault::ClientTimeout => "client_timeout",
            StreamFault::ClientTls => "client_tls",
            StreamFault::UnknownName => "unknown_name",
            StreamFault::NotTls => "not_tls",
            StreamFault::ClientGone => "client_gone",
            StreamFault::NoRoute => "no_route",
            StreamFault::Refused(_) => "refused",
            StreamFault::Protocol => "protocol",
            StreamFault::Unavailable => "unavailable",
            StreamFault::NoEndpoint => "no_endpoint",
            StreamFault::Connect => "connect",
            StreamFault::ConnectTimeout => "connect_timeout",
            StreamFault::UpstreamTls => "upstream_tls",
            StreamFault::UpstreamName => "upstream_name",
            StreamFault::ClientReset => "client_reset",
            StreamFault::UpstreamReset => "upstream_reset",
            StreamFault::Idle => "idle",
            StreamFault::Changed => "changed",
            StreamFault::TooManySessions => "too_many_sessions",
        }
    }

    /// Status of the fault in logs, as in the stream module of NGINX.
    pub(crate) fn status(self) -> u16 {
        match self {
            StreamFault::ProxyHeader
            | StreamFault::ClientTls
            | StreamFault::UnknownName
            | StreamFault::NotTls
            | StreamFault::Protocol => 400,
            StreamFault::ClientTimeout => 408,
            StreamFault::ClientGone | StreamFault::ClientReset => 499,
            StreamFault::NoRoute => 404,
            StreamFault::Refused(status) => status,
            StreamFault::Connect
            | StreamFault::UpstreamTls
            | StreamFault::UpstreamName
            | StreamFault::UpstreamReset => 502,
            StreamFault::ConnectTimeout | StreamFault::Idle => 504,
            StreamFault::Unavailable
            | StreamFault::NoEndpoint
            | StreamFault::TooManySessions
            | StreamFault::Changed => 503,
        }
    }

    /// Index in [`StreamFault::ALL`].
    pub(crate) fn index(self) -> usize {
        StreamFault::ALL.iter().position(|one| one.word() == self.word()).unwrap_or(0)
    }
}
