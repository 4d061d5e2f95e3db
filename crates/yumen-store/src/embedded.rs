//! The embedded store: one database file in the data directory, written by one process.
//!
//! Owns when the file is opened, and that memory and file agree after a failure; tables are `tables`' business.

mod backup;
mod encoding;
mod file;
mod format;
mod tables;
#[cfg(test)]
mod test_disk;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use redb::Database;

pub use backup::restore;

use crate::directory::{self, DataDir, FileId, about};
use crate::engine::{CommitBatch, StoreEngine, StoreMedium, now_ms};
use crate::last_good::{self, LastGoodVersions};
use crate::seal::{OptionalSeal, SealError, TextSeal};
use crate::state::{Revision, StoreCommit, StoreState};
use crate::store::StoreError;

/// The database file in the data directory.
pub const DATABASE: &str = "yumen.redb";

/// How much history is kept, of which the newest revision always is, and under what seal.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// At most so many revisions.
    pub revisions_max: usize,
    /// None older than this.
    pub revisions_age_max: Option<Duration>,
    /// At most so many bytes of them.
    pub history_bytes_max: u64,
    /// What seals the texts of resources on the disk; without it they lie there as they are.
    pub seal: Option<Arc<dyn TextSeal>>,
    /// What becomes of a directory that holds no store.
    pub absent: MissingStorePolicy,
    /// What is in force in place of broken objects, to be kept beside the last good state.
    pub versions: Arc<LastGoodVersions>,
}

/// What becomes of a directory that holds no store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingStorePolicy {
    /// An empty one is begun.
    Create,
    /// It is [`StoreError::Gone`]: somebody knows that there was one.
    Fail,
}

impl EmbeddedOptions {
    pub(crate) fn edge(&self) -> OptionalSeal {
        OptionalSeal(self.seal.clone())
    }
}

impl Default for EmbeddedOptions {
    fn default() -> EmbeddedOptions {
        EmbeddedOptions {
            revisions_max: 1000,
            revisions_age_max: None,
            history_bytes_max: 64 << 20,
            seal: None,
            absent: MissingStorePolicy::Create,
            versions: Arc::default(),
        }
    }
}

/// A store that survives the process, and the machine.
pub type EmbeddedStore = StoreEngine<EmbeddedMedium>;

/// Opens the database, the second time after a failure.
type Open = Box<dyn Fn(OpenCheck) -> Result<Database, redb::DatabaseError> + Send + Sync>;

/// How closely a file is looked at when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenCheck {
    /// Every page against its checksum: nobody knows what befell the file in the meantime.
    Full,
    /// As much as it needs: this process has just closed it.
    Quick,
}

/// The medium of the embedded store: a redb database.
pub struct EmbeddedMedium {
    place: PathBuf,
    open: Open,
    options: EmbeddedOptions,
    /// Closed after a failure, until the next use.
    database: RwLock<Option<Database>>,
    /// The batch that failed and may be in the file all the same.
    doubtful: Mutex<Option<CommitBatch>>,
    /// The file that was opened, where it is one.
    file: Option<FileId>,
    /// The newest revision that is certain; the file may hold one in doubt above it.
    durable_revision: AtomicU64,
    /// Dropped last, when the file is closed.
    _directory: Option<DataDir>,
}

impl EmbeddedMedium {
    /// The store in `directory`; where there is none, `options` say whether one is begun.
    ///
    /// Fails where a text cannot be opened with the keyring, where another process has it, where the file is damaged or from a newer version, and where
    /// there was a store but its file is gone; never begins anew in such a case.
    pub fn open(directory: impl AsRef<Path>, options: EmbeddedOptions) -> Result<EmbeddedStore, StoreError> {
        let directory = directory.as_ref();
        if options.absent == MissingStorePolicy::Fail && !holds_store(directory) {
            return Err(StoreError::Missing(format!("there is none in {}", directory.display())));
        }
        let directory = DataDir::lock(directory)?;
        let place = directory.file(DATABASE);
        if !directory::is_there(&place) {
            refuse_missing_store(&directory)?;
            file::create(&place)?;
        }
        file::check(&place)?;
        let path = place.clone();
        let open = Box::new(move |care| file::builder(care).open(&path));
        EmbeddedMedium::start(place, open, options, Some(directory))
    }

    fn start(
        place: PathBuf,
        open: Open,
        options: EmbeddedOptions,
        directory: Option<DataDir>,
    ) -> Result<EmbeddedStore, StoreError> {
        let (medium, state) = EmbeddedMedium::load(place, open, options, directory)?;
        StoreEngine::start(medium, state)
    }

    fn load(
        place: PathBuf,
        open: Open,
        options: EmbeddedOptions,
        directory: Option<DataDir>,
    ) -> Result<(EmbeddedMedium, StoreState), StoreError> {
        let (database, state) = guarded(&place, || {
            let database = open(OpenCheck::Full)?;
            format::migrate(&database)?;
            let state = tables::load(&database, &options.edge())?;
            Ok((database, state))
        })?;
        let (database, doubtful) = (RwLock::new(Some(database)), Mutex::default());
        let durable_revision = AtomicU64::new(state.revision.0);
        // Without a directory there is no file of that name.
        let file = directory.as_ref().map(|_| FileId::at(&place).map_err(|error| about(&place, &error)));
        let file = file.transpose()?;
        Ok((
            EmbeddedMedium {
                place,
                open,
                options,
                database,
                doubtful,
                file,
                durable_revision,
                _directory: directory,
            },
            state,
        ))
    }

    /// Does something with the database after nothing in it is in doubt any more.
    fn settled<T>(&self, work: impl FnOnce(&Database) -> tables::Result<T>) -> Result<T, StoreError> {
        self.settle(&mut self.doubtful())?;
        self.opened(work)
    }

