//! What a load run tells: everything asked for, everything counted, on what machine.
//! It is the JSON result of `yumen-bench load`. Must not know how any of it was measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::plan::LoadPlan;

/// The version of this format; readers refuse a newer one.
pub const FORMAT: u32 = 1;

/// The result of one load run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadSummary {
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    /// What was asked for: URLs, kind and parameters of the load.
    pub plan: LoadPlan,
    /// Start of the run, milliseconds since 1970, UTC.
    pub started_unix_ms: u64,
    /// From the first intended request to the end of the last one, nanoseconds.
    pub elapsed_ns: u64,
    /// The protocol the responses came in, such as `HTTP/1.1` or `HTTP/2`.
    pub protocol: String,
    /// Facts of the TLS connections, where there were any.
    pub tls: Option<TlsFacts>,
    /// Connections of the run.
    pub connections: ConnectionTotals,
    /// Requests written, whole or in part.
    pub requests: u64,
    /// Whole responses read, whatever their status.
    pub responses: u64,
    /// Requests meant for the run that its end cut off: in flight or, in open loop, not even sent yet.
    pub unanswered: u64,
    /// Bytes of the protocol written, before TLS.
    pub bytes_sent: u64,
    /// Bytes of the protocol read, after TLS.
    pub bytes_received: u64,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// What went wrong, by class.
    pub errors: ErrorTotals,
    /// From the first byte of a request written to the last byte of its response read; responses only.
    pub latency: LatencySummary,
    /// Open loop: from the moment the request was meant to be sent. Requests given up at their timeout, and those
    /// the end of the run cut off, are in it with the time they had waited: they took at least so long.
    pub latency_corrected: Option<LatencySummary>,
    /// From the start of connecting until requests may be sent, TLS handshake included.
    pub connect_latency: Option<LatencySummary>,
    /// Open loop: how late the generator itself was where it had a free connection. It shows whether
    /// the generator kept its own schedule.
    pub schedule_lag: Option<LatencySummary>,
    /// One entry for each second of the run; seconds without events are entries too.
    pub timeline: Vec<SecondSummary>,
    /// Rate ramp: its steps in order.
    pub ramp: Vec<RampStep>,
    /// Idle connections: what they cost the target.
    pub idle: Option<IdleSummary>,
    /// What the generator itself spent.
    pub generator: GeneratorCost,
    /// Where it ran.
    pub machine: GeneratorMachine,
    /// Versions by name: the program, the libraries that matter, the kernel.
    pub versions: BTreeMap<String, String>,
}

impl LoadSummary {
    /// Responses per second over the whole run.
    pub fn responses_per_second(&self) -> f64 {
        if self.elapsed_ns == 0 { 0.0 } else { self.responses as f64 * 1e9 / self.elapsed_ns as f64 }
    }

    /// The latency a reader should look at first: the corrected one where there is one.
    pub fn main_latency(&self) -> &LatencySummary {
        self.latency_corrected.as_ref().unwrap_or(&self.latency)
    }

    /// The generator's CPU time per response in nanoseconds.
    pub fn generator_ns_per_response(&self) -> f64 {
        let used_nonces = self.generator.cpu_user_ns + self.generator.cpu_system_ns;
        if self.responses == 0 { 0.0 } else { used_nonces as f64 / self.responses as f64 }
    }
}

/// What the first TLS connection agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsFacts {
    /// Such as `TLSv1.3`.
    pub version: String,
    /// Such as `TLS13_AES_256_GCM_SHA384`.
    pub cipher_suite: String,
    /// Such as `X25519`.
    pub key_exchange: Option<String>,
    /// The protocol agreed by ALPN, if one was.
    pub alpn: Option<String>,
    /// The server certificate's key, such as `RSA 2048` or `ECDSA P-256`, where it can be told.
    pub certificate_key: Option<String>,
}

/// Connections of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionTotals {
    /// TCP connections established.
    pub opened: u64,
    /// Of those with TLS, how many made a full handshake.
    pub full_handshakes: u64,
    /// Of those with TLS, how many resumed a session.
    pub resumed_handshakes: u64,
    /// Connections the server ended where the protocol allowed it: after a response and before a request.
    pub closed_by_server: u64,
}

/// What went wrong, each event in one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorTotals {
    /// Connections refused or reset while connecting, and failed TLS handshakes.
    pub connect: u64,
    /// Connections not established in time.
    pub connect_timeout: u64,
    /// Connections that ended or failed while a response was awaited or read.
    pub read: u64,
    /// Connections that failed while a request was written.
    pub write: u64,
    /// Responses not complete in time.
    pub response_timeout: u64,
    /// Responses with a status that counts as bad. They are responses too.
    pub bad_status: u64,
    /// Answers that are not the protocol.
    pub protocol: u64,
    /// The first message of each class, by the class's name.
    pub examples: BTreeMap<String, String>,
}

