//! The nodes of an upstream, written as an object of weights or as an array, decoded into one form.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::upstream::SchemeSpec;
use crate::schema::InvalidSettings;
use crate::url;

/// One configured endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpstreamNode {
    /// A host name or an address; an IPv6 address is in brackets after decoding.
    pub host: String,
    /// The port; never 0 after decoding.
    #[serde(default)]
    pub port: u16,
    /// Share of requests; 0 takes the node out of use.
    pub weight: u32,
    /// Nodes of a lower priority are used only if all of a higher one failed.
    #[serde(default)]
    pub priority: i32,
    /// Whether loopback, link-local and unspecified addresses of the host are no endpoints, since they belong to the
    /// gateway's machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excludes_local: bool,
    /// Metadata from service discovery.
    pub metadata: Option<Map<String, Value>>,
}

/// All nodes, in the order written.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(transparent)]
pub struct UpstreamNodes(pub Vec<UpstreamNode>);

impl UpstreamNodes {
    /// Sets default ports by scheme, and brackets IPv6 hosts.
    pub(super) fn settle(&mut self, scheme: SchemeSpec) -> Result<(), InvalidSettings> {
        for (i, node) in self.0.iter_mut().enumerate() {
            // An authority has brackets around an IPv6 address (RFC 3986 §3.2.2).
            if node.host.parse::<std::net::Ipv6Addr>().is_ok() {
                node.host = format!("[{}]", node.host);
            }
            // Zero stands for an absent port in both forms.
            if node.port == 0 {
                let Some(port) = scheme.default_port() else {
                    return Err(InvalidSettings::at(
                        format!("nodes[{i}].port"),
                        "property \"port\" is required",
                    ));
                };
                node.port = port;
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for UpstreamNodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UpstreamNodes, D::Error> {
        struct NodesVisitor;
        impl<'de> Visitor<'de> for NodesVisitor {
            type Value = UpstreamNodes;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of weights by address, or an array of nodes")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UpstreamNodes, A::Error> {
                let mut nodes = Vec::with_capacity(map.size_hint().unwrap_or(0));
                while let Some((address, weight)) = map.next_entry::<Cow<'de, str>, u32>()? {
                    nodes.push(from_address(&address, weight).map_err(A::Error::custom)?);
                }
                Ok(UpstreamNodes(nodes))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<UpstreamNodes, A::Error> {
                let mut nodes = Vec::with_capacity(seq.size_hint().unwrap_or(0));
                while let Some(node) = seq.next_element()? {
                    nodes.push(node);
                }
                Ok(UpstreamNodes(nodes))
            }
        }
        // An untagged enum would buffer all nodes and hide the position of an error.
        deserializer.deserialize_any(NodesVisitor)
    }
}

/// Parses `host`, `host:port`, `[v6]:port`, or a bare IPv6 address.
fn from_address(address: &str, weight: u32) -> Result<UpstreamNode, String> {
    let bare_v6 = address.parse::<std::net::Ipv6Addr>().is_ok();
    let (host, port) = match address.rsplit_once(':') {
        // The last colon of an IPv6 address does not precede a port.
        Some((host, port)) if !bare_v6 && !port.ends_with(']') => (host, Some(port)),
        _ => (address, None),
    };
    let port = match port {
        None => 0,
        // `parse` would accept `+80`.
        Some(digits) => url::port(digits).ok_or_else(|| format!("invalid port {digits}"))?,
    };
    if host.is_empty() {
        return Err(format!("invalid node address \"{address}\""));
    }
    Ok(UpstreamNode {
        host: host.to_owned(),
        port,
        weight,
        priority: 0,
        excludes_local: false,
        metadata: None,
    })
}

impl JsonSchema for UpstreamNodes {
    fn schema_name() -> Cow<'static, str> {
        "Nodes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                {
                    "type": "object",
                    "patternProperties": { ".*": { "type": "integer", "minimum": 0 } }
                },
                {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "host": { "type": "string", "pattern": "^\\*$|^\\*?[0-9a-zA-Z-._\\[\\]:]+$" },
                            "port": { "type": "integer", "minimum": 1, "maximum": 65535 },
                            "weight": { "type": "integer", "minimum": 0 },
                            "priority": { "type": "integer", "default": 0 },
                            "excludes_local": { "type": "boolean", "default": false },
                            "metadata": { "type": "object" }
                        },
                        "required": ["host", "weight"]
                    }
                }
            ]
        })
    }
}
