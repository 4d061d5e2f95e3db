//! Consumers and their credentials.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{self, Labels, Plugins, ResourceId};
use super::{Kind, resource_type};

/// A consumer, identified by one of its authentication plugins or credentials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsumerSpec {
    /// Name and id of the consumer.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[a-zA-Z0-9_\-]+$"))]
    pub username: String,
    /// Accepted because tools send it; equal to `username`.
    pub id: Option<ResourceId>,
    /// Consumer group with shared plugins.
    pub group_id: Option<ResourceId>,
    /// Settings by plugin name.
    #[serde(default)]
    #[schemars(schema_with = "common::plugins_schema")]
    pub plugins: Option<Plugins>,
    /// Ids of the scopes in whose requests the consumer is known; absent means all requests, an empty list the
    /// listeners of the node's settings. Beyond APISIX.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("uniqueItems" = true))]
    pub scopes: Option<Vec<ResourceId>>,
    /// A description for people.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// User-defined labels.
    #[serde(default)]
    #[schemars(schema_with = "common::labels_schema")]
    pub labels: Option<Labels>,
    /// Creation time, in seconds since 1970.
    pub create_time: Option<i64>,
    /// Time of the last change, in seconds since 1970.
    pub update_time: Option<i64>,
}

/// A credential of a consumer: settings of exactly one authentication plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialSpec {
    /// Id within the consumer, or the whole `user/credentials/id`.
    #[serde(default)]
    #[schemars(schema_with = "credential_id")]
    pub id: Option<String>,
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
    /// Settings of the authentication plugin.
    #[schemars(extend("maxProperties" = 1))]
    #[serde(default)]
    #[schemars(schema_with = "common::plugins_schema")]
    pub plugins: Option<Plugins>,
    /// Creation time, in seconds since 1970.
    pub create_time: Option<i64>,
    /// Time of the last change, in seconds since 1970.
    pub update_time: Option<i64>,
}

fn credential_id(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "string", "minLength": 1, "maxLength": 256,
        "pattern": "^[a-zA-Z0-9-_.]+(/credentials/[a-zA-Z0-9-_.]+)?$"
    })
}

resource_type!(ConsumerSpec, Kind::Consumers);
resource_type!(CredentialSpec, Kind::Credentials);
