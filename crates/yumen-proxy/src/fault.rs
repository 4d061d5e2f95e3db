//! Traffic failures: whose they are, whether the request may be repeated, what the client is told.

mod shared;
pub(crate) mod stream;

use yumen_http::{BodyError, HeadError};

pub(crate) use shared::SharedFailure;

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultSide {
    /// The client's.
    Client,
    /// An endpoint's.
    Upstream,
    /// The gateway's own.
    Local,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The client went away.
    ClientGone,
    /// The client took nothing of its answer for too long.
    ClientStalled,
    /// The client's head could not be read.
    Head(HeadError),
    /// The client's body could not be read.
    Body(BodyError),
    /// The client's body is larger than allowed.
    BodyTooLarge,
    /// The client sent nothing for too long.
    ClientTimeout,
    /// CONNECT is not proxied.
    ConnectRefused,
    /// The time of the request is over: its client, its route or a plugin said so before.
    Deadline,
    /// The client does not speak TLS where it must.
    NotTls,
    /// The request has no form in the protocol the endpoint speaks.
    NotHttp2,
    /// The node has more to do than it can bear.
    Overloaded,
    /// There is no endpoint to ask.
    NoEndpoint,
    /// The upstream has as many requests or connections as it may, and enough wait already.
    UpstreamFull,
    /// The request waited for room at the upstream, and there was none in time.
    UpstreamQueue,
    /// A connection to the endpoint was refused or failed.
    Connect,
    /// There was no descriptor, port or memory left to connect with.
    Exhausted,
    /// A connection to the endpoint took too long.
    ConnectTimeout,
    /// The TLS handshake with the endpoint failed.
    UpstreamTls,
    /// The same, under a name that the request told: whether that or the endpoint is to blame cannot be known.
    RequestedTls,
    /// TLS with the endpoint did not settle on the version of HTTP that its upstream is asked in.
    UpstreamVersion,
    /// The same, under a name that the request told.
    RequestedVersion,
    /// The endpoint cannot prove to be the host the request is for.
    RequestedName,
    /// The endpoint closed or reset before its response was complete.
    UpstreamClosed,
    /// The endpoint gave this request up, and its connection goes on.
    UpstreamReset,
    /// The endpoint took too long to take the request.
    SendTimeout,
    /// The endpoint took too long to answer.
    ReadTimeout,
    /// The endpoint's head could not be read.
    UpstreamHead(HeadError),
    /// The endpoint's body could not be read.
    UpstreamBody(BodyError),
    /// The endpoint's body is longer than whoever must read all of it takes.
    UpstreamTooLarge,
    /// The endpoint changed protocols without being asked.
    UnexpectedUpgrade,
    /// The route is broken or its upstream is.
    Unavailable,
    /// A pattern that the way of the request depends on took too long to match.
    Undecided,
    /// The request depends on a value of the body, which is malformed or ambiguous.
    UnreadableBody,
}

/// One traffic failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// Whether the endpoint cannot have acted on the request, so that any request may be repeated.
    pub unsent: bool,
}

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Fault {
        Fault { kind, unsent: false }
    }
}

impl FaultKind {
    /// The one table from failure to side, status, word for logs and metrics, and message.
    pub fn facts(self) -> (FaultSide, u16, &'static str, &'static str) {
        use FaultSide::{Client, Local, Upstream};
        match self {
            FaultKind::ClientGone => (Client, 499, "client_gone", "the client closed the connection"),
            FaultKind::ClientStalled => {
                (Client, 499, "client_stalled", "the client did not take its answer in time")
            }
            FaultKind::Head(error) => (Client, head_status(error), "client_head", head_message(error)),
            FaultKind::Body(_) => (Client, 400, "client_body", "the request body is malformed"),
            FaultKind::BodyTooLarge => {
                (Client, 413, "body_too_large", "the request body is larger than allowed")
            }
            FaultKind::ClientTimeout => (Client, 408, "client_timeout", "the request did not arrive in time"),
            FaultKind::ConnectRefused => (Client, 405, "connect_refused", "CONNECT is not supported"),
            FaultKind::Deadline => (Client, 504, "deadline", "the deadline of the request has passed"),
            FaultKind::NotTls => (Client, 400, "not_tls", "plain HTTP was sent to a port for HTTPS"),
            FaultKind::NotHttp2 => (Client, 400, "not_http2", "the request cannot be sent over HTTP/2"),
            FaultKind::UnreadableBody => {
                (Client, 400, "client_body", "the request body does not follow its Content-Type")
            }
            FaultKind::Undecided => (Local, 500, "undecided", "a pattern took too long to match the request"),
            FaultKind::Overloaded => (Local, 503, "overloaded", "the gateway has too much to do"),
            FaultKind::NoEndpoint => (Local, 503, "no_endpoint", "no endpoint is available"),
            FaultKind::UpstreamFull => {
                (Local, 503, "upstream_full", "the upstream has no room for another request")
            }
            FaultKind::UpstreamQueue => {
                (Local, 503, "upstream_queue", "there was no room at the upstream in time")
            }
            FaultKind::Connect => (Upstream, 502, "connect_failed", "the upstream could not be reached"),
            FaultKind::Exhausted => {
                (Local, 503, "exhausted", "the gateway has no room for another connection")
            }
            FaultKind::ConnectTimeout => {
                (Upstream, 504, "connect_timeout", "the upstream could not be reached in time")
            }
            FaultKind::UpstreamTls | FaultKind::RequestedTls => {
                (Upstream, 502, "upstream_tls", "the TLS handshake with the upstream failed")
            }
            FaultKind::UpstreamVersion | FaultKind::RequestedVersion => {
                (Upstream, 502, "upstream_version", "the upstream does not speak HTTP/2")
            }
            FaultKind::RequestedName => {
                (Upstream, 502, "upstream_name", "the upstream has no valid certificate for this host")
            }
            FaultKind::UpstreamClosed => {
                (Upstream, 502, "upstream_closed", "the upstream closed the connection")
            }
            FaultKind::UpstreamReset => (Upstream, 502, "upstream_reset", "the upstream gave the request up"),
            FaultKind::SendTimeout => {
                (Upstream, 504, "send_timeout", "the upstream did not take the request in time")
            }
            FaultKind::ReadTimeout => (Upstream, 504, "read_timeout", "the upstream did not answer in time"),
            FaultKind::UpstreamHead(_) => {
                (Upstream, 502, "upstream_head", "the upstream's answer is malformed")
            }
            FaultKind::UpstreamBody(_) => {
                (Upstream, 502, "upstream_body", "the upstream's body is malformed")
            }
            FaultKind::UpstreamTooLarge => {
                (Upstream, 502, "upstream_too_large", "the upstream's body is larger than allowed")
            }
            FaultKind::UnexpectedUpgrade => {
                (Upstream, 502, "unexpected_upgrade", "the upstream changed protocols unasked")
            }
            FaultKind::Unavailable => (Local, 503, "unavailable", "the service is not available"),
        }
    }

