//! Tokens that request an explanation of an exchange, authenticated by signature and expiry.
//!
//! Must not depend on requests or the source of the key.

use aws_lc_rs::hmac;

/// Request field with the token.
pub const REQUEST_FIELD: &str = "X-Yumen-Debug";
/// Response field with the explanation.
pub const RESPONSE_FIELD: &str = "X-Yumen-Explain";

/// Key that signs tokens. `Debug` output does not contain it.
#[derive(Clone)]
pub struct DebugKey(hmac::Key);

impl DebugKey {
    /// Creates a key from a secret.
    pub fn new(secret: &[u8]) -> DebugKey {
        DebugKey(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }
}

impl std::fmt::Debug for DebugKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DebugKey")
    }
}

/// Creates a token that is valid until `expiry_unix_s`: `v1.<expiry>.<HMAC-SHA256 in hex>`.
pub fn sign(key: &DebugKey, expiry_unix_s: u64) -> String {
    let claim = format!("v1.{expiry_unix_s}");
    let tag = hmac::sign(&key.0, claim.as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{claim}.{hex}")
}

/// Whether `token` is signed with the key and has not expired. The comparison takes constant time.
pub fn verify(key: &DebugKey, token: &[u8], now_unix_s: u64) -> bool {
    let Ok(token) = std::str::from_utf8(token) else { return false };
    let Some((claim, signature)) = token.rsplit_once('.') else { return false };
    let Some(expiry) = claim.strip_prefix("v1.") else { return false };
    let Some(expiry_unix_s) = decimal(expiry) else { return false };
    let Some(tag) = from_hex(signature) else { return false };
    now_unix_s < expiry_unix_s && hmac::verify(&key.0, claim.as_bytes(), &tag).is_ok()
}

/// Accepts digits only: `parse` would also accept `+5`, a second text of the same number.
fn decimal(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    // `from_str_radix` would accept a sign, and a slice within a character would panic.
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
