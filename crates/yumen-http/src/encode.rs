//! Serialization of heads: request lines, status lines, fields and framing.

use crate::fields::{FieldLine, Fields, write_line};
use crate::head::{Framing, RequestHead, ResponseHead, is_hop_by_hop};

/// Writes the request line for the upstream: `METHOD target HTTP/1.1`.
pub fn request_line(out: &mut Vec<u8>, head: &RequestHead) {
    out.extend_from_slice(head.method_name());
    out.push(b' ');
    out.extend_from_slice(head.upstream_target());
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Writes the end-to-end fields of a request, except those that `replaced` selects and the caller writes
/// itself.
pub fn request_fields(out: &mut Vec<u8>, head: &RequestHead, mut replaced: impl FnMut(&FieldLine) -> bool) {
    let fields = &head.fields;
    fields.write(out, |field| !is_hop_by_hop(fields, field, head.options) && !replaced(field));
}

/// Writes the status line. An empty `received_reason` is replaced by the standard phrase, if there is one.
pub fn status_line(out: &mut Vec<u8>, status: u16, received_reason: &[u8]) {
    // Saves the formatting of the most frequent status line.
    if status == 200 && (received_reason.is_empty() || received_reason == b"OK") {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
    out.push(b' ');
    let reason =
        if received_reason.is_empty() { standard_reason(status).as_bytes() } else { received_reason };
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
}

/// Writes the end-to-end fields of a response, except those that `replaced` selects and the caller writes
/// itself.
pub fn response_fields(out: &mut Vec<u8>, head: &ResponseHead, mut replaced: impl FnMut(&FieldLine) -> bool) {
    let fields: &Fields = &head.fields;
    fields.write(out, |field| !is_hop_by_hop(fields, field, head.options) && !replaced(field));
}

/// Writes the field that declares the framing of the body (RFC 9112 §6).
pub fn framing(out: &mut Vec<u8>, framing: Framing) {
    match framing {
        // The end of the connection delimits a body without a field (RFC 9112 §6.3).
        Framing::None | Framing::Close => {}
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Framing::Length(length) => {
            write_line(out, b"Content-Length", itoa::Buffer::new().format(length).as_bytes());
        }
    }
}

/// The registered reason phrase of a status (RFC 9110 §15 and the IANA registry); empty if there is none.
pub fn standard_reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        511 => "Network Authentication Required",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
