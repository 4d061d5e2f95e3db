//! The result of a load run: plan, counters, latencies and machine. This is the JSON result of `yumen-bench
//! load`. Independent of the measurement.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::plan::LoadPlan;

/// Version of this format; readers refuse a newer one.
pub const FORMAT: u32 = 1;

/// The result of one load run. The JSON form is flat: the fields of the groups are beside the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadSummary {
    /// [`FORMAT`] of the writing program.
    pub format: u32,
    /// The executed plan.
    pub plan: LoadPlan,
    /// Start of the run in milliseconds since the Unix epoch.
    pub started_unix_ms: u64,
    /// Time from the first intended request to the end of the last one, in nanoseconds.
    pub elapsed_ns: u64,
    /// Protocols of the connections.
    #[serde(flatten)]
    pub protocols: LoadProtocols,
    /// Connections of the run.
    pub connections: ConnectionTotals,
    /// Requests and responses of the run.
    #[serde(flatten)]
    pub totals: RequestTotals,
    /// Bytes of the run.
    #[serde(flatten)]
    pub transfer: TransferTotals,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Errors by class.
    pub errors: ErrorTotals,
    /// Distributions of the durations.
    #[serde(flatten)]
    pub latencies: LoadLatencies,
    /// One entry per second of the run, including seconds without events.
    pub timeline: Vec<SecondSummary>,
    /// Rate ramp: the steps in order.
    pub ramp: Vec<RampStep>,
    /// Idle connections: memory of the target.
    pub idle: Option<IdleSummary>,
    /// The generator and its cost.
    #[serde(flatten)]
    pub generator: GeneratorReport,
}

/// Requests and responses of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTotals {
    /// Requests sent, in whole or in part.
    pub requests: u64,
    /// Complete responses, whatever their status.
    pub responses: u64,
    /// Requests cut off by the end of the run: in flight or, in open loop, due and not sent.
    pub unanswered: u64,
}

/// Bytes of a run, without TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferTotals {
    /// Bytes sent, before TLS encryption.
    pub bytes_sent: u64,
    /// Bytes received, after TLS decryption.
    pub bytes_received: u64,
}

/// Distributions of the durations in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadLatencies {
    /// Time from the first byte of a request to the last byte of its response; complete responses only.
    #[serde(rename = "latency")]
    pub response: LatencySummary,
    /// Open loop: time from the intended send time.
    ///
    /// Includes requests that timed out or were cut off by the end of the run, with the time until then as a
    /// lower bound.
    #[serde(rename = "latency_corrected")]
    pub corrected: Option<LatencySummary>,
    /// Time from the start of connecting until requests can be sent, TLS handshake included.
    #[serde(rename = "connect_latency")]
    pub connect: Option<LatencySummary>,
    /// Open loop: delay of the generator itself while a connection was free. Shows whether the generator kept
    /// its schedule.
    pub schedule_lag: Option<LatencySummary>,
}

/// The generator of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratorReport {
    /// CPU time and memory.
    #[serde(rename = "generator")]
    pub cost: GeneratorCost,
    /// Its machine.
    pub machine: GeneratorMachine,
    /// Versions by name: program and kernel.
    pub versions: BTreeMap<String, String>,
}

/// Protocols of the connections of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadProtocols {
    /// Protocol of the responses, such as `HTTP/1.1` or `HTTP/2`.
    pub protocol: String,
    /// Parameters of the TLS connections; `None` in clear text.
    pub tls: Option<TlsFacts>,
}

impl LoadSummary {
    /// Responses per second over the whole run.
    pub fn responses_per_second(&self) -> f64 {
        // JSON has no NaN.
        if self.elapsed_ns == 0 { 0.0 } else { self.totals.responses as f64 * 1e9 / self.elapsed_ns as f64 }
    }

    /// The primary latency: the corrected one if present.
    pub fn main_latency(&self) -> &LatencySummary {
        self.latencies.corrected.as_ref().unwrap_or(&self.latencies.response)
    }

