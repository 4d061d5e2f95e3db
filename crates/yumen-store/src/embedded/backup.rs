//! Backups of the store while it runs, and their restoration.
//!
//! A backup is a database file that any Yumen of the same format version opens.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::{DATABASE, EmbeddedMedium, OpenCheck, file, format, guarded, tables};
use crate::directory::{self, DataDir, about};
use crate::engine::now_ms;
use crate::last_good::{LastGood, forget_versions};
use crate::seal::{OptionalSeal, TextSeal};
use crate::state::{Authorship, Revision, StoreCommit, StoreState};
use crate::store::StoreError;

/// Name of the file that a restore replaced.
pub(super) const REPLACED: &str = "yumen.redb.replaced";

/// Author of the revision that a restore appends.
const RESTORE: &str = "restore";

impl EmbeddedMedium {
    /// Writes all entries, settings and history, as of one moment, to the file `to`.
    ///
    /// Writes continue meanwhile. The file is renamed to `to` once it is complete, and replaces an existing
    /// file.
    pub fn backup(&self, to: &Path) -> Result<(), StoreError> {
        // The copy would replace the file under the running store.
        if is_same(to, &self.path) {
            let message = "the target of a backup must not be the store itself";
            return Err(about(to, &io::Error::new(io::ErrorKind::InvalidInput, message)).into());
        }
        let draft = directory::suffixed(to, ".partial");
        // Two results, because an error of the copy must not be reported as one of the store's file.
        let copied = self.settled(|source| Ok(file::write(&draft, |copy| tables::copy(source, copy))))?;
        copied?;
        Ok(directory::rename_durably(&draft, to)?)
    }
}

/// Replaces the store in `directory` with a backup or a `last-good.json`, and returns its state.
///
/// Fails while a process has locked the directory. Nothing is changed until all of `from` was read and opened
/// with `seal`. The replaced file is kept as `yumen.redb.replaced`.
///
/// An empty revision above both histories is appended. No revision number is reused, so a client's cached
/// revision never matches another state.
pub fn restore(
    from: &Path,
    directory: &Path,
    seal: Option<Arc<dyn TextSeal>>,
) -> Result<StoreState, StoreError> {
    let edge = OptionalSeal(seal);
    let directory = DataDir::lock(directory)?;
    let path = directory.file(DATABASE);
    let draft = directory::suffixed(&path, ".restoring");
    // Found by content, since operators rename backups.
    let state = match is_last_good(from)? {
        true => from_last_good(from, &draft, &edge),
        false => from_backup(from, &draft, &edge),
    };
    // Before the draft replaces the store whose number it needs.
    let state = state.and_then(|state| match reached(&directory, &edge) {
        Some(replaced) => go_on(state, replaced, &draft),
        None => Ok(state),
    });
    let state = state.inspect_err(|_| drop(directory::remove_if_exists(&draft)))?;
    // The replaced file gets its second name first: a crash before the rename leaves the old store in place.
    directory::keep_as(&path, &directory.file(REPLACED))?;
    directory::rename_durably(&draft, &path)?;
    // The old last good state belongs to the replaced store and must not come back.
    LastGood::save(directory.path(), &state, &edge)?;
    // The versions in force belonged to the replaced texts.
    forget_versions(directory.path())?;
    Ok(state)
}

/// Newest revision of the replaced store, as far as its files are readable.
fn reached(directory: &DataDir, edge: &OptionalSeal) -> Option<Revision> {
    let path = directory.file(DATABASE);
    let stored = file::check(&path).and_then(|()| {
        guarded(&path, || {
            // The full check keeps a damaged file from being modified by recovery.
            let database = file::builder(OpenCheck::Full).open(&path)?;
            let revision = tables::revision_of(&database)?;
            database.close()?;
            Ok(revision)
        })
    });
    let saved = LastGood::load(directory.path(), edge).map(|state| state.revision);
    // Either file may be the newer one: the last good state trails, or the store is unreadable.
    stored.into_iter().chain(saved).max()
}

/// Appends an empty revision above `replaced` to the draft of a store.
fn go_on(state: StoreState, replaced: Revision, draft: &Path) -> Result<StoreState, StoreError> {
    let revision = Revision(state.revision.max(replaced).0 + 1);
    let reason = Some(format!("the store of revision {} was restored", state.revision.0));
    let by = Authorship { author: RESTORE.to_owned(), reason };
    let commit = StoreCommit { revision, time_ms: now_ms(), by, changes: Vec::new() };
    guarded(draft, || {
        let database = file::builder(OpenCheck::Quick).open(draft)?;
        tables::skip_revisions(&database, &commit)?;
        Ok(database.close()?)
    })?;
    Ok(state.with(revision, []))
}

fn from_last_good(from: &Path, draft: &Path, edge: &OptionalSeal) -> Result<StoreState, StoreError> {
    let state = LastGood::read(from, edge)?;
    file::write(draft, |database| tables::initialise(database, &state, edge))?;
    Ok(state)
}

fn from_backup(from: &Path, draft: &Path, edge: &OptionalSeal) -> Result<StoreState, StoreError> {
    file::check(from)?;
    copy_unused(from, draft)?;
    guarded(from, || {
        let database = file::builder(OpenCheck::Full).open(draft)?;
        format::migrate(&database)?;
        let state = tables::load(&database, edge)?;
        // All of it, before anything is replaced.
        tables::verify_history(&database, edge)?;
        database.close()?;
        Ok(state)
    })
}

/// Copies a file that no process writes. A file in use could be copied in two states.
fn copy_unused(from: &Path, draft: &Path) -> Result<(), StoreError> {
    let mut source = File::open(from).map_err(|error| about(from, &error))?;
    // redb holds an exclusive lock on an open file.
    match source.try_lock_shared() {
        Err(TryLockError::WouldBlock) => return Err(directory::in_use(from)),
        Err(TryLockError::Error(error)) => return Err(about(from, &error).into()),
        Ok(()) => {}
    }
    let mut copy = directory::create_private(draft)?;
    io::copy(&mut source, &mut copy).map_err(|error| about(draft, &error))?;
    Ok(copy.sync_all().map_err(|error| about(draft, &error))?)
}

/// A redb file begins with a magic number, a last good state with a brace.
fn is_last_good(from: &Path) -> Result<bool, StoreError> {
    let mut first = [0];
    let read = File::open(from).and_then(|mut file| file.read(&mut first));
    Ok(read.map_err(|error| about(from, &error))? == 1 && first == *b"{")
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::canonicalize(one), fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
