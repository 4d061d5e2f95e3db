//! A whole run as data: machine, findings, scenario, targets, and every round with its samples and marks.
//! It is written as JSON by `run` and read by reports and comparisons. Must not know how any of it was measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use yumen_load::LoadSummary;

/// The version of this format; readers refuse a newer one.
pub const FORMAT: u32 = 1;

/// One run of one scenario against all its targets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    /// Start of the run, RFC 3339, UTC.
    pub started: String,
    /// How long it took, milliseconds.
    pub took_ms: u64,
    /// The command line that repeats it.
    pub command: String,
    /// Seed of the order in which rounds were interleaved.
    pub seed: u64,
    /// How far the scenario was scaled.
    pub scale: RunScale,
    /// Version of the program that measured.
    pub lab_version: String,
    /// Where it ran.
    pub machine: MachineRecord,
    /// What the doctor found before the run.
    pub doctor: Vec<DoctorFinding>,
    /// What was repeated, and how.
    pub scenario: ScenarioFacts,
    /// Ceilings measured before the first round.
    pub ceilings: Vec<MeasuredCeiling>,
    /// What was measured, the upstream alone among them.
    pub targets: Vec<MeasuredTarget>,
    /// What could not be measured.
    pub skipped: Vec<SkippedTarget>,
    /// Parameter points in the scenario's order.
    pub cases: Vec<RunCase>,
}

/// How far a scenario is scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunScale {
    /// Minutes for the whole: fewer points, seconds each.
    Quick,
    /// The scenario as it fits one machine.
    #[default]
    Normal,
    /// Durations and concurrency of the original report.
    Full,
}

/// The machine everything ran on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineRecord {
    /// Processor model.
    pub cpu: String,
    /// Logical processors this process may use.
    pub cpus: usize,
    /// Whether two logical processors share a core; `None` where the kernel does not say.
    pub hyper_threads: Option<bool>,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel name and release.
    pub kernel: String,
    /// The distribution's own name.
    pub os: String,
    /// Frequency governor, where there is one.
    pub governor: Option<String>,
    /// Hypervisor or cloud, where the machine tells.
    pub hypervisor: Option<String>,
    /// Which processors each part was pinned to.
    pub pinning: CpuPinning,
}

/// The processors of each part; empty means not pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPinning {
    /// The gateway's.
    pub gateway: Vec<usize>,
    /// The upstream's.
    pub upstream: Vec<usize>,
    /// The generator's.
    pub generator: Vec<usize>,
}

/// One thing the doctor looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorFinding {
    /// What was looked at, such as `net.core.somaxconn`.
    pub name: String,
    /// Whether it may spoil the run.
    pub level: FindingLevel,
    /// What was found.
    pub found: String,
    /// What is wanted.
    pub wanted: String,
    /// How to change it, where it should be changed.
    pub hint: Option<String>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingLevel {
    /// As wanted.
    Ok,
    /// Cannot be told on this machine.
    Unknown,
    /// May distort figures.
    Warning,
    /// The run as described cannot work.
    Problem,
}

/// The scenario as it was run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScenarioFacts {
    /// Name, such as `connection-close`.
    pub name: String,
    /// One line.
    pub title: String,
    /// The report it repeats, such as `R3`, where there is one.
    pub report: Option<String>,
    /// What the report did and what is done here, as paragraphs.
    pub about: Vec<String>,
    /// What made the original misleading, and what this run did about each.
    pub traps: Vec<TrapRecord>,
    /// How the original drew its figures; a report draws these first.
    pub views: Vec<ReportView>,
    /// Seconds of each round.
    pub seconds: f64,
    /// Rounds asked for.
    pub rounds: usize,
    /// The scenario file itself, so that the run can be repeated.
    pub source: String,
}

/// What made an original misleading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrapRecord {
    /// Short name.
    pub name: String,
    /// How it misleads.
    pub what: String,
    /// What this lab does about it.
    pub answer: String,
    /// What this run saw of it, where it can be seen.
    #[serde(default)]
    pub seen: Option<String>,
}

/// A way to draw the cases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportView {
    /// What is drawn.
    pub kind: ViewKind,
    /// The parameter on the x axis or in the rows, where the kind has one, such as `connections`.
    #[serde(default)]
    pub over: Option<String>,
    /// Heading, where the kind's own does not do.
    #[serde(default)]
    pub title: Option<String>,
}

/// What a view draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewKind {
    /// Throughput, latency and errors over a parameter (R1, R3).
    Curves,
    /// Latency percentiles out to p99.9999, logarithmic (R2).
    Percentiles,
    /// Rate, errors and latency over time, changes marked (R2).
    Timeline,
    /// Replies, response time and errors over the offered rate (R5).
    Ramp,
    /// Rows of cases with ratios to the first (R4).
    Table,
    /// Connections counted at the door, per request (R3's trap).
    Connections,
    /// Memory of the gateway over held connections.
    IdleMemory,
}

/// A ceiling measured before the first round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredCeiling {
    /// What it bounds: `link` (payloads of the exact sizes, no HTTP) or `upstream` (the upstream alone).
    pub name: String,
    /// Connections that were used.
    pub connections: usize,
    /// Bytes of payload in a request.
    pub request_bytes: u64,
    /// Bytes of payload in a response.
    pub response_bytes: u64,
    /// Round trips per second.
    pub per_second: f64,
    /// Median round trip, nanoseconds.
    pub p50_ns: u64,
}

