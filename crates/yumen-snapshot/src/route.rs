//! Compiled routes. Knows neither how a route is found nor how it was written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use yumen_base::IpSet;
use yumen_config::resource::ResourceId;
use yumen_plugin::{ConditionExpr, PluginChain, RouteInfo};

use crate::upstream::{AttemptTimeouts, TunnelPolicy, UpstreamSlotId};

/// The target of matched requests.
#[derive(Debug, Clone, PartialEq)]
pub enum RouteTarget {
    /// An upstream.
    Upstream(UpstreamSlotId),
    /// No upstream. A plugin responds, or the request fails.
    None,
    /// A refusal: the route is broken and fails closed.
    Refuse {
        /// The status: 404 if the service is missing or disabled, otherwise 503.
        status: u16,
        /// `error_msg` of the body.
        message: Box<str>,
    },
}

/// The conditions on a request for a route to match.
#[derive(Debug, Clone, Default, PartialEq)]
// The order of fields is the layout. A route begins with this struct, so the fields that every request reads come last,
// next to the following fields of the route.
#[repr(C)]
pub struct RouteMatching {
    /// Among routes of the same host and path, higher priorities come first.
    pub priority: i32,
    /// The time of creation, in seconds since the Unix epoch; 0 if unknown.
    pub created: u64,
    /// Host patterns in lower case, of the route or else of its service. An empty list matches any host.
    pub hosts: Arc<[Box<str>]>,
    /// Path patterns, as written.
    pub uris: Arc<[Box<str>]>,
    /// Conditions that few routes have.
    pub filters: Option<Arc<RouteFilters>>,
    /// The bits of the methods, see [`yumen_plugin::Method::bit`]; 0 matches any method.
    pub methods: u16,
}

impl RouteMatching {
    /// Whether a condition reads the request body.
    pub fn needs_body(&self) -> bool {
        self.filters.as_ref().and_then(|filters| filters.vars.as_ref()).is_some_and(ConditionExpr::needs_body)
    }
}

/// Filters beyond host, path and method.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouteFilters {
    /// The addresses of clients. The empty set matches any address.
    pub remote_addrs: IpSet,
    /// A condition on variables.
    pub vars: Option<ConditionExpr>,
}

/// A compiled route.
#[derive(Debug)]
// The order of fields is the layout. The fields that every request reads are adjacent, since each cache line of a large
// table is a miss.
#[repr(C)]
pub struct Route {
    /// The conditions on requests.
    pub matching: RouteMatching,
    /// The merged plugins: route over plugin config over service.
    pub chain: Arc<PluginChain>,
    /// The target of requests.
    pub target: RouteTarget,
    /// Timeouts that override those of the upstream.
    pub timeouts: Option<Box<AttemptTimeouts>>,
    /// Whether the client may upgrade the connection to another protocol.
    pub enable_websocket: bool,
    /// Whether requests skip the global rules.
    pub skips_global_rules: bool,
    /// The effect on tunnels when the route or their endpoint changes; overrides that of the upstream.
    pub on_change: Option<TunnelPolicy>,
    /// Facts for plugins and logs.
    pub info: RouteInfo,
    /// Ends when the route is removed or changed.
    pub life: Arc<RouteLifetime>,
    /// The scopes that the route belongs to; `None` for the listeners of the node's settings.
    pub scopes: Option<Arc<ScopeIds>>,
}

/// Ids of the scopes that an object belongs to; not empty.
#[derive(Debug, PartialEq, Eq)]
pub struct ScopeIds(Box<[Arc<str>]>);

impl ScopeIds {
    /// The scopes that a text names; `None` for the listeners of the node's settings.
    pub(crate) fn of(written: Option<&[ResourceId]>) -> Option<Arc<ScopeIds>> {
        let ids: Box<[Arc<str>]> = written?.iter().map(|id| id.0.clone()).collect();
        (!ids.is_empty()).then(|| Arc::new(ScopeIds(ids)))
    }

    /// The ids.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter()
    }

    /// The ids; empty for the listeners of the node's settings.
    pub(crate) fn list(of: &Option<Arc<ScopeIds>>) -> &[Arc<str>] {
        of.as_ref().map_or(&[], |ids| &ids.0)
    }
}

/// Whether a version of a route is in force, for exchanges that outlive their snapshot.
#[derive(Debug, Default)]
pub struct RouteLifetime(AtomicBool);

impl RouteLifetime {
    /// Whether the route was removed or changed.
    pub fn is_over(&self) -> bool {
        self.0.load(Relaxed)
    }

    pub(crate) fn end(&self) {
        self.0.store(true, Relaxed);
    }
}
