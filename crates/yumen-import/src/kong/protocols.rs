//! Protocols of routes and services.

/// Protocols of stream routes.
const STREAM_PROTOCOLS: [&str; 4] = ["tcp", "tls", "tls_passthrough", "udp"];

/// Whether a protocol belongs to streams, as opposed to requests.
pub(super) fn is_stream_protocol(protocol: &str) -> bool {
    STREAM_PROTOCOLS.contains(&protocol)
}
