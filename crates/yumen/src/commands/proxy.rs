//! `yumen proxy`: a gateway with one route, from the command line alone.
//!
//! Writes the resources that the options stand for; [`crate::run`] serves them.

mod addresses;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};
use yumen_config::NodeConfig;
use yumen_config::node::{ListenerConfig, StoreKind};

use super::output;
use super::session_dir::SessionDir;
use crate::config::given::{GivenAnnouncement, GivenResources};
use crate::node::{self, listen_address};
use crate::run::{self, GatewayLaunch};
use addresses::{ProxyListenAddress, ProxyTarget};

#[derive(Debug, Args)]
pub(crate) struct ProxyArgs {
    /// Address to listen on, such as :8080 or https://:8443 (with a self-signed certificate); repeatable
    #[arg(long, value_name = "ADDR", required = true)]
    from: Vec<ProxyListenAddress>,
    /// Address to forward to, such as 127.0.0.1:9000 or https://api.example.com; repeatable
    #[arg(long, value_name = "URL", required = true)]
    to: Vec<ProxyTarget>,
    /// Host of forwarded requests: keep that of the client, rewrite it to that of the target, or a name [default: keep,
    /// and rewrite for https]
    #[arg(long, value_name = "keep|rewrite|NAME")]
    host: Option<ForwardedHost>,
    /// Accept every certificate of https targets
    #[arg(long)]
    insecure: bool,
    /// Worker threads [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
    /// Address of the admin listener [default: none]
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    admin: Option<SocketAddr>,
    /// Address of the status and metrics listener [default: none]
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    status: Option<SocketAddr>,
    #[command(flatten)]
    output: ProxyOutputArgs,
}

#[derive(Debug, Args)]
struct ProxyOutputArgs {
    /// Print one line per request
    #[arg(long)]
    access_log: bool,
    /// Print the resources as a file for `yumen run --file`, and exit
    #[arg(long)]
    print: bool,
}

/// Host of forwarded requests.
#[derive(Debug, Clone, PartialEq)]
enum ForwardedHost {
    Keep,
    Rewrite,
    Name(String),
}

impl FromStr for ForwardedHost {
    type Err = String;

    fn from_str(text: &str) -> Result<ForwardedHost, String> {
        let is_name = |text: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
            !text.is_empty() && text.bytes().all(is_allowed)
        };
        match text {
            "keep" => Ok(ForwardedHost::Keep),
            "rewrite" => Ok(ForwardedHost::Rewrite),
            name if is_name(name) => Ok(ForwardedHost::Name(name.to_owned())),
            _ => Err("write keep, rewrite, or a host name such as api.example.com".to_owned()),
        }
    }
}

/// Serves until a signal ends the process, or prints the resources.
pub(crate) fn run(args: &ProxyArgs) -> anyhow::Result<ExitCode> {
    if args.output.print {
        output::print(&document(args)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    // The data directory exists as long as the gateway.
    let mut directory = None;
    run::serve(|| {
        let document = document(args)?;
        let session = SessionDir::create("proxy", args.from.first().map_or(0, |from| from.address.port()))?;
        let path = session.path().display().to_string();
        directory = Some(session);
        Ok(GatewayLaunch { given: Some(resources(args, document, &path)), node: node_settings(args, path)? })
    })?;
    Ok(ExitCode::SUCCESS)
}

fn node_settings(args: &ProxyArgs, data_dir: String) -> anyhow::Result<NodeConfig> {
    let mut node = NodeConfig::default();
    let listener = |from: &ProxyListenAddress| ListenerConfig {
        address: from.address.to_string(),
        tls: from.tls,
        ..ListenerConfig::default()
    };
    node.listen = args.from.iter().map(listener).collect();
    let text = |address: Option<SocketAddr>| address.map_or_else(String::new, |one| one.to_string());
    (node.admin.listen, node.status.listen) = (text(args.admin), text(args.status));
    (node.store.kind, node.store.file, node.store.data_dir) = (StoreKind::File, String::new(), data_dir);
    node.workers.count = args.workers.unwrap_or(0);
    node.logs.access.enabled = args.output.access_log;
    node.logs.access.format = yumen_config::node::AccessLogFormat::Combined;
    node::refuse_unusable(&node)?;
    Ok(node)
}

fn resources(args: &ProxyArgs, document: String, data_dir: &str) -> GivenResources {
    let targets: Vec<String> = args.to.iter().map(ToString::to_string).collect();
    GivenResources {
        document,
        refusal: Some(
            "resources come from the options of yumen proxy: change those, or write them to a file with --print"
                .to_owned(),
        ),
        announcement: GivenAnnouncement {
            origin: format!("all requests to {}", targets.join(", ")),
            path: "/",
            has_dashboard: false,
            advice: format!("  yumen explain / --data-dir {data_dir}"),
        },
        on_ready: None,
    }
}

/// The resources in the standalone format.
fn document(args: &ProxyArgs) -> anyhow::Result<String> {
    let upstream = upstream(args)?;
    let document =
        json!({ "routes": [{ "id": "proxy", "uri": "/*", "enable_websocket": true, "upstream": upstream }] });
    Ok(format!("{}#END\n", serde_yaml_ng::to_string(&document)?))
}

fn upstream(args: &ProxyArgs) -> anyhow::Result<Value> {
    let Some(first) = args.to.first() else { bail!("give at least one --to") };
    if let Some(other) = args.to.iter().find(|other| other.scheme != first.scheme) {
        bail!(
            "--to {first} and --to {other}: the targets of one proxy have one scheme; start a proxy for each, or write a \
             route for each to a file"
        );
    }
    let node = |to: &ProxyTarget| json!({ "host": to.host, "port": to.port, "weight": 1 });
    let nodes: Vec<Value> = args.to.iter().map(node).collect();
    let mut upstream = json!({ "type": "roundrobin", "scheme": first.scheme.name(), "nodes": nodes });
    let by_default = if first.scheme.has_tls() { ForwardedHost::Rewrite } else { ForwardedHost::Keep };
    let host = args.host.clone().unwrap_or(by_default);
    match &host {
        ForwardedHost::Keep => upstream["pass_host"] = "pass".into(),
        ForwardedHost::Rewrite => upstream["pass_host"] = "node".into(),
        ForwardedHost::Name(name) => {
            upstream["pass_host"] = "rewrite".into();
            upstream["upstream_host"] = name.as_str().into();
        }
    }
    match first.scheme.has_tls() {
        true => upstream["tls"] = tls(args, &host, first),
        false if args.insecure => {
            bail!("--insecure has no effect on {first}, which is not https: leave it out")
        }
        false => {}
    }
    Ok(upstream)
}

fn tls(args: &ProxyArgs, host: &ForwardedHost, first: &ProxyTarget) -> Value {
    let mut tls = json!({ "verify": !args.insecure });
    // The host of the client is not a name of the target's certificate.
    let is_one_name = first.is_name() && args.to.iter().all(|to| to.host == first.host);
    if *host == ForwardedHost::Keep && is_one_name {
        tls["server_name"] = first.host.as_str().into();
    }
    tls
}

#[cfg(test)]
mod tests;
