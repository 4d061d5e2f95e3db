//! `yumen backup` and `yumen restore`: the store as one file, and back.
//!
//! Knows files and who to ask; what is in a backup is the store's business.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use yumen_store::{embedded, open_keyring};

use crate::cli::RunArgs;
use crate::node;
use crate::remote::Remote;

/// `yumen backup`.
pub(crate) fn backup(remote: &Remote, file: &Path) -> anyhow::Result<ExitCode> {
    let client = remote.client()?;
    let bytes = write_whole(file, |draft| client.download("/yumen/v1/backup", draft))?;
    say(&format!("{}: {bytes} bytes; the keyring is not in it, keep that apart\n", file.display()))
}

/// `yumen restore`.
pub(crate) fn restore(
    file: &Path,
    data_dir: Option<PathBuf>,
    config: Option<PathBuf>,
) -> anyhow::Result<ExitCode> {
    let node = node::load(&RunArgs { config, data_dir, ..RunArgs::default() })?;
    let directory = Path::new(&node.store.data_dir);
    if !file.is_file() {
        bail!("{} is not a file: a backup, or a last-good.json, is", file.display());
    }
    let keyring = open_keyring(directory, &node.store.keyring)?;
    let state = embedded::restore(file, directory, Some(Arc::new(keyring)))
        .with_context(|| format!("{} was not restored to {}", file.display(), directory.display()))?;
    say(&format!(
        "{} restored: revision {}, {} objects\n",
        directory.display(),
        state.revision.0,
        state.len()
    ))
}

/// Fills a file beside its place, for its owner alone, and moves it there when it is safe on disk.
fn write_whole<T>(place: &Path, fill: impl FnOnce(&mut File) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let failed = || format!("cannot write {}", place.display());
    let mut name = place.as_os_str().to_owned();
    name.push(".partial");
    let draft = PathBuf::from(name);
    let _ = fs::remove_file(&draft);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).with_context(failed)?;
    let filled = fill(&mut file).and_then(|filled| {
        file.sync_all().and_then(|()| fs::rename(&draft, place)).with_context(failed)?;
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

fn say(text: &str) -> anyhow::Result<ExitCode> {
    // A reader that has gone (`| head`) is no error.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}
