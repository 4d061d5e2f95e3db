//! Settings of `openid-connect`, in groups. Names and defaults are those of APISIX 3.18.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::session::SessionSettings;

/// Settings of `openid-connect`.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("encrypt_fields" = [
    "client_secret", "client_rsa_private_key", "dpop.private_key", "session.secret", "session.secret_fallbacks",
    "session.redis.password",
]))]
pub(crate) struct OpenidConnectSettings {
    #[serde(flatten)]
    pub(super) provider: ProviderSettings,
    #[serde(flatten)]
    pub(super) client: ClientAuthSettings,
    #[serde(flatten)]
    pub(super) bearer: BearerSettings,
    #[serde(flatten)]
    pub(super) introspection: IntrospectionSettings,
    #[serde(flatten)]
    pub(super) login: LoginSettings,
    #[serde(flatten)]
    pub(super) id_token: IdTokenSettings,
    #[serde(flatten)]
    pub(super) renewal: RenewalSettings,
    #[serde(flatten)]
    pub(super) logout: LogoutSettings,
    #[serde(flatten)]
    pub(super) fields: ForwardedFieldSettings,
    #[serde(flatten)]
    pub(super) checks: ClaimCheckSettings,
    /// Sessions of users that have logged in. Required unless `bearer_only` is true.
    pub(super) session: Option<SessionSettings>,
    /// Settings without a meaning here, such as `session_contents`.
    #[serde(flatten)]
    #[schemars(skip)]
    pub(super) others: Map<String, Value>,
}

pub(super) fn yes() -> bool {
    true
}

/// The identity provider and the connection to it.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ProviderSettings {
    /// Client id of the gateway at the provider.
    pub(super) client_id: String,
    /// Secret of the client.
    pub(super) client_secret: Option<String>,
    /// URL of the discovery document, which ends with `/.well-known/openid-configuration`.
    pub(super) discovery: String,
    /// Whether the certificate of the provider is verified.
    #[serde(default = "yes")]
    pub(super) ssl_verify: bool,
    /// Time limit of a call to the provider in seconds; a multiple of 1000 is in milliseconds.
    #[serde(default = "timeout_s")]
    #[schemars(range(min = 1))]
    timeout: u64,
    /// Forward proxy for calls to the provider.
    pub(super) proxy_opts: Option<ProxySettings>,
    /// Seconds after which the key set of the provider is fetched again. An unknown key is fetched at once.
    #[serde(default = "jwk_expires_in")]
    pub(super) jwk_expires_in: u32,
    /// Accepted without effect: caches belong to an instance of the plugin.
    #[expect(dead_code, reason = "part of the contract")]
    cache_segment: Option<String>,
}

impl ProviderSettings {
    /// Time limit of a call in milliseconds.
    pub(super) fn timeout_ms(&self) -> u64 {
        // Earlier releases of APISIX stored milliseconds.
        match self.timeout {
            stored if stored >= 1000 && stored.is_multiple_of(1000) => stored,
            seconds => seconds.saturating_mul(1000),
        }
    }
}

fn timeout_s() -> u64 {
    3
}

fn jwk_expires_in() -> u32 {
    86_400
}

/// A forward proxy.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct ProxySettings {
    /// Proxy for http: `http://proxy:80`.
    pub(super) http_proxy: Option<String>,
    /// Value of `Proxy-Authorization` for http: `Basic ` and base64 of `user:password`.
    pub(super) http_proxy_authorization: Option<String>,
    /// Proxy for https: `http://proxy:80`.
    pub(super) https_proxy: Option<String>,
    /// Value of `Proxy-Authorization` for https.
    pub(super) https_proxy_authorization: Option<String>,
    /// Hosts without a proxy, separated by commas.
    pub(super) no_proxy: Option<String>,
}

