//! `Max-Forwards` of OPTIONS and TRACE (RFC 9110 §7.6.2): who counts down to nothing answers itself.

use yumen_plugin::{Exchange, Method, Response};

const FIELD: &str = "Max-Forwards";
/// What a gateway takes; TRACE is not among it, since it would show what endpoints are told.
const ALLOWED: &str = "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS";

/// One hop less for OPTIONS and TRACE; the answer where there is none left.
#[cold]
pub fn max_forwards(ex: &mut Exchange<'_>) -> Option<Response> {
    let told = ex.request.fields.get(FIELD)?;
    let hops: u32 = std::str::from_utf8(told).ok()?.parse().ok()?;
    if let Some(left) = hops.checked_sub(1) {
        ex.request.fields.set(FIELD, left.to_string().as_bytes());
        return None;
    }
    let status = if ex.request.method() == Method::Trace { 405 } else { 200 };
    Some(Response::status(status).field("Allow", ALLOWED))
}
