//! Files for their owner alone, as they hold secrets: written whole, or not at all.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Fills a file beside its place and moves it there when it is safe on disk. What is there and is no file, such as a
/// pipe, is written to as it is.
pub(crate) fn write<T>(place: &Path, fill: impl FnOnce(&mut File) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let failed = || format!("cannot write {}", place.display());
    if fs::metadata(place).is_ok_and(|found| !found.is_file()) {
        return fill(&mut OpenOptions::new().write(true).open(place).with_context(failed)?);
    }
    // A link stays one.
    let place = fs::canonicalize(place).unwrap_or_else(|_| place.to_owned());
    let mut name = place.as_os_str().to_owned();
    name.push(".partial");
    let draft = PathBuf::from(name);
    let _ = fs::remove_file(&draft);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).with_context(failed)?;
    let filled = fill(&mut file).and_then(|filled| {
        file.sync_all().and_then(|()| fs::rename(&draft, &place)).with_context(failed)?;
        Ok(filled)
    });
    if filled.is_err() {
        // The first error is the one worth telling.
        let _ = fs::remove_file(&draft);
    }
    let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = File::open(parent.unwrap_or(Path::new("."))).with_context(failed)?;
    parent.sync_all().with_context(failed)?;
    filled
}

#[cfg(test)]
mod tests;
