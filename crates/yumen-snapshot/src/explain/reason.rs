//! Why routes lost, in words, from the router's trace and its matcher.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use yumen_base::ProblemLevel;
use yumen_config::Kind;
use yumen_plugin::Exchange;

use super::{ExplainContext, NEAREST_MAX, RouteCandidate, RouteMismatch};
use crate::{MatchTrace, MismatchReason, Route, RouteTarget, Router, ScopeIds, Snapshot};

/// The routes that did not get the request, with reasons.
pub(super) struct CandidateReasons {
    pub(super) candidates: Vec<RouteCandidate>,
    pub(super) other_hosts: usize,
    pub(super) other_paths: usize,
    pub(super) why_not: Option<RouteCandidate>,
}

type Routes<'s> = BTreeMap<&'s str, &'s Arc<Route>>;

pub(super) fn reasons(
    snapshot: &Snapshot,
    ex: &Exchange<'_>,
    winner: Option<&Route>,
    trace: &MatchTrace,
    why_not_route: Option<&str>,
    context: &ExplainContext<'_>,
) -> CandidateReasons {
    let router = snapshot.router_of(ex.client.connection, ex.request.host());
    let routes = router.map(Router::routes).unwrap_or_default();
    let words = MismatchText { snapshot, router, ex, winner, routes: &routes };
    let of = |lost: MismatchReason| trace.lost.iter().filter(move |losing| losing.lost == lost);
    let mut candidates: Vec<RouteCandidate> = Vec::new();
    for losing in
        trace.lost.iter().filter(|losing| !matches!(losing.lost, MismatchReason::Host | MismatchReason::Path))
    {
        // A route may occur once for each of its paths; the closest gives the reason.
        if !candidates.iter().any(|known| known.route == losing.id) {
            candidates.push(words.candidate(losing));
        }
    }
    // With a winner, routes for other hosts and paths explain nothing and are only counted.
    if winner.is_none() {
        candidates.extend(words.nearest(trace).into_iter().map(|losing| words.candidate(losing)));
    }
    CandidateReasons {
        candidates,
        other_hosts: of(MismatchReason::Host).count(),
        other_paths: of(MismatchReason::Path).count(),
        why_not: why_not_route.map(|route_id| words.why_not(route_id, trace, context)),
    }
}

/// A remark that the text of the winner is broken and an older one serves, unless a remark has the same
/// reason.
pub(super) fn stale(
    winner: Option<&Route>,
    context: &ExplainContext<'_>,
    remarks: &[String],
) -> Option<String> {
    let object = format!("routes/{}", winner?.info.id);
    let problem =
        context.problems.iter().find(|one| one.object == object && one.level == ProblemLevel::Error)?;
    if remarks.iter().any(|remark| remark.ends_with(&problem.message)) {
        return None;
    }
    Some(format!("{object} is not active as written: {}", problem.message))
}

struct MismatchText<'w, 's> {
    snapshot: &'s Snapshot,
    /// The routing table of the request.
    router: Option<&'s Router>,
    ex: &'w Exchange<'s>,
    winner: Option<&'w Route>,
    routes: &'w Routes<'s>,
}

fn list(patterns: &[Box<str>]) -> String {
    patterns.join(", ")
}

impl MismatchText<'_, '_> {
    fn candidate(&self, losing: &RouteMismatch) -> RouteCandidate {
        let why = self.routes.get(&*losing.id).map_or_else(String::new, |route| self.why(route, losing));
        RouteCandidate { route: losing.id.clone(), lost: Some(losing.lost), why }
    }

    fn why(&self, route: &Route, losing: &RouteMismatch) -> String {
        let matching = &route.matching;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let path =
            || format!("its path is {}, not {}", list(&matching.uris), text(self.ex.request.routed_path()));
        match losing.lost {
            MismatchReason::Host => {
                let host = match text(self.ex.request.host()) {
                    host if host.is_empty() => "none".to_owned(),
                    host => host,
                };
                let both = if self.fits_path(route) { String::new() } else { format!("; {}", path()) };
                format!("its host is {}, not {host}{both}", list(&matching.hosts))
            }
            MismatchReason::Path => path(),
            MismatchReason::Shadowed => self.shadowed(route),
            MismatchReason::Method | MismatchReason::RemoteAddr | MismatchReason::Vars => {
                losing.detail.clone()
            }
        }
    }

