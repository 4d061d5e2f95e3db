//! Command-line arguments that select and override the node settings. Doc comments are `--help` texts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use yumen_config::NodeConfig;
use yumen_config::node::WorkerConfig;

/// Node configuration against which a resource file is compiled.
#[derive(Debug, Default, Args)]
pub(crate) struct NodeFile {
    /// Node configuration against which a file is compiled, such as its plugins.allow_missing
    #[arg(long, value_name = "yumen.yaml", env = "YUMEN_CONFIG")]
    config: Option<PathBuf>,
}

impl NodeFile {
    /// Reads the node configuration; without a path, returns the defaults.
    pub(crate) fn read(&self) -> anyhow::Result<NodeConfig> {
        super::read(self.config.as_deref())
    }
}

#[derive(Debug, Default, Args)]
pub(crate) struct GatewayRunArgs {
    /// Node configuration (listeners, workers, logs, limits); unset values have defaults
    #[arg(long, value_name = "yumen.yaml", env = "YUMEN_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Resources in the APISIX standalone format, YAML or JSON; watched and applied at once
    #[arg(long, value_name = "routes.yaml")]
    pub(crate) file: Option<PathBuf>,
    /// Data directory of the gateway [default: data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Worker threads; 0 is one per CPU [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(WorkerConfig::COUNT_MAX)))]
    pub(crate) workers: Option<u32>,
    /// Address of an HTTP listener; repeatable; replaces the configured plain listeners
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Address of an HTTPS listener; repeatable; replaces the configured TLS listeners
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen_tls: Vec<SocketAddr>,
    /// Address of the admin listener [default: 127.0.0.1:9180]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<SocketAddr>,
    /// Address of the status and metrics listener [default: 127.0.0.1:9091]
    #[arg(long, value_name = "ADDR")]
    pub(crate) status: Option<SocketAddr>,
}
