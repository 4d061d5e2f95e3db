//! Public documents of an earlier run, saved next to the last good state: a node that starts while a server is down
//! uses them. Secrets are never written.
//!
//! Owns the file; makes no requests.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::endpoints::inputs::{KnownDocument, KnownDocuments, documents_of, export_documents};
use crate::process::private_file;

/// File name in the data directory.
const FILE: &str = "documents.json";

/// Time over which changes are collected into one write.
const TOGETHER: Duration = Duration::from_millis(500);

/// Documents of an earlier run that are not used yet, and the file.
pub(super) struct SavedDocuments {
    path: PathBuf,
    before: Mutex<KnownDocuments>,
    changes: Notify,
    /// Whether the last write failed.
    has_failed: Mutex<bool>,
}

impl SavedDocuments {
    /// Reads the file. A missing or invalid file counts as empty.
    pub(super) fn open(directory: &Path) -> SavedDocuments {
        let path = directory.join(FILE);
        let before = match fs::read(&path).map(|bytes| serde_json::from_slice(&bytes)) {
            Ok(Ok(document)) => documents_of(&document),
            Ok(Err(error)) => {
                tracing::warn!(path = %path.display(), %error, "saved documents cannot be read");
                KnownDocuments::default()
            }
            Err(_) => KnownDocuments::default(),
        };
        SavedDocuments {
            path,
            before: Mutex::new(before),
            changes: Notify::new(),
            has_failed: Mutex::default(),
        }
    }

    /// Takes the document of a request, by its digest.
    pub(super) fn take(&self, digest: &str) -> Option<KnownDocument> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner).remove(digest)
    }

    pub(super) fn changed(&self, is_new: bool) {
        if is_new {
            self.changes.notify_one();
        }
    }

    /// Waits for a change, and for `TOGETHER` afterwards.
    pub(super) async fn until_changed(&self) {
        self.changes.notified().await;
        sleep(TOGETHER).await;
    }

    /// Writes the documents. Creates no data directory. Repeated failures are logged once.
    pub(super) fn save(&self, known: &KnownDocuments) {
        // A gateway with a file store may have no data directory, and must not create one.
        if !self.path.parent().is_some_and(Path::is_dir) {
            return;
        }
        let mut saved = known.clone();
        // Documents of requests that have not been answered yet stay in the file.
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (digest, document) in before {
            saved.entry(digest).or_insert(document);
        }
        let text = export_documents(&saved).to_string();
        let written = private_file::write(&self.path, |file| Ok(file.write_all(text.as_bytes())?));
        let mut has_failed = self.has_failed.lock().unwrap_or_else(PoisonError::into_inner);
        let failed_before = std::mem::replace(&mut *has_failed, written.is_err());
        if let (Err(error), false) = (written, failed_before) {
            tracing::warn!(error = format!("{error:#}"), "fetched documents cannot be saved");
        }
    }
}

#[cfg(test)]
mod tests;
