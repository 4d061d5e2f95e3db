//! The `yumen` binary: parses the command line, constructs the crates' components and connects them.

mod admin_socket;
mod cli;
mod commands;
mod config;
mod control;
mod diagnostics;
mod endpoints;
mod environment;
mod fetch;
mod fetched;
mod identity_provider;
mod kubernetes;
mod node;
mod operators;
mod otlp_export;
mod process;
mod run;
mod senders;
mod serving;
mod tls;
mod upgrade;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser};

use cli::{Cli, GatewayCommand, ImportCommand};
use commands::remote::UnconfirmedChange;
use commands::revision_arg::RevisionArg;
use commands::{
    backup, check, debug_token, demo, echo, explain, health, import, keys, lint, migrate, output, plan,
    proxy, reference, remote, secrets, top,
};
use diagnostics::{ConfigProblems, ExitStatus, choose_colors};

fn main() -> ExitCode {
    process::set_process_vars();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return print_clap_error(error).unwrap_or_else(|error| report(&error, false)),
    };
    choose_colors(cli.color);
    let is_json = cli.command.prints_json();
    run(cli.command).unwrap_or_else(|error| report(&error, is_json))
}

/// Reports the error of a command, and returns its exit status.
fn report(error: &anyhow::Error, is_json: bool) -> ExitCode {
    let problems = error.downcast_ref::<ConfigProblems>();
    let status = match problems {
        Some(problems) => problems.status,
        None if error.is::<UnconfirmedChange>() => ExitStatus::Unconfirmed,
        None => ExitStatus::Failed,
    };
    // On standard output, where a program that asked for JSON reads it.
    let document = is_json.then(|| {
        let problems = problems.map_or(&[][..], |found| &found.problems);
        serde_json::json!({ "error": format!("{error:#}"), "status": status as u8, "problems": problems })
    });
    let is_printed = document.is_some_and(|document| output::print(&format!("{document:#}\n")).is_ok());
    if !is_printed {
        // A failed command reports on the terminal, whatever the log level. Rendered problems have their own form.
        let text = match problems {
            Some(problems) => problems.rendered.clone(),
            None => format!("yumen: {error:#}\n"),
        };
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
    status.into()
}

/// Prints help or the version on standard output with exit status 0, or a usage error with clap's exit
/// status.
fn print_clap_error(error: clap::Error) -> anyhow::Result<ExitCode> {
    let printed = error.print();
    if error.use_stderr() {
        return Ok(ExitCode::from(error.exit_code() as u8));
    }
    output::classify_write(printed.and_then(|()| std::io::stdout().flush()))?;
    Ok(ExitCode::SUCCESS)
}

fn run(command: GatewayCommand) -> anyhow::Result<ExitCode> {
    match command {
        GatewayCommand::Run(args) => run::run(&args).map(|()| ExitCode::SUCCESS),
        GatewayCommand::Check { file, manifests, node, json } => match (manifests.paths(), file) {
            (Some(paths), _) => check::check_manifests(paths, &node, json),
            (None, file) => check::check(&file.unwrap_or_default(), &node, json),
        },
        GatewayCommand::History { object, limit, remote } => {
            remote::history(&remote, object.as_deref(), limit)
        }
        GatewayCommand::Diff { from, to, remote } => remote::diff(&remote, from, to),
        GatewayCommand::Rollback { revision, change, remote, .. } => {
            remote::rollback(&remote, revision.unwrap_or(RevisionArg::Before(1)), &change)
        }
        GatewayCommand::DebugToken { seconds, debug_key, config } => {
            debug_token::run(seconds, debug_key, config)
        }
        GatewayCommand::Export { out, remote } => remote::export(&remote, out.as_deref()),
        GatewayCommand::Backup { file, remote } => backup::backup(&remote, &file),
        GatewayCommand::Restore { file, data_dir, config } => backup::restore(&file, data_dir, config),
        GatewayCommand::Import(ImportCommand::File { file, replace, change, remote }) => {
            remote::import(&remote, &file, replace, &change)
        }
        GatewayCommand::Problems { remote } => remote::problems(&remote),
        GatewayCommand::Lint { file: Some(file), strict, remote } => {
            lint::run(&file, &remote.node, strict, remote.json)
        }
        GatewayCommand::Lint { file: None, strict, remote, .. } => remote::lint(&remote, strict),
        GatewayCommand::Plan(args) => plan::run(&args),
        GatewayCommand::Explain(args) => explain::run(&args),
        GatewayCommand::Keys(command) => keys::run(&command),
        GatewayCommand::Secrets(command) => secrets::run(&command),
        GatewayCommand::Proxy(args) => proxy::run(&args),
        GatewayCommand::Echo(args) => echo::run(&args),
        GatewayCommand::Demo(args) => demo::run(&args),
        GatewayCommand::Top(args) => top::top(&args),
        GatewayCommand::Import(ImportCommand::Kong(args)) => import::kong(&args),
        GatewayCommand::Migrate(command) => migrate::run(&command),
        GatewayCommand::Upgrade(args) => commands::upgrade::run(args),
        GatewayCommand::Health(args) => health::run(&args),
        GatewayCommand::Version => print(&version()),
        GatewayCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "yumen", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        GatewayCommand::Man { directory } => {
            clap_mangen::generate_to(Cli::command(), &directory)
                .with_context(|| format!("cannot write man pages into {}", directory.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        GatewayCommand::Reference { what, language } => print(&reference::render(what, language)?),
    }
}

fn print(text: &str) -> anyhow::Result<ExitCode> {
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
