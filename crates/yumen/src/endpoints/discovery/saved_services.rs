//! Last known endpoints of services, saved next to the last good state: a node that starts while a source is
//! down serves them.
//!
//! Owns the file; has no knowledge of sources.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::sleep;
use yumen_config::resource::UpstreamNode;
use yumen_snapshot::compile::DiscoveryQuery;

use crate::endpoints::inputs::{export_service, service_of};

/// File name in the data directory.
const FILE: &str = "discovery.json";

/// Time over which changes are collected into one write.
const TOGETHER: Duration = Duration::from_millis(500);

/// Endpoints from earlier runs and from this one, with their file.
pub(super) struct SavedServices {
    path: PathBuf,
    remembered: Mutex<HashMap<DiscoveryQuery, Vec<UpstreamNode>>>,
    changes: Notify,
    has_failed: AtomicBool,
}

impl SavedServices {
    /// Reads the file. Endpoints in `known`, which come from the predecessor, take precedence. A missing or
    /// invalid file counts as empty.
    pub(super) fn open(directory: &Path, known: HashMap<DiscoveryQuery, Vec<UpstreamNode>>) -> SavedServices {
        let path = directory.join(FILE);
        let mut remembered = match fs::read(&path) {
            Ok(bytes) => parse(&bytes).unwrap_or_else(|| {
                tracing::warn!(path = %path.display(), "saved services cannot be read");
                HashMap::new()
            }),
            Err(_) => HashMap::new(),
        };
        remembered.extend(known);
        SavedServices {
            path,
            remembered: Mutex::new(remembered),
            changes: Notify::new(),
            has_failed: AtomicBool::new(false),
        }
    }

    pub(super) fn nodes(&self, service: &DiscoveryQuery) -> Option<Vec<UpstreamNode>> {
        self.remembered().get(service).cloned()
    }

    pub(super) fn changed(&self) {
        self.changes.notify_one();
    }

    /// Waits for a change, and for `TOGETHER` afterwards.
    pub(super) async fn until_changed(&self) {
        self.changes.notified().await;
        sleep(TOGETHER).await;
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<DiscoveryQuery, Vec<UpstreamNode>>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the known endpoints and remembers them. Repeated failures are logged once.
    pub(super) fn save(&self, known: &[(DiscoveryQuery, Vec<UpstreamNode>)]) {
        self.remembered().extend(known.iter().cloned());
        match self.write(known) {
            Ok(()) => self.has_failed.store(false, Ordering::Relaxed),
            Err(error) => {
                if !self.has_failed.swap(true, Ordering::Relaxed) {
                    tracing::warn!(path = %self.path.display(), %error, "discovered services cannot be saved");
                }
            }
        }
    }

    fn write(&self, known: &[(DiscoveryQuery, Vec<UpstreamNode>)]) -> std::io::Result<()> {
        let services = known.iter().map(|(service, nodes)| export_service(service, nodes));
        let text = json!({ "services": services.collect::<Vec<Value>>() }).to_string();
        if let Some(directory) = self.path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let draft = self.path.with_extension("json.new");
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        // Sync before the rename: otherwise a crash can leave an empty file under the final name.
        file.sync_all()?;
        fs::rename(&draft, &self.path)
    }
}

fn parse(bytes: &[u8]) -> Option<HashMap<DiscoveryQuery, Vec<UpstreamNode>>> {
    let document: Value = serde_json::from_slice(bytes).ok()?;
    document["services"].as_array()?.iter().map(service_of).collect()
}
