//! The routes of one host and path pattern, in the order of trial.

use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use yumen_config::resource::natural_order_key;
use yumen_plugin::Exchange;

use super::attempt;
use super::bucket_index::BucketIndex;
use super::match_observer::MatchObserver;
use super::pattern::{self, KeyRemainder};
use super::route_keys::RouteKey;
use crate::route::{PathForm, Route};

/// One path of a route: its index among the route's paths, and the part that the key does not express.
#[derive(Debug, Clone)]
pub(super) struct RoutePath {
    pub(super) route: Arc<Route>,
    pub(super) uri: u16,
    pub(super) rest: KeyRemainder,
    /// Whether a prefix by path element is stored under the path that equals it.
    is_element: bool,
}

impl RoutePath {
    pub(super) fn new(route: &Arc<Route>, uri: u16, key: &RouteKey<'_>) -> RoutePath {
        RoutePath { route: route.clone(), uri, rest: key.rest, is_element: key.is_element }
    }

    pub(super) fn pattern(&self) -> &str {
        self.route.matching.uris.get(usize::from(self.uri)).map_or("", |uri| uri)
    }

    /// Bytes of the pattern before its first parameter or `*`.
    pub(super) fn literal_length(&self) -> usize {
        match self.route.matching.path_form {
            PathForm::Patterns => pattern::literal_length(self.pattern()),
            PathForm::Literal { exact, .. } if self.uri < exact => self.pattern().len(),
            // The star ends the text.
            PathForm::Literal { .. } => self.pattern().len() - 1,
            PathForm::Regex => 0,
        }
    }

    /// Whether only whole paths match.
    pub(super) fn is_whole(&self) -> bool {
        match self.route.matching.path_form {
            PathForm::Patterns => !self.pattern().contains('*'),
            PathForm::Literal { exact, .. } => self.is_element || self.uri < exact,
            PathForm::Regex => false,
        }
    }

    /// Whether every request path of this pattern is one of `other`, which is in the same bucket, and vice
    /// versa.
    pub(super) fn has_paths_of(&self, other: &RoutePath) -> bool {
        let has_key_alone = !self.rest.is_wildcard() && !other.rest.is_wildcard();
        has_key_alone || self.pattern() == other.pattern()
    }
}

/// The order of trial: a whole path before a prefix of the same text, then the higher priority, then the longer pattern
/// as written, then the older route, then the id. The order of arrival never counts, so that the same resources give the
/// same results.
fn precedes(a: &RoutePath, b: &RoutePath) -> bool {
    // The higher priority and then the longer pattern first, as in APISIX.
    let rank = |path: &RoutePath| {
        let matching = &path.route.matching;
        (path.is_element, Reverse(matching.priority), Reverse(path.pattern().len()), matching.created)
    };
    // `2` precedes `10`, as an operator would sort numeric ids.
    (rank(a), natural_order_key(&a.route.info.id)) < (rank(b), natural_order_key(&b.route.info.id))
}

/// From this number of routes on, a bucket is searched by an index.
const INDEXED_MIN: usize = 16;

/// Several routes in the order of trial.
#[derive(Debug)]
pub(super) struct RouteList {
    route_paths: Vec<RoutePath>,
    /// Built by the first look-up, since a table is loaded route by route.
    index: OnceLock<Option<Box<BucketIndex>>>,
}

impl RouteList {
    fn new(route_paths: Vec<RoutePath>) -> RouteList {
        RouteList { route_paths, index: OnceLock::new() }
    }

    fn attempt<'s, W: MatchObserver>(
        &'s self,
        host: &'s str,
        ex: &mut Exchange<'s>,
        witness: &mut W,
        winner: &mut Option<&'s Route>,
    ) -> ControlFlow<()> {
        // An observer sees the routes that the index leaves out.
        if self.route_paths.len() >= INDEXED_MIN && !W::WATCHES {
            return self.attempt_indexed(host, ex, witness, winner);
        }
        for route_path in &self.route_paths {
            attempt(route_path, host, ex, witness, winner)?;
        }
        ControlFlow::Continue(())
    }

    #[cold]
    fn attempt_indexed<'s, W: MatchObserver>(
        &'s self,
        host: &'s str,
        ex: &mut Exchange<'s>,
        witness: &mut W,
        winner: &mut Option<&'s Route>,
    ) -> ControlFlow<()> {
        let index = self.index.get_or_init(|| BucketIndex::of(&self.route_paths, INDEXED_MIN).map(Box::new));
        let Some(index) = index else {
            for route_path in &self.route_paths {
                attempt(route_path, host, ex, witness, winner)?;
            }
            return ControlFlow::Continue(());
        };
        for at in index.candidates(ex.request.fields.get(index.header())) {
            attempt(&self.route_paths[at], host, ex, witness, winner)?;
        }
        ControlFlow::Continue(())
    }
}

