//! Versions in force of objects whose newest text cannot be used, kept beside the last good state: the store has only
//! the text that is broken, so a process that begins would have nothing to put in its place.
//!
//! Knows texts and files; what is in force the compiler tells.

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

/// The file in the directory of the last good state; there only while it would say something.
pub(crate) const FILE: &str = "last-good-versions.json";

/// An object that is in force by a text it had before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastGoodVersion {
    /// The object.
    pub key: ResourceKey,
    /// The text in force.
    pub json: Arc<str>,
    /// The one the store has, which cannot be used.
    pub instead_of: Arc<str>,
}

/// All versions in force, on their way from who compiles to who keeps.
#[derive(Debug, Default)]
pub struct LastGoodVersions {
    told: Mutex<VersionsState>,
}

#[derive(Debug, Default)]
struct VersionsState {
    /// None until the configuration was compiled: what was kept by the process before stands until then.
    now: Option<Arc<[LastGoodVersion]>>,
    /// The revision they are of.
    revision: Revision,
    keeper: Weak<SaveNotifier>,
}

impl LastGoodVersions {
    /// As of a revision these are in force, and no others.
    pub fn tell(&self, revision: Revision, versions: Vec<LastGoodVersion>) {
        let mut told = self.lock();
        told.revision = revision;
        if told.now.as_deref() == Some(&*versions) {
            return;
        }
        told.now = Some(versions.into());
        if let Some(keeper) = told.keeper.upgrade() {
            keeper.set(|news| news.changed = true);
        }
    }

    /// Has a keeper hear of changes; the last one to ask is the one that keeps.
    pub(super) fn followed_by(&self, keeper: &Arc<SaveNotifier>) {
        self.lock().keeper = Arc::downgrade(keeper);
    }

    /// The texts in force.
    pub fn resources(&self) -> Vec<Resource> {
        let version = |version: &LastGoodVersion| Resource {
            kind: version.key.kind,
            id: version.key.id.clone(),
            json: version.json.clone(),
        };
        self.now().iter().flat_map(|now| now.iter().map(version)).collect()
    }

    /// Whether a revision was compiled.
    pub(super) fn is_told_of(&self, revision: Revision) -> bool {
        let told = self.lock();
        told.now.is_some() && told.revision >= revision
    }

    pub(super) fn now(&self) -> Option<Arc<[LastGoodVersion]>> {
        self.lock().now.clone()
    }

    fn lock(&self) -> MutexGuard<'_, VersionsState> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the file say what is in force, durably; takes it away where that is nothing. Whether it says all.
///
/// Left out is what `state` has otherwise by now: it is told of anew once that is compiled.
pub(super) fn save(
    directory: &Path,
    versions: &[LastGoodVersion],
    state: &StoreState,
    edge: &OptionalSeal,
) -> Result<bool, StoreError> {
    let place = directory.join(FILE);
    let entries = versions.iter().filter_map(|version| {
        let entry = state.get(version.key.kind, &version.key.id)?;
        let is_of_it = entry.json == version.instead_of;
        is_of_it.then(|| (version.key.clone(), StoreEntry { json: version.json.clone(), ..entry.clone() }))
    });
    let kept = StoreState::new(state.revision, entries, []);
    if kept.is_empty() {
        forget(directory)?;
        return Ok(versions.is_empty());
    }
    let draft = directory.join(format!("{FILE}.new"));
    let mut file = directory::create_private(&draft)?;
    file.write_all(&text::whole(&kept, edge).0).map_err(|error| about(&draft, &error))?;
    drop(file);
    directory::rename_durably(&draft, &place)?;
    Ok(kept.len() == versions.len())
}

/// What was in force when the process before ended, as far as the store alone cannot tell.
#[derive(Debug, Default)]
pub struct FormerState {
    /// By an older text than the store had then.
    versions: StoreState,
    /// By the text the store had then, which may have changed while nobody looked.
    state: Option<StoreState>,
}

impl FormerState {
    /// What was kept in `directory`. What cannot be read is told in the log and left out.
    pub fn read(directory: &Path, seal: Option<Arc<dyn TextSeal>>) -> FormerState {
        let place = directory.join(FILE);
        let versions = LastGood::read(&place, &OptionalSeal(seal)).unwrap_or_else(|error| {
            if !is_missing(&error) {
                tracing::warn!(%error, "last good versions of broken objects lost");
            }
            StoreState::default()
        });
        FormerState { versions, state: None }
    }

    /// With the state the store had then.
    pub(crate) fn with(self, state: StoreState) -> FormerState {
        FormerState { state: Some(state), ..self }
    }

    /// Texts that were in force of objects which have another one now. Not of those that were deleted in the
    /// meantime, be there others of their names.
    pub fn of(self, now: &StoreState) -> Vec<Resource> {
        let is_same = |key: &ResourceKey, entry: &StoreEntry| {
            now.get(key.kind, &key.id)
                .is_some_and(|now| now.created == entry.created && now.json != entry.json)
        };
        let resource = |key: &ResourceKey, entry: &StoreEntry| Resource {
            kind: key.kind,
            id: key.id.clone(),
            json: entry.json.clone(),
        };
        let changed = self.state.iter().flat_map(|state| state.differences(now));
        let changed = changed.filter_map(|(key, before, _)| Some((key, before?)));
        let changed = changed.filter(|(key, _)| self.versions.get(key.kind, &key.id).is_none());
        let all = self.versions.entries().chain(changed);
        all.filter(|(key, entry)| is_same(key, entry)).map(|(key, entry)| resource(key, entry)).collect()
    }
}

/// Takes away what was kept, where the store it was of is replaced.
pub(crate) fn forget(directory: &Path) -> Result<(), StoreError> {
    let place = directory.join(FILE);
    directory::remove_if_there(&place).map_err(|error| about(&place, &error).into())
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
    fn what_was_kept_is_of_the_object_that_has_another_text_now() {
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
        // A text of the state then is that of an object which was not broken.
        let then =
            state(&[("a", "bad", 1), ("d", "bad", 1), ("e", "was", 1), ("f", "same", 1), ("g", "was", 1)]);
        let later = state(&[("a", "worse", 1), ("e", "is", 1), ("f", "same", 1), ("g", "is", 3)]);
        assert_eq!(texts(read().with(then), &later), ["a good", "e was"]);
    }

    #[test]
    fn what_is_said_of_another_text_is_left_out_and_a_file_that_says_nothing_goes() {
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
