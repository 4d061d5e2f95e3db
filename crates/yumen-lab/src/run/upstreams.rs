//! The servers behind the gateways: one process for each endpoint, so that one can come and go alone.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::gateway::free_ports;
use super::http;
use super::process::{Launch, Process};
use super::usage::Roots;
use crate::targets::StopSignal;

const START_LIMIT: Duration = Duration::from_secs(30);

/// Endpoints by place; a place keeps its port.
pub(super) struct Upstreams {
    bench: PathBuf,
    folder: PathBuf,
    cpus: Vec<usize>,
    ports: Vec<u16>,
    running: Vec<Process>,
    roots: Roots,
    /// Connections of endpoints that have ended.
    accepted_before: u64,
    /// Connections made by the lab itself, which do not count.
    own: Cell<u64>,
}

impl Upstreams {
    /// Starts `count`; the first takes `port` where one is given.
    pub(super) fn start(
        bench: &Path,
        folder: &Path,
        cpus: &[usize],
        count: usize,
        port: Option<u16>,
    ) -> Result<Upstreams> {
        let mut upstreams = Upstreams {
            bench: bench.to_path_buf(),
            folder: folder.to_path_buf(),
            cpus: cpus.to_vec(),
            ports: port.into_iter().collect(),
            running: Vec::new(),
            roots: Roots::default(),
            accepted_before: 0,
            own: Cell::new(0),
        };
        upstreams.grow(count)?;
        Ok(upstreams)
    }

    /// Starts what is missing to `count`.
    pub(super) fn grow(&mut self, count: usize) -> Result<()> {
        while self.running.len() < count {
            let place = self.running.len();
            if self.ports.len() <= place {
                self.ports.extend(free_ports::<1>()?);
            }
            let port = self.ports[place];
            let args = ["upstream".to_owned(), "--listen".to_owned(), format!("127.0.0.1:{port}")];
            let launch = Launch {
                program: &self.bench,
                args: &args,
                env: &[],
                cpus: &self.cpus,
                log: self.folder.join(format!("upstream-{place}.log")),
                stop_signal: StopSignal::Terminate,
                pid_file: None,
            };
            let mut process = Process::start(&launch)?;
            process.wait_listening(port, START_LIMIT)?;
            self.own.set(self.own.get() + 1);
            self.roots.add(process.root());
            self.running.push(process);
        }
        Ok(())
    }

    /// Ends all beyond `count`.
    pub(super) fn shrink(&mut self, count: usize) {
        while self.running.len() > count {
            let place = self.running.len() - 1;
            self.accepted_before += self.accepted_by(place).unwrap_or(0);
            self.running.pop();
        }
    }

    /// Addresses of the first `count`.
    pub(super) fn addresses(&self, count: usize) -> Vec<SocketAddr> {
        self.ports.iter().take(count).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, *port))).collect()
    }

    /// Port of the first.
    pub(super) fn port(&self) -> u16 {
        self.ports.first().copied().unwrap_or(0)
    }

    /// Their processes.
    pub(super) fn roots(&self) -> Roots {
        self.roots.clone()
    }

    /// Connections all of them accepted so far, the lab's own left out.
    pub(super) fn accepted(&self) -> Option<u64> {
        let running: Option<u64> = (0..self.running.len()).map(|place| self.accepted_by(place)).sum();
        Some((self.accepted_before + running?).saturating_sub(self.own.get()))
    }

    fn accepted_by(&self, place: usize) -> Option<u64> {
        self.own.set(self.own.get() + 1);
        let answer = http::ask("GET", self.ports[place], "/stats", &[], "").ok()?;
        let stats: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
        stats["connections"].as_u64()
    }

    /// What the upstream answers to this path.
    pub(super) fn body(&self, path: &str) -> Result<Vec<u8>> {
        self.own.set(self.own.get() + 1);
        let answer = http::ask("GET", self.port(), path, &[], "")?;
        anyhow::ensure!(answer.good(), "the upstream answers {path} with {}", answer.status);
        Ok(answer.body)
    }
}
