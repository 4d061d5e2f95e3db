//! The command line, as clap understands it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

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
    /// The same compile as the running gateway's. Every problem is printed with its object, path and
    /// what to do. Exit status 1 if there is an error, 0 if there are only warnings.
    Check {
        /// Resources in the APISIX standalone format, YAML or JSON
        file: PathBuf,
        /// Print problems as JSON
        #[arg(long)]
        json: bool,
    },
    /// Translate another gateway's configuration into a resource file
    #[command(arg_required_else_help = true)]
    Import {
        /// From which gateway
        #[command(subcommand)]
        from: ImportFrom,
    },
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

#[derive(Debug, Subcommand)]
pub(crate) enum ImportFrom {
    /// A declarative file of Kong, or what decK dumped
    ///
    /// The resources go to standard output, the report to standard error. The report has a line for
    /// everything that is not exactly as it was: the object, the field, what is done instead, why, and
    /// what can be done. References to environment variables are resolved. Exit status 1 if the result
    /// would not pass `yumen check`.
    Kong(ImportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The file, YAML or JSON
    pub(crate) file: PathBuf,
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
    #[arg(long, value_name = "N")]
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
