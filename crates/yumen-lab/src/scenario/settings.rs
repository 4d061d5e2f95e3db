//! Settings of one point: load, gateway features, upstream, changes.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// All settings of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaseSettings {
    /// Kind of load.
    pub load: LoadKind,
    /// Concurrent connections.
    pub connections: usize,
    /// Threads of the generator; `None` for one per processor, at most one per connection.
    pub threads: Option<usize>,
    /// Open loop: requests per second.
    pub rate: Option<f64>,
    /// Open loop without a rate: share of the slowest target's closed loop rate, measured beforehand.
    pub rate_share: Option<f64>,
    /// Requested path. With numbered routes, their paths are requested in turn instead.
    pub path: String,
    /// Header fields as sent.
    pub headers: Vec<String>,
    /// Whether every request uses a new connection, regardless of the server.
    pub new_connection: bool,
    /// Whether clients use TLS.
    pub tls: bool,
    /// TLS: the only version offered.
    pub tls_version: Option<String>,
    /// TLS: whether sessions are resumed.
    pub resumption: bool,
    /// Response timeout in milliseconds.
    pub timeout_ms: u64,
    /// Ramp: new connections per second in the first step.
    pub low: f64,
    /// Ramp: upper bound of the rate in the last step.
    pub high: f64,
    /// Ramp: increment of the rate per step.
    pub step: f64,
    /// Ramp: requests per connection.
    pub calls: u32,
    /// Ramp: connections per step.
    pub connections_per_step: u64,
    /// Gateway: workers.
    pub workers: usize,
    /// Gateway: numbered routes in addition to the one for all paths.
    pub routes: usize,
    /// Gateway: consumers with keys.
    pub consumers: usize,
    /// Gateway: whether key authentication is required.
    pub key_auth: bool,
    /// Gateway: whether requests are counted against a limit.
    pub limit_count: bool,
    /// Gateway: whether it responds itself, without the upstream.
    pub mock: bool,
    /// Gateway: maximum idle upstream connections.
    pub keepalive: usize,
    /// Upstream: endpoints.
    pub endpoints: usize,
    /// Changes of the endpoints under load.
    pub changes: Option<EndpointChanges>,
}

/// Kind of load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadKind {
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

/// A cycle of endpoint counts; a round starts with the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointChanges {
    /// Endpoint counts, repeated cyclically.
    pub endpoints: Vec<usize>,
    /// Duration of each count in milliseconds.
    pub stay_ms: Vec<u64>,
    /// Whether removed endpoints also stop, one second later, as pods do.
    #[serde(default)]
    pub stop: bool,
    /// Whether the gateway receives the changes.
    ///
    /// If not, it keeps the first count, and the round shows the machine's cost of processes that start and
    /// stop.
    #[serde(default = "yes")]
    pub announce: bool,
}

fn yes() -> bool {
    true
}

/// Properties that require a separate start of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayShape {
    /// Workers.
    pub workers: usize,
    /// Numbered routes.
    pub routes: usize,
    /// Consumers.
    pub consumers: usize,
    /// Whether key authentication is required.
    pub key_auth: bool,
    /// Whether requests are counted against a limit.
    pub limit_count: bool,
    /// Whether the gateway responds itself.
    pub mock: bool,
    /// Maximum idle upstream connections.
    pub keepalive: usize,
    /// Whether the gateway has a TLS listener.
    pub tls: bool,
    /// Endpoints at start.
    pub endpoints: usize,
    /// Maximum number of endpoints.
    pub endpoints_max: usize,
    /// Whether the endpoints change.
    pub dynamic: bool,
    /// Held connections. Each number needs a new process; otherwise memory of earlier connections counts too.
    pub held: Option<usize>,
}

