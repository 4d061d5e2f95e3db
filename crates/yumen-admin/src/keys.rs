//! Keys of the Admin API: digests in the store's settings, or keys in the node settings.
//!
//! Handles names, roles and digests; independent of requests.

#[cfg(test)]
mod tests;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Value, json};
use yumen_config::node::{AdminKey, AdminRole};
use yumen_store::{Authorship, Draft, Store, StoreError, StoreState, commit};

/// The setting of the store with the keys.
const SETTING: &str = "admin_keys";
const KEY_BYTES: usize = 20;

/// The holder of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyHolder {
    /// The author in the history.
    pub name: String,
    /// Permissions of the holder.
    pub role: AdminRole,
}

/// A key as it is stored. Keys are long and random, so one round of a plain digest protects them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HashedKey {
    holder: KeyHolder,
    sha256: String,
}

impl HashedKey {
    fn new(name: &str, role: AdminRole, key: &str) -> HashedKey {
        HashedKey { holder: KeyHolder { name: name.to_owned(), role }, sha256: sha256(key) }
    }

    fn to_json(&self) -> Value {
        json!({ "name": self.holder.name, "role": self.holder.role, "sha256": self.sha256 })
    }

    fn from_json(value: &Value) -> Option<HashedKey> {
        let text = |name: &str| value.get(name)?.as_str().map(str::to_owned);
        let role = serde_json::from_value(value.get("role")?.clone()).ok()?;
        Some(HashedKey { holder: KeyHolder { name: text("name")?, role }, sha256: text("sha256")? })
    }
}

/// The keys of the node settings, as digests.
pub(crate) fn configured(keys: &[AdminKey]) -> Vec<HashedKey> {
    keys.iter().map(|key| HashedKey::new(&key.name, key.role, &key.key.0)).collect()
}

/// The keys in the store.
pub(crate) fn stored(state: &StoreState) -> Vec<HashedKey> {
    let stored: Value =
        state.setting(SETTING).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    // A damaged entry must not lock out the holders of the others.
    stored.as_array().into_iter().flatten().filter_map(HashedKey::from_json).collect()
}

/// The holder of the key with this digest. The time does not depend on which key matches, or whether one does; digests
/// have one length, so it reveals nothing of the key's.
pub(crate) fn holder_of_digest<'a>(
    presented: &str,
    keys: impl Iterator<Item = &'a HashedKey>,
) -> Option<KeyHolder> {
    let mut found = None;
    // No early exit: the time must not reveal the position of the key.
    for stored in keys {
        let is_same = verify_slices_are_equal(presented.as_bytes(), stored.sha256.as_bytes()).is_ok();
        if is_same && found.is_none() {
            found = Some(stored.holder.clone());
        }
    }
    found
}

/// Newly created keys. They are shown once and cannot be recovered.
#[derive(Clone, PartialEq, Eq)]
pub struct NewKeys {
    /// Key with the role `admin`; its holder is named `admin`.
    pub admin: String,
    /// Key with the role `viewer`; its holder is named `viewer`.
    pub viewer: String,
}

/// Omits the keys, so that no log contains them by accident.
impl std::fmt::Debug for NewKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewKeys")
    }
}

/// Creates a key for `admin` and one for `viewer` if the store has no keys yet.
///
/// A store that has keys is not written to: one with a full disk could not be, and can still serve.
pub async fn ensure(store: &dyn Store) -> Result<Option<NewKeys>, StoreError> {
    if store.state().setting(SETTING).is_some() {
        return Ok(None);
    }
    let random = || random_key().map_err(StoreError::from);
    let keys = NewKeys { admin: random()?, viewer: random()? };
    let stored = [
        HashedKey::new("admin", AdminRole::Admin, &keys.admin),
        HashedKey::new("viewer", AdminRole::Viewer, &keys.viewer),
    ];
    let text = Value::from_iter(stored.iter().map(HashedKey::to_json)).to_string();
    let decide = move |draft: &mut Draft| -> Result<bool, StoreError> {
        // Another node may have created keys since.
        let is_first = draft.state().setting(SETTING).is_none();
        if is_first {
            draft.set(SETTING, Some(&text));
        }
        Ok(is_first)
    };
    let (is_first, _) = commit(store, Authorship::by("first start"), decide).await??;
    // Only the node that stored the keys may show them.
    Ok(is_first.then_some(keys))
}

/// The holders of the keys in the store.
pub(crate) fn holders(state: &StoreState) -> Vec<KeyHolder> {
    stored(state).into_iter().map(|key| key.holder).collect()
}

/// Replaces the key of a holder, or adds a holder; other keys stay. Without a `role` the holder keeps its own.
pub(crate) async fn rotate(
    store: &dyn Store,
    by: Authorship,
    name: &str,
    role: Option<AdminRole>,
) -> Result<(KeyHolder, String), StoreError> {
    let key = random_key()?;
    let (name, new) = (name.to_owned(), key.clone());
    let decide = move |draft: &mut Draft| -> Result<KeyHolder, StoreError> {
        let mut keys = stored(draft.state());
        let at = keys.iter().position(|one| one.holder.name == name);
        let former = at.map(|at| keys.remove(at).holder.role);
        let added = HashedKey::new(&name, role.or(former).unwrap_or_default(), &new);
        let holder = added.holder.clone();
        keys.push(added);
        write(draft, &keys);
        Ok(holder)
    };
    let (holder, _) = commit(store, by, decide).await??;
    Ok((holder, key))
}

/// Removes the key of a holder; `false` if there is none.
pub(crate) async fn revoke(store: &dyn Store, by: Authorship, name: &str) -> Result<bool, StoreError> {
    let name = name.to_owned();
    let decide = move |draft: &mut Draft| -> Result<bool, StoreError> {
        let mut keys = stored(draft.state());
        let before = keys.len();
        keys.retain(|one| one.holder.name != name);
        let is_found = keys.len() < before;
        if is_found {
            write(draft, &keys);
        }
        Ok(is_found)
    };
    let (is_found, _) = commit(store, by, decide).await??;
    Ok(is_found)
}

fn write(draft: &mut Draft, keys: &[HashedKey]) {
    // An empty list stays: without the setting, the next start would create keys.
    let text = Value::from_iter(keys.iter().map(HashedKey::to_json)).to_string();
    draft.set(SETTING, Some(&text));
}

fn random_key() -> std::io::Result<String> {
    random_hex::<KEY_BYTES>()
}

/// `N` random bytes in hexadecimal.
pub(crate) fn random_hex<const N: usize>() -> std::io::Result<String> {
    let mut bytes = [0; N];
    let failed = |_| std::io::Error::other("the system gives no randomness");
    aws_lc_rs::rand::fill(&mut bytes).map_err(failed)?;
    Ok(hex(&bytes))
}

/// The digest of a text, in hexadecimal.
pub(crate) fn sha256(key: &str) -> String {
    hex(digest(&SHA256, key.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
