//! A log file that others may move away: what is written next goes into a new one under the old name.
//!
//! Knows files, nothing of what is in them. No signal is needed: the name is looked at before each write.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The file behind a name.
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    /// Opens it to append, or makes it.
    pub(crate) fn open(path: &Path) -> io::Result<LogFile> {
        Ok(LogFile { path: path.to_owned(), file: append_to(path)? })
    }

    /// Whether the name still leads to the file that is open.
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
        // To write alone would wait for a reader here, and fail whenever there is none (fifo(7)).
        options.read(true);
    }
    options.open(path)
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_current() {
            // Where no new one can be made, the old one still takes lines.
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
