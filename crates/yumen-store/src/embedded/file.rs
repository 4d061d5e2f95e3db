//! Database files as files: opened with bounds, made whole before they get their name.
//!
//! Must not know what the tables hold.

use std::fs;
use std::path::Path;

use redb::{Builder, Database};

use super::{OpenCheck, guarded, tables};
use crate::directory::{self, about};
use crate::seal::OptionalSeal;
use crate::state::StoreState;
use crate::store::StoreError;

/// History is read page by page and everything else is in memory: little need to be cached.
const CACHE_BYTES: usize = 16 << 20;

pub(super) fn builder(care: OpenCheck) -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(care == OpenCheck::Full);
    builder
}

/// Refuses what is no database at all before it is opened for writing.
pub(super) fn check(path: &Path) -> Result<(), StoreError> {
    let metadata = fs::metadata(path).map_err(|error| about(path, &error))?;
    let found = match metadata.is_file() {
        true if metadata.len() > 0 => return Ok(()),
        true => "it is empty, which a store never is",
        false => "it is not a regular file",
    };
    Err(StoreError::Corrupt(format!("{}: {found}", path.display())))
}

/// An empty database at `path`.
pub(super) fn create(path: &Path) -> Result<(), StoreError> {
    let draft = directory::suffixed(path, ".new");
    write(&draft, |database| tables::initialise(database, &StoreState::default(), &OptionalSeal::default()))?;
    Ok(directory::rename_durably(&draft, path)?)
}

/// A new database file, filled and closed; nothing is left of it where that fails.
pub(super) fn write(
    path: &Path,
    fill: impl FnOnce(&Database) -> tables::Result<()>,
) -> Result<(), StoreError> {
    drop(directory::create_private(path)?);
    let written = guarded(path, || {
        let database = builder(OpenCheck::Quick).create(path)?;
        fill(&database)?;
        Ok(database.close()?)
    });
    if written.is_err() {
        // The first error is the one worth telling.
        let _ = directory::remove_if_there(path);
    }
    written
}
