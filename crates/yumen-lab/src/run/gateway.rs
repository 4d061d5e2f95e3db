//! A gateway of a run: plans, renders, starts, configures and verifies it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::config_check;
use super::http;
use super::process::{ProcessLaunch, RunningProcess};
use super::steps;
use crate::scenario::GatewayShape;
use crate::targets::{
    GatewayAdapter, GatewayPlan, GatewayPorts, LabCertificate, RenderedConfig, key, mock_body,
};

/// Maximum time until a gateway listens and serves its configuration; large route tables are slow.
const START_LIMIT: Duration = Duration::from_secs(120);

pub(super) struct StartedGateway {
    adapter: &'static dyn GatewayAdapter,
    process: RunningProcess,
    plan: Mutex<GatewayPlan>,
    ports: GatewayPorts,
    pub(super) rendered: RenderedConfig,
    pub(super) command: Vec<String>,
}

/// Inputs of the start other than the shape.
pub(super) struct GatewaySite<'a> {
    pub(super) folder: PathBuf,
    pub(super) program: &'a Path,
    pub(super) cpus: &'a [usize],
    pub(super) endpoints: Vec<SocketAddr>,
    pub(super) certificate: &'a LabCertificate,
    pub(super) connections_max: usize,
}

impl StartedGateway {
    /// Starts and configures the gateway.
    pub(super) fn start(
        adapter: &'static dyn GatewayAdapter,
        shape: &GatewayShape,
        site: GatewaySite<'_>,
    ) -> Result<StartedGateway> {
        let (plan, rendered) = render(adapter, shape, &site)?;
        // Before the start: the program's own message names the mistake, where a port that never opens does not.
        config_check::check(adapter, &plan, &rendered)?;
        let launch = ProcessLaunch {
            program: site.program,
            args: &rendered.args,
            env: &rendered.env,
            cpus: site.cpus,
            log: site.folder.join("output.log"),
            stop_signal: adapter.stop_signal(),
            pid_file: rendered.pid_file.as_ref().map(|file| site.folder.join(file)),
        };
        let mut process = RunningProcess::start(&launch)?;
        let setup = adapter.setup(&plan);
        // With setup steps, the admin port opens first; the traffic port may depend on the setup.
        let first = if setup.is_empty() { plan.ports.http } else { plan.ports.admin };
        process.wait_listening(first, START_LIMIT)?;
        steps::carry_out(&setup, &site.folder, &process)
            .with_context(|| format!("set up {}", adapter.name()))?;
        process.wait_listening(plan.ports.http, START_LIMIT)?;
        let command =
            std::iter::once(site.program.display().to_string()).chain(rendered.args.clone()).collect();
        let ports = plan.ports;
        Ok(StartedGateway { adapter, process, plan: Mutex::new(plan), ports, rendered, command })
    }

    /// Id of the first process.
    pub(super) fn root(&self) -> u32 {
        self.process.root()
    }

    /// Scheme, address and port of the traffic.
    pub(super) fn base(&self, tls: bool) -> String {
        match tls {
            true => format!("https://127.0.0.1:{}", self.ports.https),
            false => format!("http://127.0.0.1:{}", self.ports.http),
        }
    }

    /// Waits until the gateway serves its configuration, and verifies the response body of the upstream or
    /// mock.
    ///
    /// With key authentication, a request without a key must be refused.
    pub(super) fn verify(&self, path: &str, expected: &[u8]) -> Result<()> {
        let plan = self.plan();
        let headers = auth_header(&plan);
        let expected = if plan.gateway.responds_itself() { mock_body().as_bytes() } else { expected };
        let end = Instant::now() + START_LIMIT;
        let answer = loop {
            let answer = http::request("GET", plan.ports.http, path, &headers, "");
            match answer {
                Ok(answer) if answer.good() => break answer,
                other if Instant::now() > end => {
                    bail!(
                        "{} does not serve {path}: {other:?}\n{}",
                        self.adapter.name(),
                        self.process.log_tail()
                    )
                }
                // An answer other than 2xx is normal until the configuration is applied.
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        // A success with another body means a wrong route or a default page.
        ensure!(
            answer.body == expected,
            "{}: {path} answers {} bytes that are not the expected {}",
            self.adapter.name(),
            answer.body.len(),
            expected.len()
        );
        // Otherwise a gateway that checks no key would be compared with ones that do.
        if plan.gateway.requires_key() {
            let answer = http::request("GET", plan.ports.http, path, &[], "")?;
            let refused = matches!(answer.status, 401 | 403);
            ensure!(refused, "{}: {} without a key; wanted 401", self.adapter.name(), answer.status);
        }
        Ok(())
    }

    /// Changes the endpoints.
    pub(super) fn change(&self, endpoints: &[SocketAddr]) -> Result<()> {
        let before = self.plan();
        let after = GatewayPlan { endpoints: endpoints.to_vec(), ..before.clone() };
        let outcome = steps::carry_out(&self.adapter.change(&before, &after), &before.folder, &self.process);
        // A failed change is not undone: the next one starts from the intended endpoints.
        *self.plan.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = after;
        outcome
    }

    fn plan(&self) -> GatewayPlan {
        self.plan.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

/// Header field that authenticates a client of this plan.
pub(super) fn auth_header(plan: &GatewayPlan) -> Vec<(&'static str, String)> {
    plan.gateway.key_consumers.checked_sub(1).map(|last| ("apikey", key(last))).into_iter().collect()
}

/// Renders the configuration and writes its files, which the program reads at the start.
pub(super) fn render(
    adapter: &dyn GatewayAdapter,
    shape: &GatewayShape,
    site: &GatewaySite<'_>,
) -> Result<(GatewayPlan, RenderedConfig)> {
    std::fs::create_dir_all(&site.folder)?;
    let plan = plan(shape, site)?;
    let rendered = adapter.render(&plan).map_err(anyhow::Error::msg)?;
    steps::write_files(&site.folder, &rendered.files)?;
    Ok((plan, rendered))
}

fn plan(shape: &GatewayShape, site: &GatewaySite<'_>) -> Result<GatewayPlan> {
    let [http, https, admin, status] = free_ports()?;
    Ok(GatewayPlan {
        folder: site.folder.clone(),
        program: site.program.to_path_buf(),
        ports: GatewayPorts { http, https, admin, status },
        endpoints: site.endpoints.clone(),
        gateway: shape.gateway.clone(),
        connections_max: site.connections_max,
        certificate: Some(site.certificate.clone()).filter(|_| shape.tls),
        dynamic_endpoints_max: shape.dynamic_endpoints_max,
    })
}

/// Free ports, all different.
pub(super) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    // All listeners exist at once, so that the ports differ.
    let listeners: Vec<std::net::TcpListener> =
        (0..N).map(|_| std::net::TcpListener::bind(("127.0.0.1", 0))).collect::<Result<_, _>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}
