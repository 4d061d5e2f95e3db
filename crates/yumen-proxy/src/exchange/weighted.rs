//! The choice among the weighted backends of a route.

use yumen_plugin::{Exchange, LocalResponse};
use yumen_snapshot::{CanaryTarget, UpstreamSlotId, WeightedTarget, WeightedTargets};

use crate::exchange::chains::ExchangeChains;
use crate::exchange::connection::DownstreamConnection;
use crate::exchange::session::ExchangeSession;
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
    let session = chains.session.as_deref();
    let of_session = || of_session(ex, pinned, session, targets);
    let random = conn.worker.random();
    let target = match &targets.canary {
        None => of_session().or_else(|| targets.pick(random)),
        Some(canary) if canary.rules.ignores_session => by_rules(ex, pinned, targets, canary, random),
        Some(canary) => of_session().or_else(|| by_rules(ex, pinned, targets, canary, random)),
    };
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

/// The backend by the rules of the canary, then by the weights. A canary without an endpoint gets no request.
fn by_rules<'s>(
    ex: &Exchange<'_>,
    pinned: &PinnedSnapshot,
    targets: &'s WeightedTargets,
    canary: &CanaryTarget,
    random: u64,
) -> Option<&'s WeightedTarget> {
    let target = targets.targets.get(canary.at);
    let upstream = target.and_then(|target| pinned.upstream(target.slot?));
    let serves = upstream.is_some_and(|upstream| upstream.can_serve());
    match canary.rules.verdict(ex) {
        _ if !serves => targets.pick_primary(random),
        Some(true) => target,
        Some(false) => targets.pick_primary(random),
        None => targets.pick(random),
    }
}

/// The backend of the session, if it still has the endpoint. Without it, the session begins anew by the weights.
fn of_session<'s>(
    ex: &Exchange<'_>,
    pinned: &PinnedSnapshot,
    session: Option<&ExchangeSession<'_>>,
    targets: &'s WeightedTargets,
) -> Option<&'s WeightedTarget> {
    let upstream = |target: &WeightedTarget| target.slot.and_then(|slot| pinned.upstream(slot));
    if let Some(backend) = session.and_then(ExchangeSession::named_backend) {
        return targets
            .of_session(backend)
            .find(|target| upstream(target).is_some_and(|one| one.can_serve()));
    }
    let sticky = ex.upstream.sticky.as_deref()?;
    targets
        .of_session(sticky.backend)
        .find(|target| upstream(target).is_some_and(|one| one.serves_session(sticky)))
}
