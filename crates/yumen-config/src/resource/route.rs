//! Routes: which requests match, and what happens to them.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::common::{self, Labels, OneOrMany, Plugins, ResourceId, RouteMethod, TimeoutSpec};
use super::upstream::{OnChangeSpec, UpstreamSpec};
use super::{Kind, resource_type};
use crate::schema::InvalidSettings;

const HOST: &str = r"^\*$|^\*?[0-9a-zA-Z-._\[\]:]+$";

/// A route. Needs `uri` or `uris`, and something to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = rules)]
pub struct RouteSpec {
    /// Its id.
    pub id: Option<ResourceId>,
    /// A name for people.
    #[schemars(length(min = 1, max = 256))]
    pub name: Option<String>,
    /// A description for people.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// Free labels.
    #[serde(default)]
    #[schemars(schema_with = "common::labels_schema")]
    pub labels: Option<Labels>,
    /// The path to match: exact, `/prefix/*`, or with `:parameters`.
    #[schemars(length(min = 1, max = 4096))]
    pub uri: Option<String>,
    /// Several such paths.
    #[schemars(inner(length(min = 1, max = 4096)), length(min = 1), extend("uniqueItems" = true))]
    pub uris: Option<Vec<String>>,
    /// The host to match; `*.example.com` matches every name below.
    #[schemars(regex(pattern = HOST))]
    pub host: Option<String>,
    /// Several such hosts.
    #[schemars(inner(regex(pattern = HOST)), length(min = 1), extend("uniqueItems" = true))]
    pub hosts: Option<Vec<String>>,
    /// The client's address or network to match.
    pub remote_addr: Option<String>,
    /// Several such addresses.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub remote_addrs: Option<Vec<String>>,
    /// The methods to match; absent means all.
    #[schemars(extend("uniqueItems" = true))]
    pub methods: Option<Vec<RouteMethod>>,
    /// Among routes of the same path, the higher is tried first.
    #[serde(default)]
    pub priority: i64,
    /// Conditions over variables, `[[name, operator, value], ...]`.
    pub vars: Option<Vec<Value>>,
    /// A condition in Lua; kept, and refused where it would have to run.
    #[schemars(length(min = 10))]
    pub filter_func: Option<String>,
    /// A Lua script; kept, and refused where it would have to run.
    #[schemars(length(min = 10, max = 102400))]
    pub script: Option<String>,
    /// A stored Lua script.
    pub script_id: Option<ResourceId>,
    /// Settings by plugin name.
    #[serde(default)]
    #[schemars(schema_with = "common::plugins_schema")]
    pub plugins: Option<Plugins>,
    /// The shared plugins to use.
    pub plugin_config_id: Option<ResourceId>,
    /// Where requests go.
    pub upstream: Option<UpstreamSpec>,
    /// Where requests go, by id.
    pub upstream_id: Option<ResourceId>,
    /// The service whose settings are used where this route has none.
    pub service_id: Option<ResourceId>,
    /// Overrides the upstream's.
    pub timeout: Option<TimeoutSpec>,
    /// Whether a request may become a WebSocket.
    pub enable_websocket: Option<bool>,
    /// What becomes of tunnels, such as WebSockets, when this route or their endpoint changes: `keep`, `close`, or
    /// `{"drain": seconds}`. Beyond APISIX.
    pub on_change: Option<OnChangeSpec>,
    /// Whether its requests pass by the global rules. Beyond APISIX.
    #[serde(default)]
    pub skip_global_rules: bool,
    /// 1 in force, 0 switched off.
    #[serde(default = "common::one")]
    #[schemars(schema_with = "common::status_schema")]
    pub status: u8,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was last changed, in seconds since 1970.
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
    let some: Vec<Value> = pairs.chain(scripts).map(|pair| json!({ "required": pair })).collect();
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

fn settle(route: &mut RouteSpec) -> Result<(), InvalidSettings> {
    if let Some(upstream) = &mut route.upstream {
        super::upstream::settle(upstream).map_err(|invalid| invalid.under("upstream"))?;
    }
    Ok(())
}

resource_type!(RouteSpec, Kind::Routes, settle = settle);
