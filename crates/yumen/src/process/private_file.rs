//! Files with secrets: mode 0600, replaced atomically.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Fills a temporary file next to `path`, syncs it and renames it. A target that is not a regular file, such
/// as a pipe, is written directly.
pub(crate) fn write<T>(path: &Path, fill: impl FnOnce(&mut File) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let failed = || format!("cannot write {}", path.display());
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return fill(&mut OpenOptions::new().write(true).open(path).with_context(failed)?);
    }
    // A symbolic link is kept: its target is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    let draft = PathBuf::from(name);
    // A crash leaves the temporary file, and `create_new` refuses existing files.
    let _ = fs::remove_file(&draft);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).with_context(failed)?;
    let filled = fill(&mut file).and_then(|filled| {
        file.sync_all().and_then(|()| fs::rename(&draft, &path)).with_context(failed)?;
        Ok(filled)
    });
    if filled.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&draft);
    }
    // The rename is durable only after the directory has been synced (fsync(2)).
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = File::open(parent.unwrap_or(Path::new("."))).with_context(failed)?;
    parent.sync_all().with_context(failed)?;
    filled
}

#[cfg(test)]
mod tests;
