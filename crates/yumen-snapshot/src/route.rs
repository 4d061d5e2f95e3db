//! Compiled routes. Knows neither how a route is found nor how it was written.

pub(crate) mod match_conditions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use yumen_actions::{BackendEdits, CanaryRules};
use yumen_base::IpSet;
use yumen_config::resource::{ResourceId, SessionMode, SessionSpec};
use yumen_plugin::{ConditionExpr, Exchange, PluginChain, RouteInfo};

pub use match_conditions::{FieldCondition, MatchConditions, PathPattern, ValueTest};

use crate::upstream::{AttemptTimeouts, TunnelPolicy, UpstreamSlotId};

/// The target of matched requests.
#[derive(Debug, Clone, PartialEq)]
pub enum RouteTarget {
    /// An upstream.
    Upstream(UpstreamSlotId),
    /// Weighted backends.
    Weighted(Arc<WeightedTargets>),
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

/// Weighted backends of a route. Those of weight 0 are left out, unless the route keeps sessions or has a canary.
#[derive(Debug)]
pub struct WeightedTargets {
    /// The backends.
    pub targets: Box<[WeightedTarget]>,
    /// The sum of the weights.
    pub total: u64,
    /// The backend with rules ahead of the weights.
    pub canary: Option<CanaryTarget>,
}

/// A backend with rules ahead of the weights.
#[derive(Debug, Clone)]
pub struct CanaryTarget {
    /// The position of the backend.
    pub at: usize,
    /// The rules.
    pub rules: Arc<CanaryRules>,
}

impl WeightedTargets {
    /// The backend for a random number; `None` without any backend.
    pub fn pick(&self, random: u64) -> Option<&WeightedTarget> {
        let mut left = random.checked_rem(self.total)?;
        self.targets.iter().find(|target| {
            let weight = u64::from(target.weight);
            let is_picked = left < weight;
            left = left.saturating_sub(weight);
            is_picked
        })
    }
}

impl WeightedTargets {
    /// The backend for a random number among those that are no canary. Without any weight, the first with an upstream.
    pub fn pick_primary(&self, random: u64) -> Option<&WeightedTarget> {
        let canary = self.canary.as_ref().map(|canary| canary.at);
        let primary =
            || self.targets.iter().enumerate().filter(|(at, _)| Some(*at) != canary).map(|(_, one)| one);
        let total = primary().map(|target| u64::from(target.weight)).sum::<u64>();
        let Some(mut left) = random.checked_rem(total) else {
            return primary().find(|target| target.slot.is_some());
        };
        primary().find(|target| {
            let weight = u64::from(target.weight);
            let is_picked = left < weight;
            left = left.saturating_sub(weight);
            is_picked
        })
    }

    /// The backend with the largest share; `None` without any weight.
    pub fn largest(&self) -> Option<&WeightedTarget> {
        self.targets.iter().rev().filter(|target| target.weight > 0).max_by_key(|target| target.weight)
    }

    /// The most probable backend of a request, by the rules of the canary and the weights.
    pub fn expected(&self, ex: &Exchange<'_>) -> Option<&WeightedTarget> {
        let canary = self.canary.as_ref();
        match canary.map(|canary| (canary.at, canary.rules.verdict(ex))) {
            Some((at, Some(true))) => self.targets.get(at),
            Some((_, Some(false))) => self.pick_primary(0),
            _ => self.largest(),
        }
    }

    /// The backends that a session may be of. `key` is 0 if the session began while the route had a single backend.
    pub fn of_session(&self, key: u64) -> impl Iterator<Item = &WeightedTarget> {
        self.targets.iter().filter(move |target| target.slot.is_some() && (key == 0 || target.key == key))
    }

