//! The form of a case's settings in the file, and its conversion.

use anyhow::{Result, bail, ensure};
use serde::Deserialize;

use super::settings::{
    CaseLoad, CaseSettings, ClientSettings, ClientTls, EndpointChanges, GatewayResponder, GatewaySettings,
    OpenRate, RampSettings,
};

/// The settings of a case in the file of a scenario: one flat map, as axes and cases name single settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CaseFile {
    /// Kind of load.
    load: LoadKind,
    /// Concurrent connections.
    connections: usize,
    /// Threads of the generator; `None` for one per processor, at most one per connection.
    threads: Option<usize>,
    /// Open loop: requests per second.
    rate: Option<f64>,
    /// Open loop without a rate: share of the slowest target's closed loop rate, measured beforehand.
    rate_share: Option<f64>,
    /// Requested path. With numbered routes, their paths are requested in turn instead.
    path: String,
    /// Header fields as sent.
    headers: Vec<String>,
    /// Whether every request uses a new connection, regardless of the server.
    new_connection: bool,
    /// Whether clients use TLS.
    tls: bool,
    /// TLS: the only version offered.
    tls_version: Option<String>,
    /// TLS: whether sessions are resumed.
    resumption: bool,
    /// Response timeout in milliseconds.
    timeout_ms: u64,
    /// Ramp: new connections per second in the first step.
    low: f64,
    /// Ramp: upper bound of the rate in the last step.
    high: f64,
    /// Ramp: increment of the rate per step.
    step: f64,
    /// Ramp: requests per connection.
    calls: u32,
    /// Ramp: connections per step.
    connections_per_step: u64,
    /// Gateway: workers.
    workers: usize,
    /// Gateway: numbered routes in addition to the one for all paths.
    routes: usize,
    /// Gateway: consumers with keys.
    consumers: usize,
    /// Gateway: whether key authentication is required.
    key_auth: bool,
    /// Gateway: whether requests are counted against a limit.
    limit_count: bool,
    /// Gateway: whether it responds itself, without the upstream.
    mock: bool,
    /// Gateway: maximum idle upstream connections.
    keepalive: usize,
    /// Upstream: endpoints.
    endpoints: usize,
    /// Changes of the endpoints under load.
    changes: Option<EndpointChanges>,
}

/// Kind of load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LoadKind {
    /// Closed loop: each request follows the previous response.
    #[default]
    Closed,
    /// Open loop: constant rate.
    Open,
    /// Rising rate of new connections.
    Ramp,
    /// Held connections.
    Idle,
}

impl Default for CaseFile {
    fn default() -> CaseFile {
        CaseFile {
            load: LoadKind::Closed,
            connections: 16,
            threads: None,
            rate: None,
            rate_share: None,
            path: "/ping".to_owned(),
            headers: Vec::new(),
            new_connection: false,
            tls: false,
            tls_version: None,
            resumption: true,
            timeout_ms: 5_000,
            low: 0.0,
            high: 0.0,
            step: 0.0,
            calls: 1,
            connections_per_step: 0,
            workers: 1,
            routes: 0,
            consumers: 0,
            key_auth: false,
            limit_count: false,
            mock: false,
            keepalive: 256,
            endpoints: 1,
            changes: None,
        }
    }
}

impl CaseFile {
    /// Validates constraints beyond the types, and groups the settings by subject.
    pub(super) fn settings(self) -> Result<CaseSettings> {
        ensure!(
            self.connections > 0 && self.workers > 0 && self.endpoints > 0,
            "connections, workers and endpoints are at least 1"
        );
        let load = self.load()?;
        if let Some(changes) = &self.changes {
            changes.check()?;
        }
        Ok(CaseSettings {
            load,
            clients: ClientSettings {
                connections: self.connections,
                threads: self.threads,
                path: self.path,
                headers: self.headers,
                new_connection: self.new_connection,
                tls: self.tls.then_some(ClientTls { version: self.tls_version, resumption: self.resumption }),
                timeout_ms: self.timeout_ms,
            },
            gateway: GatewaySettings {
                workers: self.workers,
                routes: self.routes,
                key_consumers: if self.key_auth { self.consumers.max(1) } else { 0 },
                limit_count: self.limit_count,
                responder: if self.mock { GatewayResponder::Gateway } else { GatewayResponder::Upstream },
                keepalive: self.keepalive,
            },
            endpoints: self.endpoints,
            changes: self.changes,
        })
    }

    fn load(&self) -> Result<CaseLoad> {
        Ok(match self.load {
            LoadKind::Closed => CaseLoad::Closed,
            LoadKind::Idle => CaseLoad::Idle,
            LoadKind::Open => match (self.rate, self.rate_share) {
                (Some(rate), None) => CaseLoad::Open(OpenRate::PerSecond(rate)),
                (None, Some(share)) => CaseLoad::Open(OpenRate::ShareOfSlowest(share)),
                _ => bail!("an open loop has either rate or rate_share"),
            },
            LoadKind::Ramp => {
                ensure!(
                    self.low > 0.0 && self.step > 0.0 && self.high >= self.low,
                    "a ramp has low, high and step, all above 0, and high is not below low"
                );
                ensure!(self.connections_per_step > 0, "a ramp has connections_per_step");
                CaseLoad::Ramp(RampSettings {
                    low: self.low,
                    high: self.high,
                    step: self.step,
                    calls: self.calls,
                    connections_per_step: self.connections_per_step,
                })
            }
        })
    }
}
