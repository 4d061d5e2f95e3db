//! The embedded store: one database file in the data directory, written by one process.
//!
//! Owns opening the file and keeps memory and file consistent after a failure; `tables` owns the tables.

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

/// Retention of the history and sealing. The newest revision is always retained.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Maximum number of revisions.
    pub revisions_max: usize,
    /// Maximum age of a revision.
    pub revisions_age_max: Option<Duration>,
    /// Maximum size of the encoded history in bytes.
    pub history_bytes_max: u64,
    /// Seal for the texts of resources on disk; without one they are stored in plain text.
    pub seal: Option<Arc<dyn TextSeal>>,
    /// Policy for a directory without a store.
    pub absent: MissingStorePolicy,
    /// Active versions of broken objects, saved with the last good state.
    pub versions: Arc<LastGoodVersions>,
}

/// Policy for a directory without a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingStorePolicy {
    /// Create an empty store.
    Create,
    /// Fail with [`StoreError::Missing`]: the directory is known to have held a store.
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

/// A store that survives process and machine restarts.
pub type EmbeddedStore = StoreEngine<EmbeddedMedium>;

/// Opens the database, at start and again after a failure.
type Open = Box<dyn Fn(OpenCheck) -> Result<Database, redb::DatabaseError> + Send + Sync>;

/// Integrity check on open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenCheck {
    /// Verify the checksum of every page: other programs may have changed the file.
    Full,
    /// Skip the full check: this process has just closed the file.
    Quick,
}

/// The medium of the embedded store: a redb database.
pub struct EmbeddedMedium {
    path: PathBuf,
    open: Open,
    options: EmbeddedOptions,
    /// `None` after a failure, until the next use reopens the file.
    database: RwLock<Option<Database>>,
    /// A failed batch that may nevertheless be in the file.
    doubtful: Mutex<Option<CommitBatch>>,
    /// Identity of the opened file; `None` without a data directory.
    file: Option<FileId>,
    /// Newest revision known to be durable. The file may hold a doubtful one above it.
    durable_revision: AtomicU64,
    /// Directory lock. The last field, so that the lock is released after the file is closed.
    _directory: Option<DataDir>,
}

impl EmbeddedMedium {
    /// Opens the store in `directory`; `options.absent` decides whether a missing one is created.
    ///
    /// Fails without creating anything if:
    /// - the keyring lacks the key of a text,
    /// - another process has locked the directory,
    /// - the file is damaged or of a newer format,
    /// - the file is missing although the directory held a store.
    pub fn open(directory: impl AsRef<Path>, options: EmbeddedOptions) -> Result<EmbeddedStore, StoreError> {
        let directory = directory.as_ref();
        // Before the lock, which would create the directory.
        if options.absent == MissingStorePolicy::Fail && !holds_store(directory) {
            return Err(StoreError::Missing(format!("there is none in {}", directory.display())));
        }
        let directory = DataDir::lock(directory)?;
        let path = directory.file(DATABASE);
        if !directory::exists(&path) {
            // A missing file beside a last good state is damage and not a first start (decision 16).
            refuse_missing_store(&directory)?;
            file::create(&path)?;
        }
        // redb would try to repair a foreign or truncated file; this check refuses it first.
        file::check(&path)?;
        let opened_path = path.clone();
        let open = Box::new(move |care| file::builder(care).open(&opened_path));
        EmbeddedMedium::start(path, open, options, Some(directory))
    }

    fn start(
        path: PathBuf,
        open: Open,
        options: EmbeddedOptions,
        directory: Option<DataDir>,
    ) -> Result<EmbeddedStore, StoreError> {
        let (medium, state) = EmbeddedMedium::load(path, open, options, directory)?;
        StoreEngine::start(medium, state)
    }

