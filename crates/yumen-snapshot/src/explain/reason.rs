//! Why routes lost, in words, from the router's trace and its matcher.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use yumen_base::ProblemLevel;
use yumen_config::Kind;
use yumen_plugin::Exchange;

use super::{ExplainContext, NEAREST_MAX, RouteCandidate, RouteMismatch};
use crate::{MatchTrace, MismatchReason, Route, RouteTarget, Snapshot};

/// The routes that did not get the request, with reasons.
pub(super) struct CandidateReasons {
    pub(super) candidates: Vec<RouteCandidate>,
    pub(super) other_hosts: usize,
    pub(super) other_paths: usize,
    pub(super) why_not: Option<RouteCandidate>,
}

type Routes<'s> = BTreeMap<&'s str, &'s Arc<Route>>;

pub(super) fn said(
    snapshot: &Snapshot,
    ex: &Exchange<'_>,
    winner: Option<&Route>,
    trace: &MatchTrace,
    asked_after: Option<&str>,
    background: &ExplainContext<'_>,
) -> CandidateReasons {
    let routes = snapshot.router.routes();
    let words = MismatchText { snapshot, ex, winner, routes: &routes };
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
        why_not: asked_after.map(|asked| words.why_not(asked, trace, background)),
    }
}

/// A remark that the text of the winner is broken and an older one serves, unless a remark has the same
/// reason.
pub(super) fn stale(
    winner: Option<&Route>,
    background: &ExplainContext<'_>,
    remarks: &[String],
) -> Option<String> {
    let object = format!("routes/{}", winner?.info.id);
    let problem =
        background.problems.iter().find(|one| one.object == object && one.level == ProblemLevel::Error)?;
    if remarks.iter().any(|remark| remark.ends_with(&problem.message)) {
        return None;
    }
    Some(format!("{object} is not active as written: {}", problem.message))
}

struct MismatchText<'w, 's> {
    snapshot: &'s Snapshot,
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
        let (ours, theirs) = (&route.matching, &winner.matching);
        let has = |patterns: &[Box<str>], one: &str| patterns.iter().any(|pattern| **pattern == *one);
        // The order of the tests is that of the router's precedence: host, path, priority, age, id.
        let same_host = (host.is_empty() && ours.hosts.is_empty()) || has(&ours.hosts, host);
        if !same_host {
            return format!("route {id} is for a closer host, {host}");
        }
        if !has(&ours.uris, uri) {
            return format!("route {id} has a closer path, {uri}");
        }
        if ours.priority != theirs.priority {
            return format!("route {id} has priority {}, this one {}", theirs.priority, ours.priority);
        }
        if ours.created != theirs.created {
            return format!("route {id} has the same host, path and priority and is older");
        }
        format!("route {id} has the same host, path, priority and age, and a lower id")
    }

    fn fits_path(&self, route: &Route) -> bool {
        self.snapshot.router.fits_path(&route.matching.uris, self.ex)
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

    fn why_not(&self, asked: &str, trace: &MatchTrace, background: &ExplainContext<'_>) -> RouteCandidate {
        // Ids take precedence, since names need not be unique.
        let by_name = || self.routes.values().find(|route| &*route.info.name == asked);
        let Some(route) = self.routes.get(asked).or_else(by_name) else {
            return RouteCandidate { route: asked.into(), lost: None, why: absent(asked, background) };
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
        let mut said = match trace.lost.iter().find(|losing| losing.id == *id) {
            Some(losing) => self.candidate(losing),
            None => {
                RouteCandidate { route: id.clone(), lost: None, why: "no request can have its path".into() }
            }
        };
        if let RouteTarget::Refuse { status, message } = &route.target {
            said.why.push_str(&format!("; it could only respond with {status} now: {}", message.trim_end()));
        }
        said
    }
}

/// Why a route is not active at all.
fn absent(asked: &str, background: &ExplainContext<'_>) -> String {
    let object = format!("routes/{asked}");
    if let Some(problem) =
        background.problems.iter().find(|one| one.object == object && one.level == ProblemLevel::Error)
    {
        let at = if problem.path.is_empty() { String::new() } else { format!(" at {}", problem.path) };
        return format!("it is not active: {}{at}", problem.message);
    }
    let Some(texts) = background.text else {
        return "no active route has this id or name: it does not exist, is disabled, or is broken".into();
    };
    let Some(written) = texts(Kind::Routes, asked).and_then(|text| serde_json::from_str::<Value>(&text).ok())
    else {
        return "no route has this id or name".into();
    };
    if written.get("status").and_then(Value::as_u64) == Some(0) {
        return "it is disabled: its status is 0".into();
    }
    "it is not active".into()
}