/// Something that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredTarget {
    /// Unique in the run, such as `nginx`; `direct` is the upstream alone.
    pub name: String,
    /// Adapter, such as `nginx`, `url` or `direct`.
    pub adapter: String,
    /// Whether it is a gateway, or what gateways are compared with.
    pub role: TargetRole,
    /// What the program says of its version.
    pub version: Option<String>,
    /// Program that ran.
    pub program: Option<String>,
    /// Files the adapter rendered for the first case, by name. Certificates and keys are left out.
    pub configuration: BTreeMap<String, String>,
    /// Command line it was started with.
    pub command: Vec<String>,
    /// How a dynamic change is applied, such as `rewrite and reload`.
    pub changes_by: Option<String>,
    /// What a reader must know of the comparison's fairness, such as a setting this gateway lacks.
    pub notes: Vec<String>,
}

/// What a target is in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetRole {
    /// The upstream without any gateway.
    Baseline,
    /// A gateway.
    Gateway,
}

/// A target that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedTarget {
    /// Its name.
    pub name: String,
    /// Why, such as `not installed`.
    pub reason: String,
    /// How to get it.
    pub hint: String,
}

/// One parameter point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunCase {
    /// Unique in the run, such as `connections=100`.
    pub id: String,
    /// What a table's row or a legend says.
    pub label: String,
    /// Parameters that differ between cases, in the scenario's order: `connections`, `plugins`, `routes`,
    /// `workers`, `rate`, `close`, `mock`, `endpoints`, …; numbers are JSON numbers.
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// What each target did, in the order of [`RunRecord::targets`].
    pub results: Vec<TargetResult>,
}

/// What one target did at one parameter point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TargetResult {
    /// [`MeasuredTarget::name`].
    pub target: String,
    /// Rounds in the order they ran.
    pub rounds: Vec<RoundRecord>,
    /// Why there is none, such as `cannot do key-auth`.
    pub missing: Option<String>,
}

/// One load on one target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoundRecord {
    /// From 1.
    pub number: usize,
    /// Place in the run's order over all targets and cases, from 1: drift of the machine follows it.
    pub position: usize,
    /// Start after the run's start, milliseconds.
    pub at_ms: u64,
    /// What the generator saw.
    pub summary: LoadSummary,
    /// What the parts cost, and who was at their limit.
    pub usage: RoundUsage,
    /// Who kept the rate from being higher.
    pub bottleneck: RoundBottleneck,
    /// Connections counted beside the generator; `None` for targets on which that is not possible.
    pub connections: Option<RoundConnections>,
    /// Changes applied during the round.
    pub changes: Vec<ChangeMark>,
}

/// Processor time and memory of the three parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundUsage {
    /// All processes of the gateway; empty where they are unknown.
    pub gateway: PartUsage,
    /// The upstream.
    pub upstream: PartUsage,
    /// The generator.
    pub generator: PartUsage,
    /// Share of the machine's processor time stolen by its host during the round, 0 to 1.
    pub stolen: f64,
}

/// One part over a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartUsage {
    /// Processors it could use.
    pub cpus: usize,
    /// Processor time used in the round, nanoseconds.
    pub cpu_ns: u64,
    /// Busiest second, in processors.
    pub cpus_peak: f64,
    /// Processor time per request, nanoseconds; 0 without requests.
    pub cpu_ns_per_request: f64,
    /// Largest resident memory, bytes; pages shared between its processes counted once.
    pub rss_bytes_max: u64,
    /// Samples over time.
    pub samples: Vec<UsageSample>,
}

/// One look at a part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageSample {
    /// After the round's start, milliseconds.
    pub at_ms: u64,
    /// Processors used since the sample before.
    pub cpus: f64,
    /// Resident memory, bytes.
    pub rss_bytes: u64,
}

/// Who kept the rate from being higher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundBottleneck {
    /// Who.
    pub who: BottleneckPart,
    /// By which figures.
    pub why: String,
}

/// A candidate for the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BottleneckPart {
    /// The gateway: what a comparison of gateways needs.
    Gateway,
    /// The upstream.
    Upstream,
    /// The generator.
    Generator,
    /// The machine: time was stolen, or parts share processors that are all busy.
    Machine,
    /// The offered load: everybody had room left.
    Load,
    /// Latency: too few connections to keep anybody busy.
    Latency,
    /// Cannot be told.
    Unknown,
}

/// Connections of a round, counted where they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundConnections {
    /// Connections the generator opened.
    pub client: u64,
    /// Connections the kernel opened passively, less those the upstream accepted: the count at the gateway's
    /// door, independent of the generator. Other programs on the machine add to it.
    pub door: Option<u64>,
    /// Connections the upstream accepted.
    pub upstream: Option<u64>,
    /// Requests of the same time.
    pub requests: u64,
}

/// A change applied to the gateway while it was loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeMark {
    /// When it was begun, after the round's start, milliseconds.
    pub at_ms: u64,
    /// What, such as `7 endpoints`.
    pub what: String,
    /// Until the gateway's own interface said it was done, milliseconds.
    pub took_ms: f64,
    /// Until the change was seen in traffic, milliseconds; `None` where it was not looked for.
    pub effective_ms: Option<f64>,
    /// What went wrong.
    pub error: Option<String>,
}
