//! Policy tests: requests with their expected outcomes, stored with the configuration that they test.
//!
//! Independent of route matching.

use std::collections::BTreeMap;
use std::net::IpAddr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::common::{self, Labels, ResourceId};
use super::{Kind, resource_type};
use crate::schema::InvalidSettings;

/// A hypothetical request, the input of `explain` and of a [`Test`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The method; GET if absent.
    #[serde(default = "get")]
    #[schemars(length(min = 1, max = 32))]
    pub method: String,
    /// `https://host/path?query`, or a path alone if the host does not matter or is in `headers`.
    #[schemars(length(min = 1, max = 8192))]
    pub url: String,
    /// Header fields.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "texts_schema")]
    pub headers: BTreeMap<String, String>,
    /// Address of the client; 127.0.0.1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "address_schema")]
    pub client_ip: Option<IpAddr>,
    /// The consumer to assume as authenticated if a plugin requires one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub consumer: Option<String>,
    /// The server name of the TLS handshake; the host of an `https` URL if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub sni: Option<String>,
    /// Id of the listener of the configuration that accepts the request; a listener of the node's settings if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub listener: Option<String>,
    /// A route, by id or name, to explain why it does not get the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub why_not: Option<String>,
}

fn get() -> String {
    "GET".to_owned()
}

fn texts_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": { "type": "string" } })
}

fn address_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [
        { "type": "string", "format": "ipv4" },
        { "type": "string", "format": "ipv6" },
    ]})
}

/// The expected outcome of a request. Absent members accept any outcome.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline, extend("minProperties" = 1))]
pub struct Expectation {
    /// Id of the matched route; null for none, which is a 404.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "route_schema")]
    pub route: Option<Option<ResourceId>>,
    /// Status of a local response.
    #[schemars(range(min = 100, max = 599))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Name of the plugin that responds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// Path and query of the upstream request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Header fields of the upstream request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "texts_schema")]
    pub headers: BTreeMap<String, String>,
    /// The upstream: its id, or `routes/ID` or `services/ID` for the inline upstream of that object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Id of the certificate that the client gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// Schemas here have no null type, so deserializing the value validates it.
fn route_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({})
}

/// Distinguishes `null` from an absent member.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<ResourceId>>, D::Error> {
    let message = "expect.route is the id of a route, or null for none";
    Option::<ResourceId>::deserialize(deserializer).map(Some).map_err(|_| D::Error::custom(message))
}

/// A request and its expected outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// Id of the test.
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
    /// The request.
    pub request: Question,
    /// The expected outcome.
    pub expect: Expectation,
    /// Creation time, in seconds since 1970.
    pub create_time: Option<i64>,
    /// Time of the last change, in seconds since 1970.
    pub update_time: Option<i64>,
}

fn settle(test: &mut Test) -> Result<(), InvalidSettings> {
    let expect = &test.expect;
    let answered = expect.status.is_some() || expect.plugin.is_some() || expect.route == Some(None);
    let forwarded = expect.path.is_some() || expect.upstream.is_some() || !expect.headers.is_empty();
    if answered && forwarded {
        let message = "a local response (status, plugin, route: null) and an upstream request \
                       (path, headers, upstream) cannot both be expected";
        return Err(InvalidSettings::at("expect", message));
    }
    if test.request.why_not.is_some() {
        return Err(InvalidSettings::at(
            "request.why_not",
            "a test cannot contain `why_not`; use `yumen explain`",
        ));
    }
    Ok(())
}

resource_type!(Test, Kind::Tests, settle = settle);