    /// Seconds of the timeline that were observed in full.
    ///
    /// A rate or a percentile of a partial second cannot be compared with those of the others.
    pub fn whole_seconds(&self) -> impl Iterator<Item = &SecondSummary> {
        // The steps of a ramp are joined, so their offsets are no times. Records without spans are judged by the
        // duration.
        let is_joined = !self.ramp.is_empty();
        let ends_ns = |second: &SecondSummary| (second.second + 1) * SECOND_NS;
        let seconds = self.timeline.iter().filter(|second| second.span_ns >= SECOND_NS);
        seconds.filter(move |second| is_joined || ends_ns(second) <= self.elapsed_ns)
    }

    /// CPU time of the generator per response in nanoseconds.
    pub fn generator_ns_per_response(&self) -> f64 {
        match self.totals.responses {
            0 => 0.0,
            responses => self.generator.cost.cpu_ns() as f64 / responses as f64,
        }
    }
}

/// Parameters negotiated by the first TLS connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsFacts {
    /// Version, such as `TLSv1.3`.
    pub version: String,
    /// Cipher suite, such as `TLS13_AES_256_GCM_SHA384`.
    pub cipher_suite: String,
    /// Key exchange group, such as `X25519`.
    pub key_exchange: Option<String>,
    /// Protocol negotiated by ALPN, if any.
    pub alpn: Option<String>,
    /// Key of the server certificate, such as `RSA 2048` or `ECDSA P-256`, if recognized.
    pub certificate_key: Option<String>,
}

/// Connections of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionTotals {
    /// Established TCP connections.
    pub opened: u64,
    /// TLS connections with a full handshake.
    pub full_handshakes: u64,
    /// TLS connections with a resumed session.
    pub resumed_handshakes: u64,
    /// Connections closed by the server where the protocol allows it: after a response, before a request.
    pub closed_by_server: u64,
}

/// Errors by class; each event belongs to one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorTotals {
    /// Refused or reset connection attempts, and failed TLS handshakes.
    pub connect: u64,
    /// Connection attempts that timed out.
    pub connect_timeout: u64,
    /// Connections that ended or failed during a response.
    pub read: u64,
    /// Connections that failed during a request.
    pub write: u64,
    /// Incomplete responses at the timeout.
    pub response_timeout: u64,
    /// Responses with a status outside the accepted range. They count as responses too.
    pub bad_status: u64,
    /// Responses that violate the protocol.
    pub protocol: u64,
    /// First message of each class, by class name.
    pub examples: BTreeMap<String, String>,
}

impl RequestTotals {
    /// Adds the counts of another thread or phase.
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.responses += other.responses;
        self.unanswered += other.unanswered;
    }
}

impl TransferTotals {
    /// Adds the bytes of another thread or phase.
    pub(crate) fn add(&mut self, other: &Self) {
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
    }
}

impl ConnectionTotals {
    /// Adds the connections of another thread or phase.
    pub(crate) fn add(&mut self, other: &Self) {
        self.opened += other.opened;
        self.full_handshakes += other.full_handshakes;
        self.resumed_handshakes += other.resumed_handshakes;
        self.closed_by_server += other.closed_by_server;
    }
}

impl LatencySummary {
    /// Value at a listed percentile; `None` for others and without records.
    pub fn at(&self, percentile: f64) -> Option<u64> {
        // Percentiles are decimal fractions, which floats hold inexactly.
        let found = self.percentiles.iter().find(|point| (point.percentile - percentile).abs() < 1e-9);
        found.map(|point| point.ns)
    }
}

impl ErrorTotals {
    /// Adds counts by class; the first example is retained.
    pub(crate) fn add(&mut self, other: &Self) {
        self.connect += other.connect;
        self.connect_timeout += other.connect_timeout;
        self.read += other.read;
        self.write += other.write;
        self.response_timeout += other.response_timeout;
        self.bad_status += other.bad_status;
        self.protocol += other.protocol;
        for (class, example) in &other.examples {
            self.examples.entry(class.clone()).or_insert_with(|| example.clone());
        }
    }

    /// Sum over all classes.
    pub fn total(&self) -> u64 {
        self.by_class().iter().map(|(_, count)| count).sum()
    }

