//! The keys of consumers for verifying tokens, and the token itself. Knows no request.
//!
//! The algorithm is the consumer's, never the token's: a token that names another one is refused.

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{self, ParsedPublicKey, VerificationAlgorithm};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Value};

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

enum JwtVerifier {
    Secret(Box<hmac::Key>),
    Public(ParsedPublicKey),
}

/// Credentials of a consumer for `jwt-auth`.
#[derive(Deserialize)]
#[serde(try_from = "JwtCredentialSpec")]
pub(crate) struct JwtCredential {
    key: String,
    algorithm: String,
    grace_s: u64,
    verifier: JwtVerifier,
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
        let verifier = match hash(&written.algorithm) {
            Some(algorithm) => JwtVerifier::Secret(Box::new(hmac::Key::new(algorithm, &secret(&written)?))),
            None => JwtVerifier::Public(public_key(&written)?),
        };
        let JwtCredentialSpec { key, algorithm, lifetime_grace_period, .. } = written;
        Ok(JwtCredential { key, algorithm, grace_s: lifetime_grace_period, verifier })
    }
}

fn hash(algorithm: &str) -> Option<hmac::Algorithm> {
    match algorithm {
        "HS256" => Some(hmac::HMAC_SHA256),
        "HS384" => Some(hmac::HMAC_SHA384),
        "HS512" => Some(hmac::HMAC_SHA512),
        _ => None,
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

fn public_key(written: &JwtCredentialSpec) -> Result<ParsedPublicKey, String> {
    let algorithm: &'static dyn VerificationAlgorithm = match written.algorithm.as_str() {
        "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
        "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
        "RS512" => &signature::RSA_PKCS1_2048_8192_SHA512,
        "PS256" => &signature::RSA_PSS_2048_8192_SHA256,
        "PS384" => &signature::RSA_PSS_2048_8192_SHA384,
        "PS512" => &signature::RSA_PSS_2048_8192_SHA512,
        "ES256" => &signature::ECDSA_P256_SHA256_FIXED,
        "ES384" => &signature::ECDSA_P384_SHA384_FIXED,
        "ES512" => &signature::ECDSA_P521_SHA512_FIXED,
        // The schema admits only `EdDSA` besides.
        _ => &signature::ED25519,
    };
    let pem = written.public_key.as_deref().unwrap_or_default();
    let der = der_of(pem).ok_or("public_key is not a public key in PEM")?;
    ParsedPublicKey::new(algorithm, der)
        .map_err(|error| format!("public_key is not a key for {}: {error}", written.algorithm))
}

/// The DER bytes of a PEM public key.
fn der_of(pem: &str) -> Option<Vec<u8>> {
    let (_, rest) = pem.split_once("-----BEGIN ")?;
    let (label, rest) = rest.split_once("-----")?;
    let (body, _) = rest.split_once("-----END ")?;
    let base64: String = body.split_whitespace().collect();
    // The label may also be `RSA PUBLIC KEY`, that of PKCS #1.
    if !label.ends_with("PUBLIC KEY") {
        return None;
    }
    STANDARD.decode(base64).ok()
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
    pub(crate) fn has_signed(&self, token: &JwtToken<'_>) -> bool {
        let message = token.signed.as_bytes();
        // The key determines the algorithm. If the token did, a public key could serve as an HMAC secret.
        token.algorithm == self.algorithm
            && match &self.verifier {
                JwtVerifier::Secret(key) => hmac::verify(key, message, &token.signature).is_ok(),
                JwtVerifier::Public(key) => key.verify_sig(message, &token.signature).is_ok(),
            }
    }
}

/// A parsed token that is not verified yet.
pub(crate) struct JwtToken<'t> {
    /// Header and payload in their encoded form, which the signature covers.
    signed: &'t str,
    signature: Vec<u8>,
    algorithm: String,
    /// The JOSE header.
    pub(crate) header: Map<String, Value>,
    /// The claims of the payload.
    pub(crate) claims: Map<String, Value>,
}

impl<'t> JwtToken<'t> {
    /// Parses the compact serialization (RFC 7515 §7.1).
    pub(crate) fn read(text: &'t str) -> Option<JwtToken<'t>> {
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let object = |part: &str| -> Option<Map<String, Value>> {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
        };
        let header = object(header)?;
        // A critical extension that is not supported makes the token invalid (RFC 7515 §4.1.11).
        if header.contains_key("crit") {
            return None;
        }
        Some(JwtToken {
            signed,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
            algorithm: header.get("alg")?.as_str()?.to_owned(),
            claims: object(claims)?,
            header,
        })
    }
}
