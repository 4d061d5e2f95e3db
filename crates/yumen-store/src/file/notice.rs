//! File change notifications of the operating system, reduced to two levels.
//!
//! Best effort: without notifications, the observer's polling finds the change.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

/// Required depth of the next check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileNotice {
    /// Timeout, or a change of another file: compare the signature.
    Nearby,
    /// The file was written, moved or linked: read it even if its signature is unchanged.
    Touched,
}

/// Wakes the receiver from another thread.
#[derive(Debug, Clone)]
pub(super) struct NoticeSender(Sender<FileNotice>);

impl NoticeSender {
    pub(super) fn wake(&self) {
        // A dropped receiver needs no notice.
        let _ = self.0.send(FileNotice::Nearby);
    }
}

/// Receiver of the notices for one file.
pub(super) struct NoticeReceiver {
    path: PathBuf,
    receiver: Receiver<FileNotice>,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
}

/// Creates the channel for the file at `path`, without any watch.
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

/// Maps an event to a notice. Read accesses are ignored, because the observer's own reads cause them.
fn weigh(event: notify::Result<Event>, name: Option<&OsString>) -> Option<FileNotice> {
    // A queue overflow arrives as an error or a rescan; events are lost then.
    let Ok(event) = event else { return Some(FileNotice::Touched) };
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
        EventKind::Access(_) if !event.need_rescan() => return None,
        _ => {}
    }
    let concerns_file =
        // The name alone: the directory may be watched under two paths, of the link and of its target.
        event.need_rescan() || event.paths.iter().any(|path| path.file_name() == name.map(|n| &**n));
    Some(if concerns_file { FileNotice::Touched } else { FileNotice::Nearby })
}

impl NoticeReceiver {
    /// Watches the directories of the file and of its link target again.
    ///
    /// Directories rather than the file: a rename over the file would leave the watch on the old inode.
    pub(super) fn rewatch(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        let required = directories(&self.path);
        for unused in self.watched.difference(&required) {
            // Fails if the directory was removed, which ends the watch too.
            let _ = watcher.unwatch(unused);
        }
        let mut watched = BTreeSet::new();
        for directory in required {
            // Watched again in any case: the directory may have been replaced by another of the same name.
            match watcher.watch(&directory, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    watched.insert(directory);
                }
                Err(error) => tracing::warn!(%error, directory = %directory.display(), "polling a directory"),
            }
        }
        self.watched = watched;
    }

    /// Returns the highest notice received, or `Nearby` after `timeout`.
    pub(super) fn wait(&mut self, timeout: Duration) -> FileNotice {
        let first = self.receiver.recv_timeout(timeout).unwrap_or(FileNotice::Nearby);
        // A flood of events of neighbours leads to one check.
        self.receiver.try_iter().fold(first, Ord::max)
    }
}

/// Parent directories of the path and of its link target.
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
