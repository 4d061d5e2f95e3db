//! Keys of service accounts at Google: signed requests for access tokens (RFC 7523 §2.1). Pure, apart from the random
//! numbers of the signature.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

/// Life of a signed request in seconds; the longest that Google accepts.
pub const ASSERTION_LIFE_S: u64 = 3600;

/// A service account with its key.
#[derive(Clone, Copy)]
pub struct ServiceAccountKey<'a> {
    /// Address of the account.
    pub client_email: &'a str,
    /// RSA key in PEM.
    pub private_key: &'a str,
    /// URL for access tokens.
    pub token_url: &'a str,
    /// Scopes, separated by spaces.
    pub scope: &'a str,
}

impl ServiceAccountKey<'_> {
    /// The signed request for a token, in compact form.
    pub fn assertion(&self, unix_s: u64) -> Result<String, String> {
        let no_key = || "private_key is no RSA key in PEM".to_owned();
        let key = match PrivateKeyDer::from_pem_slice(self.private_key.as_bytes()) {
            Ok(PrivateKeyDer::Pkcs8(key)) => KeyPair::from_pkcs8(key.secret_pkcs8_der()),
            Ok(PrivateKeyDer::Pkcs1(key)) => KeyPair::from_der(key.secret_pkcs1_der()),
            _ => return Err(no_key()),
        };
        let key = key.map_err(|_| no_key())?;
        let claims = serde_json::json!({
            "iss": self.client_email,
            "sub": self.client_email,
            "aud": self.token_url,
            "scope": self.scope,
            "iat": unix_s,
            "exp": unix_s + ASSERTION_LIFE_S,
        });
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let head = encode(br#"{"alg":"RS256","typ":"JWT"}"#);
        let signed = format!("{head}.{}", encode(claims.to_string().as_bytes()));
        let mut signature = vec![0; key.public_modulus_len()];
        key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .map_err(|_| "signing failed".to_owned())?;
        Ok(format!("{signed}.{}", encode(&signature)))
    }
}
