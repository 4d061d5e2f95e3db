//! Public keys of an identity provider (RFC 7517).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use yumen_plugin::{FetchFormat, FetchedValue};

use super::algorithm::RSA;
use super::{JoseToken, JwsAlgorithm, JwsVerifier};

/// Most keys of a set.
const KEYS_MAX: usize = 100;

/// The format of a fetched key set.
pub(crate) const JWKS_FORMAT: FetchFormat =
    FetchFormat { name: "jwks", bytes_max: 256 * 1024, parse: parse_fetched };

fn parse_fetched(bytes: &[u8]) -> Result<FetchedValue, String> {
    Ok(Arc::new(JwkSet::parse(bytes)?))
}

/// A set of public keys for signatures.
pub(crate) struct JwkSet {
    pub(super) keys: Vec<PublicJwk>,
}

pub(super) struct PublicJwk {
    kid: Option<Box<str>>,
    /// One verifier for each algorithm that the key supports.
    verifiers: Vec<JwsVerifier>,
}

/// The reason why no key of a set verifies a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyFault {
    /// The set has no key with the id of the token, or none for its algorithm: a newer set may have it.
    UnknownKey,
    /// The token names no key, and several keys support its algorithm.
    AmbiguousKey,
    /// The algorithm is unsupported, not allowed, or one of secrets.
    Algorithm,
    /// The signature is wrong.
    Signature,
}

impl std::fmt::Display for KeyFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            KeyFault::UnknownKey => "no key of the provider fits the token",
            KeyFault::AmbiguousKey => "the token names no key and several fit",
            KeyFault::Algorithm => "the algorithm of the token is not allowed",
            KeyFault::Signature => "the signature of the token is wrong",
        })
    }
}

#[derive(Deserialize)]
struct WrittenSet {
    keys: Vec<serde_json::Value>,
}

/// The members of a key that are read. Private members are only detected.
#[derive(Deserialize)]
struct WrittenJwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    d: Option<serde_json::Value>,
}

impl JwkSet {
    /// Parses a key set. Keys for encryption and of unknown types are left out (RFC 7517 §5); a set with a private or
    /// symmetric key is refused, because its secret is published.
    pub(crate) fn parse(bytes: &[u8]) -> Result<JwkSet, String> {
        let set: WrittenSet =
            serde_json::from_slice(bytes).map_err(|error| format!("not a key set: {error}"))?;
        if set.keys.len() > KEYS_MAX {
            return Err(format!("{} keys; at most {KEYS_MAX} are supported", set.keys.len()));
        }
        let mut keys = Vec::new();
        for written in set.keys {
            // A key of a future form does not make the others unusable.
            let Ok(jwk) = serde_json::from_value::<WrittenJwk>(written) else { continue };
            if jwk.d.is_some() || jwk.kty == "oct" {
                return Err("the set contains a private or symmetric key".to_owned());
            }
            if jwk.is_for_signatures() {
                keys.extend(jwk.public());
            }
        }
        if keys.is_empty() {
            return Err("the set has no key for signatures".to_owned());
        }
        Ok(JwkSet { keys })
    }

    /// Verifies the signature of a token by the keys that fit it. `allowed` is empty for all algorithms.
    pub(crate) fn verify(&self, token: &JoseToken<'_>, allowed: &[JwsAlgorithm]) -> Result<(), KeyFault> {
        let algorithm = JwsAlgorithm::of(&token.algorithm).ok_or(KeyFault::Algorithm)?;
        // A set has public keys only: with HMAC, everybody could sign.
        if algorithm.hmac().is_some() || !(allowed.is_empty() || allowed.contains(&algorithm)) {
            return Err(KeyFault::Algorithm);
        }
        let kid = token.key_id();
        let has_id = |key: &&PublicJwk| kid.is_none_or(|kid| key.kid.as_deref() == Some(kid));
        let of_key = |key: &'_ PublicJwk| key.verifiers.iter().position(|one| one.algorithm() == algorithm);
        let fitting: Vec<&JwsVerifier> =
            self.keys.iter().filter(has_id).filter_map(|key| Some(&key.verifiers[of_key(key)?])).collect();
        match (kid, fitting.len()) {
            (_, 0) => Err(KeyFault::UnknownKey),
            (None, 2..) => Err(KeyFault::AmbiguousKey),
            // Ids should be unique, but need not be (RFC 7517 §4.5).
            _ if fitting.iter().any(|one| one.has_signed(token)) => Ok(()),
            _ => Err(KeyFault::Signature),
        }
    }
}

impl WrittenJwk {
    fn is_for_signatures(&self) -> bool {
        let verifies = |operations: &Vec<String>| operations.iter().any(|one| one == "verify");
        self.usage.as_deref().is_none_or(|usage| usage == "sig") && self.key_ops.as_ref().is_none_or(verifies)
    }

    /// The key; `None` if its type, curve or size is not supported.
    fn public(self) -> Option<PublicJwk> {
        let (bytes, algorithms) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => (rsa_der(&part(&self.n)?, &part(&self.e)?), RSA),
            ("EC", Some("P-256")) => {
                (point(&part(&self.x)?, &part(&self.y)?, 32)?, &[JwsAlgorithm::Es256][..])
            }
            ("EC", Some("P-384")) => {
                (point(&part(&self.x)?, &part(&self.y)?, 48)?, &[JwsAlgorithm::Es384][..])
            }
            ("EC", Some("P-521")) => {
                (point(&part(&self.x)?, &part(&self.y)?, 66)?, &[JwsAlgorithm::Es512][..])
            }
            ("OKP", Some("Ed25519")) => (part(&self.x)?, &[JwsAlgorithm::EdDsa][..]),
            _ => return None,
        };
        let verifiers = match &self.alg {
            None => JwsVerifier::all_of_public(algorithms, &bytes),
            Some(name) => {
                let algorithm = JwsAlgorithm::of(name).filter(|one| algorithms.contains(one))?;
                JwsVerifier::all_of_public(&[algorithm], &bytes)
            }
        };
        (!verifiers.is_empty()).then(|| PublicJwk { kid: self.kid.map(Into::into), verifiers })
    }
}

fn part(text: &Option<String>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.as_deref()?).ok()
}

/// An uncompressed point (SEC 1 §2.3.3). Coordinates have the full length (RFC 7518 §6.2.1.2).
fn point(x: &[u8], y: &[u8], length: usize) -> Option<Vec<u8>> {
    (x.len() == length && y.len() == length).then(|| [&[4], x, y].concat())
}

/// An `RSAPublicKey` in DER (RFC 8017 §A.1.1).
fn rsa_der(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let mut numbers = Vec::with_capacity(modulus.len() + exponent.len() + 16);
    for number in [modulus, exponent] {
        let start = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
        let number = &number[start..];
        // An integer with the highest bit set would be negative.
        let sign: &[u8] = if number.first().is_none_or(|byte| byte & 0x80 != 0) { &[0] } else { &[] };
        write_der_head(2, sign.len() + number.len(), &mut numbers);
        numbers.extend_from_slice(sign);
        numbers.extend_from_slice(number);
    }
    let mut der = Vec::with_capacity(numbers.len() + 8);
    write_der_head(0x30, numbers.len(), &mut der);
    der.extend(numbers);
    der
}

fn write_der_head(tag: u8, length: usize, out: &mut Vec<u8>) {
    out.push(tag);
    if length < 0x80 {
        out.push(length as u8);
        return;
    }
    let bytes = length.to_be_bytes();
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    out.push(0x80 | (bytes.len() - start) as u8);
    out.extend_from_slice(&bytes[start..]);
}
