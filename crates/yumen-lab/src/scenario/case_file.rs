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
    #[serde(flatten)]
    ramp: RampSettings,
    #[serde(flatten)]
    gateway: GatewayFile,
    /// Upstream: endpoints.
    endpoints: usize,
    /// Changes of the endpoints under load.
    changes: Option<EndpointChanges>,
}

/// The settings of a case for the gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
struct GatewayFile {
    /// Workers.
    workers: usize,
    /// Numbered routes in addition to the one for all paths.
    routes: usize,
    /// Consumers with keys, if key authentication is required.
    consumers: usize,
    /// Whether key authentication is required.
    key_auth: bool,
    /// Whether requests are counted against a limit.
    limit_count: bool,
    /// Whether the gateway responds itself, without the upstream.
    mock: bool,
    /// Maximum idle upstream connections.
    keepalive: usize,
}

impl Default for GatewayFile {
    fn default() -> GatewayFile {
        GatewayFile {
            workers: 1,
            routes: 0,
            consumers: 0,
            key_auth: false,
            limit_count: false,
            mock: false,
            keepalive: 256,
        }
    }
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
            ramp: RampSettings::default(),
            gateway: GatewayFile::default(),
            endpoints: 1,
            changes: None,
        }
    }
}

impl GatewayFile {
    fn settings(&self) -> GatewaySettings {
        GatewaySettings {
            workers: self.workers,
            routes: self.routes,
            key_consumers: if self.key_auth { self.consumers.max(1) } else { 0 },
            limit_count: self.limit_count,
            responder: if self.mock { GatewayResponder::Gateway } else { GatewayResponder::Upstream },
            keepalive: self.keepalive,
        }
    }
}

impl CaseFile {
    /// Validates constraints beyond the types, and groups the settings by subject.
    pub(super) fn settings(self) -> Result<CaseSettings> {
        ensure!(
            self.connections > 0 && self.gateway.workers > 0 && self.endpoints > 0,
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
            gateway: self.gateway.settings(),
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
                let ramp = self.ramp;
                ensure!(
                    ramp.low > 0.0 && ramp.step > 0.0 && ramp.high >= ramp.low,
                    "a ramp has low, high and step, all above 0, and high is not below low"
                );
                ensure!(ramp.connections_per_step > 0, "a ramp has connections_per_step");
                CaseLoad::Ramp(ramp)
            }
        })
    }
}
