//! The data directory: its lock, and files that are replaced as a whole.
//!
//! What is in the files it does not know.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::store::StoreError;

const LOCK: &str = "lock";

/// A data directory nobody else can have while this value lives.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    lock: File,
}

impl DataDir {
    /// Makes the directory if there is none, and locks it.
    pub(crate) fn lock(path: &Path) -> Result<DataDir, StoreError> {
        // Certificates' private keys and consumers' secrets will be in it.
        make_private_directory(path).map_err(|error| about(path, &error))?;
        let lock_path = path.join(LOCK);
        let mut options = private();
        let lock = options.truncate(false).open(&lock_path).map_err(|error| about(&lock_path, &error))?;
        match lock.try_lock() {
            Ok(()) => Ok(DataDir { path: path.to_owned(), lock }),
            Err(TryLockError::WouldBlock) => Err(in_use(path)),
            Err(TryLockError::Error(error)) => Err(about(&lock_path, &error).into()),
        }
    }

    /// The path of a file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // A process that is just being started has the file open too until it runs its own program: closing ours
        // alone would leave the directory locked for that long.
        let _ = self.lock.unlock();
    }
}

/// A new, empty file only its owner may read; what was there is gone.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    remove_if_there(path)?;
    private().create_new(true).open(path).map_err(|error| about(path, &error))
}

/// Puts a finished file in the place of another, durably.
pub(crate) fn rename_durably(draft: &Path, place: &Path) -> io::Result<()> {
    let put = File::open(draft).and_then(|file| file.sync_all()).and_then(|()| fs::rename(draft, place));
    put.and_then(|()| sync_parent(place)).map_err(|error| about(place, &error))
}

/// Gives a file a second name, in place of whatever had it; nothing happens where there is no file.
pub(crate) fn keep_as(path: &Path, kept: &Path) -> io::Result<()> {
    if !is_there(path) {
        return Ok(());
    }
    remove_if_there(kept)?;
    // Some file systems have no links; there the first name is missing until the new file is in place.
    let linked = fs::hard_link(path, kept).or_else(|_| fs::rename(path, kept));
    linked.map_err(|error| about(kept, &error))
}

pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(about(path, &error)),
        _ => Ok(()),
    }
}

/// Whether the name is taken, if only by a link that leads nowhere.
pub(crate) fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Which file a name leads to: another one of that name is not it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file `path` leads to now.
    pub(crate) fn at(path: &Path) -> io::Result<FileId> {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::metadata(path)?;
        Ok(FileId { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// `path` with something appended to its name.
pub(crate) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The same error, naming the file.
pub(crate) fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Another process has it.
pub(crate) fn in_use(path: &Path) -> StoreError {
    StoreError::InUse(format!(
        "{} is in use by another process; each Yumen needs one of its own",
        path.display()
    ))
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

pub(crate) fn make_private_directory(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(test)]
mod tests;
