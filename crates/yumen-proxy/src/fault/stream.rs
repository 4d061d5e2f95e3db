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

/// Makes the list of the faults and their words from one table. A fault without a row does not compile, because the
/// match over the words is exhaustive.
macro_rules! stream_faults {
    ($($fault:ident $(($status:literal))? => $word:literal,)+) => {
        impl StreamFault {
            /// All faults. `Refused` occurs once, for all statuses.
            pub(crate) const ALL: [StreamFault; [$($word),+].len()] = [$(StreamFault::$fault $(($status))?),+];

            /// Word of the fault in logs and metrics.
            pub(crate) fn word(self) -> &'static str {
                match self {
                    $(StreamFault::$fault { .. } => $word,)+
                }
            }
        }
    };
}

stream_faults! {
    ProxyHeader => "proxy_header",
    ClientTimeout => "client_timeout",
    ClientTls => "client_tls",
    UnknownName => "unknown_name",
    NotTls => "not_tls",
    ClientGone => "client_gone",
    NoRoute => "no_route",
    Refused(403) => "refused",
    Protocol => "protocol",
    Unavailable => "unavailable",
    NoEndpoint => "no_endpoint",
    Connect => "connect",
    ConnectTimeout => "connect_timeout",
    UpstreamTls => "upstream_tls",
    UpstreamName => "upstream_name",
    ClientReset => "client_reset",
    UpstreamReset => "upstream_reset",
    Idle => "idle",
    Changed => "changed",
    TooManySessions => "too_many_sessions",
}

impl StreamFault {
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