    /// Why the winner took precedence.
    fn shadowed(&self, route: &Route) -> String {
        let Some(winner) = self.winner else { return String::new() };
        let (id, host, uri) = (&winner.info.id, self.ex.route.host, self.ex.route.uri());
        let (own_matching, winning) = (&route.matching, &winner.matching);
        let has = |patterns: &[Box<str>], one: &str| patterns.iter().any(|pattern| **pattern == *one);
        // The order of the tests is that of the router's precedence: host, path, priority, age, id.
        let same_host = (host.is_empty() && own_matching.hosts.is_empty()) || has(&own_matching.hosts, host);
        if !same_host {
            return format!("route {id} is for a closer host, {host}");
        }
        if !has(&own_matching.uris, uri) {
            return format!("route {id} has a closer path, {uri}");
        }
        if own_matching.priority != winning.priority {
            return format!(
                "route {id} has priority {}, this one {}",
                winning.priority, own_matching.priority
            );
        }
        if own_matching.created != winning.created {
            return format!("route {id} has the same host, path and priority and is older");
        }
        format!("route {id} has the same host, path, priority and age, and a lower id")
    }

    fn fits_path(&self, route: &Route) -> bool {
        self.router.is_some_and(|router| router.fits_path(&route.matching.uris, self.ex))
    }

    /// The routes that miss in one point only: the host, or the end of the path.
    fn nearest<'t>(&self, trace: &'t MatchTrace) -> Vec<&'t RouteMismatch> {
        let path = self.ex.request.routed_path();
        let common = |uri: &str| uri.bytes().zip(path).take_while(|(a, b)| a == *b).count();
        let mut ranked: Vec<(usize, &RouteMismatch)> = Vec::new();
        for losing in trace
            .lost
            .iter()
            .filter(|losing| matches!(losing.lost, MismatchReason::Host | MismatchReason::Path))
        {
            let Some(route) = self.routes.get(&*losing.id) else { continue };
            let closest = route.matching.uris.iter().map(|uri| common(uri)).max().unwrap_or(0);
            match losing.lost {
                // A route that differs only in its host ranks above every partial path.
                MismatchReason::Host if self.fits_path(route) => ranked.push((usize::MAX, losing)),
                // One slash in common is no similarity.
                MismatchReason::Path if closest > 1 => ranked.push((closest, losing)),
                _ => {}
            }
        }
        ranked.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.id.cmp(&b.1.id)));
        ranked.into_iter().take(NEAREST_MAX).map(|(_, losing)| losing).collect()
    }

    fn why_not(&self, route_id: &str, trace: &MatchTrace, context: &ExplainContext<'_>) -> RouteCandidate {
        // Ids take precedence, since names need not be unique.
        let by_name = || self.routes.values().find(|route| &*route.info.name == route_id);
        let Some(route) = self.routes.get(route_id).or_else(by_name) else {
            let why = self.of_another_scope(route_id).unwrap_or_else(|| absent(route_id, context));
            return RouteCandidate { route: route_id.into(), lost: None, why };
        };
        let id = &route.info.id;
        if self.winner.is_some_and(|winner| winner.info.id == *id) {
            let why = match &route.target {
                RouteTarget::Refuse { status, message } => {
                    format!("it gets the request, and responds with {status}: {}", message.trim_end())
                }
                _ => "it gets the request".to_owned(),
            };
            return RouteCandidate { route: id.clone(), lost: None, why };
        }
        let mut reason_text = match trace.lost.iter().find(|losing| losing.id == *id) {
            Some(losing) => self.candidate(losing),
            None => {
                RouteCandidate { route: id.clone(), lost: None, why: "no request can have its path".into() }
            }
        };
        if let RouteTarget::Refuse { status, message } = &route.target {
            reason_text
                .why
                .push_str(&format!("; it could only respond with {status} now: {}", message.trim_end()));
        }
        reason_text
    }
}

impl MismatchText<'_, '_> {
    /// The place of a route that is in force and does not serve the listener and host of the request.
    fn of_another_scope(&self, route_id: &str) -> Option<String> {
        let routes = self.snapshot.routes();
        let by_name = || routes.values().find(|route| &*route.info.name == route_id);
        let route = routes.get(route_id).or_else(by_name)?;
        let scopes: Vec<&str> = ScopeIds::list(&route.scopes).iter().map(|id| &**id).collect();
        Some(match scopes.as_slice() {
            [] => "it has no scopes, and serves only the listeners of the node's settings".to_owned(),
            scopes => format!("it serves only the scopes {}", scopes.join(", ")),
        })
    }
}

/// Why a route is not active at all.
fn absent(route_id: &str, context: &ExplainContext<'_>) -> String {
    let object = format!("routes/{route_id}");
    if let Some(problem) =
        context.problems.iter().find(|one| one.object == object && one.level == ProblemLevel::Error)
    {
        let at = if problem.path.is_empty() { String::new() } else { format!(" at {}", problem.path) };
        return format!("it is not active: {}{at}", problem.message);
    }
    let Some(texts) = context.text else {
        return "no active route has this id or name: it does not exist, is disabled, or is broken".into();
    };
    let Some(written) =
        texts(Kind::Routes, route_id).and_then(|text| serde_json::from_str::<Value>(&text).ok())
    else {
        return "no route has this id or name".into();
    };
    if written.get("status").and_then(Value::as_u64) == Some(0) {
        return "it is disabled: its status is 0".into();
    }
    "it is not active".into()
}
