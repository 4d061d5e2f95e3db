//! Metrics of a round, with their units and their better direction.
//!
//! Depends on the record of a run, but not on charts or verdicts.

use serde::Serialize;
use yumen_load::{LatencySummary, LoadShape, LoadSummary};

use crate::quantity::QuantityUnit;
use crate::record::{
    BottleneckPart, MeasuredTarget, RoundConnections, RoundRecord, TargetResult, TargetRole,
};
use crate::statistics::median;

/// Below this number of new connections per request, connections count as kept.
const KEPT_BELOW: f64 = 0.5;

/// A metric of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RoundMetric {
    /// Successful responses per second.
    Throughput,
    /// Median latency.
    LatencyP50,
    /// 95th percentile of the latency; not compared, because p99 is.
    LatencyP95,
    /// 99th percentile of the latency.
    LatencyP99,
    /// 99.9th percentile of the latency.
    LatencyP999,
    /// Errors of all classes, as a share of all requests.
    Errors,
    /// Processor time of the gateway per request.
    CpuPerRequest,
    /// Peak resident memory of the gateway.
    Memory,
    /// Memory of the gateway per held connection.
    MemoryPerConnection,
}

/// Direction in which a metric improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BetterDirection {
    /// Higher is better.
    Higher,
    /// Lower is better.
    Lower,
}

impl RoundMetric {
    /// Compared metrics, in the order of reports.
    pub const ALL: [Self; 8] = [
        Self::Throughput,
        Self::LatencyP50,
        Self::LatencyP99,
        Self::LatencyP999,
        Self::Errors,
        Self::CpuPerRequest,
        Self::Memory,
        Self::MemoryPerConnection,
    ];

    /// Name in headings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::LatencyP50 => "latency p50",
            Self::LatencyP95 => "latency p95",
            Self::LatencyP99 => "latency p99",
            Self::LatencyP999 => "latency p99.9",
            Self::Errors => "errors",
            Self::CpuPerRequest => "CPU per request",
            Self::Memory => "memory",
            Self::MemoryPerConnection => "memory per connection",
        }
    }

    /// Unit of the values.
    pub fn unit(self) -> QuantityUnit {
        match self {
            Self::Throughput => QuantityUnit::PerSecond,
            Self::LatencyP50
            | Self::LatencyP95
            | Self::LatencyP99
            | Self::LatencyP999
            | Self::CpuPerRequest => QuantityUnit::Nanoseconds,
            Self::Errors => QuantityUnit::Share,
            Self::Memory | Self::MemoryPerConnection => QuantityUnit::Bytes,
        }
    }

    /// Direction in which the metric improves.
    pub fn better(self) -> BetterDirection {
        if self == Self::Throughput { BetterDirection::Higher } else { BetterDirection::Lower }
    }

    /// Value of one round; `None` if the kind of load does not produce the metric or it was not measurable.
    pub fn of(self, round: &RoundRecord) -> Option<f64> {
        let summary = &round.summary;
        let value = match self {
            Self::CpuPerRequest if !is_idle(summary) => above_zero(round.usage.gateway.cpu_ns_per_request)?,
            Self::Memory => above_zero(round.usage.gateway.rss_bytes_max as f64)?,
            _ => return self.of_load(summary),
        };
        value.is_finite().then_some(value)
    }

    /// Value of one load, for metrics that the generator measures.
    pub fn of_load(self, summary: &LoadSummary) -> Option<f64> {
        let at = |percent| percentile(summary.main_latency(), percent);
        let value = match self {
            // In an open loop, the rate is an input.
            Self::Throughput if matches!(summary.plan.kind, LoadShape::Closed) => good_rate(summary),
            Self::MemoryPerConnection => summary.idle.as_ref()?.rss_per_connection_bytes?,
            _ if is_idle(summary) => return None,
            Self::Errors => error_share(summary),
            Self::LatencyP50 => at(50.0)?,
            Self::LatencyP95 => at(95.0)?,
            Self::LatencyP99 => at(99.0)?,
            Self::LatencyP999 => at(99.9)?,
            Self::Throughput | Self::CpuPerRequest | Self::Memory => return None,
        };
        value.is_finite().then_some(value)
    }

    /// Values of all rounds, in their order.
    pub fn over(self, rounds: &[RoundRecord]) -> Vec<f64> {
        rounds.iter().filter_map(|round| self.of(round)).collect()
    }
}

