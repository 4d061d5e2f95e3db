//! Signature algorithms (RFC 7518 §3, RFC 8037).

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{self, VerificationAlgorithm};

/// A signature algorithm of a token. `none` is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum JwsAlgorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
    EdDsa,
}

/// The algorithms of an RSA key.
pub(super) const RSA: &[JwsAlgorithm] = &[
    JwsAlgorithm::Rs256,
    JwsAlgorithm::Rs384,
    JwsAlgorithm::Rs512,
    JwsAlgorithm::Ps256,
    JwsAlgorithm::Ps384,
    JwsAlgorithm::Ps512,
];

/// All algorithms of public keys.
pub(super) const PUBLIC: &[JwsAlgorithm] = &[
    JwsAlgorithm::Rs256,
    JwsAlgorithm::Rs384,
    JwsAlgorithm::Rs512,
    JwsAlgorithm::Ps256,
    JwsAlgorithm::Ps384,
    JwsAlgorithm::Ps512,
    JwsAlgorithm::Es256,
    JwsAlgorithm::Es384,
    JwsAlgorithm::Es512,
    JwsAlgorithm::EdDsa,
];

impl JwsAlgorithm {
    /// The algorithm with this name; names are case-sensitive (RFC 7515 §4.1.1).
    pub(crate) fn of(name: &str) -> Option<JwsAlgorithm> {
        Some(match name {
            "HS256" => JwsAlgorithm::Hs256,
            "HS384" => JwsAlgorithm::Hs384,
            "HS512" => JwsAlgorithm::Hs512,
            "RS256" => JwsAlgorithm::Rs256,
            "RS384" => JwsAlgorithm::Rs384,
            "RS512" => JwsAlgorithm::Rs512,
            "PS256" => JwsAlgorithm::Ps256,
            "PS384" => JwsAlgorithm::Ps384,
            "PS512" => JwsAlgorithm::Ps512,
            "ES256" => JwsAlgorithm::Es256,
            "ES384" => JwsAlgorithm::Es384,
            "ES512" => JwsAlgorithm::Es512,
            "EdDSA" => JwsAlgorithm::EdDsa,
            _ => return None,
        })
    }

    /// The name in tokens.
    pub(crate) fn name(self) -> &'static str {
        match self {
            JwsAlgorithm::Hs256 => "HS256",
            JwsAlgorithm::Hs384 => "HS384",
            JwsAlgorithm::Hs512 => "HS512",
            JwsAlgorithm::Rs256 => "RS256",
            JwsAlgorithm::Rs384 => "RS384",
            JwsAlgorithm::Rs512 => "RS512",
            JwsAlgorithm::Ps256 => "PS256",
            JwsAlgorithm::Ps384 => "PS384",
            JwsAlgorithm::Ps512 => "PS512",
            JwsAlgorithm::Es256 => "ES256",
            JwsAlgorithm::Es384 => "ES384",
            JwsAlgorithm::Es512 => "ES512",
            JwsAlgorithm::EdDsa => "EdDSA",
        }
    }

    /// The hash of an HMAC algorithm; `None` for algorithms of public keys.
    pub(crate) fn hmac(self) -> Option<hmac::Algorithm> {
        match self {
            JwsAlgorithm::Hs256 => Some(hmac::HMAC_SHA256),
            JwsAlgorithm::Hs384 => Some(hmac::HMAC_SHA384),
            JwsAlgorithm::Hs512 => Some(hmac::HMAC_SHA512),
            _ => None,
        }
    }

    /// The verification of an algorithm of public keys; `None` for HMAC. RSA keys have at least 2048 bits
    /// (RFC 7518 §3.3).
    pub(super) fn verification(self) -> Option<&'static dyn VerificationAlgorithm> {
        Some(match self {
            JwsAlgorithm::Hs256 | JwsAlgorithm::Hs384 | JwsAlgorithm::Hs512 => return None,
            JwsAlgorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            JwsAlgorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            JwsAlgorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            JwsAlgorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            JwsAlgorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            JwsAlgorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            JwsAlgorithm::Es256 => &signature::ECDSA_P256_SHA256_FIXED,
            JwsAlgorithm::Es384 => &signature::ECDSA_P384_SHA384_FIXED,
            JwsAlgorithm::Es512 => &signature::ECDSA_P521_SHA512_FIXED,
            JwsAlgorithm::EdDsa => &signature::ED25519,
        })
    }
}
