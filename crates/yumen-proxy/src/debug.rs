//! Tokens that make the gateway explain a request: who may ask is decided by a signature and its expiry.
//!
//! Knows neither requests nor where the key comes from.

use aws_lc_rs::hmac;

/// The field a request carries its token in.
pub const REQUEST_FIELD: &str = "X-Yumen-Debug";
/// The field the explanation comes back in.
pub const RESPONSE_FIELD: &str = "X-Yumen-Explain";

/// The secret that signs tokens. It never shows in logs.
#[derive(Clone)]
pub struct DebugKey(hmac::Key);

impl DebugKey {
    /// A key from the bytes of a secret.
    pub fn new(secret: &[u8]) -> DebugKey {
        DebugKey(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }
}

impl std::fmt::Debug for DebugKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DebugKey")
    }
}

/// A token that holds until `expiry_unix_s`: `v1.<expiry>.<signature in hex>`.
pub fn sign(key: &DebugKey, expiry_unix_s: u64) -> String {
    let claim = format!("v1.{expiry_unix_s}");
    let tag = hmac::sign(&key.0, claim.as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{claim}.{hex}")
}

/// Whether `token` was signed with this key and has not expired. The comparison takes the same time
/// wherever a signature differs.
pub fn verify(key: &DebugKey, token: &[u8], now_unix_s: u64) -> bool {
    let Ok(token) = std::str::from_utf8(token) else { return false };
    let Some((claim, signature)) = token.rsplit_once('.') else { return false };
    let Some(expiry) = claim.strip_prefix("v1.") else { return false };
    let Some(expiry_unix_s) = decimal(expiry) else { return false };
    let Some(tag) = from_hex(signature) else { return false };
    now_unix_s < expiry_unix_s && hmac::verify(&key.0, claim.as_bytes(), &tag).is_ok()
}

/// Digits only: `+5`, which the standard library takes, is another text for the same number.
fn decimal(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
