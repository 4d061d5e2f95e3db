//! Last addresses of host names: initial values for a successor, and, saved next to the last good state, for
//! a node that starts while its name servers are down.
//!
//! Makes no queries.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::endpoints::inputs::{AddressesByName, HostAddresses, export_names, name_of};
use crate::process::private_file;

/// File name in the data directory.
const FILE: &str = "names.json";

/// Time over which changes are collected into one write: a starting node resolves all its names.
const TOGETHER: Duration = Duration::from_secs(2);

/// Minimum pause between two writes: some name servers answer differently to every query.
const REST: Duration = Duration::from_secs(30);

/// Addresses of the required names, and initial addresses of names that are not required yet.
pub(crate) struct HostNames {
    path: PathBuf,
    known: Mutex<AddressesByName>,
    /// Addresses of the predecessor or an earlier run; removed when the name is first required.
    before: Mutex<AddressesByName>,
    changes: Notify,
    written: Mutex<SavedNames>,
}

#[derive(Default)]
struct SavedNames {
    /// Content of the file, if written by this process.
    text: String,
    has_failed: bool,
}

impl HostNames {
    /// Reads the file. Addresses in `known`, which come from the predecessor, take precedence. A missing or
    /// invalid file counts as empty.
    pub(crate) fn open(directory: &Path, known: AddressesByName) -> HostNames {
        let path = directory.join(FILE);
        let mut before = match fs::read(&path) {
            Ok(bytes) => parse(&bytes).unwrap_or_else(|| {
                tracing::warn!(path = %path.display(), "saved host addresses cannot be read");
                HashMap::new()
            }),
            Err(_) => HashMap::new(),
        };
        // Later ones replace those of the file.
        before.extend(known);
        HostNames {
            path,
            known: Mutex::default(),
            before: Mutex::new(before),
            changes: Notify::new(),
            written: Mutex::default(),
        }
    }

    /// Addresses of the required names.
    pub(crate) fn known(&self) -> AddressesByName {
        lock(&self.known).clone()
    }

    /// Starts tracking a name and returns its earlier addresses.
    pub(super) fn begin(&self, name: &str) -> HostAddresses {
        let before = lock(&self.before).remove(name).unwrap_or_default();
        self.note(name, &before);
        before
    }

    pub(super) fn note(&self, name: &str, known: &HostAddresses) {
        // An empty entry would replace saved addresses by nothing.
        if *known != HostAddresses::default() {
            lock(&self.known).insert(name.into(), known.clone());
            self.changes.notify_one();
        }
    }

    pub(super) fn forget(&self, name: &str) {
        lock(&self.known).remove(name);
        self.changes.notify_one();
    }

    /// Saves the known addresses to disk after changes; never returns.
    pub(super) async fn save(self: Arc<Self>) {
        loop {
            self.changes.notified().await;
            sleep(TOGETHER).await;
            let names = self.clone();
            // File I/O blocks, so it runs on a blocking thread.
            let _ = tokio::task::spawn_blocking(move || names.write()).await;
            sleep(REST).await;
        }
    }

    /// Writes the known addresses if they changed. Creates no data directory. Repeated failures are logged
    /// once.
    fn write(&self) {
        let text = json!({ "names": export_names(&self.known()) }).to_string();
        let mut written = lock(&self.written);
        // A gateway with a file store may have no data directory, and must not create one.
        let has_directory = self.path.parent().is_some_and(Path::is_dir);
        // Addresses often return to an earlier set within the pause.
        if !has_directory || written.text == text {
            return;
        }
        match private_file::write(&self.path, |file| Ok(file.write_all(text.as_bytes())?)) {
            Ok(()) => *written = SavedNames { text, has_failed: false },
            Err(error) => {
                if !std::mem::replace(&mut written.has_failed, true) {
                    tracing::warn!(error = format!("{error:#}"), "host addresses cannot be saved");
                }
            }
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parse(bytes: &[u8]) -> Option<AddressesByName> {
    let document: Value = serde_json::from_slice(bytes).ok()?;
    document["names"].as_object()?.iter().map(|(name, addresses)| name_of(name, addresses)).collect()
}

#[cfg(test)]
mod tests;