/// Authentication of the gateway at the provider.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ClientAuthSettings {
    /// Authentication at the token endpoint: `client_secret_basic`, `client_secret_post`, `private_key_jwt` or
    /// `client_secret_jwt`.
    #[serde(default = "client_secret_basic")]
    pub(super) token_endpoint_auth_method: String,
    /// Private key for `private_key_jwt` in PEM.
    pub(super) client_rsa_private_key: Option<String>,
    /// Id of this key.
    pub(super) client_rsa_private_key_id: Option<String>,
    /// Signature algorithm of assertions; without it, RS256 or HS256.
    #[schemars(extend("enum" = ["HS256", "HS512", "RS256", "RS512", "ES256", "ES512"]))]
    pub(super) client_jwt_assertion_alg: Option<String>,
    /// Lifetime of assertions in seconds.
    #[serde(default = "assertion_lifetime_s")]
    pub(super) client_jwt_assertion_expires_in: u64,
    /// Audience of assertions; without it, the URL of the endpoint.
    pub(super) client_jwt_assertion_audience: Option<String>,
}

pub(super) fn client_secret_basic() -> String {
    "client_secret_basic".to_owned()
}

fn assertion_lifetime_s() -> u64 {
    60
}

/// Bearer tokens.
#[derive(Deserialize, JsonSchema)]
pub(super) struct BearerSettings {
    /// Whether every request needs a bearer token; no user is sent to the provider.
    #[serde(default)]
    pub(super) bearer_only: bool,
    /// Realm of challenges.
    #[serde(default = "realm")]
    pub(super) realm: String,
    /// Whether bearer tokens are verified by the key set of the provider, if `public_key` is not set.
    #[serde(default)]
    pub(super) use_jwks: bool,
    /// Public key that verifies bearer tokens, in PEM.
    pub(super) public_key: Option<String>,
    /// Allowed signature algorithms, separated by spaces or commas; without it, those of the key.
    pub(super) token_signing_alg_values_expected: Option<String>,
}

fn realm() -> String {
    "apisix".to_owned()
}

/// Introspection of bearer tokens (RFC 7662).
#[derive(Deserialize, JsonSchema)]
pub(super) struct IntrospectionSettings {
    /// URL of the introspection endpoint. Bearer tokens are introspected if neither `public_key` nor `use_jwks` is set.
    pub(super) introspection_endpoint: Option<String>,
    /// Authentication at the introspection endpoint; the methods are those of the token endpoint.
    #[serde(default = "client_secret_basic")]
    pub(super) introspection_endpoint_auth_method: String,
    /// Longest time for which a result is used again, in seconds; 0 for the lifetime of the token.
    #[serde(default)]
    pub(super) introspection_interval: u64,
    /// Claim with the end of a result. `exp` is a time, any other claim a number of seconds.
    pub(super) introspection_expiry_claim: Option<String>,
    /// Fields of the request that calls to the introspection endpoint repeat.
    #[schemars(length(min = 1), inner(regex(pattern = r"^[^:]+$")))]
    pub(super) introspection_addon_headers: Option<Vec<String>>,
    /// Whether each request verifies or introspects its bearer token again.
    #[serde(default)]
    pub(super) jwt_verification_cache_ignore: bool,
}

/// Logins.
#[derive(Deserialize, JsonSchema)]
pub(super) struct LoginSettings {
    /// Scopes that a login requests.
    #[serde(default = "openid")]
    pub(super) scope: String,
    /// URL or path to which the provider sends the user back. Without it, the path of the request and
    /// `/.apisix/redirect`.
    pub(super) redirect_uri: Option<String>,
    /// Action for a request without a session: `auth` sends the user to the provider, `deny` answers 401, `pass`
    /// forwards the request without fields of a user.
    #[serde(default)]
    #[schemars(extend("default" = "auth"))]
    pub(super) unauth_action: UnauthAction,
    /// Answer to a script or another request that shows no page and would be sent to the provider: `redirect`, or `401`
    /// without a redirect. Beyond APISIX.
    #[serde(default)]
    #[schemars(schema_with = "unauth_xhr_schema")]
    pub(super) unauth_xhr: UnauthXhr,
    /// Whether logins use PKCE (RFC 7636) with S256.
    #[serde(default)]
    pub(super) use_pkce: bool,
    /// Whether logins have a nonce.
    #[serde(default)]
    pub(super) use_nonce: bool,
    /// Further parameters of the authorization request.
    #[schemars(extend("type" = "object"))]
    pub(super) authorization_params: Option<Map<String, Value>>,
    /// Pushed authorization requests (RFC 9126).
    pub(super) par: Option<PushedAuthorizationSettings>,
    /// Proof of possession (RFC 9449).
    pub(super) dpop: Option<DpopSettings>,
}

