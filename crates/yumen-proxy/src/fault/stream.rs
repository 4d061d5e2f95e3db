//! What may go wrong with a stream, and how it is told.

/// Why a stream was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
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

impl Fault {
    /// All of them; what is refused with one status stands for all statuses.
    pub(crate) const ALL: [Fault; 20] = [
        Fault::ProxyHeader,
        Fault::ClientTimeout,
        Fault::ClientTls,
        Fault::UnknownName,
        Fault::NotTls,
        Fault::ClientGone,
        Fault::NoRoute,
        Fault::Refused(403),
        Fault::Protocol,
        Fault::Unavailable,
        Fault::NoEndpoint,
        Fault::Connect,
        Fault::ConnectTimeout,
        Fault::UpstreamTls,
        Fault::UpstreamName,
        Fault::ClientReset,
        Fault::UpstreamReset,
        Fault::Idle,
        Fault::Changed,
        Fault::TooManySessions,
    ];

    /// The word logs and metrics use.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Fault::ProxyHeader => "proxy_header",
            Fault::ClientTimeout => "client_timeout",
            Fault::ClientTls => "client_tls",
            Fault::UnknownName => "unknown_name",
            Fault::NotTls => "not_tls",
            Fault::ClientGone => "client_gone",
            Fault::NoRoute => "no_route",
            Fault::Refused(_) => "refused",
            Fault::Protocol => "protocol",
            Fault::Unavailable => "unavailable",
            Fault::NoEndpoint => "no_endpoint",
            Fault::Connect => "connect",
            Fault::ConnectTimeout => "connect_timeout",
            Fault::UpstreamTls => "upstream_tls",
            Fault::UpstreamName => "upstream_name",
            Fault::ClientReset => "client_reset",
            Fault::UpstreamReset => "upstream_reset",
            Fault::Idle => "idle",
            Fault::Changed => "changed",
            Fault::TooManySessions => "too_many_sessions",
        }
    }

    /// The status a log gives it, as web servers number the ends of streams.
    pub(crate) fn status(self) -> u16 {
        match self {
            Fault::ProxyHeader | Fault::ClientTls | Fault::UnknownName | Fault::NotTls | Fault::Protocol => {
                400
            }
            Fault::ClientTimeout => 408,
            Fault::ClientGone | Fault::ClientReset => 499,
            Fault::NoRoute => 404,
            Fault::Refused(status) => status,
            Fault::Connect | Fault::UpstreamTls | Fault::UpstreamName | Fault::UpstreamReset => 502,
            Fault::ConnectTimeout | Fault::Idle => 504,
            Fault::Unavailable | Fault::NoEndpoint | Fault::TooManySessions | Fault::Changed => 503,
        }
    }

    /// Its place among [`Fault::ALL`].
    pub(crate) fn index(self) -> usize {
        Fault::ALL.iter().position(|one| one.word() == self.word()).unwrap_or(0)
    }
}
