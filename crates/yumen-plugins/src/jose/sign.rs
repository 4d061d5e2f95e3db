//! Signatures of the gateway: client assertions for `private_key_jwt` and `client_secret_jwt`.

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, RsaEncoding, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{JwsAlgorithm, pem};

/// A key of the gateway with its algorithm.
pub(crate) struct ClientSigner {
    algorithm: JwsAlgorithm,
    key_id: Option<String>,
    key: SigningKey,
}

enum SigningKey {
    Secret(Box<hmac::Key>),
    Rsa(Box<RsaKeyPair>, &'static dyn RsaEncoding),
    Ec(Box<EcdsaKeyPair>),
}

impl std::fmt::Debug for ClientSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientSigner").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl ClientSigner {
    /// A signer with a secret; `None` if the algorithm is not HMAC.
    pub(crate) fn of_secret(algorithm: JwsAlgorithm, secret: &[u8]) -> Option<ClientSigner> {
        let key = hmac::Key::new(algorithm.hmac()?, secret);
        Some(ClientSigner { algorithm, key_id: None, key: SigningKey::Secret(Box::new(key)) })
    }

    /// A signer with a private key in PEM: PKCS #8, PKCS #1 or SEC 1.
    pub(crate) fn of_pem(
        algorithm: JwsAlgorithm,
        text: &str,
        key_id: Option<String>,
    ) -> Result<ClientSigner, String> {
        let (_, der) = pem::block(text, "PRIVATE KEY").ok_or("not a private key in PEM")?;
        let key = match (rsa_encoding(algorithm), ec_signing(algorithm)) {
            (Some(encoding), _) => {
                let pair = RsaKeyPair::from_pkcs8(&der).or_else(|_| RsaKeyPair::from_der(&der));
                pair.map(|pair| SigningKey::Rsa(Box::new(pair), encoding))
            }
            (None, Some(signing)) => {
                EcdsaKeyPair::from_private_key_der(signing, &der).map(|pair| SigningKey::Ec(Box::new(pair)))
            }
            (None, None) => return Err(format!("a private key does not sign with {}", algorithm.name())),
        };
        let key = key.map_err(|error| format!("not a private key for {}: {error}", algorithm.name()))?;
        Ok(ClientSigner { algorithm, key_id, key })
    }

    /// A signed token with these claims.
    pub(crate) fn sign(&self, claims: &Value) -> Option<String> {
        let mut header = json!({ "alg": self.algorithm.name(), "typ": "JWT" });
        if let Some(key_id) = &self.key_id {
            header["kid"] = Value::from(key_id.as_str());
        }
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(claims));
        let signature = self.signature(signed.as_bytes())?;
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    fn signature(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match &self.key {
            SigningKey::Secret(key) => Some(hmac::sign(key, message).as_ref().to_vec()),
            SigningKey::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(*encoding, &random, message, &mut signature).ok()?;
                Some(signature)
            }
            SigningKey::Ec(pair) => Some(pair.sign(&random, message).ok()?.as_ref().to_vec()),
        }
    }
}

fn rsa_encoding(algorithm: JwsAlgorithm) -> Option<&'static dyn RsaEncoding> {
    Some(match algorithm {
        JwsAlgorithm::Rs256 => &signature::RSA_PKCS1_SHA256,
        JwsAlgorithm::Rs384 => &signature::RSA_PKCS1_SHA384,
        JwsAlgorithm::Rs512 => &signature::RSA_PKCS1_SHA512,
        JwsAlgorithm::Ps256 => &signature::RSA_PSS_SHA256,
        JwsAlgorithm::Ps384 => &signature::RSA_PSS_SHA384,
        JwsAlgorithm::Ps512 => &signature::RSA_PSS_SHA512,
        _ => return None,
    })
}

fn ec_signing(algorithm: JwsAlgorithm) -> Option<&'static EcdsaSigningAlgorithm> {
    Some(match algorithm {
        JwsAlgorithm::Es256 => &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
        JwsAlgorithm::Es384 => &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
        JwsAlgorithm::Es512 => &signature::ECDSA_P521_SHA512_FIXED_SIGNING,
        _ => return None,
    })
}
