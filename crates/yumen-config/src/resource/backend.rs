//! Weighted backends of a route, with retries by status and session persistence.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::actions::{self, FieldEditsSpec, RewriteSpec};
use super::common::{self, ResourceId};
use super::route::RouteSpec;
use crate::schema::InvalidSettings;

/// A share of the requests of a route: an upstream, or a status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["upstream_id"]}, {"required": ["status"]}]))]
pub struct BackendSpec {
    /// The share of requests in relation to the sum of all weights; 0 gets none.
    #[serde(default = "one")]
    #[schemars(range(max = 1000000))]
    pub weight: u32,
    /// Id of the upstream.
    pub upstream_id: Option<ResourceId>,
    /// The status of the response, in place of an upstream. A stream route closes the connection.
    #[schemars(range(min = 400, max = 599))]
    pub status: Option<u16>,
    /// Actions on the requests of this share, after those of the route.
    pub actions: Option<BackendActionsSpec>,
    /// Rules that select or exclude this backend ahead of the weights. Without an endpoint that serves, the backend is
    /// left out.
    pub canary: Option<CanarySpec>,
}

/// Rules that select or exclude a backend ahead of the weights: first the field, then the cookie.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CanarySpec {
    /// A request field that selects or excludes the backend.
    pub header: Option<CanaryHeaderSpec>,
    /// A cookie with `always` or `never`.
    #[schemars(length(min = 1, max = 256))]
    pub cookie: Option<String>,
    /// Whether the rules also apply to clients of a session. Otherwise those stay at the backend of their session.
    #[serde(default)]
    pub ignores_session: bool,
}

/// A request field that selects or excludes a backend. Without `value` and `pattern`, `always` selects it and `never`
/// excludes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CanaryHeaderSpec {
    /// The name of the field.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// The value that selects the backend; others leave the choice to the following rules.
    #[schemars(length(max = 4096))]
    pub value: Option<String>,
    /// A pattern of values that select the backend; others leave the choice to the following rules.
    #[schemars(length(min = 1, max = 4096))]
    pub pattern: Option<String>,
}

fn one() -> u32 {
    1
}

/// Actions on the requests of one backend.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("minProperties" = 1))]
pub struct BackendActionsSpec {
    /// Edits of the fields of requests.
    pub request_fields: Option<FieldEditsSpec>,
    /// Edits of the fields of responses.
    pub response_fields: Option<FieldEditsSpec>,
    /// Host and path for the upstream.
    pub rewrite: Option<RewriteSpec>,
}

/// Further attempts after responses with certain statuses. Connection errors and timeouts of an attempt count as well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetrySpec {
    /// Statuses after which another attempt is made.
    #[serde(default)]
    #[schemars(inner(range(min = 400, max = 599)), extend("uniqueItems" = true))]
    pub statuses: Vec<u16>,
    /// The most further attempts; the response of the last one is passed on. They may go to endpoints that were tried.
    #[serde(default = "one")]
    #[schemars(range(max = 100))]
    pub attempts: u32,
    /// Pause before the first further attempt, in milliseconds. Each pause is twice as long as the one before.
    #[serde(default)]
    #[schemars(range(max = 3600000))]
    pub backoff_ms: u64,
    /// The longest pause, in milliseconds; 0 means ten times `backoff_ms`.
    #[serde(default)]
    #[schemars(range(max = 3600000))]
    pub backoff_ms_max: u64,
}

/// The carrier of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// A cookie.
    #[default]
    Cookie,
    /// A field of requests and responses.
    Header,
}

/// The object that a session binds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionMode {
    /// An endpoint, named in a sealed value.
    #[default]
    Endpoint,
    /// A value of the client, which selects an endpoint by consistent hashing.
    Hash,
}

/// The `SameSite` attribute of a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are the attribute values")]
pub enum SameSiteSpec {
    Strict,
    Lax,
    None,
    /// `None`, left out for browsers that reject it.
    NoneIfSupported,
}

/// Attributes of a session cookie.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CookieAttributes {
    /// `Path`; absent means `/`.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^\/[^;\s]*$"))]
    pub path: Option<String>,
    /// `Domain`.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[0-9a-zA-Z-._]+$"))]
    pub domain: Option<String>,
    /// `Secure`; without it, the cookie is secure if the client uses TLS.
    #[serde(default)]
    pub secure: bool,
    /// `HttpOnly`.
    #[serde(default = "common::yes")]
    pub http_only: bool,
    /// `SameSite`.
    pub same_site: Option<SameSiteSpec>,
    /// `Expires`, in seconds from the response on.
    #[schemars(range(min = 1))]
    pub expires_s: Option<u64>,
}

/// Session persistence: requests of one session go to one endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionSpec {
    /// The carrier of the session.
    #[serde(default)]
    pub kind: SessionKind,
    /// The name of the cookie or field.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// The longest life of a session, in seconds; absent means no bound.
    #[schemars(range(min = 1))]
    pub max_age_s: Option<u64>,
    /// Whether the cookie outlives the session of the browser; requires `max_age_s`.
    #[serde(default)]
    pub is_permanent: bool,
    /// Attributes of the cookie.
    pub cookie: Option<CookieAttributes>,
    /// The object that a session binds to.
    #[serde(default)]
    pub mode: SessionMode,
    /// Whether a session moves for good when its endpoint fails. Otherwise only the failed request goes elsewhere, as
    /// long as the endpoint exists.
    #[serde(default = "common::yes")]
    pub change_on_failure: bool,
}

