//! Settings of a case: load, clients, gateway, endpoints. Must not know their form in the file.

use anyhow::{Result, ensure};
use serde::Deserialize;

/// All settings of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseSettings {
    /// Load of the clients.
    pub load: CaseLoad,
    /// Connections and requests of the clients.
    pub clients: ClientSettings,
    /// Required behaviour of the gateway.
    pub gateway: GatewaySettings,
    /// Endpoints of the upstream.
    pub endpoints: usize,
    /// Changes of the endpoints under load.
    pub changes: Option<EndpointChanges>,
}

/// Load of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum CaseLoad {
    /// Closed loop: each request follows the previous response.
    #[default]
    Closed,
    /// Open loop: constant rate.
    Open(OpenRate),
    /// Rising rate of new connections.
    Ramp(RampSettings),
    /// Held connections.
    Idle,
}

/// Rate of an open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OpenRate {
    /// Requests per second.
    PerSecond(f64),
    /// Share of the slowest target's closed loop rate, which is measured beforehand.
    ShareOfSlowest(f64),
}

/// A ramp of new connections.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct RampSettings {
    /// New connections per second in the first step.
    pub low: f64,
    /// Upper bound of the rate in the last step.
    pub high: f64,
    /// Increment of the rate.
    pub step: f64,
    /// Requests per connection.
    pub calls: u32,
    /// Connections per step.
    pub connections_per_step: u64,
}

impl Default for RampSettings {
    fn default() -> RampSettings {
        RampSettings { low: 0.0, high: 0.0, step: 0.0, calls: 1, connections_per_step: 0 }
    }
}

/// Connections and requests of the clients.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSettings {
    /// Concurrent connections.
    pub connections: usize,
    /// Threads of the generator; `None` for one per processor, at most one per connection.
    pub threads: Option<usize>,
    /// Requested path. With numbered routes, their paths are requested in turn instead.
    pub path: String,
    /// Header fields as sent.
    pub headers: Vec<String>,
    /// Whether every request uses a new connection, regardless of the server.
    pub new_connection: bool,
    /// TLS of the clients; `None` for clear text.
    pub tls: Option<ClientTls>,
    /// Response timeout in milliseconds.
    pub timeout_ms: u64,
}

/// TLS of the clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTls {
    /// The only version offered.
    pub version: Option<String>,
    /// Whether sessions are resumed.
    pub resumption: bool,
}

/// Required behaviour of a gateway, whatever the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewaySettings {
    /// Worker processes or threads.
    pub workers: usize,
    /// Number of routes `/r/0`, `/r/1`, … in addition to the one for all paths.
    pub routes: usize,
    /// Key authentication: consumers with one key each; 0 requires no key.
    pub key_consumers: usize,
    /// Whether requests are counted per client address, with a limit that is never reached.
    pub limit_count: bool,
    /// Origin of the responses.
    pub responder: GatewayResponder,
    /// Maximum idle upstream connections.
    pub keepalive: usize,
}

/// Origin of the responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayResponder {
    /// The gateway forwards to the upstream.
    Upstream,
    /// The gateway responds itself.
    Gateway,
}

/// A cycle of endpoint counts; a round starts with the first.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
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
    /// Required behaviour.
    pub gateway: GatewaySettings,
    /// Whether the gateway has a TLS listener.
    pub tls: bool,
    /// Endpoints at start.
    pub endpoints: usize,
    /// Maximum number of endpoints, if they change.
    pub dynamic_endpoints_max: Option<usize>,
    /// Held connections. Each number needs a new process; otherwise memory of earlier connections counts too.
    pub held: Option<usize>,
}

impl Default for ClientSettings {
    fn default() -> ClientSettings {
        ClientSettings {
            connections: 16,
            threads: None,
            path: "/ping".to_owned(),
            headers: Vec::new(),
            new_connection: false,
            tls: None,
            timeout_ms: 5_000,
        }
    }
}

impl Default for GatewaySettings {
    fn default() -> GatewaySettings {
        GatewaySettings {
            workers: 1,
            routes: 0,
            key_consumers: 0,
            limit_count: false,
            responder: GatewayResponder::Upstream,
            keepalive: 256,
        }
    }
}

