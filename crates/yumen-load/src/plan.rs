//! The plan of a load run. The result contains the plan, so that the run can be repeated.

use serde::{Deserialize, Serialize};

/// One load run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadPlan {
    /// Requested URLs by weight.
    pub urls: Vec<WeightedUrl>,
    /// The request method.
    pub method: String,
    /// Header fields as sent. HTTP/2 field names are in lower case (RFC 9113 §8.2.1).
    pub headers: Vec<(String, String)>,
    /// The request body; the result contains only its size.
    #[serde(skip)]
    pub body: Vec<u8>,
    /// Size of the request body in bytes.
    pub body_bytes: u64,
    /// Shape of the load.
    pub kind: LoadShape,
    /// Concurrent connections over all threads.
    pub connections: usize,
    /// Threads, each with its own share of the connections.
    pub threads: usize,
    /// Duration in milliseconds. With a count as well, the first limit reached ends the run.
    pub duration_ms: Option<u64>,
    /// Number of requests.
    pub count: Option<u64>,
    /// Warm-up in milliseconds, which is not counted.
    pub warmup_ms: u64,
    /// The HTTP version.
    pub protocol: LoadProtocol,
    /// HTTP/2: requests in flight per connection.
    pub streams: usize,
    /// Whether every request uses a new connection.
    pub new_connection: bool,
    /// TLS settings for `https` URLs.
    pub tls: TlsPlan,
    /// Timeout of a connection attempt in milliseconds, handshake included.
    pub connect_timeout_ms: u64,
    /// Response timeout in milliseconds, from the first byte of the request.
    pub response_timeout_ms: u64,
    /// First and last status counted as success; others are errors.
    pub good_statuses: (u16, u16),
    /// Source addresses, used in turn; if empty, the kernel chooses.
    pub sources: Vec<std::net::IpAddr>,
}

/// A URL with its relative frequency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightedUrl {
    /// URL with the scheme `http` or `https`.
    pub url: String,
    /// Share of the requests, relative to the sum of all weights.
    pub weight: u32,
}

/// Shape of the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LoadShape {
    /// Closed loop: each request follows the response of the previous one.
    #[default]
    Closed,
    /// Open loop: requests at a constant rate, independent of responses.
    Open {
        /// Requests per second over all connections.
        rate: f64,
    },
    /// New connections at a rate that rises in steps.
    Ramp {
        /// New connections per second in the first step.
        low: f64,
        /// Upper bound of the rate in the last step.
        high: f64,
        /// Increment of the rate per step.
        step: f64,
        /// Requests per connection, one after another.
        calls: u32,
        /// Connections per step.
        connections_per_step: u64,
    },
    /// Connections opened and held idle.
    Idle {
        /// Hold time in milliseconds once all connections are open.
        hold_ms: u64,
        /// Requests per connection before the hold.
        requests_first: u32,
        /// Processes whose memory is measured, including their descendants.
        pids: Vec<u32>,
    },
}

/// The HTTP version of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: by ALPN over TLS, with prior knowledge in clear text.
    Http2,
}

/// TLS settings of the generator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TlsPlan {
    /// The only version offered; `None` offers 1.3 and 1.2.
    pub version: Option<LoadTlsVersion>,
    /// Whether sessions are resumed. Resumption saves the server most of a handshake's cost.
    pub resumption: bool,
    /// Server name to send and verify; without it, the URL's host.
    pub server_name: Option<String>,
    /// PEM file of trust anchors. Without it, the certificate is not verified.
    pub ca_file: Option<String>,
}

/// A TLS version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LoadTlsVersion {
    /// TLS 1.2.
    #[serde(rename = "1.2")]
    V12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    V13,
}

impl Default for TlsPlan {
    fn default() -> Self {
        Self { version: None, resumption: true, server_name: None, ca_file: None }
    }
}

impl Default for LoadPlan {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            method: "GET".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            body_bytes: 0,
            kind: LoadShape::Closed,
            connections: 10,
            threads: 1,
            duration_ms: None,
            count: None,
            warmup_ms: 0,
            protocol: LoadProtocol::Http1,
            streams: 1,
            new_connection: false,
            tls: TlsPlan::default(),
            connect_timeout_ms: 5_000,
            response_timeout_ms: 5_000,
            good_statuses: (200, 399),
            sources: Vec::new(),
        }
    }
}
