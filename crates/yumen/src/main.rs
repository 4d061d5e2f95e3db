//! The `yumen` binary: parses the command line, constructs the crates' components and connects them.

mod applied_tracker;
mod backup;
mod check;
mod cli;
mod client;
mod cluster;
mod compiler;
mod config_origin;
mod config_source;
mod control;
mod discovery;
mod dns;
mod explain;
mod fetch;
mod guard;
mod huge_pages;
mod import;
mod known_inputs;
mod limit_watch;
mod lint;
mod listeners;
mod log_file;
mod memory;
mod node;
mod node_log;
mod offline;
mod operators;
mod output;
mod plan;
mod private_file;
mod process;
mod reference;
mod remote;
mod run;
mod service;
mod signals;
mod sockets;
mod tls;
mod top;
mod trial;
mod upgrade;
mod worker_threads;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, GatewayCommand, ImportCommand};

fn main() -> ExitCode {
    process::set_process_vars();
    let outcome = Cli::try_parse().map_or_else(refuse, |cli| run(cli.command));
    outcome.unwrap_or_else(|error| {
        // A failed command reports on the terminal, whatever the log level.
        let _ = writeln!(std::io::stderr(), "yumen: {error:#}");
        ExitCode::FAILURE
    })
}

/// Prints help or the version on standard output with exit status 0, or a usage error with clap's exit
/// status.
fn refuse(told: clap::Error) -> anyhow::Result<ExitCode> {
    let printed = told.print();
    if told.use_stderr() {
        return Ok(ExitCode::from(told.exit_code() as u8));
    }
    output::judge(printed.and_then(|()| std::io::stdout().flush()))?;
    Ok(ExitCode::SUCCESS)
}

fn run(command: GatewayCommand) -> anyhow::Result<ExitCode> {
    match command {
        GatewayCommand::Run(args) => run::run(&args).map(|()| ExitCode::SUCCESS),
        GatewayCommand::Check { file, node, json } => check::check(&file, &node, json),
        GatewayCommand::History { object, limit, remote } => {
            remote::history(&remote, object.as_deref(), limit)
        }
        GatewayCommand::Diff { from, to, remote } => remote::diff(&remote, from, to),
        GatewayCommand::Rollback { revision, confirm, reason, remote } => {
            remote::rollback(&remote, revision, confirm, reason.as_deref())
        }
        GatewayCommand::DebugToken { seconds, debug_key, config } => {
            debug_token(seconds, debug_key, config).and_then(|token| say(&format!("{token}\n")))
        }
        GatewayCommand::Export { out, remote } => remote::export(&remote, out.as_deref()),
        GatewayCommand::Backup { file, remote } => backup::backup(&remote, &file),
        GatewayCommand::Restore { file, data_dir, config } => backup::restore(&file, data_dir, config),
        GatewayCommand::Import(ImportCommand::File { file, replace, confirm, reason, remote }) => {
            remote::import(&remote, &file, replace, confirm, reason.as_deref())
        }
        GatewayCommand::Problems { remote } => remote::problems(&remote),
        GatewayCommand::Lint { file: Some(file), node, strict, remote } => {
            lint::run(&file, &node, strict, remote.json)
        }
        GatewayCommand::Lint { file: None, strict, remote, .. } => remote::lint(&remote, strict),
        GatewayCommand::Plan(args) => plan::run(&args),
        GatewayCommand::Explain(args) => explain::run(&args),
        GatewayCommand::Top(args) => top::top(&args),
        GatewayCommand::Import(ImportCommand::Kong(args)) => import::kong(&args),
        GatewayCommand::Upgrade(args) => upgrade::upgrade(args),
        GatewayCommand::Version => say(&version()),
        GatewayCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "yumen", &mut script);
            say(&String::from_utf8_lossy(&script))
        }
        GatewayCommand::Reference { what } => say(&reference::render(what)),
    }
}

/// Signs a debug token that expires `seconds` from now.
fn debug_token(seconds: u64, key: Option<String>, config: Option<PathBuf>) -> anyhow::Result<String> {
    let node = node::load(&cli::GatewayRunArgs { config, ..cli::GatewayRunArgs::default() })?;
    let key = key.unwrap_or(node.observe.debug_key);
    if key.is_empty() {
        anyhow::bail!("no signing key: set observe.debug_key in yumen.yaml and pass --config");
    }
    let expiry_unix_s = yumen_proxy::clock::exact().unix_s().saturating_add(seconds);
    Ok(yumen_proxy::debug::sign(&yumen_proxy::debug::DebugKey::new(key.as_bytes()), expiry_unix_s))
}

fn say(text: &str) -> anyhow::Result<ExitCode> {
    output::print(text)?;
    Ok(ExitCode::SUCCESS)
}

fn version() -> String {
    format!(
        "yumen {}\nHTTP/1.1, HTTP/2 and HTTP/3 on {}; TLS by rustls and aws-lc-rs; {} plugins\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        yumen_plugins::BUILTIN.len(),
    )
}
