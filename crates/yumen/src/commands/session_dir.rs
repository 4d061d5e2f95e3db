//! Data directory of a gateway without a store: only its sockets are in it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The directory; removed on drop if it is empty.
pub(super) struct SessionDir {
    path: PathBuf,
}

impl SessionDir {
    /// Creates the directory for a command and the port of its first listener. A successor finds the same one.
    pub(super) fn create(command: &str, port: u16) -> anyhow::Result<SessionDir> {
        let user = rustix::process::geteuid().as_raw();
        // A port that the system chooses is unknown here.
        let number = if port == 0 { format!("pid-{}", std::process::id()) } else { port.to_string() };
        let path = std::env::temp_dir().join(format!("yumen-{command}-{user}-{number}"));
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        created.with_context(|| format!("cannot create {}", path.display()))?;
        let found = fs::symlink_metadata(&path)?;
        // The parent is writable for all users: another one may have created the directory, with a keyring in it.
        if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
            bail!("{} is not a private directory of this user: remove it", path.display());
        }
        Ok(SessionDir { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SessionDir {
    fn drop(&mut self) {
        // Fails while a successor has its sockets there.
        let _ = fs::remove_dir(&self.path);
    }
}
