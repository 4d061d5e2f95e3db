//! The file store: one watched document.
//!
//! Detects when a text is complete and changed; does not interpret it. Runs its own thread and no
//! runtime.

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
use yumen_base::Problem;
use yumen_config::{document, json_text};

use notice::{FileNotice, NoticeSender};
use observer::{FileObserver, PATIENCE, REST};

/// Change of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileEvent {
    /// A new, complete text.
    Changed(String),
    /// The file is missing. The text read last remains in use.
    Vanished,
    /// For one second the text has lacked its former `#END` line and is not JSON. The text read last remains
    /// in use.
    HalfWritten,
    /// The file cannot be read, with the reason. The text read last remains in use.
    Unreadable(String),
    /// After one of the three above, the file again has the text read last.
    Recovered(String),
}

/// One document on disk.
#[derive(Debug, Clone)]
pub struct FileStore {
    path: PathBuf,
    known: Arc<Mutex<KnownFile>>,
}

/// State of the last delivered text, to detect changes.
#[derive(Debug, Default)]
struct KnownFile {
    hash: Option<u64>,
    ended: bool,
}

impl KnownFile {
    /// Records `text`; returns whether it differs from the last one.
    fn learn(&mut self, text: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        // A hash instead of the text, which may be large.
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
    /// Opens the file at `path`, which must be a readable regular file or a link to one.
    pub fn open(path: impl AsRef<Path>) -> io::Result<FileStore> {
        // A relative path would change with the working directory, and its parent may be the empty path.
        let path = std::path::absolute(path)?;
        // Opened to find a missing permission now and not at the first change.
        fs::File::open(&path)?;
        regular(&fs::metadata(&path)?)?;
        Ok(FileStore { path, known: Arc::default() })
    }

    /// Requires the line `#END`, because the predecessor last read the file with it. A text without the line
    /// then counts as half-written.
    pub fn expecting_end(self) -> FileStore {
        self.known().ended = true;
        self
    }

    /// Whether the text read last ended with the line `#END`.
    pub fn has_end(&self) -> bool {
        self.known().ended
    }

    /// Absolute path, with links unresolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the text. A later watch reports changes relative to it.
    ///
    /// A text without its former `#END` line that is not JSON is read again for one second, and is an error
    /// then.
    pub fn read(&self) -> io::Result<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let text = read_regular(&self.path)?;
            // Only a file that had the mark is expected to have it (APISIX requires it always).
            if !self.has_end() || is_whole(&text) {
                self.known().learn(&text);
                return Ok(text);
            }
            // A writer that crashed never completes the text.
            if Instant::now() >= until {
                let message = "it lost its last line #END: half written?";
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            thread::sleep(REST);
        }
    }

    /// Reports every change since the last `read`, on its own thread, until the guard is dropped.
    ///
    /// Without a `read`, the first event is the current text. The delay is about 10 ms after the last write,
    /// and up to one second without notifications of the operating system. A growing text is not reported.
    /// Fails if no thread can be started.
    pub fn watch(self, on_change: impl FnMut(FileEvent) + Send + 'static) -> io::Result<WatchGuard> {
        WatchGuard::start(self, on_change)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, KnownFile> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the watch on drop; no event follows.
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
        // Before the thread, so that no change is missed between this call and the first check.
        inbox.rewatch();
        let stopped = Arc::clone(&stop);
        let run = move || {
            let mut observer = FileObserver::new(store);
            let mut notice = FileNotice::Touched;
            // Pairs with the store in `drop`, which wakes the thread afterwards.
            while !stopped.load(Ordering::Acquire) {
                if notice == FileNotice::Touched {
                    observer.touched();
                }
                let (event, wait) = observer.look(Instant::now());
                if let Some(event) = event {
                    // The event may be a rename or a swapped link, after which the watched directory is another one.
                    inbox.rewatch();
                    on_change(event);
                    // A change during `rewatch` produced no notice.
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
        // The callback may drop the guard on this thread, and a thread cannot join itself.
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::error!("file watch task panicked");
        }
    }
}

/// Whether a last line `#END` marks the text as complete.
fn has_end(text: &str) -> bool {
    text.trim_end().lines().next_back() == Some("#END")
}

/// Whether a text is complete: by its `#END` line, or by being one JSON object. No proper prefix of a JSON
/// object is valid JSON.
fn is_whole(text: &str) -> bool {
    let text_alone = text.strip_prefix('\u{feff}').unwrap_or(text).trim_start();
    has_end(text)
        || text_alone.starts_with('{') && json_text::from_slice::<IgnoredAny>(text_alone.as_bytes()).is_ok()
}

/// Refuses pipes and devices: a read of them could block forever.
fn regular(metadata: &fs::Metadata) -> io::Result<()> {
    match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

fn read_regular(path: &Path) -> io::Result<String> {
    regular(&fs::metadata(path)?)?;
    document::decode(fs::read(path)?).map_err(|refused| {
        let (_, Problem { message, hint, place, .. }) = *refused;
        let place = place.map(|place| format!(" at line {} column {}", place.span.line, place.span.column));
        let text = format!("{message}{}: {}", place.unwrap_or_default(), hint.unwrap_or_default());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}