/// Applies the rules of a route's backends, retries and session beyond the schema.
pub(super) fn settle(route: &RouteSpec) -> Result<(), InvalidSettings> {
    let targets = [("upstream", route.upstream.is_some()), ("upstream_id", route.upstream_id.is_some())];
    check_targets(route.backends.as_deref(), targets)?;
    check_canary(route)?;
    for (at, backend) in route.backends.iter().flatten().enumerate() {
        let Some(actions) = &backend.actions else { continue };
        check_actions(actions).map_err(|invalid| invalid.under(&format!("backends[{at}].actions")))?;
    }
    if let Some(session) = &route.session {
        check_session(session).map_err(|invalid| invalid.under("session"))?;
    }
    Ok(())
}

/// Refuses canary rules without effect, or that contradict each other.
fn check_canary(route: &RouteSpec) -> Result<(), InvalidSettings> {
    let backends = route.backends.iter().flatten().enumerate();
    let mut with_rules = backends.filter_map(|(at, backend)| Some((at, backend.canary.as_ref()?)));
    let Some((at, canary)) = with_rules.next() else { return Ok(()) };
    let path = |member: &str, at: usize| format!("backends[{at}].canary{member}");
    if let Some((second, _)) = with_rules.next() {
        let message = format!("backends[{at}] has rules already");
        return Err(InvalidSettings::at(path("", second), message).hint("write rules for one backend"));
    }
    if route.backends.as_ref().is_some_and(|backends| backends.len() < 2) {
        let message = "has no effect: the route has no other backend";
        return Err(InvalidSettings::at(path("", at), message).hint("add one, or remove the rules"));
    }
    if canary.ignores_session && route.session.is_none() {
        let message = "has no effect: the route has no `session`";
        return Err(InvalidSettings::at(path(".ignores_session", at), message).hint("remove it"));
    }
    let Some(header) = &canary.header else { return Ok(()) };
    if !actions::is_token(&header.name) {
        let message = format!("\"{}\" is no name of a field", header.name);
        return Err(InvalidSettings::at(path(".header.name", at), message));
    }
    match header.value.is_some() && header.pattern.is_some() {
        true => Err(InvalidSettings::at(path(".header.pattern", at), "has no effect beside `value`")
            .hint("remove one of the two")),
        false => Ok(()),
    }
}

fn check_actions(actions: &BackendActionsSpec) -> Result<(), InvalidSettings> {
    actions::check_edits(actions.request_fields.as_ref(), "request_fields")?;
    actions::check_edits(actions.response_fields.as_ref(), "response_fields")?;
    actions::check_rewrite(actions.rewrite.as_ref())
}

fn check_session(session: &SessionSpec) -> Result<(), InvalidSettings> {
    if !actions::is_token(&session.name) {
        return Err(InvalidSettings::at(
            "name",
            format!("\"{}\" is no token (RFC 9110 §5.6.2)", session.name),
        ));
    }
    if session.is_permanent && session.max_age_s.is_none() {
        return Err(InvalidSettings::at("is_permanent", "a permanent session requires `max_age_s`"));
    }
    let is_cookie = session.kind == SessionKind::Cookie;
    if !is_cookie && session.mode == SessionMode::Hash {
        return Err(InvalidSettings::at("mode", "`hash` requires `kind` cookie"));
    }
    match (is_cookie, session.cookie.is_some(), session.is_permanent) {
        (false, true, _) => Err(InvalidSettings::at("cookie", "has no effect with `kind` header")),
        (false, _, true) => Err(InvalidSettings::at("is_permanent", "has no effect with `kind` header")),
        _ => Ok(()),
    }
}

/// Refuses `backends` beside another target, of which one would have no effect.
fn check_targets(backends: Option<&[BackendSpec]>, others: [(&str, bool); 2]) -> Result<(), InvalidSettings> {
    let other = others.into_iter().find(|(_, is_written)| *is_written);
    match (backends, other) {
        (Some(_), Some((other, _))) => {
            let message = format!("only one of backends or {other} is allowed");
            Err(InvalidSettings::at("backends", message))
        }
        _ => Ok(()),
    }
}

/// Applies the rules of a stream route's backends beyond the schema.
pub(super) fn settle_stream(
    backends: Option<&[BackendSpec]>,
    others: [(&str, bool); 2],
) -> Result<(), InvalidSettings> {
    check_targets(backends, others)?;
    let with_canary = backends.into_iter().flatten().position(|backend| backend.canary.is_some());
    if let Some(at) = with_canary {
        let message = "a stream has no fields: rules have no effect";
        return Err(InvalidSettings::at(format!("backends[{at}].canary"), message).hint("remove it"));
    }
    let with_actions = backends.into_iter().flatten().position(|backend| backend.actions.is_some());
    match with_actions {
        Some(at) => {
            let message = "a stream has no fields and no path: actions have no effect";
            Err(InvalidSettings::at(format!("backends[{at}].actions"), message).hint("remove it"))
        }
        None => Ok(()),
    }
}