fn openid() -> String {
    "openid".to_owned()
}

/// The action for a request without a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum UnauthAction {
    #[default]
    Auth,
    Deny,
    Pass,
}

/// The answer to a request that shows no page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) enum UnauthXhr {
    #[default]
    #[serde(rename = "redirect")]
    Redirect,
    #[serde(rename = "401")]
    Refuse,
}

fn unauth_xhr_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["redirect", "401"], "default": "redirect"})
}

/// Pushed authorization requests.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct PushedAuthorizationSettings {
    /// Whether the parameters of a login are sent to the provider directly.
    #[serde(default)]
    pub(super) enabled: bool,
    /// URL of the endpoint; without it, that of the discovery document.
    pub(super) endpoint: Option<String>,
    /// Authentication at this endpoint; without it, that of the token endpoint.
    #[schemars(extend("enum" = [
        "client_secret_basic", "client_secret_post", "private_key_jwt", "client_secret_jwt",
    ]))]
    pub(super) endpoint_auth_method: Option<String>,
}

/// Proof of possession. Only `enabled: false` is supported.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct DpopSettings {
    /// Whether tokens are bound to a key. Not supported: true refuses the settings.
    #[serde(default)]
    pub(super) enabled: bool,
    /// Signature algorithm of proofs.
    #[expect(dead_code, reason = "part of the contract")]
    #[serde(default = "es256")]
    #[schemars(extend("enum" = ["ES256", "RS256", "PS256"]))]
    signing_alg: String,
    /// Private key of proofs.
    #[expect(dead_code, reason = "part of the contract")]
    private_key: Option<String>,
    /// Public key of proofs.
    #[expect(dead_code, reason = "part of the contract")]
    #[schemars(extend("type" = "object"))]
    public_jwk: Option<Value>,
}

fn es256() -> String {
    "ES256".to_owned()
}

/// Checks of ID tokens.
#[derive(Deserialize, JsonSchema)]
pub(super) struct IdTokenSettings {
    /// Tolerance for clock differences in seconds, for all times in tokens.
    #[serde(default = "iat_slack")]
    pub(super) iat_slack: u64,
    /// Whether an ID token without a signature is accepted from the token endpoint.
    #[serde(default)]
    pub(super) accept_none_alg: bool,
    /// Whether an ID token with an unknown signature algorithm is accepted from the token endpoint. All algorithms of
    /// RFC 7518 and EdDSA are known and always verified.
    #[serde(default = "yes")]
    pub(super) accept_unsupported_alg: bool,
}

fn iat_slack() -> u64 {
    120
}

/// Renewal of tokens.
#[derive(Deserialize, JsonSchema)]
pub(super) struct RenewalSettings {
    /// Whether an expired access token is renewed by the refresh token. Without renewal its end is not checked.
    #[serde(default = "yes")]
    pub(super) renew_access_token_on_expiry: bool,
    /// Lifetime of access tokens in seconds if the provider states none; 3600 without this setting.
    pub(super) access_token_expires_in: Option<u64>,
    /// Seconds before its end at which an access token is renewed.
    #[serde(default)]
    pub(super) access_token_expires_leeway: u64,
    /// Seconds after which a user is logged in again without interaction.
    pub(super) refresh_session_interval: Option<u64>,
    /// Whether a session of another page load does not suffice: each one starts a login. A session that is at most ten
    /// seconds old is accepted, so that the user returns from the provider.
    #[serde(default)]
    pub(super) force_reauthorize: bool,
}

