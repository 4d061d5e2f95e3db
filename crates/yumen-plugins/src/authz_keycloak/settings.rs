//! Settings of `authz-keycloak`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::service::ServiceSettings;

/// The grant of permissions (UMA 2.0 Grant §3.3.1).
pub(super) const UMA_TICKET: &str = "urn:ietf:params:oauth:grant-type:uma-ticket";

/// Settings of `authz-keycloak`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend(
    "allOf" = [
        {"anyOf": [{"required": ["discovery"]}, {"required": ["token_endpoint"]}]},
        {"anyOf": [
            {"properties": {"lazy_load_paths": {"enum": [false]}}},
            {
                "properties": {"lazy_load_paths": {"enum": [true]}},
                "anyOf": [{"required": ["discovery"]}, {"required": ["resource_registration_endpoint"]}],
            },
        ]},
    ],
    "encrypt_fields" = ["client_secret"],
))]
pub(crate) struct KeycloakSettings {
    #[serde(flatten)]
    pub(super) provider: KeycloakProviderSettings,
    /// Client id of the resource server.
    #[schemars(length(min = 1, max = 100))]
    pub(super) client_id: String,
    /// Secret of the client, for `lazy_load_paths` and for the grant by password.
    #[schemars(length(min = 1, max = 100))]
    pub(super) client_secret: Option<String>,
    /// The grant of permissions; Keycloak has no other one.
    #[serde(default = "uma_ticket")]
    #[schemars(schema_with = "grant_schema")]
    #[expect(dead_code, reason = "part of the contract; it has one value")]
    grant_type: String,
    /// Effect of a request without permissions to ask for: `ENFORCING` refuses it, `PERMISSIVE` asks whether the client
    /// has any permission.
    #[serde(default)]
    #[schemars(schema_with = "mode_schema")]
    pub(super) policy_enforcement_mode: EnforcementMode,
    /// Permissions that every request needs: `resource`, `resource#scope` or `#scope`.
    #[serde(default)]
    #[schemars(extend("uniqueItems" = true), inner(length(min = 1, max = 100)))]
    pub(super) permissions: Vec<String>,
    /// Whether Keycloak names the resources for the path of the request, instead of `permissions`.
    #[serde(default)]
    pub(super) lazy_load_paths: bool,
    /// Whether the method of the request is the scope of each permission.
    #[serde(default)]
    pub(super) http_method_as_scope: bool,
    /// Time limit of a call in milliseconds.
    #[serde(default = "timeout_ms")]
    #[schemars(range(min = 1000))]
    pub(super) timeout: u64,
    #[serde(flatten)]
    pub(super) lifetimes: TokenLifetimeSettings,
    #[serde(flatten)]
    pub(super) service: ServiceSettings,
    /// URL to which denied requests are redirected with 307, instead of a 403.
    #[schemars(length(min = 1, max = 2048))]
    pub(super) access_denied_redirect_uri: Option<String>,
    /// Path and query of requests whose form with `username` and `password` is answered with a token.
    #[schemars(length(min = 1, max = 4096))]
    pub(super) password_grant_token_generation_incoming_uri: Option<String>,
    /// Largest body of such a request in bytes.
    #[serde(default = "body_bytes_max")]
    #[schemars(range(min = 1))]
    pub(super) max_req_body_size: usize,
}

/// The URLs of Keycloak.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct KeycloakProviderSettings {
    /// URL of the discovery document, such as
    /// `https://keycloak/realms/shop/.well-known/uma2-configuration`. It names the endpoints that are not set here.
    #[schemars(length(min = 1, max = 4096))]
    pub(super) discovery: Option<String>,
    /// URL of the token endpoint.
    #[schemars(length(min = 1, max = 4096))]
    pub(super) token_endpoint: Option<String>,
    /// URL of the resource registration endpoint.
    #[schemars(length(min = 1, max = 4096))]
    pub(super) resource_registration_endpoint: Option<String>,
    /// Interval at which the discovery document is fetched, in seconds.
    #[serde(default = "cache_ttl_s")]
    #[schemars(range(min = 1))]
    pub(super) cache_ttl_seconds: u32,
}

/// Lifetimes of the tokens by which the gateway looks up resources.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TokenLifetimeSettings {
    /// Lifetime of an access token in seconds, if Keycloak does not send one.
    #[serde(default = "access_token_s")]
    #[schemars(range(min = 1))]
    pub(super) access_token_expires_in: u64,
    /// Time before the end of an access token at which it is renewed, in seconds.
    #[serde(default)]
    pub(super) access_token_expires_leeway: u64,
    /// Lifetime of a refresh token in seconds, if Keycloak does not send one.
    #[serde(default = "refresh_token_s")]
    #[schemars(range(min = 1))]
    pub(super) refresh_token_expires_in: u64,
    /// Time before the end of a refresh token at which it is used no more, in seconds.
    #[serde(default)]
    pub(super) refresh_token_expires_leeway: u64,
}

/// Effect of a request without permissions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum EnforcementMode {
    #[default]
    Enforcing,
    Permissive,
}

fn mode_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["ENFORCING", "PERMISSIVE"], "default": "ENFORCING"})
}

fn grant_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": [UMA_TICKET], "default": UMA_TICKET})
}

fn uma_ticket() -> String {
    UMA_TICKET.to_owned()
}

fn timeout_ms() -> u64 {
    3000
}

fn access_token_s() -> u64 {
    300
}

fn refresh_token_s() -> u64 {
    3600
}

fn cache_ttl_s() -> u32 {
    86_400
}

fn body_bytes_max() -> usize {
    64 << 20
}
