//! Finds the route of a request: host, path, then filters, as APISIX's `radixtree_host_uri` does.
//!
//! The cost of a look-up does not grow with the table. Clones share structure. Independent of how routes are
//! written.

mod by_priority;
mod match_observer;
mod overlap;
mod pattern;
#[cfg(test)]
mod tests;
mod trie;
mod wildcard;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use yumen_config::resource::natural_order_key;
use yumen_http::uri::PathPolicy;
use yumen_plugin::Exchange;

pub use match_observer::{MatchObserver, MatchTrace, MismatchReason, RouteMismatch};
pub use overlap::RouteOverlap;

use crate::route::Route;
use match_observer::BodyNeedObserver;
pub(crate) use pattern::host_key;
use pattern::{KeyRemainder, path_key};
pub(crate) use trie::{ReversedKey, Trie};

/// One path of a route: its index among the route's paths, and the part that the key does not express.
#[derive(Debug, Clone)]
struct RoutePath {
    route: Arc<Route>,
    uri: u16,
    rest: KeyRemainder,
}

impl RoutePath {
    fn pattern(&self) -> &str {
        self.route.matching.uris.get(usize::from(self.uri)).map_or("", |uri| uri)
    }

    /// Bytes of the pattern before its first parameter or `*`.
    fn literal_length(&self) -> usize {
        pattern::literal_length(self.pattern())
    }

    /// Whether every request path of this pattern is one of `other`, which is in the same bucket, and vice
    /// versa.
    fn has_paths_of(&self, other: &RoutePath) -> bool {
        let has_key_alone = !self.rest.is_wildcard() && !other.rest.is_wildcard();
        has_key_alone || self.pattern() == other.pattern()
    }
}

/// The routes of one host and path pattern, in the order of trial. Most buckets have one.
#[derive(Debug, Clone)]
enum RouteBucket {
    One(RoutePath),
    Many(Arc<Vec<RoutePath>>),
}

impl RouteBucket {
    fn route_paths(&self) -> &[RoutePath] {
        match self {
            RouteBucket::One(route_path) => std::slice::from_ref(route_path),
            RouteBucket::Many(route_paths) => route_paths,
        }
    }

    fn of(mut route_paths: Vec<RoutePath>) -> Option<RouteBucket> {
        match route_paths.len() {
            0 => None,
            // A bucket of one route needs no allocation, and most buckets have one.
            1 => route_paths.pop().map(RouteBucket::One),
            _ => Some(RouteBucket::Many(Arc::new(route_paths))),
        }
    }

    fn add(bucket: Option<RouteBucket>, route_path: RoutePath) -> Option<RouteBucket> {
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

    fn without(bucket: Option<RouteBucket>, id: &str) -> Option<RouteBucket> {
        match bucket? {
            RouteBucket::One(route_path) if &*route_path.route.info.id == id => None,
            RouteBucket::One(route_path) => Some(RouteBucket::One(route_path)),
            RouteBucket::Many(route_paths) => RouteBucket::of(
                route_paths.iter().filter(|route_path| &*route_path.route.info.id != id).cloned().collect(),
            ),
        }
    }
}

/// The order of trial: higher priority, then the longer pattern as written, then the older route, then the id.
/// The order of arrival never counts, so that the same resources give the same results.
fn precedes(a: &RoutePath, b: &RoutePath) -> bool {
    // The higher priority and then the longer pattern first, as in APISIX.
    let rank = |path: &RoutePath| {
        (Reverse(path.route.matching.priority), Reverse(path.pattern().len()), path.route.matching.created)
    };
    // `2` precedes `10`, as an operator would sort numeric ids.
    (rank(a), natural_order_key(&a.route.info.id)) < (rank(b), natural_order_key(&b.route.info.id))
}

type Paths = Trie<RouteBucket>;

// Each step of a look-up in a large table fetches one cache line.
const _: () = assert!(size_of::<trie::TrieNode<RouteBucket>>() == 64);

#[derive(Debug, Clone)]
struct HostTable {
    pattern: Box<str>,
    paths: Paths,
}

/// The route depends on the request body, which has not been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyRequired;

/// The node's rules for requests before routing; explanations apply them too.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestRules {
    /// How paths are read.
    pub paths: PathPolicy,
    /// Whether TRACE requests are routed.
    pub trace_requests: bool,
}

