//! Texts of resources as they lie on disk: sealed under a keyring, so that a copied file tells nothing.
//!
//! Pure but for the randomness of nonces; must not know files, nor what the texts mean.

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

/// The bytes of one key.
pub const KEY_BYTES: usize = 32;

/// What a sealed text begins with; JSON never does.
const MARK: &str = "sealed:1:";
const KEY_ID_BYTES: usize = 4;

/// Why a text cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The key it was sealed under is not in the keyring.
    #[error(
        "{object} is sealed under key {key_id}, which the keyring does not hold: put back the file `keyring` \
         of the data directory that wrote it, or that key into store.keyring"
    )]
    UnknownKey {
        /// What cannot be opened.
        object: ResourceKey,
        /// The key's id.
        key_id: String,
    },
    /// It is sealed and there is no keyring at all.
    #[error("{0} is sealed, and no keyring was given to open it")]
    NoKeyring(ResourceKey),
    /// It was altered, cut, or is another object's.
    #[error("the sealed text of {0} was altered")]
    Altered(ResourceKey),
}

/// Seals the text of a resource for the disk and opens it again.
pub trait TextSeal: Send + Sync + Debug {
    /// The text to be written; only the same key opens it again.
    fn seal(&self, key: &ResourceKey, json: &str) -> String;

    /// The text as it was. A text that was never sealed is given back as it is.
    fn open(&self, key: &ResourceKey, text: &str) -> Result<String, SealError>;
}

/// What a medium does to texts at its edge: seals and opens them, or leaves them as they are.
#[derive(Debug, Clone, Default)]
pub(crate) struct OptionalSeal(pub(crate) Option<Arc<dyn TextSeal>>);

impl OptionalSeal {
    /// The entry as it is to be written.
    pub(crate) fn sealed<'a>(&self, key: &ResourceKey, entry: &'a StoreEntry) -> Cow<'a, StoreEntry> {
        match &self.0 {
            Some(seal) => {
                Cow::Owned(StoreEntry { json: seal.seal(key, &entry.json).into(), ..entry.clone() })
            }
            None => Cow::Borrowed(entry),
        }
    }

    /// The entry as it was before it was written.
    pub(crate) fn opened(&self, key: &ResourceKey, entry: StoreEntry) -> Result<StoreEntry, SealError> {
        match &self.0 {
            Some(seal) => Ok(StoreEntry { json: seal.open(key, &entry.json)?.into(), ..entry }),
            None if entry.json.starts_with(MARK) => Err(SealError::NoKeyring(key.clone())),
            None => Ok(entry),
        }
    }

    /// The revision as it is to be written.
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

    /// The revision as it was before it was written.
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

/// Keys of AES-256-GCM: the first seals, all of them open.
pub struct Keyring {
    first: KeyringKey,
    others: Vec<KeyringKey>,
}

struct KeyringKey {
    id: String,
    cipher: RandomizedNonceKey,
}

impl Keyring {
    /// A keyring of these keys; `None` where there is none.
    pub fn new(keys: &[[u8; KEY_BYTES]]) -> Option<Keyring> {
        let mut members = keys.iter().map(KeyringKey::new);
        Some(Keyring { first: members.next()?, others: members.collect() })
    }

    fn member(&self, id: &str) -> Option<&KeyringKey> {
        std::iter::once(&self.first).chain(&self.others).find(|member| member.id == id)
    }
}

/// Tells how many keys it holds and nothing of them.
impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyring({} keys)", 1 + self.others.len())
    }
}

impl KeyringKey {
    fn new(key: &[u8; KEY_BYTES]) -> KeyringKey {
        let hash = digest(&SHA256, key);
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
        let nonce = cipher.seal_in_place_append_tag(Aad::from(key.to_string()), &mut text);
        let nonce = nonce.expect("a text in memory is below the bound of this cipher");
        let mut sealed = nonce.as_ref().to_vec();
        sealed.append(&mut text);
        format!("{MARK}{id}:{}", BASE64.encode(sealed))
    }

    fn open(&self, key: &ResourceKey, text: &str) -> Result<String, SealError> {
        let Some(rest) = text.strip_prefix(MARK) else {
            return Ok(text.to_owned());
        };
        let altered = || SealError::Altered(key.clone());
        let (id, sealed) = rest.split_once(':').ok_or_else(altered)?;
        let unknown = || SealError::UnknownKey { object: key.clone(), key_id: id.to_owned() };
        let member = self.member(id).ok_or_else(unknown)?;
        let sealed = BASE64.decode(sealed).map_err(|_| altered())?;
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN).ok_or_else(altered)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| altered())?;
        let mut text = text.to_vec();
        let opened = member.cipher.open_in_place(nonce, Aad::from(key.to_string()), &mut text);
        let opened = opened.map_err(|_| altered())?.len();
        text.truncate(opened);
        String::from_utf8(text).map_err(|_| altered())
    }
}
