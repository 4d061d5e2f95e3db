//! The choice among the weighted backends of a route.

use yumen_plugin::{Exchange, LocalResponse};
use yumen_snapshot::{UpstreamSlotId, WeightedTargets};

use crate::exchange::connection::DownstreamConnection;

/// The upstream of a request, after the edits of its backend; or the response in place of an upstream.
pub(crate) fn pick(
    conn: &DownstreamConnection,
    ex: &mut Exchange<'_>,
    targets: &WeightedTargets,
) -> Result<UpstreamSlotId, LocalResponse> {
    let refuse = |status| LocalResponse::error_msg(status, "no backend is available");
    let Some(target) = targets.pick(conn.worker.random()) else { return Err(refuse(500)) };
    let Some(slot) = target.slot else { return Err(refuse(target.status)) };
    if let Some(edits) = &target.edits {
        edits.apply_to_request(ex).map_err(|refused| refused.response())?;
    }
    Ok(slot)
}