/// The routes of a snapshot. A clone shares everything; later changes to either do not show in the
/// other.
#[derive(Debug, Clone)]
pub struct Router {
    hosts: Trie<Arc<HostTable>>,
    any_host: Paths,
    /// Whether `:name` and `*name` segments are parameters.
    parameters: bool,
    /// The rules that serving applies before the look-up.
    pub(crate) rules: RequestRules,
    need_body: usize,
    /// Routes whose priority may count between several levels of the search; see [`by_priority`].
    prioritized: usize,
    len: usize,
}

impl Default for Router {
    fn default() -> Self {
        Router::new(true)
    }
}

impl Router {
    /// An empty table; `parameters` makes `:name` and `*name` segments path parameters.
    pub fn new(parameters: bool) -> Router {
        Router {
            hosts: Trie::default(),
            any_host: Trie::default(),
            parameters,
            rules: RequestRules::default(),
            need_body: 0,
            prioritized: 0,
            len: 0,
        }
    }

    /// A table of the same settings without routes.
    pub(crate) fn without_routes(&self) -> Router {
        Router { rules: self.rules, ..Router::new(self.parameters) }
    }

    /// Adds a route. A route with the same id must have been removed before.
    pub fn insert(&mut self, route: &Arc<Route>) {
        self.len += 1;
        self.need_body += usize::from(route.matching.needs_body());
        self.prioritized += usize::from(self.is_prioritized(route));
        let parameters = self.parameters;
        self.each_table(&route.matching.hosts, |paths| {
            for (index, uri) in route.matching.uris.iter().enumerate() {
                let Some(key) = path_key(uri, parameters) else { continue };
                let uri = u16::try_from(index).unwrap_or(u16::MAX);
                let route_path = RoutePath { route: route.clone(), uri, rest: key.rest };
                paths.update(&key.bytes, key.reach, |bucket| RouteBucket::add(bucket, route_path));
            }
        });
    }

    /// Removes a route that was inserted with the same hosts and paths.
    pub fn remove(&mut self, route: &Route) {
        self.len = self.len.saturating_sub(1);
        self.need_body = self.need_body.saturating_sub(usize::from(route.matching.needs_body()));
        self.prioritized = self.prioritized.saturating_sub(usize::from(self.is_prioritized(route)));
        let parameters = self.parameters;
        self.each_table(&route.matching.hosts, |paths| {
            for uri in route.matching.uris.iter() {
                let Some(key) = path_key(uri, parameters) else { continue };
                paths.update(&key.bytes, key.reach, |bucket| RouteBucket::without(bucket, &route.info.id));
            }
        });
    }

    /// Whether the priority of a route may count between levels: parameters divide the patterns of one prefix
    /// into several.
    fn is_prioritized(&self, route: &Route) -> bool {
        let is_open = |uri: &str| pattern::literal_length(uri) < uri.len();
        self.parameters && route.matching.priority != 0 && route.matching.uris.iter().any(|uri| is_open(uri))
    }

    /// Changes the table of each host, or the table for any host if there are none.
    fn each_table(&mut self, hosts: &[Box<str>], mut change: impl FnMut(&mut Paths)) {
        if hosts.is_empty() {
            // Routes without hosts have a table of their own: APISIX tries them after every matching host.
            change(&mut self.any_host);
        }
        for host in hosts {
            // Host names are case-insensitive (RFC 9110 §4.2.3).
            let host = host.to_ascii_lowercase();
            let key = host_key(&host);
            self.hosts.update(&key.bytes, key.reach, |table| {
                let empty = || HostTable { pattern: host.as_str().into(), paths: Trie::default() };
                let mut table = table.unwrap_or_else(|| Arc::new(empty()));
                // Copies the table if an older snapshot shares it.
                change(&mut Arc::make_mut(&mut table).paths);
                // Look-ups must not visit empty tables.
                (!table.paths.is_empty()).then_some(table)
            });
        }
    }

