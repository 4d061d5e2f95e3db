//! The first configuration: a small document that answers at once and shows what else there is.
//!
//! Never touches a file that is there.

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What a new gateway starts from.
pub const STARTER: &str = include_str!("starter.yaml");

/// The path of `routes.yaml` in `data_dir`, written there with its directory if absent.
///
/// Fails where the directory cannot be made or written.
pub fn ensure_starter(data_dir: impl AsRef<Path>) -> io::Result<PathBuf> {
    let data_dir = data_dir.as_ref();
    let path = data_dir.join("routes.yaml");
    if path.symlink_metadata().is_ok() {
        return Ok(path);
    }
    fs::create_dir_all(data_dir)?;
    // by rename, so that a full disk or a crash cannot leave half a document that the next start would keep
    let draft = data_dir.join(format!(".routes.yaml.{}", std::process::id()));
    let written = fs::write(&draft, STARTER).and_then(|()| fs::rename(&draft, &path));
    if let Err(error) = written {
        // the first error is the one worth telling
        let _ = fs::remove_file(&draft);
        return Err(error);
    }
    Ok(path)
}
