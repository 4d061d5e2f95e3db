//! Decides from looks at the file when it has come to rest, and what to tell about it.
//!
//! Time comes in; only the file itself is touched here.

use std::fs;
use std::io;
use std::time::{Duration, Instant, SystemTime};

use super::{FileEvent, FileStore, is_whole, read_regular, regular};

/// How long the signature must not move before the file is read.
pub(super) const REST: Duration = Duration::from_millis(10);
/// How long a text without its end mark may be before it is reported, and how often it is tried again.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// How often to look where no notice comes.
const POLL: Duration = Duration::from_secs(1);

/// What changes when a file is written or replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FileSignature {
    Missing,
    Unreadable(io::ErrorKind),
    File { modified: Option<SystemTime>, length: u64, inode: u64 },
}

pub(super) struct FileObserver {
    store: FileStore,
    /// Last signature seen, and since when it stands.
    seen: Option<(FileSignature, Instant)>,
    /// Whether what is seen was not read yet.
    unread: bool,
    /// Since when the text has lacked its end mark, until that is told.
    half_since: Option<Instant>,
    /// The last trouble told, so that it is told once.
    told: Option<FileEvent>,
}

impl FileObserver {
    pub(super) fn new(store: FileStore) -> FileObserver {
        FileObserver { store, seen: None, unread: true, half_since: None, told: None }
    }

    /// The next look reads even if the signature is the old one: clocks of file systems are coarse.
    pub(super) fn touched(&mut self) {
        self.unread = true;
        if let Some((signature, _)) = self.seen.take() {
            self.seen = Some((signature, Instant::now()));
        }
    }

    /// One look: what there is to tell, and how long to wait for the next look.
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
        if self.unread && rested < REST {
            return (None, REST - rested);
        }
        if !self.unread && self.half_since.is_none() {
            return (None, POLL);
        }
        self.settle(&signature, now)
    }

    /// The file rests: read it and judge.
    fn settle(&mut self, signature: &FileSignature, now: Instant) -> (Option<FileEvent>, Duration) {
        let text = match signature {
            FileSignature::Missing => Err(FileEvent::Vanished),
            _ => read_regular(&self.store.path).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => FileEvent::Vanished,
                _ => FileEvent::Unreadable(error.to_string()),
            }),
        };
        // written while it was read: what was read may be a mixture
        if self.signature() != *signature {
            return (None, Duration::ZERO);
        }
        self.unread = false;
        match text {
            Err(event) => (self.report_error(event), POLL),
            Ok(text) if self.store.known().ended && !is_whole(&text) => self.half_written(now),
            Ok(text) => (self.report_text(text), POLL),
        }
    }

    fn half_written(&mut self, now: Instant) -> (Option<FileEvent>, Duration) {
        if self.told == Some(FileEvent::HalfWritten) {
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
        if self.told.as_ref() == Some(&event) {
            return None;
        }
        self.told = Some(event.clone());
        Some(event)
    }

    fn report_text(&mut self, text: String) -> Option<FileEvent> {
        self.half_since = None;
        let recovered = self.told.take().is_some();
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