/// Whether connections were only held.
fn is_idle(summary: &LoadSummary) -> bool {
    matches!(summary.plan.kind, LoadShape::Idle { .. })
}

/// Successful responses per second.
pub fn good_rate(summary: &LoadSummary) -> f64 {
    if summary.elapsed_ns == 0 {
        return 0.0;
    }
    summary.totals.responses.saturating_sub(summary.errors.bad_status) as f64 * 1e9
        / summary.elapsed_ns as f64
}

/// Errors as a share of all finished requests.
pub fn error_share(summary: &LoadSummary) -> f64 {
    let errors = summary.errors.total();
    let ended = summary.totals.responses + errors - summary.errors.bad_status.min(errors);
    if ended == 0 { 0.0 } else { errors as f64 / ended as f64 }
}

/// A percentile (0 to 100) in nanoseconds; `None` without records or for an unlisted percentile.
pub fn percentile(latency: &LatencySummary, percent: f64) -> Option<f64> {
    if latency.count == 0 {
        return None;
    }
    let found = latency.percentiles.iter().find(|entry| (entry.percentile - percent).abs() < 1e-7)?;
    Some(found.ns as f64)
}

/// Bottleneck of most rounds; the first one on a tie.
pub fn bottleneck(result: &TargetResult) -> Option<BottleneckPart> {
    let count = |part| result.rounds.iter().filter(|round| round.bottleneck.who == part).count();
    let mut most: Option<(BottleneckPart, usize)> = None;
    for round in &result.rounds {
        let part = round.bottleneck.who;
        if most.is_none_or(|(_, rounds)| count(part) > rounds) {
            most = Some((part, count(part)));
        }
    }
    most.map(|(part, _)| part)
}

/// Bottleneck other than the gateway, which makes the figures unsuitable for a comparison.
///
/// An offered load that was served in full is no flaw, and the baseline is its own bottleneck.
pub fn foreign_bottleneck(target: &MeasuredTarget, result: &TargetResult) -> Option<BottleneckPart> {
    let part = bottleneck(result)?;
    let offered = result.rounds.iter().all(|round| !matches!(round.summary.plan.kind, LoadShape::Closed));
    match part {
        BottleneckPart::Gateway => None,
        _ if target.role == TargetRole::Baseline => None,
        BottleneckPart::Load if offered => None,
        who => Some(who),
    }
}

/// New client connections per request, for every round in which they were counted.
pub fn connections_per_request(result: &TargetResult) -> Vec<f64> {
    let counted = result.rounds.iter().filter_map(|round| round.connections);
    // Other programs only add to the kernel's count, so the smaller number is closer to the truth.
    let admit = |connections: &RoundConnections| {
        connections.door.map_or(connections.client, |door| door.min(connections.client)) as f64
    };
    counted
        .filter(|connections| connections.requests > 0)
        .map(|connections| admit(&connections) / connections.requests as f64)
        .collect()
}

/// Whether connections were kept although the load requested their end after each request.
pub fn kept_connections(result: &TargetResult) -> bool {
    let closes = |(name, value): &(String, String)| {
        name.eq_ignore_ascii_case("connection") && value.trim().eq_ignore_ascii_case("close")
    };
    let is_closed_loop = result.rounds.iter().all(|round| {
        round.summary.plan.new_connection || round.summary.plan.request.headers.iter().any(closes)
    });
    is_closed_loop && median(&connections_per_request(result)).is_some_and(|share| share < KEPT_BELOW)
}

/// Name of a bottleneck.
pub fn part_name(part: BottleneckPart) -> &'static str {
    match part {
        BottleneckPart::Gateway => "gateway",
        BottleneckPart::Upstream => "upstream",
        BottleneckPart::Generator => "generator",
        BottleneckPart::Machine => "machine",
        BottleneckPart::Load => "offered load",
        BottleneckPart::Latency => "few connections",
        BottleneckPart::Unknown => "unknown",
    }
}

fn above_zero(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}