    /// Does something with the database, which is opened first where a failure closed it, and closed by one.
    fn opened<T>(&self, work: impl FnOnce(&Database) -> tables::Result<T>) -> Result<T, StoreError> {
        loop {
            let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(open) = database.as_ref() {
                let result = guarded(&self.place, || work(open));
                drop(database);
                return result.inspect_err(|_| self.close());
            }
            drop(database);
            let mut held = self.database.write().unwrap_or_else(PoisonError::into_inner);
            if held.is_none() {
                self.check()?;
                *held = Some(guarded(&self.place, || Ok((self.open)(OpenCheck::Quick)?))?);
                tracing::info!(file = %self.place.display(), "store reopened after a failure");
            }
        }
    }

    /// Takes back what failed.
    ///
    /// It may have reached the disk, but everyone was told that it had not.
    fn settle(&self, doubtful: &mut Option<CommitBatch>) -> Result<(), StoreError> {
        let Some(batch) = doubtful.as_ref() else { return Ok(()) };
        self.opened(|database| tables::take_back(database, batch, &self.options.edge()))?;
        *doubtful = None;
        Ok(())
    }

    /// A database that failed serves no more. It holds the file's lock until it is dropped.
    fn close(&self) {
        *self.database.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn doubtful(&self) -> MutexGuard<'_, Option<CommitBatch>> {
        self.doubtful.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreMedium for EmbeddedMedium {
    fn persist(&self, batch: &CommitBatch) -> Result<(), StoreError> {
        // What fails before the write leaves nothing in doubt.
        self.check()?;
        self.settled(|_| Ok(()))?;
        let written = self.opened(|database| tables::write(database, batch, &self.options, now_ms()));
        match &written {
            Ok(()) => {
                let newest = batch.revisions.last().map_or(batch.base.revision, |newest| newest.revision);
                self.durable_revision.store(newest.0, Ordering::Release);
            }
            Err(error) => {
                tracing::error!(file = %self.place.display(), %error, "store write failed");
                let mut doubtful = self.doubtful();
                *doubtful = Some(batch.clone());
                // Where this fails too, the next write tries again.
                let _ = self.settle(&mut doubtful);
            }
        }
        written
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Arc<StoreCommit>>, StoreError> {
        let past_certain = self.durable_revision.load(Ordering::Acquire) + 1;
        let before = before.map_or(past_certain, |before| before.0.min(past_certain));
        self.opened(|database| tables::history(database, Revision(before), limit, &self.options.edge()))
    }

    fn backup(&self, to: &Path) -> Result<(), StoreError> {
        EmbeddedMedium::backup(self, to)
    }

    /// A file that lost its name takes every write, and is gone when the process ends.
    fn check(&self) -> Result<(), StoreError> {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        let Some(opened) = self.file else { return Ok(()) };
        let found = match FileId::at(&self.place) {
            Ok(found) if found == opened => return Ok(()),
            Ok(_) => "was replaced",
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => "was moved or deleted",
            Err(error) => return Err(about(&self.place, &error).into()),
        };
        Err(StoreError::Missing(format!(
            "{} {found} while the gateway runs, and what is written now would be lost when it ends; put the \
             file back, or save what is served with `yumen export`, start the gateway anew and import that",
            self.place.display()
        )))
    }
}

/// What shows that there was a store.
const TRACES: [&str; 3] = [last_good::FILE, last_good::PREVIOUS, backup::REPLACED];

/// Whether there is, or was, a store in a directory; makes nothing.
pub fn holds_store(directory: &Path) -> bool {
    [DATABASE].iter().chain(&TRACES).any(|name| directory::is_there(&directory.join(name)))
}

/// A file that is missing where others say that there was one is not a reason to begin anew.
fn refuse_missing_store(directory: &DataDir) -> Result<(), StoreError> {
    match TRACES.into_iter().find(|name| directory::is_there(&directory.file(name))) {
        None => Ok(()),
        Some(trace) => Err(StoreError::Corrupt(format!(
            "{} is missing, but {trace} shows that there was a store; restore a backup or {trace}, \
             or move {trace} away and start anew to begin with an empty store",
            directory.file(DATABASE).display()
        ))),
    }
}

/// Runs what uses the database; a panic on damaged bytes is an error as any other.
fn guarded<T>(place: &Path, work: impl FnOnce() -> tables::Result<T>) -> Result<T, StoreError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| store_error(place, error)),
        Err(_) => Err(StoreError::Corrupt(format!(
            "{}: unexpected data in the store file: corrupt, or written by another program",
            place.display()
        ))),
    }
}

fn store_error(place: &Path, error: redb::Error) -> StoreError {
    use std::io::{Error, ErrorKind};
    match error {
        redb::Error::Io(error)
            if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) =>
        {
            StoreError::Corrupt(format!("{}: {error}", place.display()))
        }
        redb::Error::Io(error) if error.get_ref().is_some_and(|inner| inner.is::<SealError>()) => {
            StoreError::Sealed(format!("{}: {error}", place.display()))
        }
        redb::Error::Io(error) => about(place, &error).into(),
        redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => directory::in_use(place),
        redb::Error::PreviousIo | redb::Error::DatabaseClosed | redb::Error::LockPoisoned(_) => {
            about(place, &Error::other(error.to_string())).into()
        }
        redb::Error::ValueTooLarge(_) => StoreError::Full(format!("{}: {error}", place.display())),
        redb::Error::Corrupted(what) => StoreError::Corrupt(format!("{}: {what}", place.display())),
        other => StoreError::Corrupt(format!("{}: {other}", place.display())),
    }
}