    /// Every class with its name, in the order of a request's phases.
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
    /// Number of records.
    pub count: u64,
    /// Minimum.
    pub min_ns: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Standard deviation.
    pub stdev_ns: f64,
    /// Maximum.
    pub max_ns: u64,
    /// Ascending percentiles up to p99.9999. High ones are meaningless for a small `count`.
    pub percentiles: Vec<LatencyPercentile>,
    /// Complete histogram: HdrHistogram V2, compressed, base64, three significant digits.
    pub histogram: String,
}

/// One point of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyPercentile {
    /// Percentile from 0 to 100.
    pub percentile: f64,
    /// Upper bound in nanoseconds for this share of the distribution.
    pub ns: u64,
}

/// One second of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondSummary {
    /// Offset of the second from the start, in seconds.
    pub second: u64,
    /// Observed part of the second in nanoseconds; the last second of a run may be shorter than the others.
    #[serde(default = "whole_second")]
    pub span_ns: u64,
    /// Complete responses.
    pub responses: u64,
    /// Errors of all classes.
    pub errors: u64,
    /// Median of the primary latency in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile of the primary latency in nanoseconds.
    pub p99_ns: u64,
    /// Maximum of the primary latency in nanoseconds.
    pub max_ns: u64,
}

/// Nanoseconds of a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

fn whole_second() -> u64 {
    SECOND_NS
}

/// One step of a rate ramp. Rates are per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RampStep {
    /// Planned new connections.
    pub connection_rate: f64,
    /// Planned requests: connections times calls.
    pub demanded_request_rate: f64,
    /// Established connections.
    pub achieved_connection_rate: f64,
    /// Requests sent.
    pub request_rate: f64,
    /// Responses in the slowest second.
    pub reply_rate_min: f64,
    /// Responses over the whole step.
    pub reply_rate: f64,
    /// Responses in the fastest second.
    pub reply_rate_max: f64,
    /// Standard deviation over the seconds.
    pub reply_rate_stdev: f64,
    /// Bytes sent and received.
    pub net_io_bytes: f64,
    /// Planned requests of the step.
    pub calls: u64,
    /// Complete responses.
    pub responses: u64,
    /// Errors of the step.
    pub errors: ErrorTotals,
    /// Calls without a successful response, in percent of all.
    pub error_percent: f64,
    /// Time from the first byte of a request to the last byte of its response.
    pub latency: LatencySummary,
}

/// Memory cost of idle connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IdleSummary {
    /// Planned connections.
    pub wanted: u64,
    /// Open connections at the end of the hold.
    pub held: u64,
    /// Connections closed by the peer during the hold.
    pub lost: u64,
    /// Time to open all connections, in nanoseconds.
    pub opening_ns: u64,
    /// Hold time in nanoseconds.
    pub held_ns: u64,
    /// Requests per connection before the hold.
    pub requests_first: u32,
    /// Measured processes: the given ones and their descendants.
    pub pids: Vec<u32>,
    /// Resident memory before the first connection, in bytes.
    pub rss_before_bytes: u64,
    /// Resident memory during the hold, in bytes.
    pub rss_held_bytes: u64,
    /// Memory growth per held connection in bytes; `None` without a process to measure.
    pub rss_per_connection_bytes: Option<f64>,
}

/// Cost of the generator during the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratorCost {
    /// CPU time in user space, in nanoseconds.
    pub cpu_user_ns: u64,
    /// CPU time in the kernel, in nanoseconds.
    pub cpu_system_ns: u64,
    /// Peak resident memory in bytes.
    pub rss_max_bytes: u64,
}

impl GeneratorCost {
    /// CPU time in user space and in the kernel, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_user_ns + self.cpu_system_ns
    }
}

/// Machine of the generator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratorMachine {
    /// Processor model.
    pub cpu: String,
    /// Logical processors available to the process.
    pub cpus: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel name and release.
    pub kernel: String,
    /// Name of the distribution.
    pub os: String,
}

#[cfg(test)]
mod tests;
