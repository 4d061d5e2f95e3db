//! The forwarding fields of requests to endpoints, shared by the proxy and by `explain`.

use yumen_http::KnownField;
use yumen_http::fields::write_line;

use crate::Exchange;

/// Writes the forwarding fields as lines; `ip` is the client address as text. Values already in the request
/// come from a trusted peer or a plugin and are kept.
pub fn write(ex: &Exchange<'_>, ip: &[u8], out: &mut Vec<u8>) {
    let fields = &ex.request.fields;
    write_addresses(ex, ip, out);
    let is_absent = |known| fields.known(known).is_none() && !ex.upstream.omitted.has(known);
    if is_absent(KnownField::XForwardedProto) {
        write_line(out, b"X-Forwarded-Proto", ex.client.scheme().as_bytes());
    }
    if is_absent(KnownField::XForwardedHost) {
        write_line(out, b"X-Forwarded-Host", ex.request.host());
    }
    if is_absent(KnownField::XForwardedPort) {
        write_line(out, b"X-Forwarded-Port", ex.client.connection.dialed_port().to_string().as_bytes());
    }
}

/// Writes the fields with the address of the client.
pub fn write_addresses(ex: &Exchange<'_>, ip: &[u8], out: &mut Vec<u8>) {
    let fields = &ex.request.fields;
    out.extend_from_slice(b"X-Forwarded-For: ");
    // Several lines are one list (RFC 9110 §5.3).
    for hop in fields.all_known(KnownField::XForwardedFor) {
        out.extend_from_slice(hop);
        out.extend_from_slice(b", ");
    }
    out.extend_from_slice(ip);
    out.extend_from_slice(b"\r\n");
    // A value of the client is no statement of the gateway; one of a plugin is configured by the operator.
    match fields.written(KnownField::XRealIp) {
        Some(value) => write_line(out, b"X-Real-IP", value),
        None if ex.upstream.omitted.has(KnownField::XRealIp) => {}
        None => write_line(out, b"X-Real-IP", ip),
    }
}
