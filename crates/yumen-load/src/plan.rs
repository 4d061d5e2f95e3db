//! What a load run is asked to do. Every part of it stands in the result as well, so that it can be repeated.

use serde::{Deserialize, Serialize};

/// One load run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadPlan {
    /// Where requests go, by weight.
    pub urls: Vec<WeightedUrl>,
    /// The request method.
    pub method: String,
    /// Header fields exactly as they are sent. HTTP/2 has no upper case in names.
    pub headers: Vec<(String, String)>,
    /// The request body; only its size is in the result.
    #[serde(skip)]
    pub body: Vec<u8>,
    /// Bytes of the request body.
    pub body_bytes: u64,
    /// The kind of load.
    pub kind: LoadShape,
    /// Connections held at once, over all threads.
    pub connections: usize,
    /// Threads, each with its own share of the connections.
    pub threads: usize,
    /// How long, milliseconds. With a count as well, whichever comes first.
    pub duration_ms: Option<u64>,
    /// How many requests.
    pub count: Option<u64>,
    /// What is not counted at the beginning, milliseconds.
    pub warmup_ms: u64,
    /// The protocol spoken.
    pub protocol: LoadProtocol,
    /// HTTP/2: requests in flight on each connection.
    pub streams: usize,
    /// Every request on a connection of its own.
    pub new_connection: bool,
    /// How TLS is spoken, for `https` URLs.
    pub tls: TlsPlan,
    /// Milliseconds until a connection attempt is given up, handshake included.
    pub connect_timeout_ms: u64,
    /// Milliseconds until a response is given up, from the first byte of its request.
    pub response_timeout_ms: u64,
    /// Statuses from the first to the last are good; others count as errors.
    pub good_statuses: (u16, u16),
    /// Source addresses, taken in turn; empty leaves it to the kernel.
    pub sources: Vec<std::net::IpAddr>,
}

/// A URL and how often it is asked for in comparison with the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightedUrl {
    /// `http://` or `https://`.
    pub url: String,
    /// Its share is its weight over the sum of weights.
    pub weight: u32,
}

/// The kind of load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LoadShape {
    /// The next request when the last one was answered.
    #[default]
    Closed,
    /// Requests at a constant rate, whether the last ones were answered or not.
    Open {
        /// Requests per second over all connections.
        rate: f64,
    },
    /// New connections at a rate that rises in steps.
    Ramp {
        /// New connections per second in the first step.
        low: f64,
        /// The last step's rate is this or the last below it.
        high: f64,
        /// From one step to the next.
        step: f64,
        /// Requests on each connection, one after another.
        calls: u32,
        /// Connections in each step.
        connections_per_step: u64,
    },
    /// Connections opened and held.
    Idle {
        /// Milliseconds they are held once all are open.
        hold_ms: u64,
        /// Requests on each before it falls idle.
        requests_first: u32,
        /// Processes whose memory is looked at, with their children.
        pids: Vec<u32>,
    },
}

/// The protocol spoken over a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: by ALPN over TLS, with prior knowledge in clear text.
    Http2,
}

/// How TLS is spoken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TlsPlan {
    /// The only version offered; `None` offers 1.3 and 1.2.
    pub version: Option<LoadTlsVersion>,
    /// Whether sessions are resumed. Resumption saves the server most of a handshake.
    pub resumption: bool,
    /// The name sent and, where the certificate is verified, looked for; the URL's host if none.
    pub server_name: Option<String>,
    /// Trust anchors in PEM; the certificate is verified against them. Without it, nothing is verified.
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
