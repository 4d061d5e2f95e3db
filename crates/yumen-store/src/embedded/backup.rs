//! Copies of the store while it runs, and the way back from one.
//!
//! A backup is a database file of its own, which any Yumen of that format opens.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::{Care, DATABASE, Embedded, file, format, guarded, tables};
use crate::directory::{self, DataDir, about};
use crate::last_good::{LastGood, forget_versions};
use crate::seal::{Edge, Seal};
use crate::state::State;
use crate::store::StoreError;

/// What the file a restore replaced is called.
pub(super) const REPLACED: &str = "yumen.redb.replaced";

impl Embedded {
    /// Writes all entries, settings and history, as of one moment, to the file `to`.
    ///
    /// Writes go on meanwhile. The file appears when it is whole, in place of what had its name.
    pub fn backup(&self, to: &Path) -> Result<(), StoreError> {
        if is_same(to, &self.place) {
            let message = "a backup cannot take the place of the store itself";
            return Err(about(to, &io::Error::new(io::ErrorKind::InvalidInput, message)).into());
        }
        let draft = directory::suffixed(to, ".partial");
        // The copy's own errors must not be told as those of the store's file, hence two results.
        let copied = self.settled(|source| Ok(file::write(&draft, |copy| tables::copy(source, copy))))?;
        copied?;
        Ok(directory::put_in_place(&draft, to)?)
    }
}

/// Puts a backup, or a `last-good.json`, in place of the store in `directory`, and gives its state.
///
/// Refuses while a process has the directory, and touches nothing before everything in `from` was read
/// and opened with `seal`. The replaced file is kept as `yumen.redb.replaced`.
pub fn restore(from: &Path, directory: &Path, seal: Option<Arc<dyn Seal>>) -> Result<State, StoreError> {
    let edge = Edge(seal);
    let directory = DataDir::lock(directory)?;
    let place = directory.file(DATABASE);
    let draft = directory::suffixed(&place, ".restoring");
    let state = match is_last_good(from)? {
        true => from_last_good(from, &draft, &edge),
        false => from_backup(from, &draft, &edge),
    };
    let state = state.inspect_err(|_| drop(directory::remove_if_there(&draft)))?;
    directory::keep_as(&place, &directory.file(REPLACED))?;
    directory::put_in_place(&draft, &place)?;
    LastGood::save(directory.path(), &state, &edge)?;
    forget_versions(directory.path())?;
    Ok(state)
}

fn from_last_good(from: &Path, draft: &Path, edge: &Edge) -> Result<State, StoreError> {
    let state = LastGood::read(from, edge)?;
    file::write(draft, |database| tables::initialise(database, &state, edge))?;
    Ok(state)
}

fn from_backup(from: &Path, draft: &Path, edge: &Edge) -> Result<State, StoreError> {
    file::check(from)?;
    copy_unused(from, draft)?;
    guarded(from, || {
        let database = file::builder(Care::Whole).open(draft)?;
        format::migrate(&database)?;
        let state = tables::load(&database, edge)?;
        tables::verify_history(&database, edge)?;
        database.close()?;
        Ok(state)
    })
}

/// Copies a file no process writes to: of one in use, a copy may be of two moments.
fn copy_unused(from: &Path, draft: &Path) -> Result<(), StoreError> {
    let mut source = File::open(from).map_err(|error| about(from, &error))?;
    match source.try_lock_shared() {
        Err(TryLockError::WouldBlock) => return Err(directory::in_use(from)),
        Err(TryLockError::Error(error)) => return Err(about(from, &error).into()),
        Ok(()) => {}
    }
    let mut copy = directory::create_private(draft)?;
    io::copy(&mut source, &mut copy).map_err(|error| about(draft, &error))?;
    Ok(copy.sync_all().map_err(|error| about(draft, &error))?)
}

/// A database begins with a magic number, the other with a brace.
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
