//! Certificates, chosen by server name.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::common::{self, Labels, OneOrMany, ResourceId};
use super::{Kind, resource_type};
use crate::schema::InvalidSettings;

const SNI: &str = r"^\*$|^\*?[0-9a-zA-Z-._\[\]:]+$";

/// A certificate: for clients that request one of its `snis`, or presented to upstreams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = rules)]
pub struct SslSpec {
    /// Id of the certificate.
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
    /// The side to which the certificate is presented.
    #[serde(default, rename = "type")]
    pub kind: SslType,
    /// The server name; `*.example.com` matches one label.
    #[schemars(regex(pattern = SNI))]
    pub sni: Option<String>,
    /// Several server names, instead of `sni`.
    #[schemars(inner(regex(pattern = SNI)), length(min = 1))]
    pub snis: Option<Vec<String>>,
    /// The certificate chain, PEM, or a `$secret://` or `$env://` reference.
    #[schemars(schema_with = "pem")]
    pub cert: String,
    /// The private key, PEM, or a reference.
    #[schemars(schema_with = "pem")]
    pub key: String,
    /// Further chains, such as for another algorithm.
    #[serde(default)]
    #[schemars(schema_with = "pems")]
    pub certs: Option<Vec<String>>,
    /// The private keys of these chains, in the same order.
    #[serde(default)]
    #[schemars(schema_with = "pems")]
    pub keys: Option<Vec<String>>,
    /// Rules for client certificates.
    pub client: Option<SslClientSpec>,
    /// Allowed TLS versions; absent means the node's.
    #[schemars(length(max = 3), extend("uniqueItems" = true))]
    pub ssl_protocols: Option<Vec<SslProtocol>>,
    /// Allowed cipher suites by OpenSSL or IANA name, in order of preference; absent means the node's. Beyond
    /// APISIX.
    #[schemars(length(min = 1, max = 16), extend("uniqueItems" = true))]
    pub ssl_ciphers: Option<Vec<String>>,
    /// Ids of the scopes that the certificate belongs to; absent means the listeners of the node's settings. Beyond
    /// APISIX.
    #[serde(default)]
    #[schemars(schema_with = "super::scope::scopes_schema")]
    pub scopes: Option<Vec<ResourceId>>,
    /// 1 enables the certificate, 0 disables it.
    #[serde(default = "common::one")]
    #[schemars(schema_with = "common::status_schema")]
    pub status: u8,
    /// Accepted from older tools; not used.
    pub validity_start: Option<i64>,
    /// Accepted from older tools; not used.
    pub validity_end: Option<i64>,
    /// Creation time, in seconds since 1970.
    pub create_time: Option<i64>,
    /// Time of the last change, in seconds since 1970.
    pub update_time: Option<i64>,
}

impl SslSpec {
    /// `sni` or `snis`.
    pub fn snis(&self) -> OneOrMany<'_> {
        OneOrMany::new(&self.sni, &self.snis)
    }
}

/// The side to which a certificate is presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SslType {
    /// Clients, chosen by server name.
    #[default]
    Server,
    /// Upstreams, through `tls.client_cert_id`.
    Client,
}

/// Rules for client certificates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SslClientSpec {
    /// The authorities of client certificates, PEM; each is trusted only within its validity.
    #[schemars(schema_with = "pem")]
    pub ca: String,
    /// The most intermediate certificates in a client's chain.
    #[serde(default = "common::one")]
    pub depth: u8,
    /// Paths, as regular expressions, that are served without a valid certificate.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub skip_mtls_uri_regex: Option<Vec<String>>,
    /// Revocation lists of the authorities, PEM. A list past its next update refuses all clients of its
    /// authority. Beyond APISIX.
    #[schemars(length(min = 128, max = 16_777_216))]
    pub crl: Option<String>,
}

/// A TLS version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum SslProtocol {
    /// TLS 1.1.
    #[serde(rename = "TLSv1.1")]
    Tls11,
    /// TLS 1.2.
    #[serde(rename = "TLSv1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "TLSv1.3")]
    Tls13,
}

/// Most characters of a certificate chain, and of a key.
pub const PEM_CHARACTERS_MAX: usize = 65_536;

/// A PEM text or a reference. The loader of certificates checks its minimum length, since it can report
/// the reason. The patterns keep a reference from matching as a text, however long it is.
fn pem(_: &mut schemars::SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "oneOf": [
            { "type": "string", "maxLength": PEM_CHARACTERS_MAX, "pattern": "^[^$]" },
            { "type": "string", "pattern": "^\\$(secret|env|ENV)://" },
        ]
    })
}

fn pems(generator: &mut schemars::SchemaGenerator) -> Schema {
    let items = pem(generator);
    schemars::json_schema!({ "type": "array", "items": items })
}

fn rules(schema: &mut Schema) {
    schema.insert("if".into(), json!({ "properties": { "type": { "enum": ["server"] } } }));
    schema.insert("then".into(), json!({ "oneOf": [{ "required": ["sni"] }, { "required": ["snis"] }] }));
}

fn settle(ssl: &mut SslSpec) -> Result<(), InvalidSettings> {
    let certs = ssl.certs.as_ref().map_or(0, Vec::len);
    let keys = ssl.keys.as_ref().map_or(0, Vec::len);
    if certs != keys {
        return Err(InvalidSettings::at("keys", "mismatched number of certs and keys"));
    }
    if ssl.scopes.is_none() {
        return Ok(());
    }
    let unused = [
        (
            "type",
            ssl.kind == SslType::Client,
            "a certificate for upstreams belongs to no scope: remove scopes",
        ),
        ("client", ssl.client.is_some(), "the scope has these rules: write tls.client there"),
        ("ssl_protocols", ssl.ssl_protocols.is_some(), "the scope has these rules: write tls.versions there"),
        ("ssl_ciphers", ssl.ssl_ciphers.is_some(), "the scope has these rules: write tls.ciphers there"),
    ];
    match unused.into_iter().find(|(_, is_written, _)| *is_written) {
        Some((path, _, message)) => Err(InvalidSettings::at(path, message)),
        None => Ok(()),
    }
}

resource_type!(SslSpec, Kind::Ssls, settle = settle);
