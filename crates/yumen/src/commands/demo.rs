//! `yumen demo`: the gateway with sample services, resources and traffic in one process.
//!
//! [`crate::run`] serves; this file puts the parts together.

mod traffic;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;

use anyhow::Context;
use clap::Args;
use yumen_config::NodeConfig;
use yumen_config::node::{ListenerConfig, StoreKind};

use super::echo::EchoServices;
use super::session_dir::SessionDir;
use crate::config::given::{GivenAnnouncement, GivenResources};
use crate::node::{self, listen_address};
use crate::run::{self, GatewayLaunch};

/// Resources of the demonstration; the addresses of its services are replaced by those that are bound.
const DOCUMENT: &str = include_str!("demo/demo.yaml");
/// Addresses of the services in [`DOCUMENT`].
const SERVICES: [&str; 2] = ["127.0.0.1:1980", "127.0.0.1:1981"];

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Address of the HTTP listener
    #[arg(long, value_name = "ADDR", value_parser = listen_address, default_value = "127.0.0.1:9080")]
    listen: SocketAddr,
    /// Address of the admin listener, which serves the dashboard
    #[arg(long, value_name = "ADDR", value_parser = listen_address, default_value = "127.0.0.1:9180")]
    admin: SocketAddr,
    /// Address of the status and metrics listener
    #[arg(long, value_name = "ADDR", value_parser = listen_address, default_value = "127.0.0.1:9091")]
    status: SocketAddr,
    /// Sample requests per second; 0 sends none
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1000))]
    rate: u32,
}

/// Serves until a signal ends the process.
pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    // The data directory exists as long as the gateway.
    let mut directory = None;
    run::serve(|| {
        let services = EchoServices::bind(&[SocketAddr::from(([127, 0, 0, 1], 0)); SERVICES.len()])?;
        let addresses = services.addresses()?;
        let session = SessionDir::create("demo", args.listen.port())?;
        let path = session.path().display().to_string();
        directory = Some(session);
        let launch = GatewayLaunch {
            given: Some(resources(args, &addresses, &path)),
            node: node_settings(args, path)?,
        };
        let serve = move || drop(services.serve());
        thread::Builder::new()
            .name("yumen-echo".into())
            .spawn(serve)
            .context("no thread for the services")?;
        Ok(launch)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn node_settings(args: &DemoArgs, data_dir: String) -> anyhow::Result<NodeConfig> {
    let listen = ListenerConfig { address: args.listen.to_string(), ..ListenerConfig::default() };
    let mut node = NodeConfig { listen: vec![listen], ..NodeConfig::default() };
    (node.admin.listen, node.status.listen) = (args.admin.to_string(), args.status.to_string());
    (node.store.kind, node.store.file, node.store.data_dir) = (StoreKind::File, String::new(), data_dir);
    node.observe.list_recent_requests = true;
    node::refuse_unusable(&node)?;
    Ok(node)
}

fn resources(args: &DemoArgs, services: &[SocketAddr], data_dir: &str) -> GivenResources {
    let mut document = DOCUMENT.to_owned();
    for (written, bound) in SERVICES.iter().zip(services) {
        document = document.replace(written, &bound.to_string());
    }
    let rate = args.rate;
    let names: Vec<String> = services.iter().map(ToString::to_string).collect();
    GivenResources {
        document,
        refusal: None,
        announcement: GivenAnnouncement {
            origin: format!("samples, in memory; their services: {}", names.join(", ")),
            path: "/hello",
            has_dashboard: true,
            advice: format!(
                "  curl -i http://{listen}/orders/7 -H 'apikey: alice-key'\n  yumen top\n  yumen explain /orders/7 \
                 --data-dir {data_dir}\n  yumen problems --data-dir {data_dir}",
                listen = args.listen
            ),
        },
        on_ready: (rate > 0).then(|| -> crate::config::given::ReadyFn {
            Box::new(move |listeners| {
                if let Some(address) = listeners.first() {
                    traffic::start(*address, rate);
                }
            })
        }),
    }
}

#[cfg(test)]
mod tests;
