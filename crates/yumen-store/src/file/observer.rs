//! Decides when the file is at rest, and which event to report.
//!
//! Time is an argument; the only I/O is on the file itself.

use std::fs;
use std::io;
use std::time::{Duration, Instant, SystemTime};

use super::{FileEvent, FileStore, is_whole, read_regular, regular};

/// Time without a signature change before reading the file.
pub(super) const REST: Duration = Duration::from_millis(10);
/// Time until a text without its end mark is reported.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// Interval of checks without notices.
const POLL: Duration = Duration::from_secs(1);

/// Metadata that changes when the file is written or replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FileSignature {
    Missing,
    Unreadable(io::ErrorKind),
    File { modified: Option<SystemTime>, length: u64, inode: u64 },
}

pub(super) struct FileObserver {
    store: FileStore,
    /// Last signature, and the time since which it is unchanged.
    seen: Option<(FileSignature, Instant)>,
    /// Whether the current signature was not read yet.
    unread: bool,
    /// Time since which the text has lacked its end mark, until reported.
    half_since: Option<Instant>,
    /// Last reported error, to report each once.
    last_event: Option<FileEvent>,
}

impl FileObserver {
    pub(super) fn new(store: FileStore) -> FileObserver {
        FileObserver { store, seen: None, unread: true, half_since: None, last_event: None }
    }

    /// Forces a read at the next check. File system timestamps are coarse, so the signature may be unchanged.
    pub(super) fn touched(&mut self) {
        self.unread = true;
        if let Some((signature, _)) = self.seen.take() {
            self.seen = Some((signature, Instant::now()));
        }
    }

    /// Checks the file; returns an event, if any, and the time until the next check.
    pub(super) fn look(&mut self, now: Instant) -> (Option<FileEvent>, Duration) {
        let signature = self.signature();
        let since = match &self.seen {
            Some((seen, since)) if *seen == signature => *since,
            _ => {
                self.seen = Some((signature.clone(), now));
                self.unread = true;
                now
            }
        };
        let rested = now.saturating_duration_since(since);
        // Read only at rest: a file that is being written would be read in parts.
        if self.unread && rested < REST {
            return (None, REST - rested);
        }
        if !self.unread && self.half_since.is_none() {
            // Nothing is new; the poll finds changes without notifications, as on network file systems.
            return (None, POLL);
        }
        self.settle(&signature, now)
    }

    /// Reads and evaluates a file at rest.
    fn settle(&mut self, signature: &FileSignature, now: Instant) -> (Option<FileEvent>, Duration) {
        let text = match signature {
            FileSignature::Missing => Err(FileEvent::Vanished),
            _ => read_regular(&self.store.path).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => FileEvent::Vanished,
                _ => FileEvent::Unreadable(error.to_string()),
            }),
        };
        // Written during the read: the text may mix two versions.
        if self.signature() != *signature {
            // Looked at once more at once; the new signature starts a new rest.
            return (None, Duration::ZERO);
        }
        self.unread = false;
        match text {
            Err(event) => (self.report_error(event), POLL),
            // Only a file that had the mark is known to get it.
            Ok(text) if self.store.known().ended && !is_whole(&text) => self.half_written(now),
            Ok(text) => (self.report_text(text), POLL),
        }
    }

    fn half_written(&mut self, now: Instant) -> (Option<FileEvent>, Duration) {
        if self.last_event == Some(FileEvent::HalfWritten) {
            // Reported already; the text is looked at again when the signature changes.
            return (None, POLL);
        }
        let since = *self.half_since.get_or_insert(now);
        let waited = now.saturating_duration_since(since);
        if waited >= PATIENCE {
            return (self.report_error(FileEvent::HalfWritten), POLL);
        }
        (None, PATIENCE - waited)
    }

    fn report_error(&mut self, event: FileEvent) -> Option<FileEvent> {
        self.half_since = None;
        if self.last_event.as_ref() == Some(&event) {
            // Each state is reported once, however often it is found.
            return None;
        }
        self.last_event = Some(event.clone());
        Some(event)
    }

    fn report_text(&mut self, text: String) -> Option<FileEvent> {
        self.half_since = None;
        // Taken in either case: the file is readable again.
        let recovered = self.last_event.take().is_some();
        match self.store.known().learn(&text) {
            true => Some(FileEvent::Changed(text)),
            false => recovered.then_some(FileEvent::Recovered(text)),
        }
    }

    fn signature(&self) -> FileSignature {
        match fs::metadata(&self.store.path).and_then(|metadata| regular(&metadata).map(|()| metadata)) {
            Ok(metadata) => FileSignature::File {
                modified: metadata.modified().ok(),
                length: metadata.len(),
                inode: inode(&metadata),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileSignature::Missing,
            Err(error) => FileSignature::Unreadable(error.kind()),
        }
    }
}

#[cfg(unix)]
fn inode(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_metadata: &fs::Metadata) -> u64 {
    0
}