    /// Whether the connection ends with it: what follows a head or body that was misunderstood cannot
    /// be trusted to be a request.
    pub(crate) fn ends_connection(self) -> bool {
        matches!(
            self,
            FaultKind::Head(_)
                | FaultKind::Body(_)
                | FaultKind::BodyTooLarge
                | FaultKind::ClientTimeout
                | FaultKind::ConnectRefused
                | FaultKind::NotTls
        )
    }

    /// Whether the client may come again soon, as the answer tells it.
    pub(crate) fn is_passing(self) -> bool {
        matches!(self, FaultKind::UpstreamFull | FaultKind::UpstreamQueue | FaultKind::Overloaded)
    }

    /// Whether it tells of the endpoint: it failed, whatever its client did. How long an answer may be to be
    /// read whole is the gateway's affair.
    pub(crate) fn is_endpoints(self) -> bool {
        self.facts().0 == FaultSide::Upstream && self != FaultKind::UpstreamTooLarge
    }

    /// Whether the endpoint was waited for in vain.
    pub(crate) fn is_silence(self) -> bool {
        matches!(self, FaultKind::SendTimeout | FaultKind::ReadTimeout)
    }

    /// Whether another endpoint might do better.
    pub(crate) fn is_worth_retrying(self) -> bool {
        matches!(
            self,
            FaultKind::Connect
                | FaultKind::ConnectTimeout
                | FaultKind::UpstreamTls
                | FaultKind::RequestedTls
                | FaultKind::UpstreamVersion
                | FaultKind::RequestedVersion
                | FaultKind::UpstreamClosed
                | FaultKind::UpstreamReset
                | FaultKind::SendTimeout
                | FaultKind::ReadTimeout
        )
    }
}

/// Side and word of every fault, as metrics count them.
pub(crate) const COUNTED: [(&str, &str); 30] = [
    ("client", "client_gone"),
    ("client", "client_stalled"),
    ("client", "client_head"),
    ("client", "client_body"),
    ("client", "body_too_large"),
    ("client", "client_timeout"),
    ("client", "connect_refused"),
    ("client", "deadline"),
    ("client", "not_http2"),
    ("client", "not_tls"),
    ("local", "overloaded"),
    ("local", "no_endpoint"),
    ("local", "upstream_full"),
    ("local", "upstream_queue"),
    ("local", "exhausted"),
    ("local", "unavailable"),
    ("local", "undecided"),
    ("upstream", "connect_failed"),
    ("upstream", "connect_timeout"),
    ("upstream", "upstream_tls"),
    ("upstream", "upstream_version"),
    ("upstream", "upstream_name"),
    ("upstream", "upstream_closed"),
    ("upstream", "upstream_reset"),
    ("upstream", "send_timeout"),
    ("upstream", "read_timeout"),
    ("upstream", "upstream_head"),
    ("upstream", "upstream_body"),
    ("upstream", "upstream_too_large"),
    ("upstream", "unexpected_upgrade"),
];

/// What a failure to make a socket or to connect it means: not all of them are the endpoint's.
pub(crate) fn of_connect(error: &std::io::Error) -> FaultKind {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(
            Errno::MFILE | Errno::NFILE | Errno::ADDRNOTAVAIL | Errno::NOBUFS | Errno::NOMEM | Errno::AGAIN,
        ) => FaultKind::Exhausted,
        _ => FaultKind::Connect,
    }
}

fn head_status(error: HeadError) -> u16 {
    match error {
        HeadError::Malformed(_) => 400,
        HeadError::TargetTooLong => 414,
        HeadError::TooLarge | HeadError::TooManyFields => 431,
        HeadError::UnknownCoding => 501,
        HeadError::UnknownVersion => 505,
    }
}

fn head_message(error: HeadError) -> &'static str {
    match error {
        HeadError::Malformed(message) => message,
        HeadError::TargetTooLong => "the request target is longer than allowed",
        HeadError::TooLarge => "the request head is larger than allowed",
        HeadError::TooManyFields => "the request has more header fields than allowed",
        HeadError::UnknownCoding => "the transfer coding is not supported",
        HeadError::UnknownVersion => "the protocol version is not supported",
    }
}

#[cfg(test)]
mod tests;
