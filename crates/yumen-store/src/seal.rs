//! Sealing of resource texts on disk with a keyring, so that a copied file discloses no secrets.
//!
//! Pure except for random nonces; accesses no files and does not interpret the texts.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;

use crate::state::{ResourceKey, StoreCommit, StoreEntry};

/// Length of a key in bytes.
pub const KEY_BYTES: usize = 32;

/// Prefix of a sealed text; no JSON text begins with it.
const MARK: &str = "sealed:1:";
const KEY_ID_BYTES: usize = 4;

/// Error of opening a sealed text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The keyring lacks the key of the text.
    #[error(
        "{object} is sealed under key {key_id}, which the keyring does not hold: put back the file `keyring` \
         of the data directory that wrote it, or that key into store.keyring"
    )]
    UnknownKey {
        /// Object of the text.
        object: ResourceKey,
        /// Id of the missing key.
        key_id: String,
    },
    /// The text is sealed and no keyring was given.
    #[error("{0} is sealed, and no keyring was given to open it")]
    NoKeyring(ResourceKey),
    /// The text was altered, truncated, or belongs to another object.
    #[error("the sealed text of {0} was altered")]
    Altered(ResourceKey),
}

/// Encrypts and decrypts the texts of resources.
pub trait TextSeal: Send + Sync + Debug {
    /// Encrypts a text; `key` is authenticated as associated data.
    fn seal(&self, key: &ResourceKey, json: &str) -> String;

    /// Decrypts a text. An unsealed text is returned unchanged.
    fn open(&self, key: &ResourceKey, text: &str) -> Result<String, SealError>;
}

/// Seal applied by a medium when it reads and writes texts; `None` stores them in plain text.
#[derive(Debug, Clone, Default)]
pub(crate) struct OptionalSeal(pub(crate) Option<Arc<dyn TextSeal>>);

impl OptionalSeal {
    /// Seals an entry.
    pub(crate) fn sealed<'a>(&self, key: &ResourceKey, entry: &'a StoreEntry) -> Cow<'a, StoreEntry> {
        match &self.0 {
            Some(seal) => {
                Cow::Owned(StoreEntry { json: seal.seal(key, &entry.json).into(), ..entry.clone() })
            }
            None => Cow::Borrowed(entry),
        }
    }

    /// Unseals an entry.
    pub(crate) fn opened(&self, key: &ResourceKey, entry: StoreEntry) -> Result<StoreEntry, SealError> {
        match &self.0 {
            Some(seal) => Ok(StoreEntry { json: seal.open(key, &entry.json)?.into(), ..entry }),
            // As plain text, the sealed one would be compiled and reported as a broken object.
            None if entry.json.starts_with(MARK) => Err(SealError::NoKeyring(key.clone())),
            None => Ok(entry),
        }
    }

    /// Seals all entries of a revision.
    pub(crate) fn sealed_revision<'a>(&self, committed: &'a StoreCommit) -> Cow<'a, StoreCommit> {
        if self.0.is_none() {
            return Cow::Borrowed(committed);
        }
        let mut sealed = committed.clone();
        for changed in &mut sealed.changes {
            for entry in [&mut changed.before, &mut changed.after].into_iter().flatten() {
                *entry = self.sealed(&changed.key, entry).into_owned();
            }
        }
        Cow::Owned(sealed)
    }

    /// Unseals all entries of a revision.
    pub(crate) fn opened_revision(&self, mut committed: StoreCommit) -> Result<StoreCommit, SealError> {
        for changed in &mut committed.changes {
            let open =
                |entry: Option<StoreEntry>| entry.map(|entry| self.opened(&changed.key, entry)).transpose();
            changed.before = open(changed.before.take())?;
            changed.after = open(changed.after.take())?;
        }
        Ok(committed)
    }
}

/// AES-256-GCM keys: the first seals, all of them open.
pub struct Keyring {
    first: KeyringKey,
    others: Vec<KeyringKey>,
}

struct KeyringKey {
    id: String,
    cipher: RandomizedNonceKey,
}

impl Keyring {
    /// Creates a keyring; `None` without keys.
    pub fn new(keys: &[[u8; KEY_BYTES]]) -> Option<Keyring> {
        let mut members = keys.iter().map(KeyringKey::new);
        Some(Keyring { first: members.next()?, others: members.collect() })
    }

    fn member(&self, id: &str) -> Option<&KeyringKey> {
        std::iter::once(&self.first).chain(&self.others).find(|member| member.id == id)
    }
}

/// Prints the number of keys only.
impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyring({} keys)", 1 + self.others.len())
    }
}

impl KeyringKey {
    fn new(key: &[u8; KEY_BYTES]) -> KeyringKey {
        let hash = digest(&SHA256, key);
        // A prefix of the hash finds the key and reveals nothing of it.
        let id = hash.as_ref()[..KEY_ID_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        let cipher =
            RandomizedNonceKey::new(&AES_256_GCM, key).expect("the key has the length of this cipher");
        KeyringKey { id, cipher }
    }
}

impl TextSeal for Keyring {
    fn seal(&self, key: &ResourceKey, json: &str) -> String {
        let KeyringKey { id, cipher } = &self.first;
        let mut text = json.as_bytes().to_vec();
        // The key as associated data binds the text to its object, so sealed texts cannot be exchanged.
        let nonce = cipher.seal_in_place_append_tag(Aad::from(key.to_string()), &mut text);
        let nonce = nonce.expect("a text in memory is below the bound of this cipher");
        let mut sealed = nonce.as_ref().to_vec();
        sealed.append(&mut text);
        format!("{MARK}{id}:{}", BASE64.encode(sealed))
    }

    fn open(&self, key: &ResourceKey, text: &str) -> Result<String, SealError> {
        // Texts from before the use of a keyring are not sealed.
        let Some(rest) = text.strip_prefix(MARK) else {
            return Ok(text.to_owned());
        };
        let altered = || SealError::Altered(key.clone());
        let (id, sealed) = rest.split_once(':').ok_or_else(altered)?;
        let unknown = || SealError::UnknownKey { object: key.clone(), key_id: id.to_owned() };
        let member = self.member(id).ok_or_else(unknown)?;
        let sealed = BASE64.decode(sealed).map_err(|_| altered())?;
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN).ok_or_else(altered)?;
        // The nonce was drawn at random when the text was sealed.
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| altered())?;
        let mut text = text.to_vec();
        let opened = member.cipher.open_in_place(nonce, Aad::from(key.to_string()), &mut text);
        let opened = opened.map_err(|_| altered())?.len();
        text.truncate(opened);
        String::from_utf8(text).map_err(|_| altered())
    }
}
