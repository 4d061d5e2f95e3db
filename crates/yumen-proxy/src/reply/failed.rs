//! That it was the endpoint that failed, told to the client as APISIX tells it.

use yumen_plugin::Exchange;

/// Notes what the endpoint answered, and tells the client where that is a failure.
#[inline(always)]
pub(super) fn note_upstream_status(ex: &mut Exchange<'_>, status: u16) {
    ex.upstream_status = status;
    if status >= 500 {
        tell_upstream_status(ex);
    }
}

/// Among what is set before plugins see the answer: they may take it away.
#[cold]
fn tell_upstream_status(ex: &mut Exchange<'_>) {
    let mut number = itoa::Buffer::new();
    let status = number.format(ex.upstream_status);
    ex.response_fields.set("X-APISIX-Upstream-Status", status.as_bytes());
}