impl Default for CaseSettings {
    fn default() -> CaseSettings {
        CaseSettings {
            load: CaseLoad::Closed,
            clients: ClientSettings::default(),
            gateway: GatewaySettings::default(),
            endpoints: 1,
            changes: None,
        }
    }
}

impl OpenRate {
    /// Requests per second, once known.
    pub fn per_second(self) -> Option<f64> {
        match self {
            OpenRate::PerSecond(rate) => Some(rate),
            OpenRate::ShareOfSlowest(_) => None,
        }
    }
}

impl GatewaySettings {
    /// Whether requests need a key.
    pub fn requires_key(&self) -> bool {
        self.key_consumers > 0
    }

    /// Whether the gateway responds itself.
    pub fn responds_itself(&self) -> bool {
        self.responder == GatewayResponder::Gateway
    }
}

impl EndpointChanges {
    /// Validates constraints beyond the types.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(
            self.endpoints.len() == self.stay_ms.len() && self.endpoints.len() >= 2,
            "changes: endpoints and stay_ms are lists of the same length, at least 2"
        );
        ensure!(
            !self.endpoints.contains(&0) && !self.stay_ms.contains(&0),
            "changes: endpoints and stay_ms are at least 1"
        );
        Ok(())
    }
}

impl CaseSettings {
    /// Number of endpoints at start.
    pub fn endpoints_first(&self) -> usize {
        self.changes.as_ref().and_then(|changes| changes.endpoints.first().copied()).unwrap_or(self.endpoints)
    }

    /// Whether the upstream takes part; not if the gateway responds itself.
    pub fn has_upstream(&self) -> bool {
        !self.gateway.responds_itself()
    }

    /// Whether the baseline can be measured: it has no TLS here, and its memory is irrelevant.
    pub fn has_direct(&self) -> bool {
        self.has_upstream() && self.clients.tls.is_none() && self.load != CaseLoad::Idle
    }

    /// Whether a gateway without a specific configuration can take part.
    pub fn asks_nothing_of_the_gateway(&self) -> bool {
        let gateway = &self.gateway;
        let is_plain = !(gateway.requires_key() || gateway.limit_count || gateway.responds_itself());
        gateway.routes == 0 && self.changes.is_none() && is_plain
    }

    /// Whether each request uses its own connection, whose port then stays in TIME-WAIT for a minute.
    pub fn short_connections(&self) -> bool {
        let closes = |header: &String| header.to_ascii_lowercase().starts_with("connection:");
        self.clients.new_connection || self.clients.headers.iter().any(closes)
    }

    /// The settings of the load only. The baseline is measured once for all points with equal ones.
    pub fn load_only(&self) -> CaseSettings {
        let responder = self.gateway.responder;
        CaseSettings {
            load: self.load,
            clients: self.clients.clone(),
            gateway: GatewaySettings { responder, ..GatewaySettings::default() },
            ..CaseSettings::default()
        }
    }

    /// The shape of the gateway. Points with the same shape share one start.
    pub fn shape(&self) -> GatewayShape {
        let most = |changes: &EndpointChanges| changes.endpoints.iter().copied().max();
        GatewayShape {
            gateway: self.gateway.clone(),
            tls: self.clients.tls.is_some(),
            endpoints: self.endpoints_first(),
            dynamic_endpoints_max: self
                .changes
                .as_ref()
                .map(|changes| most(changes).unwrap_or(self.endpoints)),
            held: (self.load == CaseLoad::Idle).then_some(self.clients.connections),
        }
    }

    /// Requested paths: a sample of the numbered routes, or the one path.
    pub fn paths(&self) -> Vec<String> {
        const SPREAD_MAX: usize = 64;
        match self.gateway.routes {
            0 => vec![self.clients.path.clone()],
            routes => {
                let count = routes.min(SPREAD_MAX);
                (0..count).map(|i| format!("/r/{}", i * routes / count)).collect()
            }
        }
    }
}
