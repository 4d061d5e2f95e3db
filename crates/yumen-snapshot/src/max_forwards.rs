//! `Max-Forwards` of OPTIONS and TRACE (RFC 9110 §7.6.2): with 0 left, the gateway responds itself.

use yumen_plugin::{Exchange, LocalResponse, Method};

const FIELD: &str = "Max-Forwards";
/// The methods that are routed by default. TRACE would reveal to clients the fields that endpoints get.
const ALLOWED: &str = "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS";

/// Decrements `Max-Forwards` of OPTIONS and TRACE; returns the response if it is 0.
#[cold]
pub fn max_forwards(ex: &mut Exchange<'_>) -> Option<LocalResponse> {
    let received = ex.request.fields.get(FIELD)?;
    let hops: u32 = std::str::from_utf8(received).ok()?.parse().ok()?;
    if let Some(left) = hops.checked_sub(1) {
        ex.request.fields.set(FIELD, left.to_string().as_bytes());
        return None;
    }
    // The gateway never reflects a TRACE request, which could expose credentials (RFC 9110 §9.3.8).
    let status = if ex.request.method() == Method::Trace { 405 } else { 200 };
    Some(LocalResponse::status(status).field("Allow", ALLOWED))
}

/// The refusal of a TRACE request on a node that does not route them (RFC 9110 §15.5.6).
#[cold]
pub fn trace_refusal() -> LocalResponse {
    LocalResponse::error_msg(405, "TRACE is not allowed").field("Allow", ALLOWED)
}
