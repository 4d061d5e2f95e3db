//! Routes that take requests from each other, found in the tables of the router.

use std::collections::BTreeMap;

use super::pattern::{PatternKey, path_key};
use super::trie::KeyMatch;
use super::{RoutePath, Router};
use crate::route::{PathForm, Route};

/// A route that loses requests to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteOverlap {
    /// Id of the route.
    pub route: Box<str>,
    /// Id of the route that takes precedence.
    pub by: Box<str>,
    /// Whether the route gets no request at all; otherwise only age or id decides about some requests.
    pub is_shadowed: bool,
}

/// How far other routes cover one route.
#[derive(Default)]
struct RouteCoverage<'r> {
    route_paths: usize,
    covered: usize,
    by: Option<&'r str>,
    tied: Option<&'r str>,
}

impl Router {
    /// Routes that get no request because others take all of theirs, and routes that only age or id separates
    /// from another. Every result is certain; overlaps through conditions on variables are not searched.
    pub fn overlaps(&self) -> Vec<RouteOverlap> {
        let mut standings: BTreeMap<&str, RouteCoverage<'_>> = BTreeMap::new();
        let tables = self.hosts.values().map(|table| &table.table).chain([&self.any_host]);
        for bucket in tables.flat_map(|table| table.paths.values()) {
            // Earlier candidates of a bucket are tried first, so only they can take requests away.
            for (at, route_path) in bucket.route_paths().iter().enumerate() {
                let standing = standings.entry(&route_path.route.info.id).or_default();
                standing.route_paths += 1;
                let earlier = &bucket.route_paths()[..at];
                if let Some(first) = earlier.iter().find(|first| covers(first, route_path)) {
                    standing.covered += 1;
                    first_of(&mut standing.by, &first.route.info.id);
                } else if let Some(first) = earlier.iter().find(|first| ties(first, route_path)) {
                    first_of(&mut standing.tied, &first.route.info.id);
                }
            }
        }
        self.cover_any_host(&mut standings);
        let overlap = |(route, standing): (&str, RouteCoverage<'_>)| {
            // One uncovered path is enough to get requests.
            let is_shadowed = standing.covered >= standing.route_paths;
            let by = if is_shadowed { standing.by } else { standing.tied }?;
            Some(RouteOverlap { route: route.into(), by: by.into(), is_shadowed })
        };
        standings.into_iter().filter_map(overlap).collect()
    }

    /// Routes with the host `*` come before those without a host, and match the same requests.
    fn cover_any_host<'r>(&'r self, standings: &mut BTreeMap<&'r str, RouteCoverage<'r>>) {
        // Without a table for `*`, no route precedes those without hosts at any host.
        let Some(star) = self.hosts.values().find(|table| &*table.pattern == "*") else { return };
        for bucket in self.any_host.paths.values() {
            for (at, route_path) in bucket.route_paths().iter().enumerate() {
                let is_covered = bucket.route_paths()[..at].iter().any(|first| covers(first, route_path));
                let Some(key) = self.uri(route_path).and_then(|uri| path_key(uri, self.parameters)) else {
                    continue;
                };
                let mut levels = star.table.paths.search();
                let mut found = None;
                // Prefixes from the longest, as a request would meet them.
                while let (None, Some(bucket)) = (found, levels.next(&*key.bytes)) {
                    found = bucket.route_paths().iter().find(|first| {
                        covers_requests(&first.route, &route_path.route)
                            && self.reaches(first, route_path, &key)
                    });
                }
                if let (Some(first), Some(standing)) = (found, standings.get_mut(&*route_path.route.info.id))
                {
                    // A path that is covered within its own table has been counted already.
                    standing.covered += usize::from(!is_covered);
                    first_of(&mut standing.by, &first.route.info.id);
                }
            }
        }
    }

    /// The pattern of a path; `None` for literal paths, which are not compared across tables.
    fn uri<'w>(&self, route_path: &'w RoutePath) -> Option<&'w str> {
        if route_path.route.matching.path_form != PathForm::Patterns {
            return None;
        }
        route_path.route.matching.uris.get(usize::from(route_path.uri)).map(|uri| &**uri)
    }

    /// Whether a path found for the key of another one matches everything that the other one matches.
    fn reaches(&self, first: &RoutePath, second: &RoutePath, second_key: &PatternKey<'_>) -> bool {
        let Some(key) = self.uri(first).and_then(|uri| path_key(uri, self.parameters)) else {
            return false;
        };
        // Whether one pattern with an inner `*` includes another one is not searched.
        if key.rest.is_wildcard() {
            return first.pattern() == second.pattern();
        }
        // An exact path covers a pattern only if the pattern is the same exact path.
        key.reach == KeyMatch::Prefix
            || (second_key.reach == KeyMatch::Exact && key.bytes == second_key.bytes)
    }
}

/// Keeps the lower id, so that the result does not depend on the order of tables.
fn first_of<'r>(known: &mut Option<&'r str>, id: &'r str) {
    *known = Some(known.map_or(id, |known| known.min(id)));
}

/// Whether the first path takes every request of the second one, which is in the same bucket.
fn covers(first: &RoutePath, second: &RoutePath) -> bool {
    // A whole prefix includes every pattern that starts with it.
    let has_paths = !first.rest.is_wildcard() || first.has_paths_of(second);
    has_paths && covers_requests(&first.route, &second.route)
}

/// Whether the first route takes every request that the second would get at the same host and path.
fn covers_requests(first: &Route, second: &Route) -> bool {
    // Zero means all methods.
    let (first_methods, second_methods) = (first.matching.methods, second.matching.methods);
    let methods = first_methods == 0 || (second_methods != 0 && second_methods & !first_methods == 0);
    // Equal filters pass the same requests; whether unequal filters do is undecidable in general.
    methods && (first.matching.filters.is_none() || first.matching.filters == second.matching.filters)
}

/// Whether only age or id decides which of the two gets some request.
fn ties(first: &RoutePath, second: &RoutePath) -> bool {
    // The longer pattern takes precedence; equally long ones with a `*` before their end share some requests at most.
    if !first.has_paths_of(second) || first.pattern().len() != second.pattern().len() {
        return false;
    }
    let (first_methods, second_methods) = (&first.route.matching, &second.route.matching);
    let share_methods = first_methods.methods == 0
        || second_methods.methods == 0
        || first_methods.methods & second_methods.methods != 0;
    share_methods
        && first_methods.priority == second_methods.priority
        && first_methods.filters == second_methods.filters
}
