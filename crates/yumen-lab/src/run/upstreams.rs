//! The upstream servers: one process per endpoint, so that each can start and stop alone.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::gateway::free_ports;
use super::http;
use super::process::{ProcessLaunch, RunningProcess};
use super::usage::ProcessRoots;
use crate::targets::StopSignal;

const START_LIMIT: Duration = Duration::from_secs(30);

/// Endpoints by index; each index keeps its port.
pub(super) struct LabUpstreams {
    bench: PathBuf,
    folder: PathBuf,
    cpus: Vec<usize>,
    ports: Vec<u16>,
    running: Vec<LabEndpoint>,
    roots: ProcessRoots,
    /// Connections accepted by endpoints that have stopped.
    accepted_before: u64,
}

struct LabEndpoint {
    process: RunningProcess,
    port: u16,
    /// The lab's own connections, which do not count.
    own: Cell<u64>,
}

impl LabEndpoint {
    /// Accepted connections, except the lab's own.
    fn accepted(&self) -> Option<u64> {
        let answer = self.request("/stats").ok()?;
        let stats: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
        Some(stats["connections"].as_u64()?.saturating_sub(self.own.get()))
    }

    fn request(&self, path: &str) -> Result<http::LabResponse> {
        // Counted even if the request fails: the connection may have been accepted.
        self.own.set(self.own.get() + 1);
        http::request("GET", self.port, path, &[], "")
    }
}

impl LabUpstreams {
    /// Starts `count` endpoints; the first uses `port` if given.
    pub(super) fn start(
        bench: &Path,
        folder: &Path,
        cpus: &[usize],
        count: usize,
        port: Option<u16>,
    ) -> Result<LabUpstreams> {
        let mut upstreams = LabUpstreams {
            bench: bench.to_path_buf(),
            folder: folder.to_path_buf(),
            cpus: cpus.to_vec(),
            ports: port.into_iter().collect(),
            running: Vec::new(),
            roots: ProcessRoots::default(),
            accepted_before: 0,
        };
        upstreams.grow(count)?;
        Ok(upstreams)
    }

    /// Starts endpoints up to `count`.
    pub(super) fn grow(&mut self, count: usize) -> Result<()> {
        while self.running.len() < count {
            let index = self.running.len();
            if self.ports.len() <= index {
                // Kept for the run: an endpoint that returns has the address that the gateway knows.
                self.ports.extend(free_ports::<1>()?);
            }
            let port = self.ports[index];
            let args = ["upstream".to_owned(), "--listen".to_owned(), format!("127.0.0.1:{port}")];
            let launch = ProcessLaunch {
                program: &self.bench,
                args: &args,
                env: &[],
                cpus: &self.cpus,
                log: self.folder.join(format!("upstream-{index}.log")),
                stop_signal: StopSignal::Terminate,
                pid_file: None,
            };
            let mut process = RunningProcess::start(&launch)?;
            process.wait_listening(port, START_LIMIT)?;
            self.roots.add(process.root());
            // The check for the listening port was one connection of the lab.
            self.running.push(LabEndpoint { process, port, own: Cell::new(1) });
        }
        Ok(())
    }

    /// Stops all endpoints beyond `count`.
    pub(super) fn shrink(&mut self, count: usize) {
        for endpoint in self.running.drain(count.min(self.running.len())..).rev() {
            // Before the end of the process, which takes its counter with it.
            self.accepted_before += endpoint.accepted().unwrap_or(0);
            drop(endpoint.process);
        }
    }

    /// Number of running endpoints.
    pub(super) fn count(&self) -> usize {
        self.running.len()
    }

    /// Addresses of the first `count` endpoints.
    pub(super) fn addresses(&self, count: usize) -> Vec<SocketAddr> {
        self.ports.iter().take(count).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, *port))).collect()
    }

    /// Port of the first endpoint.
    pub(super) fn port(&self) -> u16 {
        self.ports.first().copied().unwrap_or(0)
    }

    /// Processes of the endpoints.
    pub(super) fn roots(&self) -> ProcessRoots {
        self.roots.clone()
    }

    /// Connections accepted by all endpoints so far, except the lab's own.
    pub(super) fn accepted(&self) -> Option<u64> {
        let running: Option<u64> = self.running.iter().map(LabEndpoint::accepted).sum();
        // One unknown count makes the sum unknown; a partial sum would look like reuse.
        Some(self.accepted_before + running?)
    }

    /// Connections accepted by one running endpoint, except the lab's own.
    pub(super) fn accepted_at(&self, index: usize) -> Option<u64> {
        self.running.get(index)?.accepted()
    }

    /// Response body of the upstream for a path.
    pub(super) fn body(&self, path: &str) -> Result<Vec<u8>> {
        let first = self.running.first().context("no upstream runs")?;
        let answer = first.request(path)?;
        anyhow::ensure!(answer.good(), "the upstream answers {path} with {}", answer.status);
        Ok(answer.body)
    }
}
