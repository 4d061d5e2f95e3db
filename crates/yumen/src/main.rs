//! The `yumen` binary: reads the command line, wires the rooms together, knows everyone.

mod backup;
mod check;
mod cli;
mod client;
mod cluster;
mod compiler;
mod control;
mod discovery;
mod dns;
mod doors;
mod explain;
mod fetch;
mod fleet;
mod guard;
mod huge_pages;
mod import;
mod known;
mod limit_watch;
mod lint;
mod listeners;
mod log_file;
mod memory;
mod node;
mod node_log;
mod offline;
mod operators;
mod origin;
mod output;
mod plan;
mod private_file;
mod process;
mod reach;
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

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command, Import};

fn main() -> ExitCode {
    process::tell_variables();
    let outcome = Cli::try_parse().map_or_else(refuse, |cli| run(cli.command));
    outcome.unwrap_or_else(|error| {
        // The last words of a command that failed belong on the terminal, whatever the log level.
        let _ = writeln!(std::io::stderr(), "yumen: {error:#}");
        ExitCode::FAILURE
    })
}

/// Prints help or the version where they were asked for, else what is wrong with the command line.
fn refuse(told: clap::Error) -> anyhow::Result<ExitCode> {
    let printed = told.print();
    if told.use_stderr() {
        return Ok(ExitCode::from(told.exit_code() as u8));
    }
    output::judge(printed.and_then(|()| std::io::stdout().flush()))?;
    Ok(ExitCode::SUCCESS)
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Check { file, node, json } => check::check(&file, &node, json),
        Command::History { object, limit, remote } => remote::history(&remote, object.as_deref(), limit),
        Command::Diff { from, to, remote } => remote::diff(&remote, from, to),
        Command::Rollback { revision, confirm, reason, remote } => {
            remote::rollback(&remote, revision, confirm, reason.as_deref())
        }
        Command::DebugToken { seconds, debug_key, config } => {
            debug_token(seconds, debug_key, config).and_then(|token| say(&format!("{token}\n")))
        }
        Command::Export { out, remote } => remote::export(&remote, out.as_deref()),
        Command::Backup { file, remote } => backup::backup(&remote, &file),
        Command::Restore { file, data_dir, config } => backup::restore(&file, data_dir, config),
        Command::Import(Import::File { file, replace, confirm, reason, remote }) => {
            remote::import(&remote, &file, replace, confirm, reason.as_deref())
        }
        Command::Problems { remote } => remote::problems(&remote),
        Command::Lint { file: Some(file), node, strict, remote } => {
            lint::run(&file, &node, strict, remote.json)
        }
        Command::Lint { file: None, strict, remote, .. } => remote::lint(&remote, strict),
        Command::Plan(args) => plan::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Top(args) => top::top(&args),
        Command::Import(Import::Kong(args)) => import::kong(&args),
        Command::Upgrade(args) => upgrade::upgrade(args),
        Command::Version => say(&version()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "yumen", &mut script);
            say(&String::from_utf8_lossy(&script))
        }
        Command::Reference { what } => say(&reference::render(what)),
    }
}

/// A token that holds for so long from now on.
fn debug_token(seconds: u64, key: Option<String>, config: Option<PathBuf>) -> anyhow::Result<String> {
    let node = node::load(&cli::RunArgs { config, ..cli::RunArgs::default() })?;
    let key = key.unwrap_or(node.observe.debug_key);
    if key.is_empty() {
        anyhow::bail!(
            "there is no secret to sign with: set observe.debug_key in yumen.yaml and give --config"
        );
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
