//! The `X-APISIX-Upstream-Status` field, with the meaning that it has in APISIX: the statuses of all attempts, if the
//! last one is 5xx. An attempt without a response has the status of its fault.

use yumen_plugin::{Exchange, LocalResponse};

const FIELD: &str = "X-APISIX-Upstream-Status";

/// Stores the status of the endpoint, and adds the response field if the status is 5xx. `failed` are the statuses of
/// the attempts before.
#[inline(always)]
pub(super) fn note_upstream_status(ex: &mut Exchange<'_>, status: u16, failed: &[u16]) {
    ex.endpoint.status = status;
    if status >= 500 {
        set_upstream_status(ex, failed);
    }
}

/// Sets the field ahead of the response plugins, which may remove it.
#[cold]
fn set_upstream_status(ex: &mut Exchange<'_>, failed: &[u16]) {
    let statuses = [failed, &[ex.endpoint.status]].concat();
    ex.response.fields.set(FIELD, text(&statuses).as_bytes());
}

/// Adds the field to the response of the gateway for a fault after the attempts with these statuses.
pub(super) fn note_failed_attempts(response: LocalResponse, failed: &[u16]) -> LocalResponse {
    if failed.is_empty() { response } else { response.field(FIELD, text(failed)) }
}

fn text(statuses: &[u16]) -> String {
    statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}
