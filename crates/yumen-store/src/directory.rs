//! The data directory: its lock, and atomically replaced files.
//!
//! Independent of the content of the files.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::store::StoreError;

const LOCK: &str = "lock";

/// A data directory locked against other processes while the value lives.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    lock: File,
}

impl DataDir {
    /// Creates the directory if necessary, and locks it.
    pub(crate) fn lock(path: &Path) -> Result<DataDir, StoreError> {
        // Mode 0700: the directory will contain private keys and secrets.
        make_private_directory(path).map_err(|error| about(path, &error))?;
        let lock_path = path.join(LOCK);
        let mut options = private();
        let lock = options.truncate(false).open(&lock_path).map_err(|error| about(&lock_path, &error))?;
        // Without waiting: a second gateway on one directory is a mistake to report.
        match lock.try_lock() {
            Ok(()) => Ok(DataDir { path: path.to_owned(), lock }),
            Err(TryLockError::WouldBlock) => Err(in_use(path)),
            Err(TryLockError::Error(error)) => Err(about(&lock_path, &error).into()),
        }
    }

    /// Path of a file in the directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // A child between `fork` and `exec` shares the open file. Closing this descriptor alone would leave
        // the directory locked until the child executes its program.
        let _ = self.lock.unlock();
    }
}

/// Creates an empty file with mode 0600; removes an existing one.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    remove_if_exists(path)?;
    private().create_new(true).open(path).map_err(|error| about(path, &error))
}

/// Renames a finished file into place, durably.
pub(crate) fn rename_durably(draft: &Path, path: &Path) -> io::Result<()> {
    // The content first: after a crash the name must never refer to an empty file.
    let put = File::open(draft).and_then(|file| file.sync_all()).and_then(|()| fs::rename(draft, path));
    // The rename itself is durable only with the directory.
    put.and_then(|()| sync_parent(path)).map_err(|error| about(path, &error))
}

/// Gives a file a second name, replacing an existing file of that name. Without a file, does nothing.
pub(crate) fn keep_as(path: &Path, copy: &Path) -> io::Result<()> {
    if !exists(path) {
        return Ok(());
    }
    // `link` does not replace an existing name.
    remove_if_exists(copy)?;
    // File systems without hard links rename instead; the first name is then missing until the new file is in
    // place.
    let linked = fs::hard_link(path, copy).or_else(|_| fs::rename(path, copy));
    linked.map_err(|error| about(copy, &error))
}

pub(crate) fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(about(path, &error)),
        _ => Ok(()),
    }
}

/// Whether the name exists, including a dangling link.
pub(crate) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Identity of a file, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Identity of the file that `path` currently refers to.
    pub(crate) fn at(path: &Path) -> io::Result<FileId> {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::metadata(path)?;
        Ok(FileId { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// Appends `suffix` to the file name of `path`.
pub(crate) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Adds the path to an error.
pub(crate) fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Error for a directory or file locked by another process.
pub(crate) fn in_use(path: &Path) -> StoreError {
    StoreError::InUse(format!("{} is in use by another process; each gateway needs its own", path.display()))
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    // At creation, not by a later `chmod`, so that there is no moment with wider access.
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
