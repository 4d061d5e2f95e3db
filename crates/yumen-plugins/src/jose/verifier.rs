//! A key with one algorithm.

use aws_lc_rs::hmac;
use aws_lc_rs::signature::ParsedPublicKey;

use super::{JoseToken, JwsAlgorithm, pem};

enum VerificationKey {
    Secret(Box<hmac::Key>),
    Public(ParsedPublicKey),
}

/// A key for verifying tokens of one algorithm.
pub(crate) struct JwsVerifier {
    algorithm: JwsAlgorithm,
    key: VerificationKey,
}

impl JwsVerifier {
    /// A verifier of an HMAC algorithm; `None` for other algorithms.
    pub(crate) fn of_secret(algorithm: JwsAlgorithm, secret: &[u8]) -> Option<JwsVerifier> {
        let key = hmac::Key::new(algorithm.hmac()?, secret);
        Some(JwsVerifier { algorithm, key: VerificationKey::Secret(Box::new(key)) })
    }

    /// A verifier with a public key: DER, an uncompressed point, or the bytes of an Ed25519 key.
    pub(crate) fn of_public(algorithm: JwsAlgorithm, bytes: &[u8]) -> Result<JwsVerifier, String> {
        let name = algorithm.name();
        let verification =
            algorithm.verification().ok_or_else(|| format!("a public key does not verify {name}"))?;
        let key = ParsedPublicKey::new(verification, bytes).map_err(|error| error.to_string())?;
        Ok(JwsVerifier { algorithm, key: VerificationKey::Public(key) })
    }

    /// A verifier with a public key in PEM. `Err` has the reason without the name of the setting.
    pub(crate) fn of_pem(algorithm: JwsAlgorithm, text: &str) -> Result<JwsVerifier, String> {
        // The label may also be `RSA PUBLIC KEY`, that of PKCS #1.
        let (_, der) = pem::block(text, "PUBLIC KEY").ok_or("not a public key in PEM")?;
        JwsVerifier::of_public(algorithm, &der)
            .map_err(|error| format!("not a key for {}: {error}", algorithm.name()))
    }

    /// Verifiers of all algorithms that a public key in PEM supports.
    pub(crate) fn all_of_pem(text: &str) -> Result<Vec<JwsVerifier>, &'static str> {
        let (_, der) = pem::block(text, "PUBLIC KEY").ok_or("not a public key in PEM")?;
        let all = JwsVerifier::all_of_public(super::algorithm::PUBLIC, &der);
        if all.is_empty() { Err("not an RSA, EC or Ed25519 public key") } else { Ok(all) }
    }

    /// Verifiers of those among `algorithms` that the key supports.
    pub(super) fn all_of_public(algorithms: &[JwsAlgorithm], bytes: &[u8]) -> Vec<JwsVerifier> {
        let verifier = |algorithm: &JwsAlgorithm| JwsVerifier::of_public(*algorithm, bytes).ok();
        algorithms.iter().filter_map(verifier).collect()
    }

    /// The algorithm.
    pub(crate) fn algorithm(&self) -> JwsAlgorithm {
        self.algorithm
    }

    /// Whether the token is signed with this key and its algorithm.
    pub(crate) fn has_signed(&self, token: &JoseToken<'_>) -> bool {
        let message = token.signed.as_bytes();
        // The key determines the algorithm. If the token did, a public key could serve as an HMAC secret.
        token.algorithm == self.algorithm.name()
            && match &self.key {
                VerificationKey::Secret(key) => hmac::verify(key, message, &token.signature).is_ok(),
                VerificationKey::Public(key) => key.verify_sig(message, &token.signature).is_ok(),
            }
    }
}
