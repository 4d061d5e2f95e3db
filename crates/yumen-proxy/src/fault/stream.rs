//! What may go wrong with a stream, and how it is told.

/// Why a stream was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamFault {
    /// A trusted peer sent no PROXY header that can be read.
    ProxyHeader,
    /// The client sent too little for too long.
    ClientTimeout,
    /// The TLS handshake with the client failed.
    ClientTls,
    /// The client asked for a name that no ssl object is for, where some ask clients for certificates.
    UnknownName,
    /// The client does not speak TLS where it must.
    NotTls,
    /// The client left before anything could be passed on.
    ClientGone,
    /// No stream route matches.
    NoRoute,
    /// A plugin refused, with this status.
    Refused(u16),
    /// The first bytes are not of the protocol the route is for.
    Protocol,
    /// The route is broken, or its upstream is.
    Unavailable,
    /// There is no endpoint to ask.
    NoEndpoint,
    /// A connection to the endpoint was refused or failed.
    Connect,
    /// A connection to the endpoint took too long.
    ConnectTimeout,
    /// The TLS handshake with the endpoint failed.
    UpstreamTls,
    /// The endpoint cannot prove to be the server the client asked for.
    UpstreamName,
    /// The client reset the connection.
    ClientReset,
    /// The endpoint reset the connection.
    UpstreamReset,
    /// Nothing moved for too long.
    Idle,
    /// Its endpoint was taken out, and `on_change` ends streams then.
    Changed,
    /// There are as many sessions of datagrams as may be.
    TooManySessions,
}

impl StreamFault {
    /// All of them; what is refused with one status stands for all statuses.
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

    /// The word logs and metrics use.
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

    /// The status a log gives it, as web servers number the ends of streams.
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

    /// Its place among [`StreamFault::ALL`].
    pub(crate) fn index(self) -> usize {
        StreamFault::ALL.iter().position(|one| one.word() == self.word()).unwrap_or(0)
    }
}
