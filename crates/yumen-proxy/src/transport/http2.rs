//! HTTP/2 of both sides: its streams as transports of exchanges.
//!
//! The `h2` library owns frames, flow control and HPACK; this module connects them to the worker's buffers,
//! timers and limits. Must not depend on routes, plugins or the connection drivers.

mod connection;
mod duplex;
pub(crate) mod heads;

pub(crate) use connection::{H2Connection, STREAMS_MAX, StreamPermit};
pub(crate) use duplex::{Http2Duplex, ResponseHeadTarget};

use crate::settings::{HeadLimits, WorkerSettings};

/// The client connection preface up to its first empty line (RFC 9113 §3.4).
pub(crate) const PREFACE_HEAD: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";
/// Length of the whole client connection preface.
pub(crate) const PREFACE_BYTES: usize = 24;

/// Send buffer of one stream, in bytes. The streams of a downstream connection share a
/// [`SendQueue`](crate::runtime::backlog::SendQueue).
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Field section limit of the library, in bytes. The library silently drops trailer fields above its limit,
/// so it is twice the gateway's own limit, which refuses the head or aborts the message. The loss remains
/// possible between two and eight times the gateway's limit, where the library ends the connection.
fn field_bytes_max(limits: &HeadLimits) -> u32 {
    (2 * limits.head_bytes_max) as u32
}

pub(crate) fn server_builder(settings: &WorkerSettings) -> h2::server::Builder {
    let http2 = &settings.http2;
    // Extended CONNECT announces WebSockets over HTTP/2 (RFC 8441 §3).
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(http2.streams_max)
        .initial_window_size(http2.stream_window_bytes)
        .initial_connection_window_size(http2.connection_window_bytes)
        .max_header_list_size(field_bytes_max(&settings.limits.request_head))
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .enable_connect_protocol();
    builder
}

pub(crate) fn client_builder(settings: &WorkerSettings) -> h2::client::Builder {
    let http2 = &settings.http2;
    // A pushed response has no request of a client to belong to (RFC 9113 §8.4).
    let mut builder = h2::client::Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(http2.stream_window_bytes)
        .initial_connection_window_size(http2.upstream_window_bytes)
        .initial_max_send_streams(connection::LIMIT_UNKNOWN)
        .max_header_list_size(field_bytes_max(&settings.limits.response_head))
        .max_send_buffer_size(SEND_BUFFER_BYTES);
    builder
}
