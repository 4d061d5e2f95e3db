//! Sealing of cookie values with AES-256-GCM.
//!
//! A value is base64url of: version (1 byte), key id (4), salt (16), ciphertext, tag (16). Key and nonce of each value
//! are derived from its salt, because random 96-bit nonces under one key are safe for 2^32 values only.

use std::io::{Read, Write};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

const VERSION: u8 = 1;
const KEY_ID_BYTES: usize = 4;
pub(crate) const SALT_BYTES: usize = 16;
const HEAD_BYTES: usize = 1 + KEY_ID_BYTES + SALT_BYTES;
const TAG_BYTES: usize = 16;
/// Length from which a text is compressed.
const COMPRESSED_MIN: usize = 512;
/// Longest text after decompression.
const TEXT_BYTES_MAX: u64 = 256 * 1024;

/// The use of a sealed value. A value of one use does not open as one of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CookiePurpose {
    /// A session.
    Session,
    /// A login in progress.
    LoginState,
    /// A session in a store, and its number in the cookie.
    StoredSession,
}

impl CookiePurpose {
    fn name(self) -> &'static str {
        match self {
            CookiePurpose::Session => "session",
            CookiePurpose::LoginState => "login state",
            CookiePurpose::StoredSession => "stored session",
        }
    }
}

/// The reason why a sealed value does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SealFault {
    /// Not a sealed value.
    Malformed,
    /// Sealed with another secret, such as that of another node.
    UnknownKey,
    /// The value was changed, or belongs to another cookie.
    Tampered,
    /// Parts of a split value are missing or of different values.
    Incomplete,
}

/// The keys of a list of secrets: the first seals, all of them open.
pub(crate) struct LoginSealKeys {
    keys: Box<[SessionKey]>,
}

struct SessionKey {
    id: [u8; KEY_ID_BYTES],
    derivation: Prk,
}

impl std::fmt::Debug for LoginSealKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginSealKeys").field("count", &self.keys.len()).finish_non_exhaustive()
    }
}

/// A number of bytes as the length of derived key material.
struct DerivedBytes(usize);

impl KeyType for DerivedBytes {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive<const N: usize>(derivation: &Prk, info: &[&[u8]]) -> Option<[u8; N]> {
    let mut out = [0; N];
    derivation.expand(info, DerivedBytes(N)).ok()?.fill(&mut out).ok()?;
    Some(out)
}

impl LoginSealKeys {
    /// The keys of secrets, of which the first one seals.
    pub(crate) fn new<'s>(secrets: impl IntoIterator<Item = &'s str>) -> LoginSealKeys {
        let key = |secret: &str| {
            let derivation = Salt::new(HKDF_SHA256, b"yumen session").extract(secret.as_bytes());
            // Fails for lengths beyond 255 hashes only.
            let id = derive(&derivation, &[b"key id"]).unwrap_or_default();
            SessionKey { id, derivation }
        };
        LoginSealKeys { keys: secrets.into_iter().map(key).collect() }
    }

    /// Seals a text for the cookie called `name`. The salt is random. `None` without a key.
    pub(crate) fn seal(
        &self,
        purpose: CookiePurpose,
        name: &str,
        text: &[u8],
        salt: [u8; SALT_BYTES],
    ) -> Option<String> {
        let key = self.keys.first()?;
        let mut sealed = Vec::with_capacity(HEAD_BYTES + text.len() + 1 + TAG_BYTES);
        sealed.push(VERSION);
        sealed.extend_from_slice(&key.id);
        sealed.extend_from_slice(&salt);
        let mut content = pack(text)?;
        let (cipher, nonce) = key.cipher(purpose, &salt)?;
        cipher.seal_in_place_append_tag(nonce, Aad::from(context(purpose, name)), &mut content).ok()?;
        sealed.extend(content);
        Some(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Opens a sealed value. The number is that of the secret, 0 for the one that seals.
    pub(crate) fn open(
        &self,
        purpose: CookiePurpose,
        name: &str,
        value: &[u8],
    ) -> Result<(Vec<u8>, usize), SealFault> {
        let sealed = URL_SAFE_NO_PAD.decode(value).map_err(|_| SealFault::Malformed)?;
        if sealed.len() < HEAD_BYTES + TAG_BYTES || sealed[0] != VERSION {
            return Err(SealFault::Malformed);
        }
        let (head, content) = sealed.split_at(HEAD_BYTES);
        let (id, salt) = head[1..].split_at(KEY_ID_BYTES);
        let mut fault = SealFault::UnknownKey;
        // Ids of 4 bytes may collide.
        for (number, key) in self.keys.iter().enumerate().filter(|(_, key)| key.id == *id) {
            let (cipher, nonce) = key.cipher(purpose, salt).ok_or(SealFault::Tampered)?;
            let mut content = content.to_vec();
            match cipher.open_in_place(nonce, Aad::from(context(purpose, name)), &mut content) {
                Ok(packed) => return unpack(packed).map(|text| (text, number)).ok_or(SealFault::Malformed),
                Err(_) => fault = SealFault::Tampered,
            }
        }
        Err(fault)
    }
}

/// The authenticated context of a value.
fn context(purpose: CookiePurpose, name: &str) -> Vec<u8> {
    [&[VERSION], purpose.name().as_bytes(), &[0], name.as_bytes()].concat()
}

impl SessionKey {
    fn cipher(&self, purpose: CookiePurpose, salt: &[u8]) -> Option<(LessSafeKey, Nonce)> {
        let material: [u8; 44] =
            derive(&self.derivation, &[b"yumen ", purpose.name().as_bytes(), &[0], salt])?;
        let (key, nonce) = material.split_at(32);
        let key = UnboundKey::new(&AES_256_GCM, key).ok()?;
        Some((LessSafeKey::new(key), Nonce::try_assume_unique_for_key(nonce).ok()?))
    }
}

/// The text behind a byte for its form, deflated if it is long. Compression reveals nothing: no text of a client is
/// sealed together with a secret.
fn pack(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() < COMPRESSED_MIN {
        return Some([&[0], text].concat());
    }
    let mut encoder = DeflateEncoder::new(vec![1], Compression::default());
    encoder.write_all(text).ok()?;
    encoder.finish().ok()
}

pub(super) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let (form, content) = packed.split_first()?;
    match form {
        0 => Some(content.to_vec()),
        1 => {
            let mut text = Vec::with_capacity(content.len() * 3);
            DeflateDecoder::new(content).take(TEXT_BYTES_MAX + 1).read_to_end(&mut text).ok()?;
            (text.len() as u64 <= TEXT_BYTES_MAX).then_some(text)
        }
        _ => None,
    }
}
