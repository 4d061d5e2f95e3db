//! What one parameter point settles: the load, what gateways are to do, the upstream, the changes.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// Everything a case is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaseSettings {
    /// The kind of load.
    pub load: LoadKind,
    /// Connections at once.
    pub connections: usize,
    /// Threads of the generator; `None` takes one per processor it has, at most one per connection.
    pub threads: Option<usize>,
    /// Open loop: requests per second.
    pub rate: Option<f64>,
    /// Open loop without a rate: this share of what the slowest target did in a closed loop beforehand.
    pub rate_share: Option<f64>,
    /// What is asked for. With numbered routes, those are asked for in turn instead.
    pub path: String,
    /// Fields as they are sent.
    pub headers: Vec<String>,
    /// Every request on a connection of its own, whatever the server says.
    pub new_connection: bool,
    /// Whether clients speak TLS.
    pub tls: bool,
    /// TLS: the only version offered.
    pub tls_version: Option<String>,
    /// TLS: whether sessions are resumed.
    pub resumption: bool,
    /// An answer later than this is an error, milliseconds.
    pub timeout_ms: u64,
    /// Ramp: new connections per second in the first step.
    pub low: f64,
    /// Ramp: and in the last.
    pub high: f64,
    /// Ramp: from one step to the next.
    pub step: f64,
    /// Ramp: requests on each connection.
    pub calls: u32,
    /// Ramp: connections of a step.
    pub connections_per_step: u64,
    /// Gateway: workers.
    pub workers: usize,
    /// Gateway: numbered routes beside the one for all paths.
    pub routes: usize,
    /// Gateway: consumers with keys.
    pub consumers: usize,
    /// Gateway: whether requests need a key.
    pub key_auth: bool,
    /// Gateway: whether requests are counted.
    pub limit_count: bool,
    /// Gateway: whether it answers itself, without the upstream.
    pub mock: bool,
    /// Gateway: idle upstream connections kept.
    pub keepalive: usize,
    /// Upstream: endpoints.
    pub endpoints: usize,
    /// Changes of the endpoints while the load runs.
    pub changes: Option<EndpointChanges>,
}

/// The kind of load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadKind {
    /// The next request when the last was answered.
    #[default]
    Closed,
    /// A constant rate.
    Open,
    /// A rising rate of new connections.
    Ramp,
    /// Connections that are held.
    Idle,
}

/// A cycle of endpoint counts; a round begins at the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointChanges {
    /// Endpoints, one count after another and round again.
    pub endpoints: Vec<usize>,
    /// How long each count stays, milliseconds.
    pub stay_ms: Vec<u64>,
    /// Whether endpoints that are taken out also stop, a second later, as pods do.
    #[serde(default)]
    pub stop: bool,
    /// Whether the gateway is told. Where it is not, it stays with the first count, and what is seen is what processes
    /// that begin and end beside it cost the machine.
    #[serde(default = "yes")]
    pub announce: bool,
}

fn yes() -> bool {
    true
}

/// What distinguishes one started gateway from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayShape {
    /// Workers.
    pub workers: usize,
    /// Numbered routes.
    pub routes: usize,
    /// Consumers.
    pub consumers: usize,
    /// Whether requests need a key.
    pub key_auth: bool,
    /// Whether requests are counted.
    pub limit_count: bool,
    /// Whether it answers itself.
    pub mock: bool,
    /// Idle upstream connections kept.
    pub keepalive: usize,
    /// Whether it listens for TLS.
    pub tls: bool,
    /// Endpoints at the start.
    pub endpoints: usize,
    /// The most there will be.
    pub endpoints_max: usize,
    /// Whether they will change.
    pub dynamic: bool,
    /// Connections that are held: each number needs a fresh gateway, or memory of the last is counted.
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
    /// What no type says.
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

    /// Endpoints the gateway begins with.
    pub fn endpoints_first(&self) -> usize {
        self.changes.as_ref().and_then(|changes| changes.endpoints.first().copied()).unwrap_or(self.endpoints)
    }

    /// The most endpoints there are at any time.
    pub fn endpoints_max(&self) -> usize {
        let changed = self.changes.iter().flat_map(|changes| changes.endpoints.iter().copied()).max();
        changed.unwrap_or(self.endpoints)
    }

    /// Whether the upstream has a part in it: it has not where the gateway answers itself.
    pub fn has_upstream(&self) -> bool {
        !self.mock
    }

    /// Whether the upstream alone can be measured at it: it speaks no TLS here, and its memory is of no interest.
    pub fn has_direct(&self) -> bool {
        self.has_upstream() && !self.tls && self.load != LoadKind::Idle
    }

    /// Whether a gateway nobody configured for it can take part.
    pub fn asks_nothing_of_the_gateway(&self) -> bool {
        self.routes == 0 && self.changes.is_none() && !(self.key_auth || self.limit_count || self.mock)
    }

    /// Whether requests have connections of their own, which then hold ports for a minute.
    pub fn short_connections(&self) -> bool {
        let closes = |header: &String| header.to_ascii_lowercase().starts_with("connection:");
        self.new_connection || self.headers.iter().any(closes)
    }

    /// What concerns the load only: the upstream alone is measured once for all points that agree in it.
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

    /// What a gateway must be started with: points that agree in it share one start.
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

    /// Paths that are asked for in turn: a spread over the numbered routes, or the one path.
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
