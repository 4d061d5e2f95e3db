//! Scopes: the part of a listener's traffic that has routes and certificates of its own.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::common::{self, Labels, ResourceId};
use super::ssl::SslProtocol;
use super::{Kind, resource_type};
use crate::schema::InvalidSettings;

const HOST: &str =
    r"^(\*\.)?[0-9a-zA-Z_]([0-9a-zA-Z-_]*[0-9a-zA-Z_])?(\.[0-9a-zA-Z_]([0-9a-zA-Z-_]*[0-9a-zA-Z_])?)*$";

/// The requests and streams of some host names on some listeners, with routes and certificates of their own. A
/// listener and a host name select exactly one scope, and only its routes. Beyond APISIX.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScopeSpec {
    /// Id of the scope.
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
    /// Ids of the listeners that offer the scope.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub listeners: Vec<ResourceId>,
    /// Host names, such as `a.example.com` or `*.example.com`. Absent: every host that no other scope of the
    /// listener has. Of two scopes with the same host on a listener the older has it.
    #[schemars(inner(regex(pattern = HOST), length(max = 253)), length(min = 1), extend("uniqueItems" = true))]
    pub hosts: Option<Vec<String>>,
    /// The labels that `*` in `hosts` stands for.
    #[serde(default)]
    pub wildcard: WildcardLabels,
    /// Settings of TLS on listeners of protocol `https` and `tls`. Absent: terminate without client certificates.
    pub tls: Option<ScopeTlsSpec>,
    /// Creation time, in seconds since 1970.
    pub create_time: Option<i64>,
    /// Time of the last change, in seconds since 1970.
    pub update_time: Option<i64>,
}

/// The labels that `*` in a host name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum WildcardLabels {
    /// One or more, as in the Gateway API.
    #[default]
    Any,
    /// Exactly one, as in Ingress.
    One,
}

/// TLS of a scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScopeTlsSpec {
    /// Whether the gateway ends TLS.
    #[serde(default)]
    pub mode: TlsModeSpec,
    /// Rules for client certificates.
    pub client: Option<ScopeClientSpec>,
    /// Allowed TLS versions; absent means the node's.
    #[schemars(length(min = 1, max = 3), extend("uniqueItems" = true))]
    pub versions: Option<Vec<SslProtocol>>,
    /// Allowed cipher suites by OpenSSL or IANA name, in order of preference; absent means the node's.
    #[schemars(length(min = 1, max = 16), extend("uniqueItems" = true))]
    pub ciphers: Option<Vec<String>>,
    /// Whether a server name without a certificate gets the node's own. Otherwise its handshake fails.
    #[serde(default)]
    pub default_certificate: bool,
    /// Whether requests for a host of the scope are served on connections whose server name is another one, or absent.
    /// Otherwise they get 421. Without effect beside `client`, which is verified by server name.
    #[serde(default)]
    pub any_server_name: bool,
}

/// Whether the gateway ends TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum TlsModeSpec {
    /// The gateway ends TLS.
    #[default]
    Terminate,
    /// The endpoint of a stream route ends TLS; the server name selects the route.
    Passthrough,
}

/// Rules for the client certificates of a scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScopeClientSpec {
    /// The authorities of client certificates, PEM; each is trusted only within its validity.
    #[schemars(schema_with = "authorities")]
    pub ca: String,
    /// Revocation lists of the authorities, PEM.
    #[schemars(length(min = 128, max = 16_777_216))]
    pub crl: Option<String>,
    /// The most intermediate certificates in a client's chain.
    #[serde(default = "common::one")]
    pub depth: u8,
    /// The effect of a certificate that is absent or not valid.
    #[serde(default)]
    pub mode: ClientCertMode,
}

/// The effect of a client certificate that is absent or not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ClientCertMode {
    /// The handshake fails.
    #[default]
    Require,
    /// The connection is served; endpoints see no verified certificate.
    AllowInsecureFallback,
    /// An absent certificate is allowed; one that is not valid is refused.
    Optional,
    /// Both are allowed; the outcome is a variable.
    OptionalNoCa,
}

fn authorities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 1_048_576 })
}

/// The scopes that a route, stream route or certificate belongs to.
pub(super) fn scopes_schema(generator: &mut SchemaGenerator) -> Schema {
    let items = generator.subschema_for::<ResourceId>();
    json_schema!({ "type": "array", "items": items, "minItems": 1, "uniqueItems": true })
}

fn settle(scope: &mut ScopeSpec) -> Result<(), InvalidSettings> {
    let is_passthrough = scope.tls.as_ref().is_some_and(|tls| tls.mode == TlsModeSpec::Passthrough);
    let Some(tls) = scope.tls.as_ref().filter(|_| is_passthrough) else { return Ok(()) };
    let unused = [
        ("tls.client", tls.client.is_some()),
        ("tls.versions", tls.versions.is_some()),
        ("tls.ciphers", tls.ciphers.is_some()),
        ("tls.default_certificate", tls.default_certificate),
        ("tls.any_server_name", tls.any_server_name),
    ];
    match unused.into_iter().find(|(_, is_written)| *is_written) {
        Some((path, _)) => {
            Err(InvalidSettings::at(path, "has no effect, since the endpoint ends TLS in mode passthrough"))
        }
        None => Ok(()),
    }
}

resource_type!(ScopeSpec, Kind::Scopes, settle = settle);
