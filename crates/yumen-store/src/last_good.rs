//! The last good state on disk: what a node runs on while its store cannot be reached.
//!
//! Knows files and states; must not know what kind of store the state came from.

mod saver;
#[cfg(test)]
mod tests;
mod text;
mod versions;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub use saver::LastGoodTask;
pub(crate) use versions::forget as forget_versions;
pub use versions::{FormerState, LastGoodVersion, LastGoodVersions};

use yumen_base::Problem;

use crate::directory::{self, about};
use crate::seal::{OptionalSeal, SealError};
use crate::state::StoreState;
use crate::store::StoreError;

/// The file in the data directory.
pub const FILE: &str = "last-good.json";
/// The one before it, for the case that the newest was damaged.
pub const PREVIOUS: &str = "last-good.json.previous";

/// Changes are appended to a file until they are as long as the state they follow, or as this.
const CHANGES_BYTES_MIN: u64 = 64 * 1024;

/// Saves states to a directory, and loads the newest that is whole.
///
/// The text is JSON, one value per line: the seal (version, bytes and digest of the state that follows), the
/// revision and the number of entries, the entries, the settings. What changed later stands behind it, one line per
/// save, each under a digest of itself and all before.
#[derive(Debug)]
pub struct LastGood;

impl LastGood {
    /// Makes `state` the last good one, durably; the one before is kept beside it, if it is whole.
    pub(crate) fn save(
        directory: &Path,
        state: &StoreState,
        edge: &OptionalSeal,
    ) -> Result<AppendableFile, StoreError> {
        let (place, draft) = (directory.join(FILE), directory.join(format!("{FILE}.new")));
        let (text, digest) = text::whole(state, edge);
        let mut file = directory::create_private(&draft)?;
        file.write_all(&text).map_err(|error| about(&draft, &error))?;
        drop(file);
        // A damaged one would take the place of the one that stood in for it.
        if fs::read(&place).is_ok_and(|before| text::is_whole(&before)) {
            directory::keep_as(&place, &directory.join(PREVIOUS))?;
        }
        directory::rename_durably(&draft, &place)?;
        let bytes = text.len() as u64;
        let bytes_max = bytes + bytes.max(CHANGES_BYTES_MIN);
        Ok(AppendableFile { place, state: state.clone(), digest, bytes, bytes_max })
    }

    /// The newest saved state that is whole, whatever is missing behind it.
    pub(crate) fn load(directory: &Path, edge: &OptionalSeal) -> Result<StoreState, StoreError> {
        LastGood::recover(directory, edge).map(|recovered| recovered.state)
    }

    /// The newest saved state that is whole; the error tells what is wrong with each file.
    pub(crate) fn recover(directory: &Path, edge: &OptionalSeal) -> Result<RecoveredState, StoreError> {
        LastGood::recover_file(&directory.join(FILE), edge).or_else(|newest| {
            // It is whole: one from before it is no substitute.
            if matches!(newest, StoreError::Sealed(_)) {
                return Err(newest);
            }
            let previous = LastGood::recover_file(&directory.join(PREVIOUS), edge);
            let previous = previous.map_err(|previous| match is_missing(&previous) {
                true => newest.clone(),
                false => StoreError::Corrupt(format!("{newest}; {previous}")),
            })?;
            tracing::warn!(reason = %newest, "last good state damaged, using the previous one");
            let RecoveredState { state, damage } = previous;
            let instead = format!("{newest}; {PREVIOUS} of revision {} is used instead", state.revision.0);
            let damage = damage.map_or(instead.clone(), |damage| format!("{instead}; {damage}"));
            Ok(RecoveredState { state, damage: Some(damage) })
        })
    }

    /// The state in one file, with the changes behind it up to the first that is not whole.
    pub(crate) fn read(path: &Path, edge: &OptionalSeal) -> Result<StoreState, StoreError> {
        LastGood::recover_file(path, edge).map(|recovered| recovered.state)
    }

