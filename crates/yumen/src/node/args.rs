//! Command-line arguments that select and override the node settings. Doc comments are `--help` texts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use yumen_config::NodeConfig;
use yumen_config::node::WorkerConfig;

/// Node configuration against which a resource file is compiled.
#[derive(Debug, Default, Args)]
pub(crate) struct NodeFile {
    /// Node configuration: of the running gateway, or against which a file is compiled
    #[arg(long, value_name = "yumen.yaml", env = "YUMEN_CONFIG")]
    pub(crate) config: Option<PathBuf>,
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
    /// Resources from the API server of a Kubernetes cluster: Gateway API objects, translated and followed; uses the
    /// service account of the pod or the kubeconfig
    #[arg(long, conflicts_with = "file")]
    pub(crate) kubernetes: bool,
    /// Kubeconfig of the API server [default: the service account of the pod, or ~/.kube/config]
    #[arg(long, value_name = "FILE", requires = "kubernetes")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Write statuses of Ingresses whose class belongs to ingress-nginx, once that no longer runs
    #[arg(long, requires = "kubernetes")]
    pub(crate) take_over: bool,
    /// Data directory of the gateway [default: data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Worker threads; auto is one per CPU [default: auto]
    #[arg(long, value_name = "N", value_parser = worker_count)]
    pub(crate) workers: Option<u32>,
    /// Address of an HTTP listener, such as 127.0.0.1:8080, or :8080 for all IPv4 addresses; repeatable; replaces the
    /// configured plain listeners
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub(crate) listen: Vec<SocketAddr>,
    /// Address of an HTTPS listener; repeatable; replaces the configured TLS listeners
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub(crate) listen_tls: Vec<SocketAddr>,
    /// Address of the admin listener [default: 127.0.0.1:9180]
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub(crate) admin: Option<SocketAddr>,
    /// Address of the status and metrics listener [default: 127.0.0.1:9091]
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub(crate) status: Option<SocketAddr>,
}

/// Parses the address of a listener on the command line.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    yumen_config::node::listen_address(text)
        .ok_or_else(|| "not an address with a port: write 127.0.0.1:8080, [::1]:8080 or :8080".to_owned())
}

fn worker_count(text: &str) -> Result<u32, String> {
    if text == "auto" {
        return Ok(0);
    }
    let count = text.parse().ok().filter(|count| *count <= WorkerConfig::COUNT_MAX);
    count.ok_or_else(|| format!("write auto, or a number up to {}", WorkerConfig::COUNT_MAX))
}
