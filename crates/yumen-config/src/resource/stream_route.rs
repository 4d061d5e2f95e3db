//! Stream routes; and protos, which are accepted and stored, but not compiled yet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::backend::{self, BackendSpec};
use super::common::{self, Labels, Plugins, ResourceId};
use super::upstream::UpstreamSpec;
use super::{Kind, resource_type};
use crate::schema::InvalidSettings;

/// A protobuf description.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProtoSpec {
    /// Id of the description.
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
    /// Source text or a base64 descriptor set, at most 1 MiB.
    #[schemars(length(min = 1, max = 1048576))]
    pub content: String,
    /// Creation time, in seconds since 1970.
    pub create_time: Option<i64>,
    /// Time of the last change, in seconds since 1970.
    pub update_time: Option<i64>,
}

/// Conditions on TCP or UDP streams, with their upstream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamRouteSpec {
    /// Id of the stream route.
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
    /// The client address or network to match.
    pub remote_addr: Option<String>,
    /// The local address or network to match.
    pub server_addr: Option<String>,
    /// The local port to match.
    #[schemars(range(min = 1))]
    pub server_port: Option<u16>,
    /// The server name to match.
    #[schemars(regex(pattern = r"^\*$|^\*?[0-9a-zA-Z-._\[\]:]+$"))]
    pub sni: Option<String>,
    /// Ids of the scopes that the stream route belongs to; absent means the listeners of the node's settings. Beyond
    /// APISIX.
    #[serde(default)]
    #[schemars(schema_with = "super::scope::scopes_schema")]
    pub scopes: Option<Vec<ResourceId>>,
    /// Inline upstream.
    pub upstream: Option<UpstreamSpec>,
    /// Id of an upstream.
    pub upstream_id: Option<ResourceId>,
    /// Weighted upstreams, instead of `upstream` and `upstream_id`; empty closes every connection. Beyond APISIX.
    #[schemars(length(max = 64))]
    pub backends: Option<Vec<BackendSpec>>,
    /// Id of a service, which provides the upstream.
    pub service_id: Option<ResourceId>,
    /// Settings by plugin name.
    #[serde(default)]
    #[schemars(schema_with = "common::plugins_schema")]
    pub plugins: Option<Plugins>,
    /// The application protocol of the stream.
    pub protocol: Option<StreamRouteProtocol>,
    /// Creation time, in seconds since 1970.
    pub create_time: Option<i64>,
    /// Time of the last change, in seconds since 1970.
    pub update_time: Option<i64>,
}

/// The application protocol of a stream route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamRouteProtocol {
    /// Name of the protocol.
    pub name: String,
    /// Id of the superior stream route.
    pub superior_id: Option<ResourceId>,
    /// Settings of the protocol.
    #[serde(default)]
    #[schemars(schema_with = "common::plugins_schema")]
    pub conf: Option<Map<String, Value>>,
    /// Loggers of the protocol.
    pub logger: Option<Vec<Value>>,
}

fn settle(route: &mut StreamRouteSpec) -> Result<(), InvalidSettings> {
    if let Some(upstream) = &mut route.upstream {
        super::upstream::settle(upstream).map_err(|invalid| invalid.under("upstream"))?;
    }
    let targets = [("upstream", route.upstream.is_some()), ("upstream_id", route.upstream_id.is_some())];
    backend::settle_stream(route.backends.as_deref(), targets)
}

resource_type!(ProtoSpec, Kind::Protos);
resource_type!(StreamRouteSpec, Kind::StreamRoutes, settle = settle);
