//! The file store: one standalone document, watched.
//!
//! Knows when a text is whole and new, not what it says. Runs a thread of its own, no runtime.

mod notice;
mod observer;
#[cfg(test)]
mod tests;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use serde::de::IgnoredAny;

use notice::{FileNotice, NoticeSender};
use observer::{FileObserver, PATIENCE, REST};

/// What became of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileEvent {
    /// A new, whole text.
    Changed(String),
    /// There is no file any more. What was read last stays in force.
    Vanished,
    /// For a second the file has lacked the line `#END` it had before, and was no JSON. What was read last stays in force.
    HalfWritten,
    /// The file is there but cannot be read, for the reason given. What was read last stays in force.
    Unreadable(String),
    /// After one of the three above: the text, which is the one read last.
    Recovered(String),
}

/// One standalone document on disk.
#[derive(Debug, Clone)]
pub struct FileStore {
    path: PathBuf,
    known: Arc<Mutex<KnownFile>>,
}

/// What the store last handed out, so that a watch knows what is news.
#[derive(Debug, Default)]
struct KnownFile {
    hash: Option<u64>,
    ended: bool,
}

impl KnownFile {
    /// Whether `text` differs from what was known; it is what is known from here on.
    fn learn(&mut self, text: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let hash = Some(hasher.finish());
        self.ended = has_end(text);
        if self.hash == hash {
            return false;
        }
        self.hash = hash;
        true
    }
}

impl FileStore {
    /// The store of the file at `path`, which must be a readable regular file or a link to one.
    pub fn open(path: impl AsRef<Path>) -> io::Result<FileStore> {
        // a relative path would follow the working directory, and its parent may be the empty path
        let path = std::path::absolute(path)?;
        fs::File::open(&path)?;
        regular(&fs::metadata(&path)?)?;
        Ok(FileStore { path, known: Arc::default() })
    }

    /// Goes on with a file that another process watched and that ended with the line `#END` then: without that line
    /// it is half written here, too.
    pub fn expecting_end(self) -> FileStore {
        self.known().ended = true;
        self
    }

    /// Whether the text read last ended with the line `#END`.
    pub fn has_end(&self) -> bool {
        self.known().ended
    }

    /// The absolute path, links unresolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text as it is now. A watch started later tells what differs from it.
    ///
    /// A text that lacks the line `#END` it had before, and is no JSON, is waited for a second, and is an error then.
    pub fn read(&self) -> io::Result<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let text = read_regular(&self.path)?;
            if !self.has_end() || is_whole(&text) {
                self.known().learn(&text);
                return Ok(text);
            }
            if Instant::now() >= until {
                let message = "it lost its last line #END: half written?";
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            thread::sleep(REST);
        }
    }

    /// Tells every change from the last `read` on, from a thread of its own, until the guard is dropped.
    ///
    /// Without a `read` before, the first event is the text as it is. A change is told some 10 ms after
    /// the file came to rest; where change notices do not work, up to a second later. A text is never
    /// told while it still grows. Fails when no thread can be started.
    pub fn watch(self, on_change: impl FnMut(FileEvent) + Send + 'static) -> io::Result<WatchGuard> {
        WatchGuard::start(self, on_change)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, KnownFile> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends its watch when dropped; after that no event is told.
#[derive(Debug)]
pub struct WatchGuard {
    stop: Arc<AtomicBool>,
    notices: NoticeSender,
    thread: Option<JoinHandle<()>>,
}

impl WatchGuard {
    fn start(
        store: FileStore,
        mut on_change: impl FnMut(FileEvent) + Send + 'static,
    ) -> io::Result<WatchGuard> {
        let stop = Arc::new(AtomicBool::new(false));
        let (notices, mut inbox) = notice::channel(store.path.clone());
        // before the thread starts, so that no change falls between this call's return and the first look
        inbox.rewatch();
        let stopped = Arc::clone(&stop);
        let run = move || {
            let mut observer = FileObserver::new(store);
            let mut notice = FileNotice::Touched;
            while !stopped.load(Ordering::Acquire) {
                if notice == FileNotice::Touched {
                    observer.touched();
                }
                let (event, wait) = observer.look(Instant::now());
                if let Some(event) = event {
                    inbox.rewatch();
                    on_change(event);
                    // what changed while the directories were watched anew made no notice
                    notice = FileNotice::Nearby;
                    continue;
                }
                notice = inbox.wait(wait);
            }
        };
        let thread = thread::Builder::new().name("yumen-file".to_owned()).spawn(run)?;
        Ok(WatchGuard { stop, notices, thread: Some(thread) })
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.notices.wake();
        let Some(thread) = self.thread.take() else { return };
        // the event's own receiver may drop the guard; a thread cannot wait for itself
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::error!("file watch task panicked");
        }
    }
}

/// Whether a last line `#END` says that the writer had finished.
fn has_end(text: &str) -> bool {
    text.trim_end().lines().next_back() == Some("#END")
}

/// Whether a text shows that the writer had finished: by its last line, or by being an object of JSON, which cannot
/// have such a line and of which no part is one.
fn is_whole(text: &str) -> bool {
    let text_alone = text.strip_prefix('\u{feff}').unwrap_or(text).trim_start();
    has_end(text) || text_alone.starts_with('{') && serde_json::from_str::<IgnoredAny>(text_alone).is_ok()
}

/// Reading a pipe or a device could block for ever.
fn regular(metadata: &fs::Metadata) -> io::Result<()> {
    match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

fn read_regular(path: &Path) -> io::Result<String> {
    regular(&fs::metadata(path)?)?;
    fs::read_to_string(path)
}
