//! `yumen keys`: keys of the Admin API in the store of a running gateway.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Subcommand, ValueEnum};
use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::client::OperatorClient;
use super::remote::RemoteArgs;

/// Operations on keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// List the holders of keys
    List {
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Add a holder and print the key
    Create {
        /// Holder of the key: the author in the history
        name: String,
        /// Permissions
        #[arg(long, value_enum)]
        role: KeyPermission,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Replace the key of a holder and print the new one; the former key ends at once
    Rotate {
        /// Holder of the key: the author in the history
        name: String,
        /// Permissions [default: those of the former key]
        #[arg(long, value_enum)]
        role: Option<KeyPermission>,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Revoke the key of a holder at once
    Revoke {
        /// Holder of the key
        name: String,
        #[command(flatten)]
        remote: RemoteArgs,
    },
}

/// Permissions of a key.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum KeyPermission {
    /// Read and write
    Admin,
    /// Read only, with secrets masked
    Viewer,
}

impl KeysCommand {
    pub(crate) fn remote(&self) -> &RemoteArgs {
        match self {
            KeysCommand::List { remote }
            | KeysCommand::Create { remote, .. }
            | KeysCommand::Rotate { remote, .. }
            | KeysCommand::Revoke { remote, .. } => remote,
        }
    }
}

/// Runs an operation on keys.
pub(crate) fn run(command: &KeysCommand) -> anyhow::Result<ExitCode> {
    let client = command.remote().client()?;
    match command {
        KeysCommand::List { remote } => {
            let found = client.get("/yumen/v1/keys")?.json()?;
            remote.print(&found, |found| {
                let holders = found["keys"].as_array().map_or(&[][..], Vec::as_slice);
                holders
                    .iter()
                    .map(|one| format!("{:<8} {}\n", text(&one["role"]), text(&one["name"])))
                    .collect()
            })
        }
        KeysCommand::Create { name, role, remote } => {
            if holders(&client)?.contains(name) {
                bail!("the holder \"{name}\" has a key; replace it: yumen keys rotate {name}");
            }
            put(&client, name, Some(*role), remote)
        }
        KeysCommand::Rotate { name, role, remote } => {
            let holders = holders(&client)?;
            if !holders.contains(name) {
                let names = if holders.is_empty() { "none".to_owned() } else { holders.join(", ") };
                let file = match holders.is_empty() {
                    true => "; a gateway with a resource file keeps no keys: set admin.keys in yumen.yaml",
                    false => "",
                };
                bail!(
                    "no holder \"{name}\"; holders: {names}\nhelp: add one by: yumen keys create {name} --role viewer{file}"
                );
            }
            put(&client, name, *role, remote)
        }
        KeysCommand::Revoke { name, remote } => {
            let answer = client.send(&Method::DELETE, &path_of(name), &[], None)?.json()?;
            remote.print(&answer, |_| format!("the key of {name} is revoked\n"))
        }
    }
}

/// Names of the holders of keys in the store.
fn holders(client: &OperatorClient) -> anyhow::Result<Vec<String>> {
    let found = client.get("/yumen/v1/keys")?.json()?;
    let holders = found["keys"].as_array().map_or(&[][..], Vec::as_slice);
    Ok(holders.iter().map(|one| text(&one["name"]).to_owned()).collect())
}

/// Stores a new key and prints it.
fn put(
    client: &OperatorClient,
    name: &str,
    role: Option<KeyPermission>,
    remote: &RemoteArgs,
) -> anyhow::Result<ExitCode> {
    let role = role.and_then(|role| role.to_possible_value());
    let role = role.map(|role| format!("?role={}", role.get_name())).unwrap_or_default();
    let answer = client.send(&Method::PUT, &format!("{}{role}", path_of(name)), &[], None)?.json()?;
    remote.print(&answer, |answer| format!("{}\n", text(&answer["key"])))
}

fn path_of(name: &str) -> String {
    format!("/yumen/v1/keys/{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
