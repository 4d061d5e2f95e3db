//! Routes with a regular expression as their path.

use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::sync::Arc;

use yumen_config::resource::natural_order_key;
use yumen_plugin::Exchange;

use super::attempt;
use super::bucket::RoutePath;
use super::match_observer::MatchObserver;
use super::pattern::KeyRemainder;
use super::route_keys::RouteKey;
use super::trie::KeyMatch;
use crate::route::{PathPattern, Route};

/// The routes of one host with a pattern as their path: the longest pattern first, then the highest priority, the
/// oldest, the lowest id.
#[derive(Debug, Clone, Default)]
pub(super) struct PatternRoutes {
    route_paths: Vec<RoutePath>,
}

/// The pattern of a route.
fn pattern_of(route: &Route) -> Option<&PathPattern> {
    route.matching.filters.as_ref()?.path.as_deref()
}

fn precedes(a: &RoutePath, b: &RoutePath) -> bool {
    let rank = |path: &RoutePath| {
        let matching = &path.route.matching;
        (Reverse(path.pattern().len()), Reverse(matching.priority), matching.created)
    };
    (rank(a), natural_order_key(&a.route.info.id)) < (rank(b), natural_order_key(&b.route.info.id))
}

impl PatternRoutes {
    pub(super) fn route_paths(&self) -> &[RoutePath] {
        &self.route_paths
    }

    /// The routes with one more.
    pub(super) fn add(known: Option<Arc<PatternRoutes>>, route: &Arc<Route>) -> Option<Arc<PatternRoutes>> {
        let key = RouteKey {
            bytes: (&[][..]).into(),
            reach: KeyMatch::Prefix,
            rest: KeyRemainder::Nothing,
            is_element: false,
        };
        let route_path = RoutePath::new(route, 0, &key);
        // Copied if a published snapshot shares the list.
        let mut routes = known.map(Arc::unwrap_or_clone).unwrap_or_default();
        let at = routes.route_paths.partition_point(|other| precedes(other, &route_path));
        routes.route_paths.insert(at, route_path);
        Some(Arc::new(routes))
    }

    /// The routes without one; `None` if none is left.
    pub(super) fn without(known: Option<Arc<PatternRoutes>>, id: &str) -> Option<Arc<PatternRoutes>> {
        let mut routes = Arc::unwrap_or_clone(known?);
        routes.route_paths.retain(|route_path| &*route_path.route.info.id != id);
        (!routes.route_paths.is_empty()).then(|| Arc::new(routes))
    }

    /// Tries the routes whose pattern matches, in order. Breaks if the search has ended.
    pub(super) fn attempt<'s, W: MatchObserver>(
        &'s self,
        host: &'s str,
        ex: &mut Exchange<'s>,
        witness: &mut W,
        winner: &mut Option<&'s Route>,
    ) -> ControlFlow<()> {
        for route_path in &self.route_paths {
            let pattern = pattern_of(&route_path.route);
            if pattern.is_some_and(|pattern| pattern.admits(ex.request.routed_path(), ex)) {
                attempt(route_path, host, ex, witness, winner)?;
            }
        }
        ControlFlow::Continue(())
    }
}
