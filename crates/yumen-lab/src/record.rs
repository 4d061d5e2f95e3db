//! The record of a run: machine, findings, scenario, targets, and every round with its samples and marks.
//! `run` writes it as JSON; reports and comparisons read it. Independent of the measurement.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use yumen_load::LoadSummary;

/// Version of this format; readers refuse a newer one.
pub const FORMAT: u32 = 1;

/// One run of one scenario on all its targets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`FORMAT`] of the writing program.
    pub format: u32,
    /// Start of the run, RFC 3339, UTC.
    pub started: String,
    /// Duration of the run in milliseconds.
    pub took_ms: u64,
    /// Command line that repeats the run.
    pub command: String,
    /// Seed of the interleaved order of rounds.
    pub seed: u64,
    /// Scale of the scenario.
    pub scale: RunScale,
    /// Version of the measuring program.
    pub lab_version: String,
    /// Machine of the run.
    pub machine: MachineRecord,
    /// Findings of the doctor before the run.
    pub doctor: Vec<DoctorFinding>,
    /// The scenario as run.
    pub scenario: ScenarioFacts,
    /// Ceilings measured before the first round.
    pub ceilings: Vec<MeasuredCeiling>,
    /// Measured targets, including the baseline.
    pub targets: Vec<MeasuredTarget>,
    /// Targets that could not be measured.
    pub skipped: Vec<SkippedTarget>,
    /// Cases in the order of the scenario.
    pub cases: Vec<RunCase>,
    /// Flame graphs of the gateways, if requested.
    #[serde(default)]
    pub flames: Vec<FlameProfile>,
}

/// Where a gateway spent its processor time in a case, by sampled call stacks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlameProfile {
    /// [`RunCase::label`].
    pub case: String,
    /// [`MeasuredTarget::name`].
    pub target: String,
    /// Method of unwinding, such as `unwind tables`.
    pub method: String,
    /// Number of samples.
    pub samples: u64,
    /// Share of samples with a frame outside all known files or with a cut stack, from 0 to 1.
    pub unknown: f64,
    /// Functions, each once.
    pub names: Vec<String>,
    /// Frames of the call tree; a caller precedes its callees.
    pub frames: Vec<FlameFrame>,
    /// Reason for a missing profile.
    pub missing: Option<String>,
}

/// One frame of a call tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlameFrame {
    /// Index in [`FlameProfile::names`].
    pub name: usize,
    /// Index of the caller's frame; `None` for a program.
    pub caller: Option<usize>,
    /// Samples in this frame and its callees.
    pub samples: u64,
}

/// Scale of a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunScale {
    /// A few minutes in total: fewer cases, seconds each.
    Quick,
    /// The scenario sized for one machine.
    #[default]
    Normal,
    /// Durations and concurrency of the original report.
    Full,
}

/// The machine of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineRecord {
    /// Processor model.
    pub cpu: String,
    /// Logical processors available to the process.
    pub cpus: usize,
    /// Whether two logical processors share a core; `None` if unknown.
    pub hyper_threads: Option<bool>,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel name and release.
    pub kernel: String,
    /// Name of the distribution.
    pub os: String,
    /// Frequency governor, if any.
    pub governor: Option<String>,
    /// Hypervisor or cloud, if detected.
    pub hypervisor: Option<String>,
    /// Processors of each part.
    pub pinning: CpuPinning,
}

/// Processors of each part; empty if not pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPinning {
    /// Processors of the gateway.
    pub gateway: Vec<usize>,
    /// Processors of the upstream.
    pub upstream: Vec<usize>,
    /// Processors of the generator.
    pub generator: Vec<usize>,
}

/// One finding of the doctor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorFinding {
    /// Subject, such as `net.core.somaxconn`.
    pub name: String,
    /// Severity.
    pub level: FindingLevel,
    /// Value found.
    pub found: String,
    /// Required value.
    pub wanted: String,
    /// Remedy, if needed.
    pub hint: Option<String>,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingLevel {
    /// The requirement is met.
    Ok,
    /// Not detectable on this machine.
    Unknown,
    /// The figures may be distorted.
    Warning,
    /// The run cannot work as described.
    Problem,
}

