//! Signed tokens in compact form (RFC 7515 §7.1).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

/// A parsed token that is not verified yet.
pub(crate) struct JoseToken<'t> {
    /// Header and payload in their encoded form, which the signature covers.
    pub(super) signed: &'t str,
    pub(super) signature: Vec<u8>,
    /// The algorithm that the token names.
    pub(crate) algorithm: String,
    /// The JOSE header.
    pub(crate) header: Map<String, Value>,
    /// The claims of the payload.
    pub(crate) claims: Map<String, Value>,
}

impl<'t> JoseToken<'t> {
    /// Parses the compact serialization.
    pub(crate) fn read(text: &'t str) -> Option<JoseToken<'t>> {
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
        Some(JoseToken {
            signed,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
            algorithm: header.get("alg")?.as_str()?.to_owned(),
            claims: object(claims)?,
            header,
        })
    }

    /// The id of the key that signed the token.
    pub(crate) fn key_id(&self) -> Option<&str> {
        self.header.get("kid")?.as_str()
    }

    /// Whether the token has no signature, whatever it claims.
    pub(crate) fn lacks_signature(&self) -> bool {
        self.signature.is_empty()
    }

    /// Whether the token claims to have no signature (RFC 7518 §3.6) and has none.
    pub(crate) fn is_unsigned(&self) -> bool {
        self.algorithm == "none" && self.signature.is_empty()
    }
}
