//! Definitions that several resources share: ids, labels, plugins, timeouts, methods.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Unparsed settings by plugin name, in the order of the user.
pub type Plugins = Map<String, Value>;

/// User-defined labels.
pub type Labels = BTreeMap<String, String>;

/// The id of a resource: a string of 1-64 of `a-zA-Z0-9-_.`, or an integer from 1, kept as text. Objects that were
/// translated from others, such as those of Kubernetes, have ids with an exclamation mark: `shop/cart!http!00!003`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ResourceId(pub Arc<str>);

impl ResourceId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for ResourceId {
    fn from(text: &str) -> ResourceId {
        ResourceId(text.into())
    }
}

impl<'de> Deserialize<'de> for ResourceId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ResourceId, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum RawResourceId<'a> {
            Number(u64),
            #[serde(borrow)]
            Text(Cow<'a, str>),
        }
        // APISIX accepts `id: 1`; keys in its store are texts, so `1` and `"1"` are one object.
        Ok(match RawResourceId::deserialize(deserializer)? {
            RawResourceId::Number(number) => ResourceId(number.to_string().into()),
            RawResourceId::Text(text) => ResourceId(text.as_ref().into()),
        })
    }
}

impl JsonSchema for ResourceId {
    fn schema_name() -> Cow<'static, str> {
        "Id".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[a-zA-Z0-9-_.]+$" },
                { "type": "integer", "minimum": 1 },
                { "type": "string", "maxLength": 1024, "pattern": TRANSLATED_ID },
            ]
        })
    }
}

/// The form of the ids of translated objects. The exclamation mark keeps them apart from ids that users write.
const TRANSLATED_ID: &str = "^([a-z0-9-.]+/)?[a-zA-Z0-9-_.]+(![a-zA-Z0-9-_.]+)+$";

/// Timeouts of an attempt, in seconds; fractions are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimeoutSpec {
    /// For connecting, including the TLS handshake.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub connect: f64,
    /// Between two sends.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub send: f64,
    /// Between two reads.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub read: f64,
    /// For the whole exchange, from the request head to the last byte of the response, including all attempts
    /// and waits; absent means no bound. Beyond APISIX.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub total: Option<f64>,
    /// For one attempt, from its begin to the last byte of its response; absent means no bound. Beyond APISIX.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub attempt: Option<f64>,
}

/// A request method that a route can match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs, reason = "the names are the methods")]
pub enum RouteMethod {
    Get,
    Post,
    Put,
    Delete,
    Patch,
    Head,
    Options,
    Connect,
    Trace,
    Purge,
}

impl RouteMethod {
    /// The method in a request line.
    pub fn as_str(self) -> &'static str {
        match self {
            RouteMethod::Get => "GET",
            RouteMethod::Post => "POST",
            RouteMethod::Put => "PUT",
            RouteMethod::Delete => "DELETE",
            RouteMethod::Patch => "PATCH",
            RouteMethod::Head => "HEAD",
            RouteMethod::Options => "OPTIONS",
            RouteMethod::Connect => "CONNECT",
            RouteMethod::Trace => "TRACE",
            RouteMethod::Purge => "PURGE",
        }
    }
}

/// The values of two alternative fields, such as `uri` and `uris`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OneOrMany<'a> {
    one: Option<&'a str>,
    many: Option<&'a [String]>,
}

impl<'a> OneOrMany<'a> {
    pub(super) fn new(one: &'a Option<String>, many: &'a Option<Vec<String>>) -> OneOrMany<'a> {
        OneOrMany { one: one.as_deref(), many: many.as_deref() }
    }

    /// All values, in the order written.
    pub fn iter(self) -> impl Iterator<Item = &'a str> {
        self.one.into_iter().chain(self.many.unwrap_or_default().iter().map(String::as_str))
    }

    /// Whether neither field has a value.
    pub fn is_empty(self) -> bool {
        self.one.is_none() && self.many.is_none_or(<[String]>::is_empty)
    }
}

/// Schema of `status`: 1 enabled, 0 disabled, as in APISIX.
pub(super) fn status_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "enum": [1, 0], "default": 1 })
}

pub(super) fn labels_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "patternProperties": {
            ".*": { "type": "string", "pattern": "^\\S+$", "minLength": 1, "maxLength": 256 }
        }
    })
}

pub(super) fn plugins_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object" })
}

pub(super) fn one() -> u8 {
    1
}

pub(super) fn yes() -> bool {
    true
}
