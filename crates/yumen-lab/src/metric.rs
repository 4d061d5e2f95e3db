//! What is compared: the figures that one round gives, each with its unit and which way is better.
//!
//! Knows the record of a run; not how figures are drawn or judged.

use serde::Serialize;
use yumen_load::{LatencySummary, LoadShape};

use crate::quantity::QuantityUnit;
use crate::record::{
    BottleneckPart, MeasuredTarget, RoundConnections, RoundRecord, TargetResult, TargetRole,
};
use crate::statistics::median;

/// Fewer new connections than this for each request mean that connections were kept.
const KEPT_BELOW: f64 = 0.5;

/// A figure that every round of a kind has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RoundMetric {
    /// Good responses per second.
    Throughput,
    /// The median latency.
    LatencyP50,
    /// The 99th percentile of latency.
    LatencyP99,
    /// The 99.9th percentile of latency.
    LatencyP999,
    /// Errors of all classes, as a share of what was asked.
    Errors,
    /// Processor time of the gateway for each request.
    CpuPerRequest,
    /// The gateway's largest resident memory.
    Memory,
    /// Memory of the gateway for each connection held.
    MemoryPerConnection,
}

/// Which way a figure should go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BetterDirection {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

impl RoundMetric {
    /// All of them, in the order of reports.
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

    /// As a heading says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::LatencyP50 => "latency p50",
            Self::LatencyP99 => "latency p99",
            Self::LatencyP999 => "latency p99.9",
            Self::Errors => "errors",
            Self::CpuPerRequest => "CPU per request",
            Self::Memory => "memory",
            Self::MemoryPerConnection => "memory per connection",
        }
    }

    /// How its numbers are written.
    pub fn unit(self) -> QuantityUnit {
        match self {
            Self::Throughput => QuantityUnit::PerSecond,
            Self::LatencyP50 | Self::LatencyP99 | Self::LatencyP999 | Self::CpuPerRequest => {
                QuantityUnit::Nanoseconds
            }
            Self::Errors => QuantityUnit::Share,
            Self::Memory | Self::MemoryPerConnection => QuantityUnit::Bytes,
        }
    }

    /// Which way it should go.
    pub fn better(self) -> BetterDirection {
        if self == Self::Throughput { BetterDirection::Higher } else { BetterDirection::Lower }
    }

    /// The figure of one round; `None` where the kind of load does not give it or nobody could look.
    pub fn of(self, round: &RoundRecord) -> Option<f64> {
        let summary = &round.summary;
        let closed = matches!(summary.plan.kind, LoadShape::Closed);
        let idle = matches!(summary.plan.kind, LoadShape::Idle { .. });
        let value = match self {
            // under an offered rate the rate is an input
            Self::Throughput if closed => good_responses_per_second(round),
            Self::Errors if !idle => error_share(round),
            Self::LatencyP50 if !idle => percentile(summary.main_latency(), 50.0)?,
            Self::LatencyP99 if !idle => percentile(summary.main_latency(), 99.0)?,
            Self::LatencyP999 if !idle => percentile(summary.main_latency(), 99.9)?,
            Self::CpuPerRequest if !idle => above_zero(round.usage.gateway.cpu_ns_per_request)?,
            Self::Memory => above_zero(round.usage.gateway.rss_bytes_max as f64)?,
            Self::MemoryPerConnection => summary.idle.as_ref()?.rss_per_connection_bytes?,
            _ => return None,
        };
        value.is_finite().then_some(value)
    }

    /// The figures of all rounds, in their order.
    pub fn over(self, rounds: &[RoundRecord]) -> Vec<f64> {
        rounds.iter().filter_map(|round| self.of(round)).collect()
    }
}

/// Responses with a good status for each second of the round.
pub fn good_responses_per_second(round: &RoundRecord) -> f64 {
    let summary = &round.summary;
    if summary.elapsed_ns == 0 {
        return 0.0;
    }
    summary.responses.saturating_sub(summary.errors.bad_status) as f64 * 1e9 / summary.elapsed_ns as f64
}

/// Errors as a share of all that ended, well or badly.
pub fn error_share(round: &RoundRecord) -> f64 {
    let errors = round.summary.errors.total();
    let ended = round.summary.responses + errors - round.summary.errors.bad_status.min(errors);
    if ended == 0 { 0.0 } else { errors as f64 / ended as f64 }
}

/// A percentile (0 to 100) in nanoseconds; `None` where nothing was recorded or the percentile is not listed.
pub fn percentile(latency: &LatencySummary, wanted: f64) -> Option<f64> {
    if latency.count == 0 {
        return None;
    }
    let found = latency.percentiles.iter().find(|entry| (entry.percentile - wanted).abs() < 1e-7)?;
    Some(found.ns as f64)
}

/// Who bounded most of the rounds; the first of equals.
pub fn bottleneck(result: &TargetResult) -> Option<BottleneckPart> {
    let count = |who| result.rounds.iter().filter(|round| round.bottleneck.who == who).count();
    let mut most: Option<(BottleneckPart, usize)> = None;
    for round in &result.rounds {
        let who = round.bottleneck.who;
        if most.is_none_or(|(_, rounds)| count(who) > rounds) {
            most = Some((who, count(who)));
        }
    }
    most.map(|(who, _)| who)
}

/// Why a target's figures may not be the gateway's own: who bounded them instead. An offered rate that everybody
/// could serve is what such a load is for, and the upstream alone is bounded by itself.
pub fn foreign_bottleneck(target: &MeasuredTarget, result: &TargetResult) -> Option<BottleneckPart> {
    let who = bottleneck(result)?;
    let offered = result.rounds.iter().all(|round| !matches!(round.summary.plan.kind, LoadShape::Closed));
    match who {
        BottleneckPart::Gateway => None,
        _ if target.role == TargetRole::Baseline => None,
        BottleneckPart::Load if offered => None,
        who => Some(who),
    }
}

/// New client connections for each request, in every round in which they were counted.
pub fn connections_per_request(result: &TargetResult) -> Vec<f64> {
    let counted = result.rounds.iter().filter_map(|round| round.connections);
    // other programs add to the kernel's count and never take from it, so the smaller one is nearer to the truth
    let admit = |connections: &RoundConnections| {
        connections.door.map_or(connections.client, |door| door.min(connections.client)) as f64
    };
    counted
        .filter(|connections| connections.requests > 0)
        .map(|connections| admit(&connections) / connections.requests as f64)
        .collect()
}

/// Whether a load that asked for the end of the connection after each request did not get it.
pub fn kept_connections(result: &TargetResult) -> bool {
    let closes = |(name, value): &(String, String)| {
        name.eq_ignore_ascii_case("connection") && value.trim().eq_ignore_ascii_case("close")
    };
    let asked = result
        .rounds
        .iter()
        .all(|round| round.summary.plan.new_connection || round.summary.plan.headers.iter().any(closes));
    asked && median(&connections_per_request(result)).is_some_and(|share| share < KEPT_BELOW)
}

/// A word for who bounded a round.
pub fn who_name(who: BottleneckPart) -> &'static str {
    match who {
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
