//! Services: settings shared by routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{self, Labels, Plugins, ResourceId};
use super::upstream::UpstreamSpec;
use super::{Kind, resource_type};
use crate::schema::InvalidSettings;

const HOST: &str = r"^\*$|^\*?[0-9a-zA-Z-._\[\]:]+$";

/// Settings for the routes that refer to the service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceSpec {
    /// Id of the service.
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
    /// Settings by plugin name.
    #[serde(default)]
    #[schemars(schema_with = "common::plugins_schema")]
    pub plugins: Option<Plugins>,
    /// Inline upstream.
    pub upstream: Option<UpstreamSpec>,
    /// Id of an upstream.
    pub upstream_id: Option<ResourceId>,
    /// A Lua script; stored, but refused where it would have to run.
    #[schemars(length(min = 10, max = 102400))]
    pub script: Option<String>,
    /// Hosts of the service's routes that set none.
    #[schemars(inner(regex(pattern = HOST)), length(min = 1), extend("uniqueItems" = true))]
    pub hosts: Option<Vec<String>>,
    /// Whether requests may upgrade to WebSocket, unless the route sets it.
    pub enable_websocket: Option<bool>,
    /// Creation time, in seconds since 1970.
    pub create_time: Option<i64>,
    /// Time of the last change, in seconds since 1970.
    pub update_time: Option<i64>,
}

fn settle(service: &mut ServiceSpec) -> Result<(), InvalidSettings> {
    if let Some(upstream) = &mut service.upstream {
        super::upstream::settle(upstream).map_err(|invalid| invalid.under("upstream"))?;
    }
    Ok(())
}

resource_type!(ServiceSpec, Kind::Services, settle = settle);
