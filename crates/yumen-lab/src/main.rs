//! The `yumen-bench` binary: reads the command line and hands over to the command.

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use yumen_lab::{compare, load_command, report_command, run, upstream_command};

/// Measures gateways fairly: load, scenarios, reports.
#[derive(Debug, Parser)]
#[command(name = "yumen-bench", version)]
struct LabCli {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Load a server and tell what it did.
    Load(Box<load_command::LoadArgs>),
    /// Serve what loads are aimed at: settable sizes, latencies, errors and rate limits.
    Upstream(upstream_command::UpstreamArgs),
    /// Write the report of a run: HTML, Markdown or JSON.
    Report(report_command::ReportArgs),
    /// Compare a later run with an earlier one; exit code 1 if something got worse.
    Compare(compare::CompareArgs),
    /// List scenarios and targets, installed or not.
    List,
    /// Look at the machine: limits, processors, what else runs.
    Doctor(run::DoctorArgs),
    /// Run scenarios on gateways and write what was measured.
    Run(Box<run::LabRunArgs>),
}

fn main() -> ExitCode {
    let outcome = match LabCli::parse().command {
        LabCommand::Load(args) => load_command::run(&args),
        LabCommand::Upstream(args) => upstream_command::run(&args),
        LabCommand::Report(args) => report_command::run(&args),
        LabCommand::Compare(args) => compare::run(&args),
        LabCommand::List => run::list(),
        LabCommand::Doctor(args) => run::doctor(&args),
        LabCommand::Run(args) => run::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "yumen-bench: {error:#}");
        ExitCode::from(2)
    })
}
