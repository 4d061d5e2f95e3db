//! The `X-APISIX-Upstream-Status` field, with the meaning that it has in APISIX.

use yumen_plugin::Exchange;

/// Stores the status of the endpoint, and adds the response field if the status is 5xx.
#[inline(always)]
pub(super) fn note_upstream_status(ex: &mut Exchange<'_>, status: u16) {
    ex.endpoint.status = status;
    if status >= 500 {
        set_upstream_status(ex);
    }
}

/// Sets the field ahead of the response plugins, which may remove it.
#[cold]
fn set_upstream_status(ex: &mut Exchange<'_>) {
    let mut number = itoa::Buffer::new();
    let status = number.format(ex.endpoint.status);
    ex.response.fields.set("X-APISIX-Upstream-Status", status.as_bytes());
}
