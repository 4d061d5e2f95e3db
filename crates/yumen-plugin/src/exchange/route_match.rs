//! The result of routing, as plugins and logs see it.

use std::ops::Range;
use std::sync::Arc;

/// Identity of a route and of its service.
#[derive(Debug, Clone, Default)]
pub struct RouteInfo {
    /// The id of the route.
    pub id: Box<str>,
    /// The name of the route; empty if none is configured.
    pub name: Box<str>,
    /// The id of the service; empty without a service.
    pub service_id: Box<str>,
    /// The name of the service; empty if none is configured.
    pub service_name: Box<str>,
    /// The route as written, as JSON; shared with the compiler.
    pub written: Option<Arc<str>>,
    /// The service as written, as JSON; `None` without a service.
    pub service_written: Option<Arc<str>>,
}

/// The route that matched a request, and the patterns that matched. Written by the router.
#[derive(Debug, Default)]
pub struct RouteMatch<'s> {
    /// The route; `None` before routing and without a match.
    pub info: Option<&'s RouteInfo>,
    /// The path patterns of the route.
    pub uris: &'s [Box<str>],
    /// Index in `uris` of the pattern that matched.
    pub uri_index: usize,
    /// The host pattern that matched; empty for a route of any host.
    pub host: &'s str,
    /// Path parameters: the name, and the range of [`RequestHead::routed_path`](yumen_http::RequestHead::routed_path)
    /// that it matched.
    pub path_params: Vec<(&'s str, Range<usize>)>,
}

impl<'s> RouteMatch<'s> {
    /// Returns the path pattern that matched; empty before routing and without a match.
    pub fn uri(&self) -> &'s str {
        // Looked up here, since routing runs for each request and few read the pattern.
        self.uris.get(self.uri_index).map_or("", |uri| uri)
    }
}
