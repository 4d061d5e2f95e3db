//! The plan of a load run. The result contains the plan, so that the run can be repeated.

use serde::{Deserialize, Serialize};

/// One load run. The JSON form is flat: the fields of the groups are beside the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadPlan {
    /// The requests.
    #[serde(flatten)]
    pub request: RequestPlan,
    /// Shape of the load.
    pub kind: LoadShape,
    /// Concurrent connections over all threads.
    pub connections: usize,
    /// Threads, each with its own share of the connections.
    pub threads: usize,
    /// End of the run.
    #[serde(flatten)]
    pub limits: LoadLimits,
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
    /// Statuses that count as success; others are errors.
    pub good_statuses: StatusRange,
    /// Source addresses, used in turn; if empty, the kernel chooses.
    pub sources: Vec<std::net::IpAddr>,
}

/// The requests of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestPlan {
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
}

/// The end of a run, and the part of it that counts. With a duration and a count, the first limit reached ends the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadLimits {
    /// Duration in milliseconds, without the warm-up.
    pub duration_ms: Option<u64>,
    /// Number of requests.
    pub count: Option<u64>,
    /// Warm-up in milliseconds, which is not counted.
    pub warmup_ms: u64,
}

/// An inclusive range of status codes; in JSON a list of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u16; 2]", into = "[u16; 2]")]
pub struct StatusRange {
    /// The lowest status.
    pub first: u16,
    /// The highest status.
    pub last: u16,
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

impl Default for RequestPlan {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            method: "GET".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            body_bytes: 0,
        }
    }
}

impl RequestPlan {
    /// GET requests to one URL.
    pub fn get(url: impl Into<String>) -> Self {
        Self { urls: vec![WeightedUrl { url: url.into(), weight: 1 }], ..Self::default() }
    }
}

impl LoadLimits {
    /// A run of this duration.
    pub fn duration_ms(duration_ms: u64) -> Self {
        Self { duration_ms: Some(duration_ms), ..Self::default() }
    }

    /// A run of this number of requests.
    pub fn count(count: u64) -> Self {
        Self { count: Some(count), ..Self::default() }
    }
}

impl StatusRange {
    /// Whether the range includes the status.
    pub fn contains(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }
}

impl From<[u16; 2]> for StatusRange {
    fn from([first, last]: [u16; 2]) -> Self {
        Self { first, last }
    }
}

impl From<StatusRange> for [u16; 2] {
    fn from(range: StatusRange) -> Self {
        [range.first, range.last]
    }
}

impl Default for LoadPlan {
    fn default() -> Self {
        Self {
            request: RequestPlan::default(),
            kind: LoadShape::Closed,
            connections: 10,
            threads: 1,
            limits: LoadLimits::default(),
            protocol: LoadProtocol::Http1,
            streams: 1,
            new_connection: false,
            tls: TlsPlan::default(),
            connect_timeout_ms: 5_000,
            response_timeout_ms: 5_000,
            good_statuses: StatusRange { first: 200, last: 399 },
            sources: Vec::new(),
        }
    }
}