    /// The route of a request; the exchange receives the match.
    ///
    /// Order: the exact host, wildcard hosts from the longest, then routes without a host; within each the
    /// exact path, then prefixes from the longest. Among the patterns with the same text before their first
    /// parameter or `*`, the highest priority comes first, then parameters before `*`. If the filters of all routes
    /// of a level fail, the next level is tried.
    #[inline]
    pub fn find<'s, W: MatchObserver>(&'s self, ex: &mut Exchange<'s>, witness: &mut W) -> Option<&'s Route> {
        let mut winner = None;
        // Conditions must not see the parameters of an earlier search.
        ex.route.path_params.clear();
        if !self.hosts.is_empty() {
            let mut levels = self.hosts.search();
            while let Some(table) = levels.next(ReversedKey(ex.request.host())) {
                self.find_path(&table.paths, &table.pattern, ex, witness, &mut winner);
                // An observer sees the remaining candidates too, so `explain` can name those that lost.
                if (winner.is_some() && !W::WATCHES) || witness.has_stopped() {
                    return winner;
                }
            }
        }
        self.find_path(&self.any_host, "", ex, witness, &mut winner);
        winner
    }

    #[inline]
    fn find_path<'s, W: MatchObserver>(
        &self,
        paths: &'s Paths,
        host: &'s str,
        ex: &mut Exchange<'s>,
        witness: &mut W,
        winner: &mut Option<&'s Route>,
    ) {
        // Tables without such routes pay one comparison.
        if self.prioritized > 0 {
            return by_priority::find_path(paths, host, ex, witness, winner);
        }
        let mut levels = paths.search();
        while let Some(bucket) = levels.next(ex.request.routed_path()) {
            for route_path in bucket.route_paths() {
                if attempt(route_path, host, ex, witness, winner).is_break() {
                    return;
                }
            }
        }
    }

    /// [`Router::find`] before the body is read. The body is required only if the search reaches a route with
    /// a condition on the body that is undecided without it.
    pub fn find_before_body<'s>(&'s self, ex: &mut Exchange<'s>) -> Result<Option<&'s Route>, BodyRequired> {
        if !self.needs_body() {
            // The common case runs without an observer: tables without body conditions pay nothing.
            return Ok(self.find(ex, &mut ()));
        }
        let mut witness = BodyNeedObserver::default();
        let found = self.find(ex, &mut witness);
        // The search is repeated with the body, since the undecided route may precede the one found.
        if witness.has_stopped() { Err(BodyRequired) } else { Ok(found) }
    }

    /// [`Router::find`], and why every other route lost. The cost is proportional to the table.
    pub fn explain<'s>(&'s self, ex: &mut Exchange<'s>) -> (Option<&'s Route>, MatchTrace) {
        let mut trace = MatchTrace::default();
        let winner = self.find(ex, &mut trace);
        let mut seen: std::collections::BTreeSet<Box<str>> =
            trace.lost.iter().map(|losing| losing.id.clone()).collect();
        seen.extend(winner.map(|route| route.info.id.clone()));
        let mut reached: Vec<&HostTable> = Vec::new();
        let mut levels = self.hosts.search();
        while let Some(table) = levels.next(ReversedKey(ex.request.host())) {
            reached.push(table);
        }
        // Tables of matching hosts come first: a route in one of them lost by its path, even if it has other
        // hosts too.
        let near = reached.iter().map(|table| &table.paths).chain([&self.any_host]);
        let far = self.hosts.values().map(|table| &table.paths);
        for (paths, lost) in near
            .map(|paths| (paths, MismatchReason::Path))
            .chain(far.map(|paths| (paths, MismatchReason::Host)))
        {
            for route_path in paths.values().flat_map(RouteBucket::route_paths) {
                if seen.insert(route_path.route.info.id.clone()) {
                    trace.candidate(&route_path.route, lost, ex);
                }
            }
        }
        (winner, trace)
    }

    /// All routes, by id.
    pub fn routes(&self) -> BTreeMap<&str, &Arc<Route>> {
        let tables = self.hosts.values().map(|table| &table.paths).chain([&self.any_host]);
        let route_paths = tables.flat_map(|paths| paths.values()).flat_map(RouteBucket::route_paths);
        route_paths.map(|route_path| (&*route_path.route.info.id, &route_path.route)).collect()
    }

    /// Whether one of these path patterns matches the request.
    pub fn fits_path(&self, uris: &[Box<str>], ex: &Exchange<'_>) -> bool {
        let fits = |uri: &str| {
            let key = path_key(uri, self.parameters)?;
            // A trie of one pattern applies the rules of serving; a second matcher could differ (decision 19).
            let mut alone = Trie::default();
            alone.update(&key.bytes, key.reach, |_| Some(()));
            alone.search().next(ex.request.routed_path())?;
            key.rest.admits(uri, ex.request.routed_path(), &mut Vec::new()).then_some(())
        };
        uris.iter().any(|uri| fits(uri).is_some())
    }

    /// Whether one of these host patterns matches the request; without patterns every host does.
    pub fn fits_host(&self, hosts: &[Box<str>], ex: &Exchange<'_>) -> bool {
        let fits = |host: &str| {
            let key = host_key(&host.to_ascii_lowercase());
            // As in `fits_path`: the rules of the serving table decide.
            let mut alone = Trie::default();
            alone.update(&key.bytes, key.reach, |_| Some(()));
            alone.search().next(ReversedKey(ex.request.host())).copied()
        };
        hosts.is_empty() || hosts.iter().any(|host| fits(host).is_some())
    }

    /// Whether any route has a condition on the request body.
    fn needs_body(&self) -> bool {
        self.need_body > 0
    }

    /// The number of routes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Tries one path of a route. Breaks if the search has ended.
