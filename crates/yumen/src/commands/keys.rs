//! `yumen keys`: keys of the Admin API in the store of a running gateway.

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::remote::RemoteArgs;

/// Operations on keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// List the holders of keys
    List {
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Replace the key of a holder and print the new one; the former key ends at once
    ///
    /// A name without a key gets its first one.
    Rotate {
        /// Holder of the key: the author in the history
        name: String,
        /// Permissions [default: those of the former key, else admin]
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
            | KeysCommand::Rotate { remote, .. }
            | KeysCommand::Revoke { remote, .. } => remote,
        }
    }
}

/// Runs an operation on keys.
pub(crate) fn run(command: &KeysCommand) -> anyhow::Result<ExitCode> {
    let client = command.remote().client()?;
    let path = |name: &str| format!("/yumen/v1/keys/{}", utf8_percent_encode(name, NON_ALPHANUMERIC));
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
        KeysCommand::Rotate { name, role, remote } => {
            let role = role.and_then(|role| role.to_possible_value());
            let role = role.map(|role| format!("?role={}", role.get_name())).unwrap_or_default();
            let answer = client.send(&Method::PUT, &format!("{}{role}", path(name)), &[], None)?.json()?;
            remote.print(&answer, |answer| format!("{}\n", text(&answer["key"])))
        }
        KeysCommand::Revoke { name, remote } => {
            let answer = client.send(&Method::DELETE, &path(name), &[], None)?.json()?;
            remote.print(&answer, |_| format!("the key of {name} is revoked\n"))
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
