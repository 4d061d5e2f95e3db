//! Settings of plugins that belong to the node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of plugins that belong to the node, by the name of the plugin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PluginAttributes {
    /// The plugin `skywalking`.
    pub skywalking: SkywalkingAttributes,
    /// The plugin `zipkin`.
    pub zipkin: ZipkinAttributes,
}

/// The server and the names of `skywalking`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SkywalkingAttributes {
    /// Name of the service in traces.
    pub service_name: String,
    /// Name of this node in traces; `$hostname` is its host name.
    pub service_instance_name: String,
    /// URL of the OAP server's HTTP port.
    pub endpoint_addr: String,
    /// Seconds after which collected segments are sent.
    #[schemars(range(min = 1))]
    pub report_interval: u32,
}

impl Default for SkywalkingAttributes {
    fn default() -> Self {
        SkywalkingAttributes {
            service_name: "APISIX".into(),
            service_instance_name: "APISIX Instance Name".into(),
            endpoint_addr: "http://127.0.0.1:12800".into(),
            report_interval: 3,
        }
    }
}

/// Variables of `zipkin`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ZipkinAttributes {
    /// Whether the variables `zipkin_context_traceparent`, `zipkin_trace_id` and `zipkin_span_id` are set.
    pub set_ngx_var: bool,
}
