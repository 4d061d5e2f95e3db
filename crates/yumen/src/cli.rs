//! Command-line arguments, parsed by clap. Doc comments in this file are the `--help` texts.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::commands::demo::DemoArgs;
use crate::commands::echo::EchoArgs;
use crate::commands::explain::ExplainArgs;
use crate::commands::health::HealthArgs;
use crate::commands::import::ImportArgs;
use crate::commands::keys::KeysCommand;
use crate::commands::manifest_args::ManifestArgs;
use crate::commands::migrate::MigrateCommand;
use crate::commands::plan::PlanArgs;
use crate::commands::proxy::ProxyArgs;
use crate::commands::reference::{ReferenceKind, ReferenceLanguage};
use crate::commands::remote::{ChangeArgs, RemoteArgs};
use crate::commands::revision_arg::RevisionArg;
use crate::commands::secrets::SecretsCommand;
use crate::commands::top::TopArgs;
use crate::commands::upgrade::UpgradeArgs;
use crate::diagnostics::ColorChoice;
use crate::node::{GatewayRunArgs, NodeFile};

const AFTER_HELP: &str = "\
Start with:  yumen run
Then:        curl http://127.0.0.1:9080/hello

Exit status of all commands:
  0  done
  1  the configuration has an error
  2  nothing was done: wrong usage, an unreadable file, an unreachable gateway, a refused request
  3  a large change needs a confirmation";

