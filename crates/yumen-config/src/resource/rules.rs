//! Sets of plugins: plugin configs, global rules, consumer groups; and plugin metadata.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::common::{self, Labels, Plugins, ResourceId};
use super::{Kind, resource_type};

/// Declares a resource that consists of plugins.
macro_rules! plugin_set {
    ($(#[$doc:meta])* $name:ident, $kind:expr $(, $(#[$field_doc:meta])* $field:ident: $type:ty)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Id of the object.
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
            #[schemars(schema_with = "common::plugins_schema")]
            pub plugins: Plugins,
            $($(#[$field_doc])* pub $field: $type,)*
            /// Creation time, in seconds since 1970.
            pub create_time: Option<i64>,
            /// Time of the last change, in seconds since 1970.
            pub update_time: Option<i64>,
        }

        resource_type!($name, $kind);
    };
}

plugin_set!(
    /// Plugins shared by the routes that refer to the set.
    PluginConfig,
    Kind::PluginConfigs
);

plugin_set!(
    /// Plugins that run for every request.
    GlobalRule,
    Kind::GlobalRules,
    /// Ids of the scopes whose requests run the plugins; absent means all requests, an empty list the listeners of the
    /// node's settings. Beyond APISIX.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("uniqueItems" = true))]
    scopes: Option<Vec<ResourceId>>
);

plugin_set!(
    /// Plugins shared by the consumers that refer to the group.
    ConsumerGroup,
    Kind::ConsumerGroups
);

/// Settings common to all uses of a plugin; the id is the plugin's name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PluginMetadata {
    /// The plugin's name.
    pub id: Option<ResourceId>,
    /// Creation time, in seconds since 1970.
    pub create_time: Option<i64>,
    /// Time of the last change, in seconds since 1970.
    pub update_time: Option<i64>,
    /// All other members; the metadata schema of the plugin applies to them.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

resource_type!(PluginMetadata, Kind::PluginMetadata);
