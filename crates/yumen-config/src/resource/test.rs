//! Tests of the configuration, written beside what they test: a request, and what shall become of it.
//!
//! Knows nothing of how a request is matched.

use std::collections::BTreeMap;
use std::net::IpAddr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::common::{self, Labels, ResourceId};
use super::{Kind, resource_type};
use crate::schema::InvalidSettings;

/// A request to think through: what `explain` is asked and what a [`Test`] is about.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The method.
    #[serde(default = "get")]
    #[schemars(length(min = 1, max = 32))]
    pub method: String,
    /// `https://host/path?query`, or a path alone where the host is of no account or in `headers`.
    #[schemars(length(min = 1, max = 8192))]
    pub url: String,
    /// Header fields.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "texts_schema")]
    pub headers: BTreeMap<String, String>,
    /// Address the client connects from; 127.0.0.1 where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "address_schema")]
    pub client_ip: Option<IpAddr>,
    /// The consumer to assume, as if the client had proved to be it where a plugin asks for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub consumer: Option<String>,
    /// The server name of the TLS handshake; the host of an `https` URL where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub sni: Option<String>,
    /// A route, by id or name, that is asked after: why it does not get the request.
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

/// What shall become of a request. What is left out may be anything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline, extend("minProperties" = 1))]
pub struct Expectation {
    /// Id of the route it gets to; null for none, which is a 404.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "route_schema")]
    pub route: Option<Option<ResourceId>>,
    /// Status the gateway itself answers with.
    #[schemars(range(min = 100, max = 599))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Name of the plugin that answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// Path and query the upstream is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Header fields the upstream gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "texts_schema")]
    pub headers: BTreeMap<String, String>,
    /// Where it goes: the id of an upstream, or `routes/ID` or `services/ID` whose own it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Id of the certificate the client is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// Schemas here know no null, so reading the value is what checks it.
fn route_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({})
}

/// Tells `null` from nothing written.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<ResourceId>>, D::Error> {
    let message = "expect.route is the id of a route, or null for none";
    Option::<ResourceId>::deserialize(deserializer).map(Some).map_err(|_| D::Error::custom(message))
}

/// A test of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Test {
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
    /// The request.
    pub request: Question,
    /// What shall become of it.
    pub expect: Expectation,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was last changed, in seconds since 1970.
    pub update_time: Option<i64>,
}

fn settle(test: &mut Test) -> Result<(), InvalidSettings> {
    let expect = &test.expect;
    let answered = expect.status.is_some() || expect.plugin.is_some() || expect.route == Some(None);
    let forwarded = expect.path.is_some() || expect.upstream.is_some() || !expect.headers.is_empty();
    if answered && forwarded {
        let message = "an answer of the gateway (status, plugin, route: null) and a request to an upstream \
                       (path, headers, upstream) cannot both be expected";
        return Err(InvalidSettings::at("expect", message));
    }
    if test.request.why_not.is_some() {
        return Err(InvalidSettings::at("request.why_not", "a test does not ask why; use yumen explain"));
    }
    Ok(())
}

resource_type!(Test, Kind::Tests, settle = settle);
