//! The generator of a round: builds its command line and reads its result.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use yumen_load::LoadSummary;

use super::process::{ProcessLaunch, RunningProcess};
use crate::scenario::{CaseLoad, CaseSettings};
use crate::targets::{StopSignal, key};

/// Inputs of a load other than the settings.
#[derive(Clone, Debug)]
pub(super) struct LoadInput<'a> {
    /// Scheme, host and port.
    pub(super) base: &'a str,
    /// Server name for TLS, if not the host.
    pub(super) server_name: Option<&'a str>,
    pub(super) seconds: f64,
    /// Processors available to the generator.
    pub(super) cpus: usize,
    /// Processes for the measurement of memory, with idle connections.
    pub(super) pids: &'a [u32],
}

/// Time beyond the expected end after which a load is killed.
const KILL_AFTER: Duration = Duration::from_secs(60);

/// Maximum connections per source address.
const CONNECTIONS_PER_SOURCE: usize = 20_000;

/// Arguments of `yumen-bench` without the output file.
pub(super) fn arguments(settings: &CaseSettings, aim: &LoadInput<'_>) -> Vec<String> {
    let mut args = vec!["load".to_owned()];
    let mut option = |name: &str, value: String| args.extend([format!("--{name}"), value]);
    let clients = &settings.clients;
    // A thread without a connection would only take processor time.
    let threads = clients.threads.unwrap_or(aim.cpus).min(clients.connections).max(1);
    option("threads", threads.to_string());
    option("connections", clients.connections.to_string());
    option("timeout", format!("{}ms", clients.timeout_ms));
    for header in &clients.headers {
        option("header", header.clone());
    }
    if let Some(last) = settings.gateway.key_consumers.checked_sub(1) {
        option("header", format!("apikey: {}", key(last)));
    }
    if let Some(name) = aim.server_name {
        option("server-name", name.to_owned());
    }
    if let Some(version) = clients.tls.as_ref().and_then(|tls| tls.version.as_ref()) {
        option("tls-version", version.clone());
    }
    match settings.load {
        CaseLoad::Closed => option("duration", seconds(aim.seconds)),
        CaseLoad::Open(rate) => {
            option("duration", seconds(aim.seconds));
            option("rate", rate.per_second().unwrap_or(1.0).to_string());
        }
        CaseLoad::Ramp(ramp) => {
            option("ramp", format!("{}:{}:{}", ramp.low, ramp.high, ramp.step));
            option("calls", ramp.calls.to_string());
            option("connections-per-step", ramp.connections_per_step.to_string());
        }
        CaseLoad::Idle => {
            option("idle", seconds(aim.seconds));
            // Each source address has its own local ports, whose number bounds the connections to one
            // endpoint.
            let sources = clients.connections.div_ceil(CONNECTIONS_PER_SOURCE);
            (1..=sources).for_each(|source| option("source", format!("127.0.0.{source}")));
            aim.pids.iter().for_each(|pid| option("pid", pid.to_string()));
        }
    }
    let flags = [
        (clients.new_connection, "--new-connection"),
        (clients.tls.as_ref().is_some_and(|tls| !tls.resumption), "--no-resumption"),
    ];
    args.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| (*flag).to_owned()));
    args.extend(settings.paths().iter().map(|path| format!("{}{path}", aim.base)));
    args
}

/// Expected duration of the load.
pub(super) fn expected(settings: &CaseSettings, seconds: f64) -> Duration {
    let seconds = match settings.load {
        CaseLoad::Closed | CaseLoad::Open(_) | CaseLoad::Idle => seconds,
        CaseLoad::Ramp(ramp) => {
            let steps = ((ramp.high - ramp.low) / ramp.step).floor() as u32;
            let rates = (0..=steps).map(|step| ramp.low + f64::from(step) * ramp.step);
            rates.map(|rate| ramp.connections_per_step as f64 / rate).sum()
        }
    };
    Duration::from_secs_f64(seconds) + KILL_AFTER + Duration::from_millis(settings.clients.timeout_ms)
}

pub(super) struct RunningLoad {
    process: RunningProcess,
    result: PathBuf,
}

impl RunningLoad {
    /// Starts the generator.
    pub(super) fn start(bench: &Path, folder: &Path, cpus: &[usize], args: &[String]) -> Result<RunningLoad> {
        let result = folder.join("load.json");
        // A result of the previous round must not be read if the generator fails.
        let _ = std::fs::remove_file(&result);
        let mut args = args.to_vec();
        args.extend(["--json".to_owned(), result.display().to_string()]);
        let launch = ProcessLaunch {
            program: bench,
            args: &args,
            env: &[],
            cpus,
            log: folder.join("load.log"),
            stop_signal: StopSignal::Terminate,
            pid_file: None,
        };
        Ok(RunningLoad { process: RunningProcess::start(&launch)?, result })
    }

    pub(super) fn root(&self) -> u32 {
        self.process.root()
    }

    /// Waits for the end of the generator and reads its result.
    pub(super) fn finish(&mut self, limit: Duration, stopped: impl Fn() -> bool) -> Result<LoadSummary> {
        let status = self.process.wait(limit, stopped)?;
        let failure = || format!("the generator ended with {status}:\n{}", self.process.log_tail());
        let text = std::fs::read_to_string(&self.result).with_context(failure)?;
        serde_json::from_str(&text).with_context(failure)
    }
}

fn seconds(seconds: f64) -> String {
    format!("{}ms", (seconds * 1000.0).round())
}