    /// The shares in words, as in `2 of 3 to upstreams/a, 1 of 3 with status 500`. `name` gives the object of a slot.
    pub fn describe(&self, name: impl Fn(UpstreamSlotId) -> Option<Arc<str>>) -> String {
        if self.total == 0 {
            return "no backend: status 500".to_owned();
        }
        let share = |target: &WeightedTarget| {
            let goal = match target.slot {
                Some(slot) => name(slot).map_or_else(|| "nowhere".to_owned(), |name| format!("to {name}")),
                None => format!("with status {}", target.status),
            };
            format!("{} of {} {goal}", target.weight, self.total)
        };
        let mut shares: Vec<String> =
            self.targets.iter().filter(|target| target.weight > 0).map(share).collect();
        let canary = self.canary.as_ref().and_then(|canary| self.targets.get(canary.at)?.slot);
        if let Some(canary) = canary.and_then(&name) {
            shares.push(format!("with rules for {canary} ahead of the weights"));
        }
        shares.join(", ")
    }
}

impl PartialEq for WeightedTargets {
    fn eq(&self, other: &WeightedTargets) -> bool {
        // Rules are compiled once per text, so equal ones of one version are one object.
        let has_same_canary = match (&self.canary, &other.canary) {
            (Some(own), Some(others)) => own.at == others.at && Arc::ptr_eq(&own.rules, &others.rules),
            (own, others) => own.is_none() && others.is_none(),
        };
        self.targets == other.targets && has_same_canary
    }
}

/// One backend of a route.
#[derive(Debug, Clone)]
pub struct WeightedTarget {
    /// The share of requests in relation to the sum.
    pub weight: u32,
    /// The upstream; `None` answers with `status`.
    pub slot: Option<UpstreamSlotId>,
    /// The status without an upstream.
    pub status: u16,
    /// A hash of the id of the upstream, by which sessions name the backend.
    pub key: u64,
    /// Edits on the requests and responses of this backend.
    pub edits: Option<Arc<BackendEdits>>,
}

impl PartialEq for WeightedTarget {
    fn eq(&self, other: &WeightedTarget) -> bool {
        let has_same_edits = match (&self.edits, &other.edits) {
            // Edits are compiled once per text, so equal ones of one version are one object.
            (Some(own), Some(others)) => Arc::ptr_eq(own, others),
            (own, others) => own.is_none() && others.is_none(),
        };
        let identity = |target: &WeightedTarget| (target.weight, target.slot, target.status, target.key);
        identity(self) == identity(other) && has_same_edits
    }
}

/// Rules of forwarding that few routes have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ForwardingRules {
    /// Further attempts by status.
    pub retry: Option<StatusRetry>,
    /// Session persistence.
    pub session: Option<Arc<SessionRules>>,
}

/// Further attempts after responses with certain statuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusRetry {
    /// The statuses.
    pub statuses: Box<[u16]>,
    /// The most further attempts.
    pub attempts: u32,
    /// Pause before the first further attempt, in milliseconds; each further one is twice as long.
    pub backoff_ms: u64,
    /// The longest pause, in milliseconds.
    pub backoff_ms_max: u64,
}

impl StatusRetry {
    /// The pause before the next attempt after `attempts` of them, in milliseconds.
    pub fn pause_ms(&self, attempts: u32) -> u64 {
        let doublings = attempts.saturating_sub(1).min(32);
        self.backoff_ms.saturating_mul(1 << doublings).min(self.backoff_ms_max)
    }
}

/// Session persistence of a route.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRules {
    /// The settings.
    pub written: SessionSpec,
}

impl SessionRules {
    /// Whether a value of the client selects the endpoint, in place of a sealed name.
    pub fn is_hashed(&self) -> bool {
        self.written.mode == SessionMode::Hash
    }
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
    /// How `uris` match.
    pub path_form: PathForm,
    /// The bits of the methods, see [`yumen_plugin::Method::bit`]; 0 matches any method.
    pub methods: u16,
}

impl RouteMatching {
    /// Whether a condition reads the request body.
    pub fn needs_body(&self) -> bool {
        self.filters.as_ref().and_then(|filters| filters.vars.as_ref()).is_some_and(ConditionExpr::needs_body)
    }
}

// Fields that every look-up reads share a cache line.
const _: () = assert!(size_of::<RouteMatching>() == 64);

/// Filters beyond host, path and method.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouteFilters {
    /// The addresses of clients. The empty set matches any address.
    pub remote_addrs: IpSet,
    /// A condition on variables.
    pub vars: Option<ConditionExpr>,
    /// Conditions on fields, query arguments and the protocol.
    pub matches: Option<Box<MatchConditions>>,
    /// The pattern of [`PathForm::Regex`].
    pub path: Option<Box<PathPattern>>,
}

/// How the paths of a route match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PathForm {
    /// Patterns in the notation of `uri`.
    #[default]
    Patterns,
    /// Literal paths: first the whole ones, then prefixes by path element, then prefixes by byte. The latter two end in
    /// `/*` and `*`, as in the notation of `uri`.
    Literal {
        /// The number of whole paths.
        exact: u16,
        /// The number of prefixes by path element.
        prefix: u16,
    },
    /// One regular expression, in the filters.
    Regex,
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
    /// Rules of forwarding that few routes have.
    pub forwarding: Option<Box<ForwardingRules>>,
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

#[cfg(test)]
mod tests;
