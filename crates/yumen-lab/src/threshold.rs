//! Thresholds on figures, such as `p99>5ms`: a run or a load that crosses one fails. Pure.

#[cfg(test)]
mod tests;

use std::str::FromStr;

use serde::Serialize;
use yumen_load::{LoadShape, LoadSummary};

use crate::metric::{RoundMetric, good_rate};
use crate::quantity::QuantityUnit;
use crate::record::{RoundRecord, RunRecord, TargetRole};
use crate::statistics::median;
use crate::units::{parse_bytes, parse_count, parse_duration_ns};

/// Names of figures in thresholds.
const FIGURES: [(&str, RoundMetric); 9] = [
    ("p50", RoundMetric::LatencyP50),
    ("p95", RoundMetric::LatencyP95),
    ("p99", RoundMetric::LatencyP99),
    ("p99.9", RoundMetric::LatencyP999),
    ("throughput", RoundMetric::Throughput),
    ("errors", RoundMetric::Errors),
    ("cpu", RoundMetric::CpuPerRequest),
    ("memory", RoundMetric::Memory),
    ("memory-per-connection", RoundMetric::MemoryPerConnection),
];

/// A condition that makes a run fail.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureThreshold {
    /// The condition as written.
    pub text: String,
    /// The only target that is judged; all gateways without it.
    pub target: Option<String>,
    metric: RoundMetric,
    condition: ThresholdCondition,
    limit: f64,
}

/// Relation to the limit that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThresholdCondition {
    Above,
    AtLeast,
    Below,
    AtMost,
}

const CONDITIONS: [(&str, ThresholdCondition); 4] = [
    // The longer ones first, because they begin with the shorter ones.
    (">=", ThresholdCondition::AtLeast),
    ("<=", ThresholdCondition::AtMost),
    (">", ThresholdCondition::Above),
    ("<", ThresholdCondition::Below),
];

/// One judged figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThresholdOutcome {
    /// The condition as written.
    pub threshold: String,
    /// Label of the case; empty without a figure.
    pub case: String,
    /// The target; empty without a figure.
    pub target: String,
    /// The figure with its unit: the median of the rounds.
    pub found: String,
    /// Whether the run fails by it. A threshold without a figure fails too.
    pub crossed: bool,
}

impl FromStr for FigureThreshold {
    type Err = String;

    /// Parses `[TARGET:]FIGURE(>|>=|<|<=)VALUE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let names: Vec<&str> = FIGURES.iter().map(|(name, _)| *name).collect();
            format!(
                "threshold `{text}`: [TARGET:]FIGURE>VALUE is expected, such as `p99>5ms` or `nginx:errors>0.1%`, with >, >=, < or <=; \
                 figures are {}",
                names.join(", ")
            )
        };
        let at = text.find(['<', '>']).ok_or_else(wrong)?;
        let (left, right) = text.split_at(at);
        let (sign, condition) =
            CONDITIONS.into_iter().find(|(sign, _)| right.starts_with(sign)).ok_or_else(wrong)?;
        let (target, figure) = match left.rsplit_once(':') {
            Some((target, figure)) => (Some(target.trim().to_owned()), figure),
            None => (None, left),
        };
        let (_, metric) = FIGURES.into_iter().find(|(name, _)| *name == figure.trim()).ok_or_else(wrong)?;
        let value = right[sign.len()..].trim();
        let limit = parse_value(metric, value)
            .map_err(|reason| format!("threshold `{text}`: {value:?}: {reason}"))?;
        Ok(Self { text: text.to_owned(), target, metric, condition, limit })
    }
}

fn parse_value(metric: RoundMetric, text: &str) -> Result<f64, String> {
    match metric.unit() {
        QuantityUnit::Nanoseconds if text.ends_with(|c: char| c.is_ascii_digit()) => {
            Err("a unit is expected: ns, us, ms, s".to_owned())
        }
        QuantityUnit::Nanoseconds => parse_duration_ns(text).map(|ns| ns as f64),
        QuantityUnit::Bytes => parse_bytes(text),
        QuantityUnit::Share => {
            let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
            parse_count(number.trim()).map(|share| share / whole)
        }
        _ => parse_count(text),
    }
}

impl FigureThreshold {
    /// Judges the medians of a run: of every gateway in every case, or of the named target.
    pub fn judge_run(&self, run: &RunRecord) -> Vec<ThresholdOutcome> {
        let is_judged = |name: &str| match &self.target {
            Some(target) => target == name,
            None => run.targets.iter().any(|known| known.name == name && known.role == TargetRole::Gateway),
        };
        let mut outcomes = Vec::new();
        for case in &run.cases {
            for result in case.results.iter().filter(|result| is_judged(&result.target)) {
                let values: Vec<f64> =
                    result.rounds.iter().filter_map(|round| self.of_round(round)).collect();
                let Some(value) = median(&values) else { continue };
                outcomes.push(ThresholdOutcome {
                    case: case.label.clone(),
                    target: result.target.clone(),
                    ..self.outcome(value)
                });
            }
        }
        if outcomes.is_empty() {
            outcomes.push(self.nothing_found());
        }
        outcomes
    }

    /// Judges a single load.
    pub fn judge_load(&self, summary: &LoadSummary) -> ThresholdOutcome {
        self.of_load(summary).map_or_else(|| self.nothing_found(), |value| self.outcome(value))
    }

    /// Why a single load cannot be judged by this threshold, if so.
    pub fn unfit_for_load(&self) -> Option<String> {
        if self.target.is_some() {
            return Some(format!("threshold `{}`: a load has no targets to name", self.text));
        }
        let of_gateway = matches!(self.metric, RoundMetric::CpuPerRequest | RoundMetric::Memory);
        of_gateway.then(|| {
            format!("threshold `{}`: a load does not measure the gateway; `yumen-bench run` does", self.text)
        })
    }

    fn of_round(&self, round: &RoundRecord) -> Option<f64> {
        self.of_load(&round.summary).or_else(|| self.metric.of(round))
    }

    fn of_load(&self, summary: &LoadSummary) -> Option<f64> {
        let is_idle = matches!(summary.plan.kind, LoadShape::Idle { .. });
        match self.metric {
            // An open loop too: its answered rate can fall behind the offered one.
            RoundMetric::Throughput if !is_idle => Some(good_rate(summary)),
            metric => metric.of_load(summary),
        }
    }

    fn outcome(&self, value: f64) -> ThresholdOutcome {
        let crossed = match self.condition {
            ThresholdCondition::Above => value > self.limit,
            ThresholdCondition::AtLeast => value >= self.limit,
            ThresholdCondition::Below => value < self.limit,
            ThresholdCondition::AtMost => value <= self.limit,
        };
        ThresholdOutcome {
            threshold: self.text.clone(),
            case: String::new(),
            target: String::new(),
            found: self.metric.unit().show(value),
            crossed,
        }
    }

    /// A run without the figure has not shown that it keeps the threshold.
    fn nothing_found(&self) -> ThresholdOutcome {
        let found = format!("no measured {}", self.metric.name());
        ThresholdOutcome { found, crossed: true, ..self.outcome(0.0) }
    }
}

/// Outcomes of the thresholds that a record contains.
pub fn judge(run: &RunRecord) -> Vec<ThresholdOutcome> {
    let parsed = run.scenario.fail_if.iter().filter_map(|text| text.parse::<FigureThreshold>().ok());
    parsed.flat_map(|threshold| threshold.judge_run(run)).collect()
}
