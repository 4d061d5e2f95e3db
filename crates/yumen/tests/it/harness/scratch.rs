//! A directory of one test, removed with it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let name = format!("yumen-it-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a scratch directory");
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file by rename, as editors do; returns its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let (path, draft) = (self.file(name), self.file(&format!(".{name}.draft")));
        std::fs::write(&draft, content).expect("a scratch file");
        std::fs::rename(&draft, &path).expect("a scratch file in place");
        path.display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Remains in the system's temporary directory if it cannot be removed.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