    fn recover_file(path: &Path, edge: &OptionalSeal) -> Result<RecoveredState, StoreError> {
        let bytes = fs::read(path).map_err(|error| about(path, &error))?;
        let damaged = |found: String| StoreError::Corrupt(format!("{}: {found}", path.display()));
        let told = text::parse(&bytes).map_err(damaged)?;
        let damage = told.damage(path);
        if let Some(reason) = &damage {
            tracing::warn!(reason, "last good state incomplete, newest changes missing");
        }
        let state = opened(told.state, edge).map_err(|error| match error {
            SealError::Altered(_) => damaged(error.to_string()),
            without_key => StoreError::Sealed(format!("{}: {without_key}", path.display())),
        })?;
        Ok(RecoveredState { state, damage })
    }
}

/// A last good state as its files gave it.
#[derive(Debug, Clone)]
pub struct RecoveredState {
    /// The newest state that is whole.
    pub state: StoreState,
    /// What is known to be missing from it, and why.
    pub damage: Option<String>,
}

/// What is missing from the last good state in one file; `None` where it is whole, or the file holds none. Needs no key.
pub fn damage_of(path: &Path) -> Option<String> {
    text::parse(&fs::read(path).ok()?).ok()?.damage(path)
}

/// The problem of a node that serves a last good state with this damage.
pub fn damage_problem(damage: &str) -> Problem {
    Problem::error("store", "", format!("the last good state is incomplete: {damage}"))
        .hint("objects are missing until the store can be reached again or a backup is restored")
}

impl From<StoreState> for RecoveredState {
    fn from(state: StoreState) -> RecoveredState {
        RecoveredState { state, damage: None }
    }
}

/// A file that this process wrote, to which changes may be appended.
#[derive(Debug)]
pub(crate) struct AppendableFile {
    place: PathBuf,
    /// What it says.
    state: StoreState,
    /// What the next record continues.
    digest: String,
    bytes: u64,
    /// Before it grows longer, a new file is worth it.
    bytes_max: u64,
}

impl AppendableFile {
    /// What is saved.
    pub(crate) fn state(&self) -> &StoreState {
        &self.state
    }

    /// Appends what led to `state`, durably, and says so; or finds that a new file is worth it.
    ///
    /// A failure may leave half a record, behind which nothing may follow.
    pub(crate) fn append(&mut self, state: &StoreState, edge: &OptionalSeal) -> Result<bool, StoreError> {
        let (record, digest) = text::record(&self.state, state, edge, &self.digest);
        let bytes = self.bytes + record.len() as u64;
        if bytes > self.bytes_max {
            return Ok(false);
        }
        self.write(&record).map_err(|error| about(&self.place, &error))?;
        (self.state, self.digest, self.bytes) = (state.clone(), digest, bytes);
        Ok(true)
    }

    fn write(&self, record: &[u8]) -> io::Result<()> {
        // Opened each time: what was removed or replaced in the meantime is not written to.
        let mut file = OpenOptions::new().append(true).open(&self.place)?;
        if file.metadata()?.len() != self.bytes {
            return Err(io::Error::other("modified by another program"));
        }
        file.write_all(record)?;
        file.sync_data()
    }
}

fn is_missing(error: &StoreError) -> bool {
    matches!(error, StoreError::Io(error) if error.kind() == io::ErrorKind::NotFound)
}

/// The state with the texts as they were.
fn opened(state: StoreState, edge: &OptionalSeal) -> Result<StoreState, SealError> {
    let entries = state.entries().map(|(key, entry)| Ok((key.clone(), edge.opened(key, entry.clone())?)));
    let entries = entries.collect::<Result<Vec<_>, SealError>>()?;
    let settings = state.settings().map(|(name, value)| (name.clone(), value.clone()));
    Ok(StoreState::new(state.revision, entries, settings))
}
