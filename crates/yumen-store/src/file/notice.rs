//! Change notices of the operating system, boiled down to "look" and "look closely".
//!
//! Best effort by design: where notices are missing the observer's own polling finds the change.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileNotice {
    /// Time passed, or something stirred nearby: the file's signature tells.
    Nearby,
    /// The file itself was written, moved or linked: read it even if its signature is the old one.
    Touched,
}

/// Wakes an inbox from outside.
#[derive(Debug, Clone)]
pub(super) struct NoticeSender(Sender<FileNotice>);

impl NoticeSender {
    pub(super) fn wake(&self) {
        // an inbox that is gone needs no waking
        let _ = self.0.send(FileNotice::Nearby);
    }
}

/// Where notices arrive.
pub(super) struct NoticeReceiver {
    path: PathBuf,
    receiver: Receiver<FileNotice>,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
}

/// An inbox for the file at `path`, watching nothing yet.
pub(super) fn channel(path: PathBuf) -> (NoticeSender, NoticeReceiver) {
    let (sender, receiver) = mpsc::channel();
    let notices = NoticeSender(sender.clone());
    let name = path.file_name().map(OsString::from);
    let handler = move |event: notify::Result<Event>| {
        if let Some(notice) = weigh(event, name.as_ref()) {
            let _ = sender.send(notice);
        }
    };
    let watcher = notify::recommended_watcher(handler)
        .inspect_err(|error| tracing::warn!(%error, "file notifications unavailable, polling the file"))
        .ok();
    (notices, NoticeReceiver { path, receiver, watcher, watched: BTreeSet::new() })
}

/// Reading the file makes notices too; those must not make us read it again.
fn weigh(event: notify::Result<Event>, name: Option<&OsString>) -> Option<FileNotice> {
    // an overflowing queue arrives as an error or a rescan: anything may have happened
    let Ok(event) = event else { return Some(FileNotice::Touched) };
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
        EventKind::Access(_) if !event.need_rescan() => return None,
        _ => {}
    }
    let ours = event.need_rescan() || event.paths.iter().any(|path| path.file_name() == name.map(|n| &**n));
    Some(if ours { FileNotice::Touched } else { FileNotice::Nearby })
}

impl NoticeReceiver {
    /// Watches the directories the file can change through, anew where they may have been replaced.
    ///
    /// The directory rather than the file: a rename over it would leave us watching the old one.
    pub(super) fn rewatch(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        let wanted = directories(&self.path);
        for gone in self.watched.difference(&wanted) {
            // fails when the directory itself is gone, which is as good
            let _ = watcher.unwatch(gone);
        }
        let mut watched = BTreeSet::new();
        for directory in wanted {
            // again even if watched before: a directory of the same name may be another one by now
            match watcher.watch(&directory, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    watched.insert(directory);
                }
                Err(error) => tracing::warn!(%error, directory = %directory.display(), "polling a directory"),
            }
        }
        self.watched = watched;
    }

    /// The weightiest notice within `timeout`, or that time passed.
    pub(super) fn wait(&mut self, timeout: Duration) -> FileNotice {
        let first = self.receiver.recv_timeout(timeout).unwrap_or(FileNotice::Nearby);
        self.receiver.try_iter().fold(first, Ord::max)
    }
}

/// The parent of the path, and that of what it links to.
fn directories(path: &Path) -> BTreeSet<PathBuf> {
    let target = fs::canonicalize(path).ok();
    [Some(path), target.as_deref()]
        .into_iter()
        .flatten()
        .filter_map(Path::parent)
        .filter(|parent| parent.is_dir())
        .map(Path::to_owned)
        .collect()
}