/// Logout.
#[derive(Deserialize, JsonSchema)]
pub(super) struct LogoutSettings {
    /// Path that ends the session.
    #[serde(default = "logout_path")]
    pub(super) logout_path: String,
    /// URL or path to which a user is sent after the logout.
    pub(super) post_logout_redirect_uri: Option<String>,
    /// Whether a logout revokes the tokens (RFC 7009).
    #[serde(default)]
    pub(super) revoke_tokens_on_logout: bool,
    /// Path at which the provider ends sessions by a logout token (OpenID Connect Back-Channel Logout 1.0). Requires
    /// sessions in Redis. Beyond APISIX.
    pub(super) backchannel_logout_path: Option<String>,
}

fn logout_path() -> String {
    "/logout".to_owned()
}

/// Fields that the upstream gets. Fields of the client with these names are always removed.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ForwardedFieldSettings {
    #[serde(flatten)]
    pub(super) access: AccessTokenFieldSettings,
    #[serde(flatten)]
    pub(super) id_token: IdTokenFieldSettings,
    /// Whether the upstream gets the claims of the user in `X-Userinfo`, as base64 of JSON.
    #[serde(default = "yes")]
    pub(super) set_userinfo_header: bool,
    /// Whether the upstream gets the refresh token in `X-Refresh-Token`.
    #[serde(default)]
    pub(super) set_refresh_token_header: bool,
}

/// The access token for the upstream.
#[derive(Deserialize, JsonSchema)]
pub(super) struct AccessTokenFieldSettings {
    /// Whether the upstream gets the access token.
    #[serde(default = "yes")]
    pub(super) set_access_token_header: bool,
    /// Whether it gets the token in `Authorization` instead of `X-Access-Token`.
    #[serde(default)]
    pub(super) access_token_in_authorization_header: bool,
}

/// The ID token for the upstream.
#[derive(Deserialize, JsonSchema)]
pub(super) struct IdTokenFieldSettings {
    /// Whether the upstream gets the claims of the ID token in `X-ID-Token`, as base64 of JSON.
    #[serde(default = "yes")]
    pub(super) set_id_token_header: bool,
    /// Whether the upstream gets the signed ID token in `X-Raw-ID-Token`.
    #[serde(default)]
    pub(super) set_raw_id_token_header: bool,
}

/// Checks of claims.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ClaimCheckSettings {
    /// Scopes that a token must have.
    pub(super) required_scopes: Option<Vec<String>>,
    /// JSON schema of the claims: those of a bearer token, or an object with `user`, `access_token` and `id_token`.
    #[schemars(extend("type" = "object"))]
    pub(super) claim_schema: Option<Value>,
    /// Checks of issuer and audience of bearer tokens.
    pub(super) claim_validator: Option<ClaimValidatorSettings>,
}

impl ClaimCheckSettings {
    /// Whether the checks distinguish tokens for this application from others of the issuer.
    pub(super) fn selects_tokens(&self) -> bool {
        let audience = self.claim_validator.as_ref().and_then(|validator| validator.audience.as_ref());
        self.claim_schema.is_some()
            || self.required_scopes.as_ref().is_some_and(|scopes| !scopes.is_empty())
            || audience.is_some_and(|audience| audience.match_with_client_id)
    }
}

/// Checks of issuer and audience.
#[derive(Deserialize, JsonSchema, Default)]
#[schemars(inline)]
pub(super) struct ClaimValidatorSettings {
    /// Check of the issuer.
    pub(super) issuer: Option<IssuerSettings>,
    /// Check of the audience.
    pub(super) audience: Option<AudienceSettings>,
}

/// Check of the issuer.
#[derive(Deserialize, JsonSchema, Default)]
#[schemars(inline)]
pub(super) struct IssuerSettings {
    /// Allowed issuers; without it, that of the discovery document.
    pub(super) valid_issuers: Option<Vec<String>>,
}

/// Check of the audience.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct AudienceSettings {
    /// Claim with the audience.
    #[serde(default = "aud")]
    pub(super) claim: String,
    /// Whether a token needs the claim.
    #[serde(default)]
    pub(super) required: bool,
    /// Whether the audience must contain the client id.
    #[serde(default)]
    pub(super) match_with_client_id: bool,
}

fn aud() -> String {
    "aud".to_owned()
}