impl LatencySummary {
    /// The value at one of the percentiles kept; `None` for others and where nothing was recorded.
    pub fn at(&self, percentile: f64) -> Option<u64> {
        let found = self.percentiles.iter().find(|point| (point.percentile - percentile).abs() < 1e-9);
        found.map(|point| point.ns)
    }
}

impl ErrorTotals {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.by_class().iter().map(|(_, count)| count).sum()
    }

    /// Every class with its name, in the order they may happen.
    pub fn by_class(&self) -> [(&'static str, u64); 7] {
        [
            ("connect", self.connect),
            ("connect_timeout", self.connect_timeout),
            ("write", self.write),
            ("read", self.read),
            ("response_timeout", self.response_timeout),
            ("bad_status", self.bad_status),
            ("protocol", self.protocol),
        ]
    }
}

/// A distribution of durations in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// How many were recorded.
    pub count: u64,
    /// The shortest.
    pub min_ns: u64,
    /// The arithmetic mean.
    pub mean_ns: f64,
    /// The standard deviation.
    pub stdev_ns: f64,
    /// The longest.
    pub max_ns: u64,
    /// Quantiles out to p99.9999, rising. Far ones say little where the count is small: see `count`.
    pub percentiles: Vec<LatencyPercentile>,
    /// The whole histogram: HdrHistogram V2, compressed, base64, three significant digits.
    pub histogram: String,
}

/// One point of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyPercentile {
    /// From 0 to 100.
    pub percentile: f64,
    /// So much of the distribution took this long or less, nanoseconds.
    pub ns: u64,
}

/// One second of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondSummary {
    /// Seconds since the start; the entry covers the second that begins there.
    pub second: u64,
    /// Whole responses read in it.
    pub responses: u64,
    /// Errors of all classes in it.
    pub errors: u64,
    /// Median of the latency a reader looks at first (corrected where there is one), nanoseconds.
    pub p50_ns: u64,
    /// The 99th percentile of it.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// One step of a rate ramp. Rates are per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RampStep {
    /// New connections asked for.
    pub connection_rate: f64,
    /// Requests asked for: connections times calls.
    pub demanded_request_rate: f64,
    /// Connections made.
    pub achieved_connection_rate: f64,
    /// Requests sent.
    pub request_rate: f64,
    /// Responses in the worst second of the step.
    pub reply_rate_min: f64,
    /// Responses over the whole step.
    pub reply_rate: f64,
    /// Responses in the best second.
    pub reply_rate_max: f64,
    /// Standard deviation over the seconds.
    pub reply_rate_stdev: f64,
    /// Bytes both ways.
    pub net_io_bytes: f64,
    /// Requests that should have been answered.
    pub calls: u64,
    /// Responses that came in time.
    pub responses: u64,
    /// Errors of the step.
    pub errors: ErrorTotals,
    /// Calls without a good answer, in percent of all.
    pub error_percent: f64,
    /// From the first byte of a request to the last of its response.
    pub latency: LatencySummary,
}

/// What idle connections cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IdleSummary {
    /// Connections asked for.
    pub wanted: u64,
    /// Connections open at the end of the hold.
    pub held: u64,
    /// Connections the other side ended during the hold.
    pub lost: u64,
    /// Opening all of them took so long, nanoseconds.
    pub opening_ns: u64,
    /// They were held so long, nanoseconds.
    pub held_ns: u64,
    /// Requests made on each before it fell idle.
    pub requests_first: u32,
    /// The processes looked at: those named, and their children.
    pub pids: Vec<u32>,
    /// Resident memory of those before the first connection, bytes.
    pub rss_before_bytes: u64,
    /// Resident memory while all were held, bytes.
    pub rss_held_bytes: u64,
    /// The difference for each connection held; `None` without a process to look at.
    pub rss_per_connection_bytes: Option<f64>,
}

/// What the generator itself spent during the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratorCost {
    /// CPU time in user space, nanoseconds.
    pub cpu_user_ns: u64,
    /// CPU time in the kernel, nanoseconds.
    pub cpu_system_ns: u64,
    /// The largest resident memory, bytes.
    pub rss_max_bytes: u64,
}

/// Where it ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratorMachine {
    /// Processor model.
    pub cpu: String,
    /// Logical processors this process may use.
    pub cpus: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel name and release.
    pub kernel: String,
    /// The distribution's own name.
    pub os: String,
}
