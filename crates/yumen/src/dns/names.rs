//! The last addresses of host names: what a process that takes over goes on from, and, on disk beside the last good
//! state, a node that starts while its name servers are away.
//!
//! Asks nobody.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::HostAddresses;
use crate::known_inputs::{AddressesByName, export_names, name_of};
use crate::private_file;

/// The file in the data directory.
const FILE: &str = "names.json";

/// Changes within so long are written once: a node that starts asks for all its names.
const TOGETHER: Duration = Duration::from_secs(2);

/// Between two writes passes at least so long: answers of some name servers differ with every question.
const REST: Duration = Duration::from_secs(30);

/// What is known of the names that are wanted, and what was before any of them was asked for.
pub(crate) struct HostNames {
    path: PathBuf,
    known: Mutex<AddressesByName>,
    /// Of the process before, or of an earlier run, each until its name is asked for.
    before: Mutex<AddressesByName>,
    changes: Notify,
    written: Mutex<SavedNames>,
}

#[derive(Default)]
struct SavedNames {
    /// What the file says, as far as this process wrote it.
    text: String,
    has_failed: bool,
}

impl HostNames {
    /// Begins with what the process before told, and else with what the file in the directory says. One that is not
    /// there, or cannot be understood, says nothing.
    pub(crate) fn open(directory: &Path, told: AddressesByName) -> HostNames {
        let path = directory.join(FILE);
        let mut before = match fs::read(&path) {
            Ok(bytes) => parse(&bytes).unwrap_or_else(|| {
                tracing::warn!(path = %path.display(), "saved host addresses cannot be read");
                HashMap::new()
            }),
            Err(_) => HashMap::new(),
        };
        before.extend(told);
        HostNames {
            path,
            known: Mutex::default(),
            before: Mutex::new(before),
            changes: Notify::new(),
            written: Mutex::default(),
        }
    }

    /// What is known of the names that are wanted.
    pub(crate) fn known(&self) -> AddressesByName {
        lock(&self.known).clone()
    }

    /// A name is asked for from now on: what was known of it before.
    pub(super) fn begin(&self, name: &str) -> HostAddresses {
        let before = lock(&self.before).remove(name).unwrap_or_default();
        self.note(name, &before);
        before
    }

    pub(super) fn note(&self, name: &str, known: &HostAddresses) {
        if *known != HostAddresses::default() {
            lock(&self.known).insert(name.into(), known.clone());
            self.changes.notify_one();
        }
    }

    pub(super) fn forget(&self, name: &str) {
        lock(&self.known).remove(name);
        self.changes.notify_one();
    }

    /// Keeps on disk what is known, until it is dropped.
    pub(super) async fn save(self: Arc<Self>) {
        loop {
            self.changes.notified().await;
            sleep(TOGETHER).await;
            let names = self.clone();
            // A thread that may block, and that ends by itself.
            let _ = tokio::task::spawn_blocking(move || names.write()).await;
            sleep(REST).await;
        }
    }

    /// Writes what is known now, where that is something else than before. A node without a data directory gets none
    /// for this; one that cannot be written to is told once.
    fn write(&self) {
        let text = json!({ "names": export_names(&self.known()) }).to_string();
        let mut written = lock(&self.written);
        let has_place = self.path.parent().is_some_and(Path::is_dir);
        if !has_place || written.text == text {
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
    document["names"].as_object()?.iter().map(|(name, told)| name_of(name, told)).collect()
}

#[cfg(test)]
mod tests;
