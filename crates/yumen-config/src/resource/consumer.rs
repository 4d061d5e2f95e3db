//! Who calls: consumers, their credentials and groups.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{self, Labels, Plugins, ResourceId};
use super::{Kind, resource_type};

/// A consumer, identified by one of its authentication plugins or credentials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsumerSpec {
    /// Its name, which is also its id.
    #[schemars(length(min = 1, max = 100), regex(pattern = r"^[a-zA-Z0-9_\-]+$"))]
    pub username: String,
    /// Accepted where tools send it; equals `username`.
    pub id: Option<ResourceId>,
    /// The group whose plugins it shares.
    pub group_id: Option<ResourceId>,
    /// Settings by plugin name.
    #[serde(default)]
    #[schemars(schema_with = "common::plugins_schema")]
    pub plugins: Option<Plugins>,
    /// A description for people.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// Free labels.
    #[serde(default)]
    #[schemars(schema_with = "common::labels_schema")]
    pub labels: Option<Labels>,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was last changed, in seconds since 1970.
    pub update_time: Option<i64>,
}

/// A credential of a consumer: exactly one authentication plugin's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialSpec {
    /// Its id within the consumer, or the whole `user/credentials/id`.
    #[serde(default)]
    #[schemars(schema_with = "credential_id")]
    pub id: Option<String>,
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
    /// The authentication plugin's settings.
    #[schemars(extend("maxProperties" = 1))]
    #[serde(default)]
    #[schemars(schema_with = "common::plugins_schema")]
    pub plugins: Option<Plugins>,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was last changed, in seconds since 1970.
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