    fn load(
        path: PathBuf,
        open: Open,
        options: EmbeddedOptions,
        directory: Option<DataDir>,
    ) -> Result<(EmbeddedMedium, StoreState), StoreError> {
        let (database, state) = guarded(&path, || {
            // Every page is verified, since its bytes are trusted afterwards.
            let database = open(OpenCheck::Full)?;
            // Before the texts are read, which have the form of this version.
            format::migrate(&database)?;
            let state = tables::load(&database, &options.edge())?;
            Ok((database, state))
        })?;
        let (database, doubtful) = (RwLock::new(Some(database)), Mutex::default());
        let durable_revision = AtomicU64::new(state.revision.0);
        // An in-memory database has no file to compare.
        let file = directory.as_ref().map(|_| FileId::at(&path).map_err(|error| about(&path, &error)));
        let file = file.transpose()?;
        Ok((
            EmbeddedMedium {
                path,
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

    /// Runs `work` on the database after undoing a doubtful batch.
    fn settled<T>(&self, work: impl FnOnce(&Database) -> tables::Result<T>) -> Result<T, StoreError> {
        // Readers must not see the doubtful batch, and writers must not build on it.
        self.settle(&mut self.doubtful())?;
        self.opened(work)
    }

    /// Runs `work` on the database. A failure closes the database; the next call reopens it.
    fn opened<T>(&self, work: impl FnOnce(&Database) -> tables::Result<T>) -> Result<T, StoreError> {
        loop {
            let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(open) = database.as_ref() {
                let result = guarded(&self.path, || work(open));
                drop(database);
                // redb refuses further use after an I/O error, so the next call opens the file anew.
                return result.inspect_err(|_| self.close());
            }
            drop(database);
            let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
            if database.is_none() {
                // A replaced or deleted file must not be opened: its state differs from the one in memory.
                self.check()?;
                *database = Some(guarded(&self.path, || Ok((self.open)(OpenCheck::Quick)?))?);
                tracing::info!(file = %self.path.display(), "store reopened after a failure");
            }
        }
    }

    /// Undoes a failed batch.
    ///
    /// The batch may have reached the disk although its proposals were reported as failed.
    fn settle(&self, doubtful: &mut Option<CommitBatch>) -> Result<(), StoreError> {
        let Some(batch) = doubtful.as_ref() else { return Ok(()) };
        self.opened(|database| tables::take_back(database, batch, &self.options.edge()))?;
        *doubtful = None;
        Ok(())
    }

    /// Closes a failed database. The file lock is held until the database is dropped.
    fn close(&self) {
        *self.database.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn doubtful(&self) -> MutexGuard<'_, Option<CommitBatch>> {
        self.doubtful.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreMedium for EmbeddedMedium {
    fn persist(&self, batch: &CommitBatch) -> Result<(), StoreError> {
        // An error before the write leaves no batch in doubt.
        // A write to a file without a name would succeed and be lost at exit.
        self.check()?;
        self.settled(|_| Ok(()))?;
        let written = self.opened(|database| tables::write(database, batch, &self.options, now_ms()));
        match &written {
            Ok(()) => {
                let newest = batch.revisions.last().map_or(batch.base.revision, |newest| newest.revision);
                // Pairs with the load in `history`.
                self.durable_revision.store(newest.0, Ordering::Release);
            }
            Err(error) => {
                tracing::error!(file = %self.path.display(), %error, "store write failed");
                let mut doubtful = self.doubtful();
                // States and commits are shared, so the clone copies little.
                *doubtful = Some(batch.clone());
                // If the undo fails too, the next write repeats it.
                let _ = self.settle(&mut doubtful);
            }
        }
        written
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Arc<StoreCommit>>, StoreError> {
        // A doubtful revision must not appear in the history.
        // Pairs with the store in `persist`.
        let past_certain = self.durable_revision.load(Ordering::Acquire) + 1;
        let before = before.map_or(past_certain, |before| before.0.min(past_certain));
        self.opened(|database| tables::history(database, Revision(before), limit, &self.options.edge()))
    }

    fn backup(&self, to: &Path) -> Result<(), StoreError> {
        EmbeddedMedium::backup(self, to)
    }

    /// Detects a moved or deleted file. Such a file accepts writes but its content is lost at process exit.
    fn check(&self) -> Result<(), StoreError> {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        // A database in memory has no name that could be lost.
        let Some(opened) = self.file else { return Ok(()) };
        let found = match FileId::at(&self.path) {
            Ok(found) if found == opened => return Ok(()),
            Ok(_) => "was replaced",
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => "was moved or deleted",
            Err(error) => return Err(about(&self.path, &error).into()),
        };
        Err(StoreError::Missing(format!(
            "{} {found} while the gateway runs, and writes would be lost when it ends; put the \
             file back, or run `yumen export`, restart the gateway and import the export",
            self.path.display()
        )))
    }
}

/// Files that prove that the directory held a store.
const TRACES: [&str; 3] = [last_good::FILE, last_good::PREVIOUS, backup::REPLACED];

/// Whether the directory holds or held a store. Creates no file.
pub fn holds_store(directory: &Path) -> bool {
    [DATABASE].iter().chain(&TRACES).any(|name| directory::exists(&directory.join(name)))
}

/// Fails if the database is missing although other files prove that it existed.
fn refuse_missing_store(directory: &DataDir) -> Result<(), StoreError> {
    // Any trace suffices: an empty store in its place would look like a success.
    match TRACES.into_iter().find(|name| directory::exists(&directory.file(name))) {
        None => Ok(()),
        Some(trace) => Err(StoreError::Corrupt(format!(
            "{} is missing, but {trace} shows that there was a store; restore a backup or {trace}, \
             or move {trace} away and start anew to begin with an empty store",
            directory.file(DATABASE).display()
        ))),
    }
}

/// Runs `work`; converts a panic on damaged data into [`StoreError::Corrupt`].
fn guarded<T>(path: &Path, work: impl FnOnce() -> tables::Result<T>) -> Result<T, StoreError> {
    // redb asserts invariants of its pages, and damaged ones may violate them.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| store_error(path, error)),
        Err(_) => Err(StoreError::Corrupt(format!(
            "{}: unexpected data in the store file: corrupt, or written by another program",
            path.display()
        ))),
    }
}

fn store_error(path: &Path, error: redb::Error) -> StoreError {
    use std::io::{Error, ErrorKind};
    match error {
        redb::Error::Io(error)
            if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) =>
        {
            StoreError::Corrupt(format!("{}: {error}", path.display()))
        }
        redb::Error::Io(error) if error.get_ref().is_some_and(|inner| inner.is::<SealError>()) => {
            StoreError::Sealed(format!("{}: {error}", path.display()))
        }
        redb::Error::Io(error) => about(path, &error).into(),
        redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => directory::in_use(path),
        // Consequences of an earlier failure: the file itself is not known to be damaged.
        redb::Error::PreviousIo | redb::Error::DatabaseClosed | redb::Error::LockPoisoned(_) => {
            about(path, &Error::other(error.to_string())).into()
        }
        redb::Error::ValueTooLarge(_) => StoreError::Full(format!("{}: {error}", path.display())),
        redb::Error::Corrupted(what) => StoreError::Corrupt(format!("{}: {what}", path.display())),
        // Remaining errors of redb concern the structure of the file.
        other => StoreError::Corrupt(format!("{}: {other}", path.display())),
    }
}
