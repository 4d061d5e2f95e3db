//! `yumen secrets`: references to secret managers and the state of their values, without the values.

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use yumen_base::utc_text;

use super::client::OperatorClient;
use super::remote::RemoteArgs;

/// Operations on references to secrets.
#[derive(Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// List the references of the configuration with the state of their values
    List {
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Print the state of one reference and its users; exit status 1 without a current value
    Check {
        /// The reference: $secret://vault/1/jack/key, quoted for the shell
        reference: String,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Drop the last value of a reference on this node and fetch it again: objects lose a value that its manager no longer
    /// has
    Forget {
        /// The reference: $secret://vault/1/jack/key, quoted for the shell
        reference: String,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Fetch all values now, at most once in ten seconds
    Refresh {
        #[command(flatten)]
        remote: RemoteArgs,
    },
}

impl SecretsCommand {
    pub(crate) fn remote(&self) -> &RemoteArgs {
        match self {
            SecretsCommand::List { remote }
            | SecretsCommand::Check { remote, .. }
            | SecretsCommand::Forget { remote, .. }
            | SecretsCommand::Refresh { remote } => remote,
        }
    }
}

/// Runs an operation on references to secrets.
pub(crate) fn run(command: &SecretsCommand) -> anyhow::Result<ExitCode> {
    let client = command.remote().client()?;
    match command {
        SecretsCommand::List { remote } => {
            let found = client.get("/yumen/v1/secrets")?.json()?;
            remote.print(&found, |found| {
                let all = found["secrets"].as_array().map_or(&[][..], Vec::as_slice);
                match all.is_empty() {
                    true => "no object refers to a secret\n".to_owned(),
                    false => all.iter().map(line).collect(),
                }
            })
        }
        SecretsCommand::Check { reference, remote } => check(&client, reference, remote),
        SecretsCommand::Forget { reference, remote } => {
            let encoded = utf8_percent_encode(reference, NON_ALPHANUMERIC);
            let path = format!("/yumen/v1/secrets/forget?reference={encoded}");
            let answer = client.send(&Method::POST, &path, &[], None)?.json()?;
            remote.print(&answer, |answer| {
                format!("the value of {} is dropped and fetched again\n", text(&answer["forgotten"]))
            })
        }
        SecretsCommand::Refresh { remote } => {
            let answer = client.send(&Method::POST, "/yumen/v1/secrets/refresh", &[], None)?.json()?;
            remote.print(&answer, |answer| format!("{} values are fetched\n", answer["refreshed"]))
        }
    }
}

fn check(client: &OperatorClient, reference: &str, remote: &RemoteArgs) -> anyhow::Result<ExitCode> {
    let found = client.get("/yumen/v1/secrets")?.json()?;
    let all = found["secrets"].as_array().map_or(&[][..], Vec::as_slice);
    let Some(one) = all.iter().find(|one| one["reference"].as_str() == Some(reference)) else {
        bail!("no object refers to {reference}; the references are listed by: yumen secrets list");
    };
    remote.print(one, details)?;
    Ok(if one["state"] == "current" { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(one: &Value) -> String {
    let users = one["users"].as_array().map_or(0, Vec::len);
    let error = one["error"].as_str().map(|error| format!("  {error}")).unwrap_or_default();
    format!("{:<8} {:<7} {users:>4}  {}{error}\n", text(&one["state"]), age(one), text(&one["reference"]))
}

fn details(one: &Value) -> String {
    let mut lines = format!("{}: {}\n", text(&one["reference"]), text(&one["state"]));
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            lines.push_str(&format!("  {name:<14} {value}\n"));
        }
    };
    let time = |member: &str| one[member].as_u64().map(|unix_ms| utc_text(unix_ms / 1000));
    add("length", one["length"].as_u64().map(|bytes| format!("{bytes} bytes")));
    add("fetched", one["age_ms"].as_u64().map(|_| format!("{} ago", age(one))));
    add("changed", time("changed_ms"));
    add("failing since", time("failing_since_ms"));
    add("error", one["error"].as_str().map(str::to_owned));
    for user in one["users"].as_array().into_iter().flatten() {
        add("used by", Some(format!("{} at {}", text(&user["object"]), text(&user["path"]))));
    }
    lines
}

/// The time since the last success.
fn age(one: &Value) -> String {
    match one["age_ms"].as_u64() {
        None => "-".to_owned(),
        Some(age_ms) if age_ms < 120_000 => format!("{} s", age_ms / 1000),
        Some(age_ms) => format!("{} min", age_ms / 60_000),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
