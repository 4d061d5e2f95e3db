//! What peers say of how a request came to them, and `Forwarded` (RFC 7239), which tells endpoints. Knows no
//! settings.

use std::net::IpAddr;

use yumen_base::IpSet;
use yumen_http::{Fields, Known};
use yumen_plugin::Exchange;

/// What anybody can say, and only trusted peers are believed.
const CLAIMS: [Known; 5] = [
    Known::XForwardedProto,
    Known::XForwardedHost,
    Known::XForwardedPort,
    Known::Forwarded,
    Known::XForwardedFor,
];

/// Takes away what a peer that is not among `trusted` says of how the request came to it, so that neither routing nor
/// plugins nor endpoints take it for the truth. Its `X-Forwarded-For` goes only where others are trusted: without
/// such a boundary everybody's is passed on, as in APISIX.
#[inline]
pub(crate) fn distrust(fields: &mut Fields, trusted: &IpSet) {
    if fields.ever_had_any(&CLAIMS) {
        take_away(fields, !trusted.is_empty());
    }
}

#[cold]
fn take_away(fields: &mut Fields, has_boundary: bool) {
    for claim in CLAIMS {
        if fields.ever_had_any(&[claim]) && (claim != Known::XForwardedFor || has_boundary) {
            fields.remove(claim.name());
        }
    }
}

/// Writes the field: what trusted peers said before, then an element of our own.
pub(crate) fn write(out: &mut Vec<u8>, ex: &Exchange<'_>) {
    out.extend_from_slice(b"Forwarded: ");
    for said in ex.request.fields.all_known(Known::Forwarded) {
        out.extend_from_slice(said);
        out.extend_from_slice(b", ");
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
