//! Active versions of objects with a newest text that cannot be compiled, saved beside the last good state.
//!
//! The store holds only the broken text, so a new process could not serve the object without this file. Owns
//! the file; the compiler decides which versions are active.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use yumen_config::Resource;

use super::saver::SaveNotifier;
use super::{LastGood, is_missing, text};
use crate::directory::{self, about};
use crate::seal::{OptionalSeal, TextSeal};
use crate::state::{ResourceKey, Revision, StoreEntry, StoreState};
use crate::store::StoreError;

/// File name in the directory of the last good state. Absent while every object is served with its newest
/// text.
pub(crate) const FILE: &str = "last-good-versions.json";

/// An object served with an earlier text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastGoodVersion {
    /// Key of the object.
    pub key: ResourceKey,
    /// Active text.
    pub json: Arc<str>,
    /// Text in the store, which cannot be compiled.
    pub instead_of: Arc<str>,
}

/// All active versions, passed from the compiler to the task that saves them.
#[derive(Debug, Default)]
pub struct LastGoodVersions {
    state: Mutex<VersionsState>,
}

#[derive(Debug, Default)]
struct VersionsState {
    /// `None` until the configuration was compiled; the file of the predecessor stays valid until then.
    now: Option<Arc<[LastGoodVersion]>>,
    /// Revision that the versions belong to.
    revision: Revision,
    notifier: Weak<SaveNotifier>,
}

impl LastGoodVersions {
    /// Replaces the active versions, as of `revision`.
    pub fn report(&self, revision: Revision, versions: Vec<LastGoodVersion>) {
        let mut state = self.lock();
        state.revision = revision;
        // Most revisions change no version and need no save.
        if state.now.as_deref() == Some(&*versions) {
            return;
        }
        state.now = Some(versions.into());
        if let Some(notifier) = state.notifier.upgrade() {
            notifier.set(|news| news.changed = true);
        }
    }

    /// Registers the task to notify. The last registered one does the saving.
    pub(super) fn followed_by(&self, notifier: &Arc<SaveNotifier>) {
        self.lock().notifier = Arc::downgrade(notifier);
    }

    /// The active texts as resources.
    pub fn resources(&self) -> Vec<Resource> {
        let version = |version: &LastGoodVersion| Resource {
            kind: version.key.kind,
            id: version.key.id.clone(),
            json: version.json.clone(),
        };
        self.now().iter().flat_map(|now| now.iter().map(version)).collect()
    }

    /// Whether the revision was compiled.
    pub(super) fn has_result_for(&self, revision: Revision) -> bool {
        let state = self.lock();
        state.now.is_some() && state.revision >= revision
    }

    pub(super) fn now(&self) -> Option<Arc<[LastGoodVersion]>> {
        self.lock().now.clone()
    }

    fn lock(&self) -> MutexGuard<'_, VersionsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Saves the versions durably, or removes the file if there are none. Returns whether all were saved.
///
/// Versions of objects changed in `state` are left out; the compiler reports them again.
pub(super) fn save(
    directory: &Path,
    versions: &[LastGoodVersion],
    state: &StoreState,
    edge: &OptionalSeal,
) -> Result<bool, StoreError> {
    let path = directory.join(FILE);
    let entries = versions.iter().filter_map(|version| {
        let entry = state.get(version.key.kind, &version.key.id)?;
        // The text in the store has changed since: the version belongs to another broken text.
        let is_of_it = entry.json == version.instead_of;
        is_of_it.then(|| (version.key.clone(), StoreEntry { json: version.json.clone(), ..entry.clone() }))
    });
    let saved = StoreState::new(state.revision, entries, []);
    if saved.is_empty() {
        // An outdated file must not outlive the broken objects that it is about.
        forget(directory)?;
        return Ok(versions.is_empty());
    }
    // Written under another name first, so that a crash leaves the old file intact.
    let draft = directory.join(format!("{FILE}.new"));
    let mut file = directory::create_private(&draft)?;
    file.write_all(&text::whole(&saved, edge).0).map_err(|error| about(&draft, &error))?;
    drop(file);
    directory::rename_durably(&draft, &path)?;
    Ok(saved.len() == versions.len())
}

/// Active versions at the end of the previous process that the store alone cannot provide.
#[derive(Debug, Default)]
pub struct FormerState {
    /// Objects served with a text older than that of the store.
    versions: StoreState,
    /// Objects served with the text of the store, which may have changed between the processes.
    state: Option<StoreState>,
}

impl FormerState {
    /// Reads the file in `directory`. An unreadable file is logged and ignored.
    pub fn read(directory: &Path, seal: Option<Arc<dyn TextSeal>>) -> FormerState {
        let path = directory.join(FILE);
        let versions = LastGood::read(&path, &OptionalSeal(seal)).unwrap_or_else(|error| {
            if !is_missing(&error) {
                tracing::warn!(%error, "last good versions of broken objects lost");
            }
            StoreState::default()
        });
        FormerState { versions, state: None }
    }

