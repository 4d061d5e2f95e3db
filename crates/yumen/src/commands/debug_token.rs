//! `yumen debug-token`: signs a token for live explanations.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use yumen_proxy::debug::{self, DebugKey};

use super::output;
use crate::node::{self, GatewayRunArgs};

/// Prints a token that expires `seconds` from now.
pub(crate) fn run(seconds: u64, key: Option<String>, config: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let node = node::load(&GatewayRunArgs { config, ..GatewayRunArgs::default() })?;
    let key = key.unwrap_or(node.observe.debug_key);
    if key.is_empty() {
        bail!("no signing key: set observe.debug_key in yumen.yaml and pass --config");
    }
    let expiry_unix_s = yumen_proxy::clock::exact().unix_s().saturating_add(seconds);
    output::print(&format!("{}\n", debug::sign(&DebugKey::new(key.as_bytes()), expiry_unix_s)))?;
    Ok(ExitCode::SUCCESS)
}