/// The scenario as run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScenarioFacts {
    /// Name, such as `connection-close`.
    pub name: String,
    /// Title of one line.
    pub title: String,
    /// Repeated report, such as `R3`, if any.
    pub report: Option<String>,
    /// Description of the report and of this scenario, in paragraphs.
    pub about: Vec<String>,
    /// Traps of the original report, and their treatment in this run.
    pub traps: Vec<TrapRecord>,
    /// Charts of the original report, drawn first.
    pub views: Vec<ReportView>,
    /// Duration of each round in seconds.
    pub seconds: f64,
    /// Planned rounds.
    pub rounds: usize,
    /// Thresholds that make the run fail, of the scenario and of the command line.
    #[serde(default)]
    pub fail_if: Vec<String>,
    /// Text of the scenario file, for repetition.
    pub source: String,
}

/// A trap of the original report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrapRecord {
    /// Short name.
    pub name: String,
    /// Description of the trap.
    pub what: String,
    /// Treatment by the lab.
    pub answer: String,
    /// Evidence in this run, if measurable.
    #[serde(default)]
    pub seen: Option<String>,
}

/// A view of the cases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportView {
    /// Kind of the chart.
    pub kind: ViewKind,
    /// Parameter on the x axis or in the rows, such as `connections`, if the kind has one.
    #[serde(default)]
    pub over: Option<String>,
    /// Heading, if it differs from that of the kind.
    #[serde(default)]
    pub title: Option<String>,
}

/// Kind of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewKind {
    /// Throughput, latency and errors by a parameter (R1, R3).
    Curves,
    /// Latency percentiles up to p99.9999, logarithmic (R2).
    Percentiles,
    /// Failed requests by class (R2).
    Failures,
    /// Rate, errors and latency over time, with marked changes (R2).
    Timeline,
    /// Responses, response time and errors by the offered rate (R5).
    Ramp,
    /// Cases as rows, with ratios to the first (R4).
    Table,
    /// Cases as rows; rate, p95 and p99 with their standard deviations as columns, for each target (R4).
    Baseline,
    /// Connections accepted by the gateway, per request (trap of R3).
    Connections,
    /// Memory of the gateway by held connections.
    IdleMemory,
}

/// A ceiling measured before the first round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredCeiling {
    /// Bounded part: `link` (payloads of the same sizes, without HTTP) or `upstream` (the upstream alone).
    pub name: String,
    /// Number of connections.
    pub connections: usize,
    /// Payload of a request in bytes.
    pub request_bytes: u64,
    /// Payload of a response in bytes.
    pub response_bytes: u64,
    /// Round trips per second.
    pub per_second: f64,
    /// Median round trip in nanoseconds.
    pub p50_ns: u64,
}

/// A measured target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredTarget {
    /// Name, unique in the run, such as `nginx`; `direct` is the upstream alone.
    pub name: String,
    /// Adapter, such as `nginx`, `url` or `direct`.
    pub adapter: String,
    /// Gateway or baseline.
    pub role: TargetRole,
    /// Version reported by the program.
    pub version: Option<String>,
    /// Path of the program.
    pub program: Option<String>,
    /// Files rendered by the adapter for the first case, by name, without certificates and keys.
    pub configuration: BTreeMap<String, String>,
    /// Command line of the program.
    pub command: Vec<String>,
    /// Method of a dynamic change, such as `rewrite and reload`.
    pub changes_by: Option<String>,
    /// Remarks on fairness, such as a setting that the gateway lacks.
    pub notes: Vec<String>,
}

/// Role of a target in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetRole {
    /// The upstream without a gateway.
    Baseline,
    /// A gateway.
    Gateway,
}

/// A target that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedTarget {
    /// Name of the target.
    pub name: String,
    /// Reason, such as `not installed`.
    pub reason: String,
    /// Way to install the target.
    pub hint: String,
}