impl Default for CaseSettings {
    fn default() -> CaseSettings {
        CaseSettings {
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

impl CaseSettings {
    /// Validates constraints beyond the types.
    pub(super) fn check(&self) -> Result<()> {
        if self.connections == 0 || self.workers == 0 || self.endpoints == 0 {
            bail!("connections, workers and endpoints are at least 1");
        }
        if self.load == LoadKind::Open && self.rate.is_none() == self.rate_share.is_none() {
            bail!("an open loop has either rate or rate_share");
        }
        if self.load == LoadKind::Ramp && !(self.low > 0.0 && self.step > 0.0 && self.high >= self.low) {
            bail!("a ramp has low, high and step, all above 0, and high is not below low");
        }
        if self.load == LoadKind::Ramp && self.connections_per_step == 0 {
            bail!("a ramp has connections_per_step");
        }
        let Some(changes) = &self.changes else { return Ok(()) };
        if changes.endpoints.len() != changes.stay_ms.len() || changes.endpoints.len() < 2 {
            bail!("changes: endpoints and stay_ms are lists of the same length, at least 2");
        }
        if changes.endpoints.contains(&0) || changes.stay_ms.contains(&0) {
            bail!("changes: endpoints and stay_ms are at least 1");
        }
        Ok(())
    }

    /// Number of endpoints at start.
    pub fn endpoints_first(&self) -> usize {
        self.changes.as_ref().and_then(|changes| changes.endpoints.first().copied()).unwrap_or(self.endpoints)
    }

    /// Maximum number of endpoints.
    pub fn endpoints_max(&self) -> usize {
        let changed = self.changes.iter().flat_map(|changes| changes.endpoints.iter().copied()).max();
        changed.unwrap_or(self.endpoints)
    }

    /// Whether the upstream takes part; not if the gateway responds itself.
    pub fn has_upstream(&self) -> bool {
        !self.mock
    }

    /// Whether the baseline can be measured: it has no TLS here, and its memory is irrelevant.
    pub fn has_direct(&self) -> bool {
        self.has_upstream() && !self.tls && self.load != LoadKind::Idle
    }

    /// Whether a gateway without a specific configuration can take part.
    pub fn asks_nothing_of_the_gateway(&self) -> bool {
        self.routes == 0 && self.changes.is_none() && !(self.key_auth || self.limit_count || self.mock)
    }

    /// Whether each request uses its own connection, whose port then stays in TIME-WAIT for a minute.
    pub fn short_connections(&self) -> bool {
        let closes = |header: &String| header.to_ascii_lowercase().starts_with("connection:");
        self.new_connection || self.headers.iter().any(closes)
    }

    /// The settings of the load only. The baseline is measured once for all points with equal ones.
    pub fn load_only(&self) -> CaseSettings {
        let plain = CaseSettings::default();
        CaseSettings {
            workers: plain.workers,
            routes: plain.routes,
            consumers: plain.consumers,
            key_auth: plain.key_auth,
            limit_count: plain.limit_count,
            keepalive: plain.keepalive,
            endpoints: plain.endpoints,
            changes: None,
            ..self.clone()
        }
    }

    /// The shape of the gateway. Points with the same shape share one start.
    pub fn shape(&self) -> GatewayShape {
        GatewayShape {
            workers: self.workers,
            routes: self.routes,
            consumers: self.consumers,
            key_auth: self.key_auth,
            limit_count: self.limit_count,
            mock: self.mock,
            keepalive: self.keepalive,
            tls: self.tls,
            endpoints: self.endpoints_first(),
            endpoints_max: self.endpoints_max(),
            dynamic: self.changes.is_some(),
            held: (self.load == LoadKind::Idle).then_some(self.connections),
        }
    }

    /// Requested paths: a sample of the numbered routes, or the one path.
    pub fn paths(&self) -> Vec<String> {
        const SPREAD_MAX: usize = 64;
        match self.routes {
            0 => vec![self.path.clone()],
            routes => {
                let count = routes.min(SPREAD_MAX);
                (0..count).map(|i| format!("/r/{}", i * routes / count)).collect()
            }
        }
    }
}
