//! The last good state on disk, which a node serves while its store cannot be opened.
//!
//! Owns the files and their recovery; independent of the kind of store that the state came from.

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

/// File name in the data directory.
pub const FILE: &str = "last-good.json";
/// Name of the previous file, used if the newest is damaged.
pub const PREVIOUS: &str = "last-good.json.previous";

/// Minimum bytes of changes per file. Appending stops once the changes exceed this and the size of the state.
const CHANGES_BYTES_MIN: u64 = 64 * 1024;

/// Saves states to a directory and loads the newest intact one.
///
/// The text is JSON, one value per line:
/// - the seal: format version, bytes and SHA-256 of the state that follows,
/// - the revision and the number of entries,
/// - the entries,
/// - the settings,
/// - one line per later save, each with a digest of itself and of all lines before it.
#[derive(Debug)]
pub struct LastGood;

impl LastGood {
    /// Writes `state` durably as the last good state; the previous file is retained if it is intact.
    pub(crate) fn save(
        directory: &Path,
        state: &StoreState,
        edge: &OptionalSeal,
    ) -> Result<AppendableFile, StoreError> {
        let (path, draft) = (directory.join(FILE), directory.join(format!("{FILE}.new")));
        let (text, digest) = text::whole(state, edge);
        let mut file = directory::create_private(&draft)?;
        file.write_all(&text).map_err(|error| about(&draft, &error))?;
        drop(file);
        // A damaged file must not replace the previous one, which may be the only intact copy.
        if fs::read(&path).is_ok_and(|before| text::is_whole(&before)) {
            directory::keep_as(&path, &directory.join(PREVIOUS))?;
        }
        directory::rename_durably(&draft, &path)?;
        let bytes = text.len() as u64;
        // With records as long as the state, a change costs only its own size (decision 16).
        let bytes_max = bytes + bytes.max(CHANGES_BYTES_MIN);
        Ok(AppendableFile { path, state: state.clone(), digest, bytes, bytes_max })
    }

    /// Returns the newest intact state, even if later changes are missing.
    pub(crate) fn load(directory: &Path, edge: &OptionalSeal) -> Result<StoreState, StoreError> {
        LastGood::recover(directory, edge).map(|recovered| recovered.state)
    }

    /// Returns the newest intact state and its damage. The error names the fault of each file.
    pub(crate) fn recover(directory: &Path, edge: &OptionalSeal) -> Result<RecoveredState, StoreError> {
        LastGood::recover_file(&directory.join(FILE), edge).or_else(|newest| {
            // The newest file is intact but its key is missing. An older state is no substitute.
            if matches!(newest, StoreError::Sealed(_)) {
                return Err(newest);
            }
            let previous = LastGood::recover_file(&directory.join(PREVIOUS), edge);
            // A first save has no previous file; its absence is no second fault.
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

    /// Returns the state of one file, with its changes up to the first damaged record.
    pub(crate) fn read(path: &Path, edge: &OptionalSeal) -> Result<StoreState, StoreError> {
        LastGood::recover_file(path, edge).map(|recovered| recovered.state)
    }

    fn recover_file(path: &Path, edge: &OptionalSeal) -> Result<RecoveredState, StoreError> {
        let bytes = fs::read(path).map_err(|error| about(path, &error))?;
        let damaged = |found: String| StoreError::Corrupt(format!("{}: {found}", path.display()));
        let parsed = text::parse(&bytes).map_err(damaged)?;
        let damage = parsed.damage(path);
        if let Some(reason) = &damage {
            tracing::warn!(reason, "last good state incomplete, newest changes missing");
        }
        let state = opened(parsed.state, edge).map_err(|error| match error {
            SealError::Altered(_) => damaged(error.to_string()),
            without_key => StoreError::Sealed(format!("{}: {without_key}", path.display())),
        })?;
        Ok(RecoveredState { state, damage })
    }
}

/// The newest intact state that a [`LastGoodTask`] saved in `directory`.
///
/// # Errors
///
/// No file, a damaged one, or a seal without its key.
pub fn load_last_good(
    directory: &Path,
    seal: Option<std::sync::Arc<dyn crate::seal::TextSeal>>,
) -> Result<StoreState, StoreError> {
    LastGood::load(directory, &OptionalSeal(seal))
}

/// A last good state as recovered from its files.
#[derive(Debug, Clone)]
pub struct RecoveredState {
    /// Newest intact state.
    pub state: StoreState,
    /// Description of missing changes, with the reason; `None` if none are missing.
    pub damage: Option<String>,
}

/// Damage of the last good state in one file; `None` if it is intact or unreadable. Needs no key.
pub fn damage_of(path: &Path) -> Option<String> {
    text::parse(&fs::read(path).ok()?).ok()?.damage(path)
}

/// The problem reported by a node that serves a damaged last good state.
pub fn damage_problem(damage: &str) -> Problem {
    Problem::error("store", "", format!("the last good state is incomplete: {damage}"))
        .hint("objects are missing until the store can be reached again or a backup is restored")
}

impl From<StoreState> for RecoveredState {
    fn from(state: StoreState) -> RecoveredState {
        RecoveredState { state, damage: None }
    }
}

/// A file written by this process, to which changes may be appended.
#[derive(Debug)]
pub(crate) struct AppendableFile {
    path: PathBuf,
    /// State as of the last record.
    state: StoreState,
    /// Digest that the next record continues.
    digest: String,
    bytes: u64,
    /// Size beyond which a new file is written.
    bytes_max: u64,
}

impl AppendableFile {
    /// State as of the last record.
    pub(crate) fn state(&self) -> &StoreState {
        &self.state
    }

    /// Appends the changes that lead to `state`, durably. Returns `false` if a new file is due.
    ///
    /// A failure may leave a partial record, so nothing may be appended after an error.
    pub(crate) fn append(&mut self, state: &StoreState, edge: &OptionalSeal) -> Result<bool, StoreError> {
        let (record, digest) = text::record(&self.state, state, edge, &self.digest);
        let bytes = self.bytes + record.len() as u64;
        if bytes > self.bytes_max {
            return Ok(false);
        }
        self.write(&record).map_err(|error| about(&self.path, &error))?;
        // Only after the write, so that a failed record is not continued.
        (self.state, self.digest, self.bytes) = (state.clone(), digest, bytes);
        Ok(true)
    }

    fn write(&self, record: &[u8]) -> io::Result<()> {
        // Opened for every record: a file that was removed or replaced meanwhile must not be written.
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        // Appending after foreign bytes would break the chain of digests.
        if file.metadata()?.len() != self.bytes {
            return Err(io::Error::other("modified by another program"));
        }
        file.write_all(record)?;
        // The length is metadata that `fdatasync` includes.
        file.sync_data()
    }
}

fn is_missing(error: &StoreError) -> bool {
    matches!(error, StoreError::Io(error) if error.kind() == io::ErrorKind::NotFound)
}

/// Returns the state with unsealed texts.
fn opened(state: StoreState, edge: &OptionalSeal) -> Result<StoreState, SealError> {
    let entries = state.entries().map(|(key, entry)| Ok((key.clone(), edge.opened(key, entry.clone())?)));
    let entries = entries.collect::<Result<Vec<_>, SealError>>()?;
    let settings = state.settings().map(|(name, value)| (name.clone(), value.clone()));
    Ok(StoreState::new(state.revision, entries, settings))
}
