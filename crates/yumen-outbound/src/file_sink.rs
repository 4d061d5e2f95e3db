//! Sinks that are files. A file is opened again when its path names another one, so rotation needs no signal.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use yumen_plugin::SinkRequest;

use crate::connector::SendFault;

/// A file that entries are appended to.
pub(crate) struct FileSink {
    path: String,
    file: Option<File>,
}

impl FileSink {
    pub(crate) fn new(path: String) -> FileSink {
        FileSink { path, file: None }
    }

    /// Appends the body in one write.
    pub(crate) async fn send(&mut self, request: &SinkRequest) -> Result<(), SendFault> {
        let (path, file, text) = (self.path.clone(), self.file.take(), request.body.concat());
        // A disk may stall, and the control runtime must not.
        let written = tokio::task::spawn_blocking(move || append(&path, file, &text)).await;
        let failed = |error: String| {
            SendFault::Failed(format!("failed to open file: {}, error info: {error}", self.path))
        };
        match written {
            Ok(Ok(file)) => {
                self.file = Some(file);
                Ok(())
            }
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

fn append(path: &str, open: Option<File>, text: &[u8]) -> io::Result<File> {
    let identity = |metadata: io::Result<std::fs::Metadata>| {
        metadata.ok().map(|metadata| (metadata.dev(), metadata.ino()))
    };
    let current = open.filter(|file| identity(std::fs::metadata(path)) == identity(file.metadata()));
    let mut file = match current {
        Some(file) => file,
        None => {
            let mut options = OpenOptions::new();
            options.create(true).append(true);
            if std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo()) {
                // A write-only open of a FIFO blocks until a reader opens it (fifo(7)).
                options.read(true);
            }
            options.open(path)?
        }
    };
    file.write_all(text)?;
    Ok(file)
}
