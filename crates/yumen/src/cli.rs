//! The command line, as clap understands it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use yumen_config::NodeConfig;
use yumen_config::node::Workers;

use crate::explain::ExplainArgs;
use crate::node;
use crate::plan::PlanArgs;
use crate::remote::Remote;
use crate::top::Order;

/// An API gateway: APISIX's resource model, configuration that changes without a reload, less CPU per
/// request than NGINX.
#[derive(Debug, Parser)]
#[command(name = "yumen", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Start with:  yumen run\nThen:        curl http://127.0.0.1:9080/hello")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the gateway and serve until told to stop
    ///
    /// Without options it listens on 127.0.0.1:9080 (HTTP) and 127.0.0.1:9443 (HTTPS, self-signed),
    /// keeps its resources in ./data, and applies every change of them at once. SIGTERM and SIGINT
    /// drain: no request that was accepted is lost.
    Run(RunArgs),
    /// Compile a resource file and say everything that is wrong with it
    ///
    /// The same compile as the running gateway's, and the tests that stand in the file. Every problem
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
    /// Every accepted change is a revision: when, by whom, why, and what it changed.
    History {
        /// Only revisions that changed this object, such as routes/1
        #[arg(long, value_name = "KIND/ID")]
        object: Option<String>,
        /// How many
        #[arg(long, default_value_t = 20, value_name = "N")]
        limit: usize,
        #[command(flatten)]
        remote: Remote,
    },
    /// Show what changed between two revisions
    Diff {
        /// The earlier revision
        from: u64,
        /// The later one [default: the newest]
        to: Option<u64>,
        #[command(flatten)]
        remote: Remote,
    },
    /// Put the content of an earlier revision in force again, as a new revision
    Rollback {
        /// The revision to restore
        revision: u64,
        /// Yes, even if it does much to routes or to recent requests
        #[arg(long)]
        confirm: bool,
        /// Why, for the history
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        remote: Remote,
    },
    /// Write the whole configuration as a standalone document
    ///
    /// It holds private keys and passwords in the clear.
    Export {
        /// Where to [default: standard output]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        remote: Remote,
    },
    /// Fetch a backup of a running gateway's store: everything with its history, sealed as the store is
    ///
    /// Writes go on meanwhile; the file is of one moment. The keyring is not in it: keep that apart.
    Backup {
        /// Where to; replaced when the backup is whole, readable by you alone
        file: PathBuf,
        #[command(flatten)]
        remote: Remote,
    },
    /// Put a backup, or a last-good.json, in the place of a store while its gateway is not running
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
        /// How long it holds
        #[arg(long, value_name = "SECONDS", default_value_t = 300)]
        seconds: u64,
        /// The secret; taken from the configuration where it is left out
        #[arg(long, value_name = "KEY", env = "YUMEN_DEBUG_KEY", hide_env_values = true)]
        debug_key: Option<String>,
        /// The node configuration
        #[arg(long, value_name = "yumen.yaml", env = "YUMEN_CONFIG")]
        config: Option<PathBuf>,
    },
    /// Bring configuration in from elsewhere
    #[command(subcommand)]
    Import(Import),
    /// List what is wrong with the configuration in force; exit status 1 if anything is
    Problems {
        #[command(flatten)]
        remote: Remote,
    },
    /// Look a resource file over for what is probably not meant
    ///
    /// Routes nobody reaches, plugins that contradict each other, weak or expired certificates, objects
    /// nobody names, and all that `check` finds. Exit status 1 if there is an error.
    Lint {
        /// Resources in the APISIX standalone format, YAML or JSON [default: those of a running gateway]
        file: Option<PathBuf>,
        #[command(flatten)]
        node: NodeFile,
        /// Also tell routes that anybody may call, and upstreams over TLS that are not verified
        #[arg(long)]
        strict: bool,
        #[command(flatten)]
        remote: Remote,
    },
    /// Say what a change of the resources would do before it is made
    ///
    /// Objects that differ, problems the change brings, and what becomes of sampled requests. Exit
    /// status 1 if it brings an error, 2 if the change does so much that somebody should confirm it.
    Plan(PlanArgs),
    /// Say why a request goes where it goes: route, plugins, upstream
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
    /// Have a new binary take over from a running gateway without a connection lost
    ///
    /// The new process gets the listening sockets, compiles the configuration and serves; the old one then
    /// finishes what it has begun. Prints each step. Exit status 1 where the old one serves on, with the reason.
    /// SIGUSR2 does the same.
    Upgrade(UpgradeArgs),
    /// Print the version and what this binary was built with
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
        what: Reference,
    },
}

/// Where configuration is brought in from.
#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    /// A standalone document, YAML or JSON: all of it or nothing
    File {
        /// The document
        file: PathBuf,
        /// Delete every object the document does not have
        #[arg(long)]
        replace: bool,
        /// Yes, even if it does much to routes or to recent requests
        #[arg(long)]
        confirm: bool,
        /// Why, for the history
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        remote: Remote,
    },
    /// A declarative file of Kong, or what decK dumped
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
pub(crate) enum Reference {
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
    /// Seconds between two looks; 0 with --once: since the gateway started
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = interval)]
    pub(crate) interval: f64,
    /// Print one table and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Print JSON, an object for each interval
    #[arg(long)]
    pub(crate) json: bool,
    /// Sort by rate, latency, cpu or errors
    #[arg(long, value_enum, default_value_t = Order::Rate)]
    pub(crate) sort: Order,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, such as 0.5".to_owned())?;
    if (0.0..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("from 0 to 3600 seconds".to_owned()) }
}

#[derive(Debug, Default, Args)]
pub(crate) struct RunArgs {
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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(Workers::COUNT_MAX)))]
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
    /// Yes, even if objects break or are lost that work now
    #[arg(long)]
    pub(crate) force: bool,
    /// The node configuration
    #[arg(long, value_name = "yumen.yaml", env = "YUMEN_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Where the gateway keeps its own files [default: data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}
