//! Routes that other routes shadow.

use std::collections::BTreeMap;
use std::sync::Arc;

use yumen_base::Problem;

use crate::router::RouteOverlap;
use crate::{Route, Snapshot};

pub(super) fn check(snapshot: &Snapshot) -> Vec<Problem> {
    let routes = snapshot.router.routes();
    snapshot.router.overlaps().iter().filter_map(|overlap| problem(overlap, &routes)).collect()
}

fn problem(overlap: &RouteOverlap, routes: &BTreeMap<&str, &Arc<Route>>) -> Option<Problem> {
    let RouteOverlap { route: id, by, is_shadowed } = overlap;
    let (route, first) = (&routes.get(&**id)?.matching, &routes.get(&**by)?.matching);
    let is_star = first.hosts.iter().any(|host| &**host == "*");
    let reason = match () {
        () if is_star && route.hosts.is_empty() => {
            "has the host * and therefore precedes routes without a host"
        }
        () if first.priority != route.priority => "has the same host and path and a higher priority",
        () if first.uris.iter().all(|uri| !route.uris.contains(uri)) => {
            "has the same host and priority and a longer uri that matches the same paths"
        }
        () if first.created != route.created => "has the same host, path and priority and is older",
        () => "has the same host, path and priority and a lower id",
    };
    let object = format!("routes/{id}");
    Some(if *is_shadowed {
        Problem::error(object, "uri", format!("no request gets to this route: routes/{by} {reason}"))
            .hint("give it a higher priority or a path of its own, or remove it")
    } else {
        Problem::warning(object, "priority", format!("routes/{by} {reason}, and gets the requests of both"))
            .hint("give the two routes different priorities")
    })
}
