//! The command line, as clap understands it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use yumen_config::NodeConfig;
use yumen_config::node::WorkerConfig;

use crate::explain::ExplainArgs;
use crate::node;
use crate::plan::PlanArgs;
use crate::remote::RemoteArgs;
use crate::top::SortOrder;

/// An API gateway: APISIX's resource model, configuration that changes without a reload, less CPU per
/// request than NGINX.
#[derive(Debug, Parser)]
#[command(name = "yumen", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Start with:  yumen run\nThen:        curl http://127.0.0.1:9080/hello")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: GatewayCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Run the gateway in the foreground
    ///
    /// Without options it listens on 127.0.0.1:9080 (HTTP) and 127.0.0.1:9443 (HTTPS, self-signed),
    /// keeps its resources in ./data, and applies every change of them at once. SIGTERM and SIGINT
    /// drain: no request that was accepted is lost.
    Run(GatewayRunArgs),
    /// Validate a resource file
    ///
    /// Runs the compiler of the gateway and the tests in the file. Every problem
    /// is printed with its object, path and what to do. Exit status 1 if there is an error, 0 if there are only warnings.
    Check {
        /// Resources in the APISIX standalone format, YAML or JSON
        file: PathBuf,
        #[command(flatten)]
        node: NodeFile,
        /// Print problems as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the revisions of the configuration, the newest first
    ///
    /// Each revision has a time, an author, a reason and the changed objects.
    History {
        /// Only revisions that changed this object, such as routes/1
        #[arg(long, value_name = "KIND/ID")]
        object: Option<String>,
        /// How many
        #[arg(long, default_value_t = 20, value_name = "N")]
        limit: usize,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Show what changed between two revisions
    Diff {
        /// The earlier revision
        from: u64,
        /// The later one [default: the newest]
        to: Option<u64>,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Restore an earlier revision as a new revision
    Rollback {
        /// The revision to restore
        revision: u64,
        /// Skip the confirmation for large changes
        #[arg(long)]
        confirm: bool,
        /// Reason, recorded in the history
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Write the whole configuration as a standalone document
    ///
    /// The output contains private keys and passwords in plain text.
    Export {
        /// Output file [default: standard output]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Download a backup of the store with its history, encrypted like the store
    ///
    /// The backup is consistent; writes continue meanwhile. It does not contain the keyring: back that up separately.
    Backup {
        /// Output file; replaced atomically, mode 0600
        file: PathBuf,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Restore a store from a backup or last-good.json while the gateway is stopped
    ///
    /// Everything in it is read and opened with the keyring of the data directory before anything is
    /// touched. What it replaces is kept beside it as yumen.redb.replaced.
    Restore {
        /// The backup
        file: PathBuf,
        /// The data directory to restore [default: that of the configuration, else data]
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
        /// The node configuration, where it names the data directory or holds the keyring
        #[arg(long, value_name = "yumen.yaml", env = "YUMEN_CONFIG")]
        config: Option<PathBuf>,
    },
    /// Print a token that makes the gateway explain a live request
    ///
    /// Send it as X-Yumen-Debug; the answer then carries X-Yumen-Explain. The secret is observe.debug_key
    /// of the node's configuration.
    DebugToken {
        /// Validity in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 300)]
        seconds: u64,
        /// Signing key [default: observe.debug_key of the configuration]
        #[arg(long, value_name = "KEY", env = "YUMEN_DEBUG_KEY", hide_env_values = true)]
        debug_key: Option<String>,
        /// The node configuration
        #[arg(long, value_name = "yumen.yaml", env = "YUMEN_CONFIG")]
        config: Option<PathBuf>,
    },
    /// Import configuration
    #[command(subcommand)]
    Import(ImportCommand),
    /// List problems of the active configuration; exit status 1 if there is an error
    Problems {
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Lint a resource file
    ///
    /// Routes nobody reaches, plugins that contradict each other, weak or expired certificates, objects
    /// nobody names, and all that `check` finds. Exit status 1 if there is an error.
    Lint {
        /// Resources in the APISIX standalone format, YAML or JSON [default: those of a running gateway]
        file: Option<PathBuf>,
        #[command(flatten)]
        node: NodeFile,
        /// Also report public routes and unverified TLS upstreams
        #[arg(long)]
        strict: bool,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Preview the effects of a change
    ///
    /// Objects that differ, problems the change brings, and what becomes of sampled requests. Exit
    /// status 1 if it brings an error, 2 if the change does so much that somebody should confirm it.
    Plan(PlanArgs),
    /// Explain how a request is handled: route, plugins, upstream
    ///
    /// Thinks the request through with the router and the plugins that would serve it, and tells the
    /// reason why each other route lost. Nothing is sent and nothing is counted.
    #[command(override_usage = "yumen explain [OPTIONS] [METHOD] URL")]
    Explain(ExplainArgs),
    /// Show where a running gateway spends its time: routes, upstreams, plugins, consumers
    ///
    /// Numbers are of the last interval and come from samples of the traffic. Keys: r, l, c, e sort by
    /// rate, latency, CPU, errors; q quits. Without a terminal it prints one table and ends.
    Top(TopArgs),
    /// Upgrade a running gateway to a new binary without losing connections
    ///
    /// The new process gets the listening sockets, compiles the configuration and serves; the old one then
    /// finishes what it has begun. Prints each step. Exit status 1 where the old one serves on, with the reason.
    /// SIGUSR2 does the same.
    Upgrade(UpgradeArgs),
    /// Print version and build information
    Version,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print reference documentation generated from the code
    #[command(hide = true)]
    Reference {
        /// Which
        #[arg(value_enum)]
        what: ReferenceKind,
    },
}

/// Where configuration is brought in from.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// A standalone document, YAML or JSON; applied as a whole or not at all
    File {
        /// The document
        file: PathBuf,
        /// Delete objects that are not in the document
        #[arg(long)]
        replace: bool,
        /// Skip the confirmation for large changes
        #[arg(long)]
        confirm: bool,
        /// Reason, recorded in the history
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// A declarative Kong file or a decK dump
    ///
    /// The resources go to standard output, the report to standard error. The report has a line for
    /// everything that is not exactly as it was: the object, the field, what is done instead, why, and
    /// what can be done. References to environment variables are resolved. Exit status 1 if the result
    /// would not pass `yumen check`, or if a plugin that guards is missing: what it guarded is answered 503.
    Kong(ImportArgs),
}

/// The node configuration that a file of resources is compiled for.
#[derive(Debug, Default, Args)]
pub(crate) struct NodeFile {
    /// Node configuration that a file is compiled for, such as its plugins.allow_missing
    #[arg(long, value_name = "yumen.yaml", env = "YUMEN_CONFIG")]
    config: Option<PathBuf>,
}

impl NodeFile {
    /// Reads it; the defaults where none is named.
    pub(crate) fn read(&self) -> anyhow::Result<NodeConfig> {
        node::read(self.config.as_deref())
    }
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The file, YAML or JSON
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) node: NodeFile,
    /// Write the resources here
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write the report here
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ReferenceKind {
    /// All plugins and their settings
    Plugins,
    /// All metrics
    Metrics,
    /// yumen.yaml with every default
    Config,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The gateway's status listener
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9091")]
    pub(crate) status: String,
    /// Seconds between updates; with --once, 0 means since the start
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = interval)]
    pub(crate) interval: f64,
    /// Print one table and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Print JSON, an object for each interval
    #[arg(long)]
    pub(crate) json: bool,
    /// Sort by rate, latency, cpu or errors
    #[arg(long, value_enum, default_value_t = SortOrder::Rate)]
    pub(crate) sort: SortOrder,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, such as 0.5".to_owned())?;
    if (0.0..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("from 0 to 3600 seconds".to_owned()) }
}

#[derive(Debug, Default, Args)]
pub(crate) struct GatewayRunArgs {
    /// Node configuration (listeners, workers, logs, limits); defaults apply where it is silent
    #[arg(long, value_name = "yumen.yaml", env = "YUMEN_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Resources in the APISIX standalone format, YAML or JSON; watched and applied at once
    #[arg(long, value_name = "routes.yaml")]
    pub(crate) file: Option<PathBuf>,
    /// Where the gateway keeps its own files [default: data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Worker threads; 0 is one per CPU [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(WorkerConfig::COUNT_MAX)))]
    pub(crate) workers: Option<u32>,
    /// Listen for HTTP here; may be repeated; replaces the configured plain listeners
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Listen for HTTPS here; may be repeated; replaces the configured TLS listeners
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen_tls: Vec<SocketAddr>,
    /// Admin listener [default: 127.0.0.1:9180]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<SocketAddr>,
    /// Status and metrics listener [default: 127.0.0.1:9091]
    #[arg(long, value_name = "ADDR")]
    pub(crate) status: Option<SocketAddr>,
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// The binary that takes over [default: the path the running one was started from]
    #[arg(long, value_name = "FILE")]
    pub(crate) binary: Option<PathBuf>,
    /// Upgrade even if objects that work now would break or be lost
    #[arg(long)]
    pub(crate) force: bool,
    /// The node configuration
    #[arg(long, value_name = "yumen.yaml", env = "YUMEN_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Where the gateway keeps its own files [default: data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}
