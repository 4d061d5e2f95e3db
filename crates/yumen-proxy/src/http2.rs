//! HTTP/2 on both sides: its streams as the connections that exchanges run over.
//!
//! The library knows frames, flow control and header compression; here they meet the worker's buffers,
//! timers and limits. Knows no route and no plugin, nor who drives a connection.

mod connection;
mod duplex;
pub(crate) mod heads;

pub(crate) use connection::{H2Connection, STREAMS_MAX, StreamPermit};
pub(crate) use duplex::Http2Duplex;

use crate::settings::{HeadLimits, WorkerSettings};

/// What a client sends first where it knows that HTTP/2 is spoken, up to its first empty line
/// (RFC 9113 §3.4).
pub(crate) const PREFACE_HEAD: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";
/// The whole of it.
pub(crate) const PREFACE_BYTES: usize = 24;

/// What a stream may hold for a peer that does not take it; those of a client's connection share a [`SendQueue`](crate::backlog::SendQueue).
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// What the library reads of the fields of a head or of trailers. Trailers beyond it lose fields without a sign, so it
/// is above our own bound, by which what is too large is refused or breaks off: between twice and eight times that
/// bound, beyond which the library ends the connection, such a loss is left.
fn field_bytes_max(limits: &HeadLimits) -> u32 {
    (2 * limits.head_bytes_max) as u32
}

pub(crate) fn server_builder(settings: &WorkerSettings) -> h2::server::Builder {
    let http2 = &settings.http2;
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(http2.streams_max)
        .initial_window_size(http2.stream_window_bytes)
        .initial_connection_window_size(http2.connection_window_bytes)
        .max_header_list_size(field_bytes_max(&settings.request_head))
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .enable_connect_protocol();
    builder
}

pub(crate) fn client_builder(settings: &WorkerSettings) -> h2::client::Builder {
    let http2 = &settings.http2;
    let mut builder = h2::client::Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(http2.stream_window_bytes)
        .initial_connection_window_size(http2.upstream_window_bytes)
        .initial_max_send_streams(connection::LIMIT_UNKNOWN)
        .max_header_list_size(field_bytes_max(&settings.response_head))
        .max_send_buffer_size(SEND_BUFFER_BYTES);
    builder
}
