//! Log file that survives rotation: after a rename, the next write opens a new file under the old name.
//!
//! Compares the inode of the path before each write, so no signal is needed. Has no knowledge of the content.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// An open log file with its path.
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    /// Opens the file for appending, and creates it if it is missing.
    pub(crate) fn open(path: &Path) -> io::Result<LogFile> {
        Ok(LogFile { path: path.to_owned(), file: append_to(path)? })
    }

    /// Whether the path still refers to the open file.
    fn is_current(&self) -> bool {
        let identity = |metadata: io::Result<std::fs::Metadata>| {
            metadata.ok().map(|metadata| (metadata.dev(), metadata.ino()))
        };
        identity(std::fs::metadata(&self.path)) == identity(self.file.metadata())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo()) {
        // A write-only open of a FIFO blocks until a reader opens it, and writes without a reader fail
        // (fifo(7)).
        options.read(true);
    }
    options.open(path)
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_current() {
            // If the new file cannot be created, the old one takes the lines.
            match append_to(&self.path) {
                Ok(file) => self.file = file,
                Err(error) => tracing::warn!(path = %self.path.display(), %error, "log cannot be reopened"),
            }
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