/// API gateway with APISIX's resource model, configuration changes without a reload, and less CPU per request
/// than NGINX.
#[derive(Debug, Parser)]
#[command(name = "yumen", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// Colours in output; NO_COLOR turns `auto` off
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    pub(crate) color: ColorChoice,
    #[command(subcommand)]
    pub(crate) command: GatewayCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Run the gateway in the foreground
    ///
    /// Without options the gateway listens on 127.0.0.1:9080 (HTTP) and 127.0.0.1:9443 (HTTPS, self-signed),
    /// stores its resources in ./data, and applies every change at once. SIGTERM and SIGINT drain: the
    /// gateway finishes every accepted request.
    Run(GatewayRunArgs),
    /// Forward all requests to given addresses, without a configuration file
    ///
    /// `yumen proxy --from :8080 --to 127.0.0.1:9000` listens on port 8080 and forwards to port 9000. Several --to share
    /// the requests, and a connection that is refused is tried at the next one. The resources are in memory; --print
    /// writes them as a file for `yumen run --file`.
    Proxy(ProxyArgs),
    /// Validate a resource file or Kubernetes manifests
    ///
    /// Runs the compiler of the gateway and the tests in the file. Manifests are translated first. Prints every problem with its object, path
    /// and hint, as a compiler does. Exit status 1 if there is an error, 0 if there are only warnings.
    Check {
        /// Resources in the APISIX standalone format, YAML or JSON
        #[arg(required_unless_present = "kubernetes", conflicts_with = "kubernetes")]
        file: Option<PathBuf>,
        #[command(flatten)]
        manifests: ManifestArgs,
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
        /// Number of revisions
        #[arg(long, default_value_t = 20, value_name = "N", value_parser = revision_count)]
        limit: u64,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Show the changes between two revisions
    Diff {
        /// The earlier revision: a number, or ~1 for the one before the newest
        from: RevisionArg,
        /// The later revision [default: the newest]
        to: Option<RevisionArg>,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Restore an earlier revision as a new revision
    #[command(group(clap::ArgGroup::new("restored").required(true).args(["revision", "last"])))]
    Rollback {
        /// The revision to restore: a number, or ~1 for the one before the newest
        revision: Option<RevisionArg>,
        /// Undo the last change: the same as ~1
        #[arg(long)]
        last: bool,
        #[command(flatten)]
        change: ChangeArgs,
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
    /// The backup is consistent; writes continue meanwhile. It does not contain the keyring: back that up
    /// separately.
    Backup {
        /// Output file; replaced atomically, mode 0600
        file: PathBuf,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Restore a store from a backup or last-good.json while the gateway is stopped
    ///
    /// The file is read and decrypted with the keyring of the data directory before anything is changed. The
    /// replaced store is saved next to the restored one as yumen.redb.replaced.
    Restore {
        /// Backup or last-good.json
        file: PathBuf,
        /// Data directory to restore [default: store.data_dir of the configuration, else data]
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
        /// Node configuration, if it sets the data directory or the keyring
        #[arg(long, value_name = "yumen.yaml", env = "YUMEN_CONFIG")]
        config: Option<PathBuf>,
    },
    /// Print a token that makes the gateway explain a live request
    ///
    /// Send the token as X-Yumen-Debug; the response then carries X-Yumen-Explain. The signing key is
    /// observe.debug_key of the node configuration.
    DebugToken {
        /// Validity in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 300)]
        seconds: u64,
        /// Signing key [default: observe.debug_key of the configuration]
        #[arg(long, value_name = "KEY", env = "YUMEN_DEBUG_KEY", hide_env_values = true)]
        debug_key: Option<String>,
        /// Node configuration
        #[arg(long, value_name = "yumen.yaml", env = "YUMEN_CONFIG")]
        config: Option<PathBuf>,
    },
    /// Import configuration
    #[command(subcommand)]
    Import(ImportCommand),
    /// Report how Yumen serves the configuration of another gateway
    #[command(subcommand)]
    Migrate(MigrateCommand),
    /// List problems of the active configuration; exit status 1 if there is an error
    Problems {
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Lint a resource file
    ///
    /// Reports unreachable routes, contradicting plugins, weak or expired certificates, unused objects, and
    /// every finding of `check`. Exit status 1 if there is an error.
    Lint {
        /// Resources in the APISIX standalone format, YAML or JSON [default: those of a running gateway]
        file: Option<PathBuf>,
        /// Also report public routes and unverified TLS upstreams
        #[arg(long)]
        strict: bool,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Preview the effects of a change
    ///
    /// Prints the objects that differ, new problems, and the effect on sampled requests. Exit status 1 if the
    /// change introduces an error. A large change raises a question on a terminal; without a yes, or --yes, the exit
    /// status is 3.
    Plan(PlanArgs),
    /// Explain how a request is handled: route, plugins, upstream
    ///
    /// Evaluates the request with the router and the plugins of the gateway, and prints the reason why each
    /// other route did not match. Nothing is sent and nothing is counted.
    #[command(override_usage = "yumen explain [OPTIONS] [METHOD] URL")]
    Explain(ExplainArgs),
    /// List, replace or revoke keys of the Admin API
    ///
    /// A lost key cannot be shown again, because the store has digests: replace it. On the machine of the gateway
    /// this needs no key. Keys of admin.keys in yumen.yaml are not listed.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// List references to secret managers, check one, or fetch their values now
    ///
    /// Prints the state of each value, its age and its users, and no value.
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Answer requests with their content: a service for trials
    ///
    /// Serves HTTP/1.1, HTTP/2 without TLS, and gRPC, whose messages come back unchanged. ?status=503 and
    /// ?delay_ms=200 set the status and the delay of a response, as do paths that end in /status/503 or
    /// /delay/200.
    Echo(EchoArgs),
    /// Run the gateway with sample services, routes, consumers and traffic
    ///
    /// Everything is in memory and on the loopback interface, and ends with the process. Changes by the Admin API and
    /// the dashboard take effect as in production.
    Demo(DemoArgs),
    /// Show where a running gateway spends its time: routes, upstreams, plugins, consumers
    ///
    /// The numbers cover the last interval and are estimated from sampled requests. Keys: r, l, c, e sort by
    /// rate, latency, CPU, errors; q quits. Without a terminal the command prints one table and exits.
    Top(TopArgs),
    /// Upgrade a running gateway to a new binary without losing connections
    ///
    /// The successor receives the listening sockets, compiles the configuration and serves; the predecessor
    /// then drains. Prints each step. Exit status 2, with the reason, if the predecessor continues to serve.
    /// SIGUSR2 starts the same upgrade. While the predecessor of an earlier upgrade drains, an upgrade is refused;
    /// --end-drain ends that drain first.
    Upgrade(UpgradeArgs),
    /// Check whether a gateway is ready
    ///
    /// Asks /status/ready of the status listener: the first configuration is in force and its listeners are open. Exit
    /// status 1 if not, with the reason. For the health checks of containers.
    Health(HealthArgs),
    /// Print version and build information
    Version,
    /// Print a completion script for a shell
    Completions {
        /// Shell to complete for
        shell: clap_complete::Shell,
    },
    /// Write man pages into a directory
    #[command(hide = true)]
    Man {
        /// Existing directory
        directory: PathBuf,
    },
    /// Print reference documentation generated from the code
    #[command(hide = true)]
    Reference {
        /// Document to print
        #[arg(value_enum)]
        what: ReferenceKind,
        /// Language of the document
        #[arg(long, value_enum, default_value = "en")]
        language: ReferenceLanguage,
    },
}

/// Source of an import.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// A standalone document, YAML or JSON; applied in full or not at all
    File {
        /// Document to import
        file: PathBuf,
        /// Delete objects that are not in the document
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        change: ChangeArgs,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// A declarative Kong file or a decK dump
    ///
    /// Prints the resources on standard output and the report on standard error. The report has a line for each
    /// kind of difference from the original: objects, field, replacement, reason, and remedy. References to
    /// environment variables are resolved. Exit status 1 if `yumen check` would reject the result, or if a guard
    /// plugin is missing: its requests get status 503. Exit status 2 if the file is unreadable.
    Kong(ImportArgs),
}

impl GatewayCommand {
    /// Whether the command prints JSON, also for an error.
    pub(crate) fn prints_json(&self) -> bool {
        match self {
            GatewayCommand::Check { json, .. } => *json,
            GatewayCommand::History { remote, .. }
            | GatewayCommand::Diff { remote, .. }
            | GatewayCommand::Rollback { remote, .. }
            | GatewayCommand::Export { remote, .. }
            | GatewayCommand::Backup { remote, .. }
            | GatewayCommand::Problems { remote }
            | GatewayCommand::Lint { remote, .. }
            | GatewayCommand::Import(ImportCommand::File { remote, .. }) => remote.json,
            GatewayCommand::Import(ImportCommand::Kong(args)) => args.form.json,
            GatewayCommand::Migrate(command) => command.prints_json(),
            GatewayCommand::Plan(args) => args.remote.json,
            GatewayCommand::Explain(args) => args.remote.json,
            GatewayCommand::Top(args) => args.remote.json,
            GatewayCommand::Keys(command) => command.remote().json,
            GatewayCommand::Secrets(command) => command.remote().json,
            _ => false,
        }
    }
}

fn revision_count(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "write a number from 1".to_owned())
}