#[inline]
fn attempt<'s, W: MatchObserver>(
    route_path: &'s RoutePath,
    host: &'s str,
    ex: &mut Exchange<'s>,
    witness: &mut W,
    winner: &mut Option<&'s Route>,
) -> ControlFlow<()> {
    if W::WATCHES && winner.is_some() {
        // Another path of the winner itself is no loser, and a pattern that does not match is not shadowed.
        let is_other = winner.is_some_and(|route| route.info.id != route_path.route.info.id);
        let path = ex.request.routed_path();
        if is_other && route_path.rest.admits(route_path.pattern(), path, &mut Vec::new()) {
            witness.candidate(&route_path.route, MismatchReason::Shadowed, ex);
        }
        return ControlFlow::Continue(());
    }
    let uris = &*route_path.route.matching.uris;
    // Only patterns with parameters or an inner `*` pay for them.
    if let (false, Some(uri)) =
        (matches!(route_path.rest, KeyRemainder::Nothing), uris.get(usize::from(route_path.uri)))
    {
        // Conditions may use parameters, so those are captured first.
        ex.route.path_params.clear();
        if !route_path.rest.admits(uri, ex.request.routed_path(), &mut ex.route.path_params) {
            return ControlFlow::Continue(());
        }
    }
    if let Some(lost) = fails(&route_path.route, ex, witness) {
        let has_stopped = witness.has_stopped();
        if !has_stopped {
            witness.candidate(&route_path.route, lost, ex);
        }
        // The next candidate must not see the parameters of this pattern.
        ex.route.path_params.clear();
        return if has_stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    }
    ex.route.info = Some(&route_path.route.info);
    (ex.route.uris, ex.route.uri_index) = (uris, usize::from(route_path.uri));
    ex.route.host = host;
    *winner = Some(&route_path.route);
    if W::WATCHES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// The first filter that the request fails.
#[inline]
fn fails<W: MatchObserver>(route: &Route, ex: &Exchange<'_>, witness: &mut W) -> Option<MismatchReason> {
    let matching = &route.matching;
    // No methods in the text means all of them, as in APISIX.
    if matching.methods != 0 && matching.methods & ex.request.method().bit() == 0 {
        return Some(MismatchReason::Method);
    }
    let filters = matching.filters.as_deref()?;
    // The address is compared before the expressions: a prefix test is cheaper than an evaluation.
    if !filters.remote_addrs.is_empty() && !filters.remote_addrs.contains(ex.client.ip) {
        return Some(MismatchReason::RemoteAddr);
    }
    match &filters.vars {
        // An undecided condition does not match.
        Some(vars) if witness.eval(vars, ex) != Some(true) => Some(MismatchReason::Vars),
        _ => None,
    }
}
