//! The command line, as clap understands it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::explain::ExplainArgs;
use crate::plan::PlanArgs;

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
        /// Print problems as JSON
        #[arg(long)]
        json: bool,
    },
    /// Look a resource file over for what is probably not meant
    ///
    /// Routes nobody reaches, plugins that contradict each other, weak or expired certificates, objects
    /// nobody names, and all that `check` finds. Exit status 1 if there is an error.
    Lint {
        /// Resources in the APISIX standalone format, YAML or JSON
        file: PathBuf,
        /// Also tell routes that anybody may call, and upstreams over TLS that are not verified
        #[arg(long)]
        strict: bool,
        /// Print findings as JSON
        #[arg(long)]
        json: bool,
    },
    /// Say what a change of the resources would do before it is made
    ///
    /// Objects that differ, problems the change brings, and what becomes of sampled requests. Exit
    /// status 1 if there is an error, 2 if the change does so much that somebody should confirm it.
    Plan(PlanArgs),
    /// Say why a request goes where it goes: route, plugins, upstream
    ///
    /// Thinks the request through with the router and the plugins that would serve it, and tells the
    /// reason why each other route lost. Nothing is sent and nothing is counted.
    #[command(override_usage = "yumen explain [OPTIONS] [METHOD] URL")]
    Explain(ExplainArgs),
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
