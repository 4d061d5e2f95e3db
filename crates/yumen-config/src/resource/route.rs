//! Routes: conditions on requests, with their upstream and plugins.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::actions::{self, RouteActionsSpec};
use super::backend::{self, BackendSpec, RetrySpec, SessionSpec};
use super::common::{self, Labels, OneOrMany, Plugins, ResourceId, RouteMethod, TimeoutSpec};
use super::route_match::{self, RouteMatchSpec};
use super::upstream::{OnChangeSpec, UpstreamSpec};
use super::{Kind, resource_type};
use crate::schema::InvalidSettings;

const HOST: &str = r"^\*$|^\*?[0-9a-zA-Z-._\[\]:]+$";

/// A route. Needs `uri` or `uris`, and plugins, an upstream, a service or a script.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = rules)]
pub struct RouteSpec {
    /// Id of the route.
    pub id: Option<ResourceId>,
    /// A name for people.
    #[schemars(length(min = 1, max = 256))]
    pub name: Option<String>,
    /// A description for people.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// User-defined labels.
    #[serde(default)]
    #[schemars(schema_with = "common::labels_schema")]
    pub labels: Option<Labels>,
    /// The path to match: exact, `/prefix/*`, `/with/*/inside`, or with `:parameters`.
    #[schemars(length(min = 1, max = 4096))]
    pub uri: Option<String>,
    /// Several paths, instead of `uri`.
    #[schemars(inner(length(min = 1, max = 4096)), length(min = 1), extend("uniqueItems" = true))]
    pub uris: Option<Vec<String>>,
    /// The host to match; `*.example.com` matches every subdomain.
    #[schemars(regex(pattern = HOST))]
    pub host: Option<String>,
    /// Several hosts, instead of `host`.
    #[schemars(inner(regex(pattern = HOST)), length(min = 1), extend("uniqueItems" = true))]
    pub hosts: Option<Vec<String>>,
    /// The client address or network to match.
    pub remote_addr: Option<String>,
    /// Several addresses, instead of `remote_addr`.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub remote_addrs: Option<Vec<String>>,
    /// The methods to match; absent means all.
    #[schemars(extend("uniqueItems" = true))]
    pub methods: Option<Vec<RouteMethod>>,
    /// Order among routes with the same path: the highest is tried first.
    #[serde(default)]
    pub priority: i64,
    /// Conditions on variables, `[[name, operator, value], ...]`.
    pub vars: Option<Vec<Value>>,
    /// Further conditions: literal paths, patterns, fields, query arguments. Beyond APISIX.
    #[serde(rename = "match")]
    pub matching: Option<RouteMatchSpec>,
    /// A condition in Lua; stored, but refused where it would have to run.
    #[schemars(length(min = 10))]
    pub filter_func: Option<String>,
    /// A Lua script; stored, but refused where it would have to run.
    #[schemars(length(min = 10, max = 102400))]
    pub script: Option<String>,
    /// Id of a stored Lua script.
    pub script_id: Option<ResourceId>,
    /// Native actions on requests and responses. Beyond APISIX.
    pub actions: Option<RouteActionsSpec>,
    /// Settings by plugin name.
    #[serde(default)]
    #[schemars(schema_with = "common::plugins_schema")]
    pub plugins: Option<Plugins>,
    /// Id of a plugin config.
    pub plugin_config_id: Option<ResourceId>,
    /// Inline upstream.
    pub upstream: Option<UpstreamSpec>,
    /// Id of an upstream.
    pub upstream_id: Option<ResourceId>,
    /// Weighted upstreams, instead of `upstream` and `upstream_id`; empty answers every request with 500. Beyond APISIX.
    #[schemars(length(max = 64))]
    pub backends: Option<Vec<BackendSpec>>,
    /// Id of a service, which provides the settings that this route lacks.
    pub service_id: Option<ResourceId>,
    /// Further attempts by status. Beyond APISIX.
    pub retry: Option<RetrySpec>,
    /// Session persistence. Beyond APISIX.
    pub session: Option<SessionSpec>,
    /// Timeouts in place of the upstream's.
    pub timeout: Option<TimeoutSpec>,
    /// Whether requests may upgrade to WebSocket.
    pub enable_websocket: Option<bool>,
    /// Handling of tunnels, such as WebSockets, when this route or their endpoint changes: `keep`, `close`,
    /// or `{"drain": seconds}`. Beyond APISIX.
    pub on_change: Option<OnChangeSpec>,
    /// Whether requests of this route bypass the global rules. Beyond APISIX.
    #[serde(default)]
    pub skip_global_rules: bool,
    /// Ids of the scopes that the route belongs to; absent means the listeners of the node's settings. Beyond
    /// APISIX.
    #[serde(default)]
    #[schemars(schema_with = "super::scope::scopes_schema")]
    pub scopes: Option<Vec<ResourceId>>,
    /// 1 enables the route, 0 disables it.
    #[serde(default = "common::one")]
    #[schemars(schema_with = "common::status_schema")]
    pub status: u8,
    /// Creation time, in seconds since 1970.
    pub create_time: Option<i64>,
    /// Time of the last change, in seconds since 1970.
    pub update_time: Option<i64>,
}

