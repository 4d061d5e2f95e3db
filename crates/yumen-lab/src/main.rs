//! The `yumen-bench` binary: parses the command line and runs the command.

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use yumen_lab::{compare, load_command, report_command, run, upstream_command};

/// Benchmark gateways: load, scenarios, reports.
#[derive(Debug, Parser)]
#[command(name = "yumen-bench", version)]
struct LabCli {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Load a server and print the results.
    Load(Box<load_command::LoadArgs>),
    /// Serve as upstream of a load, with configurable sizes, latencies, errors and rate limits.
    Upstream(upstream_command::UpstreamArgs),
    /// Write the reports of runs: HTML, Markdown, JSON or CSV.
    Report(report_command::ReportArgs),
    /// Compare a later run with an earlier one; exit code 1 if a figure got worse.
    Compare(compare::CompareArgs),
    /// List scenarios and targets, installed or not.
    List,
    /// Check the machine and the gateways: limits, processors, other programs, configurations.
    Doctor(run::DoctorArgs),
    /// Run scenarios on gateways and record the measurements; exit code 1 if a threshold is crossed.
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
