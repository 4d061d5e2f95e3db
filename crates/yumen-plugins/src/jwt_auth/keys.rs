//! The keys of consumers for verifying tokens. Knows no request.
//!
//! The algorithm is the consumer's, never the token's: a token that names another one is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use crate::jose::{JoseToken, JwsAlgorithm, JwsVerifier};

/// Credentials as configured.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend(
    "encrypt_fields" = ["secret"],
    "dependencies" = {"algorithm": {"oneOf": [
        {"properties": {"algorithm": {"enum": ["HS256", "HS384", "HS512"], "default": "HS256"}}},
        {
            "properties": {
                "public_key": {"type": "string", "minLength": 1, "description": "Public key of these algorithms, in PEM."},
                "algorithm": {"enum": ["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA"]},
            },
            "required": ["public_key"],
        },
    ]}},
))]
struct JwtCredentialSpec {
    /// Value of the key claim that identifies the consumer.
    #[schemars(length(min = 1))]
    key: String,
    /// Secret of the `HS` algorithms.
    #[schemars(length(min = 1))]
    secret: Option<String>,
    /// Public key of all other algorithms, in PEM.
    #[schemars(skip)]
    public_key: Option<String>,
    /// Signature algorithm of the tokens.
    #[serde(default = "algorithm")]
    #[schemars(extend("enum" = ["HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA"]))]
    algorithm: String,
    /// Lifetime of tokens in seconds. Accepted without effect: Yumen issues no tokens.
    #[serde(default = "exp")]
    #[schemars(range(min = 1))]
    #[expect(dead_code, reason = "part of the contract")]
    exp: u64,
    /// Whether the secret is in Base64.
    #[serde(default)]
    base64_secret: bool,
    /// Tolerance for clock differences in seconds.
    #[serde(default)]
    lifetime_grace_period: u64,
}

fn algorithm() -> String {
    "HS256".to_owned()
}

fn exp() -> u64 {
    86_400
}

/// Credentials of a consumer for `jwt-auth`.
#[derive(Deserialize)]
#[serde(try_from = "JwtCredentialSpec")]
pub(crate) struct JwtCredential {
    key: String,
    grace_s: u64,
    verifier: JwsVerifier,
}

impl JsonSchema for JwtCredential {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ConsumerConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        JwtCredentialSpec::json_schema(generator)
    }
}

impl TryFrom<JwtCredentialSpec> for JwtCredential {
    type Error = String;

    fn try_from(written: JwtCredentialSpec) -> Result<JwtCredential, String> {
        let algorithm = JwsAlgorithm::of(&written.algorithm).ok_or("the algorithm is not supported")?;
        let verifier = match algorithm.hmac() {
            Some(_) => JwsVerifier::of_secret(algorithm, &secret(&written)?),
            None => {
                let pem = written.public_key.as_deref().unwrap_or_default();
                let verifier = JwsVerifier::of_pem(algorithm, pem);
                Some(verifier.map_err(|error| format!("public_key is {error}"))?)
            }
        };
        let verifier = verifier.ok_or("the algorithm is not supported")?;
        Ok(JwtCredential { key: written.key, grace_s: written.lifetime_grace_period, verifier })
    }
}

fn secret(written: &JwtCredentialSpec) -> Result<Vec<u8>, String> {
    let algorithm = &written.algorithm;
    let missing = || format!("property \"secret\" is required when \"algorithm\" is \"{algorithm}\"");
    let secret = written.secret.as_ref().ok_or_else(missing)?;
    if !written.base64_secret {
        return Ok(secret.as_bytes().to_vec());
    }
    let refused = "base64_secret required but the secret is not in base64 format";
    STANDARD.decode(secret).map_err(|_| refused.to_owned())
}

impl JwtCredential {
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Tolerance for clock differences in seconds.
    pub(crate) fn grace_s(&self) -> u64 {
        self.grace_s
    }

    /// Whether the token is signed with this key and its algorithm.
    pub(crate) fn has_signed(&self, token: &JoseToken<'_>) -> bool {
        self.verifier.has_signed(token)
    }
}
