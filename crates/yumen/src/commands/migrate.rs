//! `yumen migrate`: reads Ingresses of ingress-nginx and reports how Yumen serves them, or prints equivalent HTTPRoutes.
//!
//! Nothing is written, neither in the cluster nor on the disk.

mod access_log_line;
mod assessment;
mod gateway_routes;
mod helm_values;
mod migration_report;
mod migration_source;
mod replay;
mod replay_report;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::output;
use crate::diagnostics::ExitStatus;
use crate::node::NodeFile;
use assessment::MigrationAssessment;
use migration_source::MigrationSource;

/// A migration.
#[derive(Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Report for each Ingress of ingress-nginx whether Yumen serves it the same way
    ///
    /// Reads manifests, or the cluster of a kubeconfig. Exit status 0: every Ingress is the same, or differs in ways that the
    /// report names. 1: an Ingress has a part that is refused, or differs with --strict, or a replayed request differs.
    /// 2: nothing can be read. Nothing is written.
    IngressNginx(IngressMigrationArgs),
    /// Print HTTPRoutes of the Gateway API that are equivalent to Ingresses of ingress-nginx
    ///
    /// Parts of Ingresses without a counterpart in the Gateway API are comments above the route.
    GatewayApi(RouteMigrationArgs),
}

/// The objects to read.
#[derive(Debug, Args)]
pub(crate) struct MigrationInput {
    /// Manifest, or directory of manifests; repeatable [default: the cluster]
    #[arg(short = 'f', long, value_name = "DIR|FILE")]
    pub(crate) manifests: Vec<PathBuf>,
    /// Values of ingress-nginx's Helm chart, in place of its Deployment and ConfigMap
    #[arg(long, value_name = "VALUES.yaml")]
    pub(crate) helm: Option<PathBuf>,
    /// Kubeconfig of the cluster [default: KUBECONFIG, or the service account of the pod]
    #[arg(long, value_name = "FILE", conflicts_with = "manifests")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", conflicts_with = "manifests")]
    pub(crate) context: Option<String>,
    #[command(flatten)]
    pub(crate) node: NodeFile,
}

#[derive(Debug, Args)]
pub(crate) struct IngressMigrationArgs {
    #[command(flatten)]
    input: MigrationInput,
    /// Access log of ingress-nginx; each of its requests is explained by the translation, and differences are reported
    #[arg(long, value_name = "ACCESS.log")]
    replay: Option<PathBuf>,
    /// Format of its lines [default: log-format-upstream of the ConfigMap, or that of ingress-nginx, or combined]
    #[arg(long, value_name = "LOG_FORMAT", requires = "replay")]
    log_format: Option<String>,
    /// Fail if any Ingress differs
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RouteMigrationArgs {
    #[command(flatten)]
    input: MigrationInput,
    /// The Gateway that the routes attach to
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "yumen-system/web")]
    gateway: String,
}

impl MigrateCommand {
    /// Whether the command prints JSON, also for an error.
    pub(crate) fn prints_json(&self) -> bool {
        matches!(self, MigrateCommand::IngressNginx(args) if args.json)
    }
}

/// Runs a migration command.
pub(crate) fn run(command: &MigrateCommand) -> anyhow::Result<ExitCode> {
    match command {
        MigrateCommand::IngressNginx(args) => report(args),
        MigrateCommand::GatewayApi(args) => print_routes(args),
    }
}

fn report(args: &IngressMigrationArgs) -> anyhow::Result<ExitCode> {
    let source = MigrationSource::read(&args.input)?;
    let assessment = MigrationAssessment::of(&source, &args.input.node)?;
    let replayed = match &args.replay {
        Some(log) => Some(replay::run(log, args.log_format.as_deref(), &source, &assessment)?),
        None => None,
    };
    let report = migration_report::MigrationReport::new(&source, &assessment, replayed);
    let text = if args.json { format!("{:#}\n", report.json()) } else { report.text() };
    output::print(&text)?;
    let fails = report.is_refused() || report.differs() && args.strict || report.replay_differs();
    Ok(if fails { ExitStatus::Problems } else { ExitStatus::Done }.into())
}

fn print_routes(args: &RouteMigrationArgs) -> anyhow::Result<ExitCode> {
    let source = MigrationSource::read(&args.input)?;
    output::print(&gateway_routes::routes(&source, &args.gateway)?)?;
    Ok(ExitStatus::Done.into())
}
