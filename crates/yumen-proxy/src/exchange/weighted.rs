//! The choice among the weighted backends of a route.

use yumen_plugin::{Exchange, LocalResponse};
use yumen_snapshot::{UpstreamSlotId, WeightedTarget, WeightedTargets};

use crate::exchange::chains::ExchangeChains;
use crate::exchange::connection::DownstreamConnection;
use crate::grpc;
use crate::worker::PinnedSnapshot;

/// The upstream of a request, after the edits of its backend; or the response in place of an upstream.
#[cold]
pub(crate) fn pick<'s>(
    conn: &DownstreamConnection,
    ex: &mut Exchange<'s>,
    pinned: &'s PinnedSnapshot,
    chains: &mut ExchangeChains<'s>,
    targets: &'s WeightedTargets,
) -> Result<UpstreamSlotId, LocalResponse> {
    // A call gets the gRPC status UNAVAILABLE, by which clients try again.
    let is_call = grpc::is_grpc(&ex.request);
    let refuse = |status| {
        LocalResponse::error_msg(if is_call { 503 } else { status }, "the route has no valid backend")
    };
    let target = of_session(ex, pinned, targets).or_else(|| targets.pick(conn.worker.random()));
    let Some(target) = target else { return Err(refuse(500)) };
    let Some(slot) = target.slot else { return Err(refuse(target.status)) };
    if let Some(session) = &mut chains.session {
        session.backend = target.key;
    }
    if let Some(edits) = &target.edits {
        edits.apply_to_request(ex).map_err(|refused| refused.response())?;
        chains.edits = Some(edits);
    }
    Ok(slot)
}

/// The backend of the session, if it still has the endpoint. Without it, the session begins anew by the weights.
fn of_session<'s>(
    ex: &Exchange<'_>,
    pinned: &PinnedSnapshot,
    targets: &'s WeightedTargets,
) -> Option<&'s WeightedTarget> {
    let sticky = ex.upstream.sticky.as_deref()?;
    targets.of_session(sticky.backend).find(|target| {
        let upstream = target.slot.and_then(|slot| pinned.upstream(slot));
        upstream.is_some_and(|upstream| upstream.serves_session(sticky))
    })
}
