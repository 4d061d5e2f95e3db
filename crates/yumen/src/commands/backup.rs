//! `yumen backup` and `yumen restore`: the store as one file, and back.
//!
//! Handles files and the request; the content of a backup belongs to the store.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use yumen_store::{embedded, last_good, open_keyring};

use super::output;
use super::remote::RemoteArgs;
use crate::node;
use crate::node::GatewayRunArgs;
use crate::process::private_file;

/// Downloads a backup into `file`, mode 0600.
pub(crate) fn backup(remote: &RemoteArgs, file: &Path) -> anyhow::Result<ExitCode> {
    let client = remote.client()?;
    let bytes = private_file::write(file, |draft| client.download("/yumen/v1/backup", draft))?;
    print(&format!("{}: {bytes} bytes; the keyring is not in it, keep that apart\n", file.display()))
}

/// Restores the store of a stopped gateway from `file`.
pub(crate) fn restore(
    file: &Path,
    data_dir: Option<PathBuf>,
    config: Option<PathBuf>,
) -> anyhow::Result<ExitCode> {
    let node = node::load(&GatewayRunArgs { config, data_dir, ..GatewayRunArgs::default() })?;
    let directory = Path::new(&node.store.data_dir);
    if !file.is_file() {
        bail!("{} is not a file: a backup, or a last-good.json, is", file.display());
    }
    let keyring = open_keyring(directory, &node.store.keyring)?;
    let damage = last_good::damage_of(file).map(|damage| format!("incomplete: {damage}\n"));
    let state = embedded::restore(file, directory, Some(Arc::new(keyring)))
        .with_context(|| format!("{} was not restored to {}", file.display(), directory.display()))?;
    print(&format!(
        "{} restored: revision {}, {}\n{}",
        directory.display(),
        state.revision.0,
        yumen_base::quantity(state.len(), "object"),
        damage.unwrap_or_default()
    ))
}

fn print(text: &str) -> anyhow::Result<ExitCode> {
    output::print(text)?;
    Ok(ExitCode::SUCCESS)
}