    /// Adds the state that the store had at the end of the previous process.
    pub(crate) fn with(self, state: StoreState) -> FormerState {
        FormerState { state: Some(state), ..self }
    }

    /// Former texts of the objects of `now` that have another text now.
    ///
    /// Objects that were deleted and created again under the same id are left out.
    pub fn of(self, now: &StoreState) -> Vec<Resource> {
        let is_same = |key: &ResourceKey, entry: &StoreEntry| {
            now.get(key.kind, &key.id)
                // The same id after a deletion is another object.
                .is_some_and(|now| now.created == entry.created && now.json != entry.json)
        };
        let resource = |key: &ResourceKey, entry: &StoreEntry| Resource {
            kind: key.kind,
            id: key.id.clone(),
            json: entry.json.clone(),
        };
        let changed = self.state.iter().flat_map(|state| state.differences(now));
        let changed = changed.filter_map(|(key, before, _)| Some((key, before?)));
        // The version in force takes precedence over the broken text of the former store.
        let changed = changed.filter(|(key, _)| self.versions.get(key.kind, &key.id).is_none());
        let all = self.versions.entries().chain(changed);
        all.filter(|(key, entry)| is_same(key, entry)).map(|(key, entry)| resource(key, entry)).collect()
    }
}

/// Removes the file when the store that it belongs to is replaced.
pub(crate) fn forget(directory: &Path) -> Result<(), StoreError> {
    let path = directory.join(FILE);
    directory::remove_if_exists(&path).map_err(|error| about(&path, &error).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::{KEY_BYTES, Keyring};
    use crate::test_kit::{TestDir, key};

    fn state(entries: &[(&str, &str, u64)]) -> StoreState {
        let entry = |(id, json, created): &(&str, &str, u64)| {
            let (created, modified) = (Revision(*created), Revision(*created));
            (key(id), StoreEntry { json: Arc::from(*json), created, modified, expires_ms: None })
        };
        StoreState::new(Revision(9), entries.iter().map(entry), [])
    }

    fn version(id: &str, json: &str, instead_of: &str) -> LastGoodVersion {
        LastGoodVersion { key: key(id), json: json.into(), instead_of: instead_of.into() }
    }

    fn texts(former: FormerState, now: &StoreState) -> Vec<String> {
        former.of(now).iter().map(|one| format!("{} {}", one.id, one.json)).collect()
    }

    #[test]
    fn last_good_version_belongs_to_the_changed_object() {
        let (dir, sealed) =
            (TestDir::new(), OptionalSeal(Some(Arc::new(Keyring::new(&[[1; KEY_BYTES]]).unwrap()))));
        let now = state(&[("a", "bad", 1), ("b", "bad", 1), ("c", "bad", 1), ("d", "bad", 1)]);
        let all = ["a", "b", "c"].map(|id| version(id, "good", "bad"));
        let read = || FormerState::read(dir.path(), sealed.0.clone());
        assert!(texts(read(), &now).is_empty(), "nothing was kept yet");
        assert!(save(dir.path(), &all, &now, &sealed).unwrap());
        let text = std::fs::read_to_string(dir.join(FILE)).unwrap();
        assert!(text.lines().count() == 5 && !text.contains("\"good\""), "it is sealed: {text}");
        assert_eq!(texts(read(), &now), ["a good", "b good", "c good"]);
        let later = state(&[("a", "worse", 1), ("b", "bad", 2), ("c", "good", 1)]);
        assert_eq!(texts(read(), &later), ["a good"]);
        // A text equal to the store's former text belongs to an object that was not broken.
        let then =
            state(&[("a", "bad", 1), ("d", "bad", 1), ("e", "was", 1), ("f", "same", 1), ("g", "was", 1)]);
        let later = state(&[("a", "worse", 1), ("e", "is", 1), ("f", "same", 1), ("g", "is", 3)]);
        assert_eq!(texts(read().with(then), &later), ["a good", "e was"]);
    }

    #[test]
    fn versions_of_other_texts_are_left_out_and_an_empty_file_is_removed() {
        let (dir, plain) = (TestDir::new(), OptionalSeal::default());
        let now = state(&[("a", "worse", 1), ("b", "bad", 1)]);
        let all = [version("a", "good", "bad"), version("b", "good", "bad"), version("gone", "good", "bad")];
        assert!(!save(dir.path(), &all, &now, &plain).unwrap());
        assert_eq!(texts(FormerState::read(dir.path(), None), &now), ["b good"]);
        assert!(!save(dir.path(), &all[..1], &now, &plain).unwrap());
        assert!(!dir.join(FILE).exists());
        assert!(save(dir.path(), &[], &now, &plain).unwrap());
    }

    #[test]
    fn a_damaged_file_is_no_reason_not_to_start() {
        let (dir, now) = (TestDir::new(), state(&[("a", "bad", 1)]));
        save(dir.path(), &[version("a", "good", "bad")], &now, &OptionalSeal::default()).unwrap();
        let mut bytes = std::fs::read(dir.join(FILE)).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(dir.join(FILE), bytes).unwrap();
        assert!(texts(FormerState::read(dir.path(), None), &now).is_empty());
    }
}
