//! The shares of weighted backends in an explanation, and the reason why no endpoint is available.

use crate::{Route, RouteTarget, Snapshot, Upstream, WeightedTargets};

/// The shares of weighted backends.
pub(super) fn shares(snapshot: &Snapshot, of: &WeightedTargets) -> String {
    let name = |slot| snapshot.upstream(slot).map(|upstream| upstream.origin.clone());
    format!("weighted backends: {}", of.describe(name))
}

pub(super) fn weighted_targets(route: &Route) -> Option<&WeightedTargets> {
    match &route.target {
        RouteTarget::Weighted(of) => Some(of),
        _ => None,
    }
}

/// Status and message of the local response without an endpoint, and why there is none. Unresolved names make no local
/// response, since only the serving node knows their addresses.
pub(super) fn nowhere(
    upstream: Option<&Upstream>,
    winner: Option<&Route>,
) -> (Option<u16>, &'static str, Option<String>) {
    let message = "no endpoint is available";
    let Some(upstream) = upstream else {
        if let Some(of) = winner.and_then(weighted_targets) {
            let status = of.largest().map_or(500, |target| target.status);
            return (Some(status), "the route has no valid backend", None);
        }
        return (Some(503), message, Some("neither the route nor its service has an upstream".into()));
    };
    let is_unresolved = !upstream.unresolved.is_empty();
    ((!is_unresolved).then_some(503), message, Some(without_endpoint(upstream)))
}

/// Why an upstream has no endpoint for a request.
pub(super) fn without_endpoint(upstream: &Upstream) -> String {
    let origin = &upstream.origin;
    match &*upstream.unresolved {
        [] if upstream.endpoints.is_empty() => format!("{origin} has no endpoint"),
        [] => format!("all endpoints of {origin} have weight 0"),
        names => format!("addresses of {} not resolved", names.join(", ")),
    }
}
