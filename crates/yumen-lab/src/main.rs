//! The `yumen-bench` binary: reads the command line and hands over to the command.

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use yumen_lab::{load_command, upstream_command};

/// Measures gateways fairly: load, scenarios, reports.
#[derive(Debug, Parser)]
#[command(name = "yumen-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Load a server and tell what it did.
    Load(Box<load_command::LoadArgs>),
    /// Serve what loads are aimed at: settable sizes, latencies, errors and rate limits.
    Upstream(upstream_command::UpstreamArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Load(args) => load_command::run(&args),
        Command::Upstream(args) => upstream_command::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "yumen-bench: {error:#}");
        ExitCode::from(2)
    })
}