/// The routes of one host and path pattern, in the order of trial. Most buckets have one.
#[derive(Debug, Clone)]
pub(super) enum RouteBucket {
    One(RoutePath),
    Many(Arc<RouteList>),
}

impl RouteBucket {
    pub(super) fn route_paths(&self) -> &[RoutePath] {
        match self {
            RouteBucket::One(route_path) => std::slice::from_ref(route_path),
            RouteBucket::Many(list) => &list.route_paths,
        }
    }

    /// Tries the routes in order. Breaks if the search has ended.
    #[inline]
    pub(super) fn attempt<'s, W: MatchObserver>(
        &'s self,
        host: &'s str,
        ex: &mut Exchange<'s>,
        witness: &mut W,
        winner: &mut Option<&'s Route>,
    ) -> ControlFlow<()> {
        match self {
            RouteBucket::One(route_path) => attempt(route_path, host, ex, witness, winner),
            RouteBucket::Many(list) => list.attempt(host, ex, witness, winner),
        }
    }

    /// Tries the prefixes by path element, or all other routes, in order. Breaks if the search has ended.
    pub(super) fn attempt_part<'s, W: MatchObserver>(
        &'s self,
        elements: bool,
        host: &'s str,
        ex: &mut Exchange<'s>,
        witness: &mut W,
        winner: &mut Option<&'s Route>,
    ) -> ControlFlow<()> {
        for route_path in self.route_paths().iter().filter(|route_path| route_path.is_element == elements) {
            attempt(route_path, host, ex, witness, winner)?;
        }
        ControlFlow::Continue(())
    }

    /// Whether prefixes by path element are among the routes; they come last.
    pub(super) fn has_elements(&self) -> bool {
        self.route_paths().last().is_some_and(|route_path| route_path.is_element)
    }

    /// Whether only whole paths match. All paths of a bucket are alike.
    pub(super) fn is_whole(&self) -> bool {
        self.route_paths().first().is_some_and(RoutePath::is_whole)
    }

    fn of(mut route_paths: Vec<RoutePath>) -> Option<RouteBucket> {
        match route_paths.len() {
            0 => None,
            // A bucket of one route needs no allocation, and most buckets have one.
            1 => route_paths.pop().map(RouteBucket::One),
            _ => Some(RouteBucket::Many(Arc::new(RouteList::new(route_paths)))),
        }
    }

    pub(super) fn add(bucket: Option<RouteBucket>, route_path: RoutePath) -> Option<RouteBucket> {
        let Some(bucket) = bucket else { return Some(RouteBucket::One(route_path)) };
        // Copied, since a published snapshot may share the bucket.
        let mut route_paths = bucket.route_paths().to_vec();
        // Two paths of one route may match the same requests; the one that takes precedence stays.
        let is_same = |other: &RoutePath| {
            other.route.info.id == route_path.route.info.id && other.has_paths_of(&route_path)
        };
        if route_paths.iter().any(|other| is_same(other) && !precedes(&route_path, other)) {
            return Some(bucket);
        }
        route_paths.retain(|other| !is_same(other));
        let at = route_paths.partition_point(|other| precedes(other, &route_path));
        route_paths.insert(at, route_path);
        RouteBucket::of(route_paths)
    }

    pub(super) fn without(bucket: Option<RouteBucket>, id: &str) -> Option<RouteBucket> {
        match bucket? {
            RouteBucket::One(route_path) if &*route_path.route.info.id == id => None,
            RouteBucket::One(route_path) => Some(RouteBucket::One(route_path)),
            RouteBucket::Many(list) => RouteBucket::of(
                list.route_paths
                    .iter()
                    .filter(|route_path| &*route_path.route.info.id != id)
                    .cloned()
                    .collect(),
            ),
        }
    }
}

#[cfg(test)]
mod tests;
