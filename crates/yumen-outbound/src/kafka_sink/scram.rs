//! SCRAM (RFC 5802, RFC 7677): the messages of a client. Pure.

use std::num::NonZeroU32;

use aws_lc_rs::{digest, hmac, pbkdf2};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use yumen_plugin::KafkaMechanism;

/// Iterations that a server may ask for; each costs time.
const ITERATIONS_MAX: u32 = 100_000;
/// The header without channel binding, and its Base64 form.
const NO_BINDING: &str = "n,,";
const NO_BINDING_TEXT: &str = "biws";

struct ScramAlgorithms {
    digest: &'static digest::Algorithm,
    hmac: hmac::Algorithm,
    pbkdf2: pbkdf2::Algorithm,
}

/// A login in progress.
pub(crate) struct ScramLogin {
    algorithms: ScramAlgorithms,
    password: String,
    nonce: String,
    /// The first message without its header.
    first: String,
}

/// The expected end of a login.
pub(crate) struct ScramFinal {
    pub(crate) message: String,
    signature: Vec<u8>,
}

impl ScramLogin {
    /// Begins a login; the nonce is printable and without commas. `None` for other mechanisms.
    pub(crate) fn new(
        mechanism: KafkaMechanism,
        user: &str,
        password: &str,
        nonce: String,
    ) -> Option<ScramLogin> {
        let algorithms = match mechanism {
            KafkaMechanism::Plain => return None,
            KafkaMechanism::ScramSha256 => ScramAlgorithms {
                digest: &digest::SHA256,
                hmac: hmac::HMAC_SHA256,
                pbkdf2: pbkdf2::PBKDF2_HMAC_SHA256,
            },
            KafkaMechanism::ScramSha512 => ScramAlgorithms {
                digest: &digest::SHA512,
                hmac: hmac::HMAC_SHA512,
                pbkdf2: pbkdf2::PBKDF2_HMAC_SHA512,
            },
        };
        // RFC 5802 §5.1.
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let first = format!("n={user},r={nonce}");
        Some(ScramLogin { algorithms, password: password.to_owned(), nonce, first })
    }

    /// The first message.
    pub(crate) fn first(&self) -> String {
        format!("{NO_BINDING}{}", self.first)
    }

    /// The answer to the first message of the server.
    pub(crate) fn proof(&self, server_first: &[u8]) -> Result<ScramFinal, String> {
        let malformed = || "the broker sent a malformed SCRAM message".to_owned();
        let server_first = std::str::from_utf8(server_first).map_err(|_| malformed())?;
        let mut parts = server_first.split(',');
        let mut part = |name: &str| parts.next().and_then(|part| part.strip_prefix(name));
        let (nonce, salt, iterations) = (part("r="), part("s="), part("i="));
        let (Some(nonce), Some(salt), Some(iterations)) = (nonce, salt, iterations) else {
            return Err(malformed());
        };
        // A nonce of another login would be a replay (RFC 5802 §5.1).
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err("the broker answered with a foreign SCRAM nonce".to_owned());
        }
        let salt = STANDARD.decode(salt).map_err(|_| malformed())?;
        let iterations: NonZeroU32 = iterations.parse().map_err(|_| malformed())?;
        if iterations.get() > ITERATIONS_MAX {
            return Err(format!(
                "the broker asks for {iterations} SCRAM iterations; at most {ITERATIONS_MAX} are done"
            ));
        }
        let ScramAlgorithms { digest, hmac: algorithm, pbkdf2 } = &self.algorithms;
        let mut salted = vec![0; digest.output_len()];
        pbkdf2::derive(*pbkdf2, iterations, &salt, self.password.as_bytes(), &mut salted);
        let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(*algorithm, key), text);
        let client_key = sign(&salted, b"Client Key");
        let stored_key = digest::digest(digest, client_key.as_ref());
        let bare = format!("c={NO_BINDING_TEXT},r={nonce}");
        let signed = format!("{},{server_first},{bare}", self.first);
        let client_signature = sign(stored_key.as_ref(), signed.as_bytes());
        let proof: Vec<u8> =
            client_key.as_ref().iter().zip(client_signature.as_ref()).map(|(key, sign)| key ^ sign).collect();
        let server_key = sign(&salted, b"Server Key");
        let signature = sign(server_key.as_ref(), signed.as_bytes()).as_ref().to_vec();
        Ok(ScramFinal { message: format!("{bare},p={}", STANDARD.encode(proof)), signature })
    }
}

impl ScramFinal {
    /// Checks the last message of the server, which proves that it knows the password too.
    pub(crate) fn check(&self, server_final: &[u8]) -> Result<(), String> {
        let found = server_final.strip_prefix(b"v=").and_then(|text| STANDARD.decode(text).ok());
        match found {
            Some(found) if found == self.signature => Ok(()),
            _ => Err("the broker does not know the password (SCRAM signature)".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
