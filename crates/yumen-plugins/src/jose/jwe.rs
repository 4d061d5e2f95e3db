//! Encrypted tokens (RFC 7516) with a direct key and A256GCM.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

/// The members of the protected header that are read.
#[derive(Deserialize)]
struct JweHeader {
    alg: String,
    enc: String,
    kid: Option<String>,
}

/// The parts of the compact form (RFC 7516 §7.1).
pub(crate) struct JweToken<'t> {
    header: JweHeader,
    /// The protected header as written, which is authenticated.
    written_header: &'t str,
    nonce: [u8; 12],
    /// Ciphertext and tag.
    sealed: Vec<u8>,
}

impl JweToken<'_> {
    /// Reads a token with direct encryption by A256GCM, the one form that is supported.
    pub(crate) fn read(token: &[u8]) -> Option<JweToken<'_>> {
        let token = std::str::from_utf8(token).ok()?;
        let mut parts = token.split('.');
        let [header, key, nonce, text, tag] = [(); 5].map(|()| parts.next());
        let (written_header, key) = (header?, key?);
        if parts.next().is_some() || !key.is_empty() {
            return None;
        }
        let decode = |part: Option<&str>| URL_SAFE_NO_PAD.decode(part?).ok();
        let header: JweHeader = serde_json::from_slice(&decode(header)?).ok()?;
        if header.alg != "dir" || header.enc != "A256GCM" {
            return None;
        }
        let tag = decode(tag).filter(|tag| tag.len() == AES_256_GCM.tag_len())?;
        let sealed = [decode(text)?, tag].concat();
        Some(JweToken { header, written_header, nonce: decode(nonce)?.try_into().ok()?, sealed })
    }

    /// The id of the key.
    pub(crate) fn key_id(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }

    /// The text; `None` if the key is another one or the token was changed.
    pub(crate) fn decrypt(self, cipher: &LessSafeKey) -> Option<Vec<u8>> {
        let (nonce, aad) = (Nonce::assume_unique_for_key(self.nonce), Aad::from(self.written_header));
        let mut text = self.sealed;
        let length = cipher.open_in_place(nonce, aad, &mut text).ok()?.len();
        text.truncate(length);
        Some(text)
    }
}
