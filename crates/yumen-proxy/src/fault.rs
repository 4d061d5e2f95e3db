//! Failures of traffic: side, status, word in logs and message of each, and whether the request may be
//! repeated.

mod shared;
pub(crate) mod stream;

use yumen_http::{BodyError, HeadError};
use yumen_plugin::IndecisionCause;

pub(crate) use shared::SharedFailure;

/// Side that caused a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultSide {
    /// The client.
    Client,
    /// An endpoint.
    Upstream,
    /// The gateway.
    Local,
}

/// Kind of a traffic failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The client closed or reset its connection or stream.
    ClientGone,
    /// The client did not read its response in time.
    ClientStalled,
    /// The request head is malformed or too large.
    Head(HeadError),
    /// The request body is malformed.
    Body(BodyError),
    /// The request body is larger than allowed.
    BodyTooLarge,
    /// The client did not send in time.
    ClientTimeout,
    /// CONNECT is not proxied.
    ConnectRefused,
    /// The deadline of the client, the route or a plugin has passed.
    Deadline,
    /// The client sent plain HTTP to a TLS listener.
    NotTls,
    /// The request cannot be expressed in HTTP/2, which its endpoint requires.
    NotHttp2,
    /// Load shedding refused the request.
    Overloaded,
    /// No endpoint is available.
    NoEndpoint,
    /// The upstream is at its limit of requests or connections, and its queue is full.
    UpstreamFull,
    /// The request waited for capacity of the upstream until the queue timeout.
    UpstreamQueue,
    /// A connection to the endpoint was refused or failed.
    Connect,
    /// The gateway has no file descriptor, port or memory for a connection.
    Exhausted,
    /// The connection to the endpoint timed out.
    ConnectTimeout,
    /// The TLS handshake with the endpoint failed.
    UpstreamTls,
    /// As `UpstreamTls`, under a server name from the request: the cause may be that name or the endpoint.
    RequestedTls,
    /// TLS with the endpoint did not negotiate the HTTP version of its upstream (ALPN).
    UpstreamVersion,
    /// As `UpstreamVersion`, under a server name from the request.
    RequestedVersion,
    /// The endpoint has no valid certificate for the host of the request.
    RequestedName,
    /// The endpoint closed or reset the connection before its response was complete.
    UpstreamClosed,
    /// The endpoint reset the stream of the request; the connection continues.
    UpstreamReset,
    /// The endpoint did not read the request in time.
    SendTimeout,
    /// The endpoint did not respond in time.
    ReadTimeout,
    /// The attempt took longer than `timeout.attempt`.
    AttemptTimeout,
    /// The response head is malformed or too large.
    UpstreamHead(HeadError),
    /// The response body is malformed.
    UpstreamBody(BodyError),
    /// The response body exceeds the limit for a body that must be buffered whole.
    UpstreamTooLarge,
    /// The endpoint sent 101 without an upgrade request.
    UnexpectedUpgrade,
    /// The route or its upstream cannot be used.
    Unavailable,
    /// A regular expression that routing depends on took too long to match.
    Undecided,
    /// The request depends on a value of the body, which is malformed or ambiguous.
    UnreadableBody,
}

/// One traffic failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Kind of the failure.
    pub kind: FaultKind,
    /// Whether the endpoint cannot have acted on the request, so that any request may be repeated.
    pub unsent: bool,
}

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Fault {
        Fault { kind, unsent: false }
    }
}

impl From<IndecisionCause> for FaultKind {
    fn from(cause: IndecisionCause) -> FaultKind {
        match cause {
            IndecisionCause::BacktrackLimit => FaultKind::Undecided,
            IndecisionCause::UnreadableBody => FaultKind::UnreadableBody,
        }
    }
}

impl FaultKind {
    /// Side, status, word for logs and metrics, and message of the kind.
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
            FaultKind::AttemptTimeout => (Upstream, 504, "attempt_timeout", "the attempt took too long"),
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

    /// Whether the connection must end: after a head or body that was not understood, the start of the next
    /// request is unknown.
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

    /// Whether the condition is temporary, so that the response may carry `Retry-After`.
    pub(crate) fn is_passing(self) -> bool {
        matches!(self, FaultKind::UpstreamFull | FaultKind::UpstreamQueue | FaultKind::Overloaded)
    }

    /// Whether the fault counts against the endpoint. An oversized response does not: the limit is the
    /// gateway's.
    pub(crate) fn is_endpoints(self) -> bool {
        self.facts().0 == FaultSide::Upstream && self != FaultKind::UpstreamTooLarge
    }

    /// Whether the endpoint timed out after the connection was established.
    pub(crate) fn is_silence(self) -> bool {
        matches!(self, FaultKind::SendTimeout | FaultKind::ReadTimeout | FaultKind::AttemptTimeout)
    }

    /// Whether the endpoint timed out, while connecting or later.
    pub(crate) fn is_upstream_timeout(self) -> bool {
        self == FaultKind::ConnectTimeout || self.is_silence()
    }

    /// Whether another endpoint may succeed.
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
                | FaultKind::AttemptTimeout
        )
    }
}

/// Side and word of every fault, in the order of the metrics.
pub(crate) const COUNTED: [(&str, &str); 31] = [
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
    ("upstream", "attempt_timeout"),
    ("upstream", "upstream_head"),
    ("upstream", "upstream_body"),
    ("upstream", "upstream_too_large"),
    ("upstream", "unexpected_upgrade"),
];

/// Kind for a failed socket or connect call: lack of local resources is not a fault of the endpoint.
pub(crate) fn of_connect(error: &std::io::Error) -> FaultKind {
    use rustix::io::Errno;
    // connect(2): EADDRNOTAVAIL without a free local port, EAGAIN without a free entry in the routing cache.
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
