//! Database files: opened with bounds, and renamed into place only when complete.
//!
//! Independent of the content of the tables.

use std::fs;
use std::path::Path;

use redb::{Builder, Database};

use super::{OpenCheck, guarded, tables};
use crate::directory::{self, about};
use crate::seal::OptionalSeal;
use crate::state::StoreState;
use crate::store::StoreError;

/// Size of the page cache. History is read page by page and all other data is in memory.
const CACHE_BYTES: usize = 16 << 20;

pub(super) fn builder(care: OpenCheck) -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(care == OpenCheck::Full);
    builder
}

/// Refuses a path that cannot be a database, before opening it for writing.
pub(super) fn check(path: &Path) -> Result<(), StoreError> {
    let metadata = fs::metadata(path).map_err(|error| about(path, &error))?;
    let found = match metadata.is_file() {
        true if metadata.len() > 0 => return Ok(()),
        true => "it is empty, which a store never is",
        false => "it is not a regular file",
    };
    Err(StoreError::Corrupt(format!("{}: {found}", path.display())))
}

/// Creates an empty database at `path`.
pub(super) fn create(path: &Path) -> Result<(), StoreError> {
    let draft = directory::suffixed(path, ".new");
    write(&draft, |database| tables::initialise(database, &StoreState::default(), &OptionalSeal::default()))?;
    Ok(directory::rename_durably(&draft, path)?)
}

/// Creates a database file, fills and closes it. A failure removes the file.
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
        // The first error is the cause; an error of the removal would hide it.
        let _ = directory::remove_if_exists(path);
    }
    written
}
