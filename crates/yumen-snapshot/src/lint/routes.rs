//! Routes that other routes shadow.

use std::collections::BTreeMap;
use std::sync::Arc;

use yumen_base::Problem;

use crate::router::RouteOverlap;
use crate::{Route, Router, Snapshot};

pub(super) fn check(snapshot: &Snapshot) -> Vec<Problem> {
    let of_table = |router: &Router, place: &str| -> Vec<Problem> {
        let routes = router.routes();
        router.overlaps().iter().filter_map(|overlap| problem(overlap, &routes, place)).collect()
    };
    let mut problems = of_table(&snapshot.router, "");
    // A route may be reachable in one of its scopes and not in another.
    for scope in snapshot.scopes() {
        problems.extend(of_table(&scope.router, &format!("in scope {}, ", scope.id)));
    }
    problems
}

/// `place` begins the message.
fn problem(overlap: &RouteOverlap, routes: &BTreeMap<&str, &Arc<Route>>, place: &str) -> Option<Problem> {
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
        Problem::error(object, "uri", format!("{place}no request gets to this route: routes/{by} {reason}"))
            .hint("give it a higher priority or a path of its own, or remove it")
    } else {
        Problem::warning(
            object,
            "priority",
            format!("{place}routes/{by} {reason}, and gets the requests of both"),
        )
        .hint("give the two routes different priorities")
    })
}
