//! Services: settings shared by routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{self, Labels, Plugins, ResourceId};
use super::upstream::UpstreamSpec;
use super::{Kind, resource_type};
use crate::schema::InvalidSettings;

const HOST: &str = r"^\*$|^\*?[0-9a-zA-Z-._\[\]:]+$";

/// A service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceSpec {
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
    /// Settings by plugin name.
    #[serde(default)]
    #[schemars(schema_with = "common::plugins_schema")]
    pub plugins: Option<Plugins>,
    /// Where requests go.
    pub upstream: Option<UpstreamSpec>,
    /// Where requests go, by id.
    pub upstream_id: Option<ResourceId>,
    /// A Lua script; kept, and refused where it would have to run.
    #[schemars(length(min = 10, max = 102400))]
    pub script: Option<String>,
    /// The hosts of those of its routes that name none.
    #[schemars(inner(regex(pattern = HOST)), length(min = 1), extend("uniqueItems" = true))]
    pub hosts: Option<Vec<String>>,
    /// Whether a request may become a WebSocket, where the route does not say.
    pub enable_websocket: Option<bool>,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was last changed, in seconds since 1970.
    pub update_time: Option<i64>,
}

fn settle(service: &mut ServiceSpec) -> Result<(), InvalidSettings> {
    if let Some(upstream) = &mut service.upstream {
        super::upstream::settle(upstream).map_err(|invalid| invalid.under("upstream"))?;
    }
    Ok(())
}

resource_type!(ServiceSpec, Kind::Services, settle = settle);