/// One combination of parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunCase {
    /// Id, unique in the run, such as `connections=100`.
    pub id: String,
    /// Label in table rows and legends.
    pub label: String,
    /// Parameters that differ between cases, in the order of the scenario: `connections`, `plugins`,
    /// `routes`, `workers`, `rate`, `close`, `mock`, `endpoints`, …; numbers are JSON numbers.
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// Results by target, in the order of [`RunRecord::targets`].
    pub results: Vec<TargetResult>,
}

/// Result of one target in one case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TargetResult {
    /// [`MeasuredTarget::name`].
    pub target: String,
    /// Rounds in their order of execution.
    pub rounds: Vec<RoundRecord>,
    /// Reason for missing rounds, such as `cannot do key-auth`.
    pub missing: Option<String>,
}

/// One load on one target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoundRecord {
    /// Number from 1.
    pub number: usize,
    /// Position in the order over all targets and cases, from 1; shows drift of the machine.
    pub position: usize,
    /// Start in milliseconds after the start of the run.
    pub at_ms: u64,
    /// Result of the generator.
    pub summary: LoadSummary,
    /// Processor time and memory of the parts.
    pub usage: RoundUsage,
    /// Bottleneck of the round.
    pub bottleneck: RoundBottleneck,
    /// Connections counted independently of the generator; `None` if not possible for the target.
    pub connections: Option<RoundConnections>,
    /// Changes applied during the round.
    pub changes: Vec<ChangeMark>,
}

/// Processor time and memory of the three parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundUsage {
    /// All processes of the gateway; empty if unknown.
    pub gateway: PartUsage,
    /// The upstream.
    pub upstream: PartUsage,
    /// The generator.
    pub generator: PartUsage,
    /// Share of the machine's processor time stolen by the host during the round, from 0 to 1.
    pub stolen: f64,
}

/// Usage of one part during a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartUsage {
    /// Available processors.
    pub cpus: usize,
    /// Processor time in nanoseconds.
    pub cpu_ns: u64,
    /// Processors used in the busiest sample interval.
    pub cpus_peak: f64,
    /// Processor time per request in nanoseconds; 0 without requests.
    pub cpu_ns_per_request: f64,
    /// Peak resident memory in bytes; pages shared between processes count once.
    pub rss_bytes_max: u64,
    /// Samples over time.
    pub samples: Vec<UsageSample>,
}

/// One sample of a part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageSample {
    /// Time after the start of the round in milliseconds.
    pub at_ms: u64,
    /// Processors used since the previous sample.
    pub cpus: f64,
    /// Resident memory in bytes.
    pub rss_bytes: u64,
}

/// Bottleneck of a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundBottleneck {
    /// The limiting part.
    pub who: BottleneckPart,
    /// Figures that support the conclusion.
    pub why: String,
}

/// A possible bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BottleneckPart {
    /// The gateway, as required for a comparison of gateways.
    Gateway,
    /// The upstream.
    Upstream,
    /// The generator.
    Generator,
    /// The machine: stolen time, or parts that share fully used processors.
    Machine,
    /// The offered load: every part had spare capacity.
    Load,
    /// Latency: too few connections to use any part fully.
    Latency,
    /// Unknown.
    Unknown,
}

/// Connections of a round, counted on the server side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundConnections {
    /// Connections opened by the generator.
    pub client: u64,
    /// Passive opens of the kernel minus connections accepted by the upstream: the connections accepted by
    /// the gateway, independent of the generator. Other programs on the machine add to it.
    pub door: Option<u64>,
    /// Connections accepted by the upstream.
    pub upstream: Option<u64>,
    /// Requests in the same period.
    pub requests: u64,
}

/// A change applied to the gateway under load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeMark {
    /// Start of the change in milliseconds after the start of the round.
    pub at_ms: u64,
    /// Description, such as `7 endpoints`.
    pub what: String,
    /// Duration until the gateway's interface reported completion, in milliseconds.
    pub took_ms: f64,
    /// Duration until the change took effect in traffic, in milliseconds; `None` if not observed.
    pub effective_ms: Option<f64>,
    /// Error of the change.
    pub error: Option<String>,
}