impl RouteSpec {
    /// `uri` or `uris`.
    pub fn uris(&self) -> OneOrMany<'_> {
        OneOrMany::new(&self.uri, &self.uris)
    }

    /// `host` or `hosts`; empty matches all.
    pub fn hosts(&self) -> OneOrMany<'_> {
        OneOrMany::new(&self.host, &self.hosts)
    }

    /// `remote_addr` or `remote_addrs`; empty matches all.
    pub fn remote_addrs(&self) -> OneOrMany<'_> {
        OneOrMany::new(&self.remote_addr, &self.remote_addrs)
    }
}

fn rules(schema: &mut Schema) {
    // The order is APISIX's, because the message lists the sets.
    let acts = ["plugins", "upstream", "upstream_id", "service_id"];
    let pairs = ["uri", "uris"].into_iter().flat_map(|uri| acts.into_iter().map(move |act| [act, uri]));
    let scripts = [["script", "uri"], ["script", "uris"]];
    // Members beyond APISIX are one branch, which the message does not list.
    let native = json!({ "anyOf": [{ "required": ["actions"] }, { "required": ["backends"] }] });
    let some = pairs.chain(scripts).map(|pair| json!({ "required": pair }));
    let some: Vec<Value> = some.chain([native]).collect();
    let at_most_one = |one: &str, many: &str| {
        json!({ "oneOf": [
            { "not": { "anyOf": [{ "required": [one] }, { "required": [many] }] } },
            { "required": [one] },
            { "required": [many] },
        ] })
    };
    schema.insert(
        "allOf".into(),
        json!([
            { "oneOf": [{ "required": ["uri"] }, { "required": ["uris"] }] },
            at_most_one("host", "hosts"),
            at_most_one("remote_addr", "remote_addrs"),
        ]),
    );
    schema.insert("anyOf".into(), Value::Array(some));
    schema.insert(
        "not".into(),
        json!({ "anyOf": [
            { "required": ["script", "plugins"] },
            { "required": ["script", "plugin_config_id"] },
        ] }),
    );
}

/// Refuses both members of a pair by name, which the combinators of the schema cannot.
fn screen(written: &Value) -> Result<(), InvalidSettings> {
    let is_written = |name: &str| written.get(name).is_some();
    for (one, many) in [("host", "hosts"), ("remote_addr", "remote_addrs")] {
        if is_written(one) && is_written(many) {
            return Err(InvalidSettings::at(many, format!("only one of {one} or {many} is allowed")));
        }
    }
    Ok(())
}

fn settle(route: &mut RouteSpec) -> Result<(), InvalidSettings> {
    if let Some(upstream) = &mut route.upstream {
        super::upstream::settle(upstream).map_err(|invalid| invalid.under("upstream"))?;
    }
    if let Some(actions) = &route.actions {
        actions::settle(actions).map_err(|invalid| invalid.under("actions"))?;
    }
    backend::settle(route)?;
    route_match::settle(route)
}

resource_type!(RouteSpec, Kind::Routes, screen = screen, settle = settle);
