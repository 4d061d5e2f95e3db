//! `Forwarded` (RFC 7239): who asked and how, in one field. Knows no settings.

use std::net::IpAddr;

use yumen_http::Known;
use yumen_plugin::Exchange;

/// Writes the field: what `trusted` peers said before, then an element of our own.
pub(crate) fn write(out: &mut Vec<u8>, ex: &Exchange<'_>, trusted: bool) {
    out.extend_from_slice(b"Forwarded: ");
    if trusted {
        for said in ex.request.fields.all_known(Known::Forwarded) {
            out.extend_from_slice(said);
            out.extend_from_slice(b", ");
        }
    }
    out.extend_from_slice(b"for=");
    match ex.remote_ip {
        IpAddr::V4(ip) => out.extend_from_slice(ip.to_string().as_bytes()),
        IpAddr::V6(ip) => out.extend_from_slice(format!("\"[{ip}]\"").as_bytes()),
    }
    out.extend_from_slice(b";host=\"");
    for byte in ex.request.authority() {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.extend_from_slice(b"\";proto=");
    out.extend_from_slice(ex.client.scheme().as_bytes());
    out.extend_from_slice(b"\r\n");
}
