//! Lookups in a run for all parts of a report: styles of targets, values of cells, bottlenecks.
//!
//! Depends on the record, but not on the layout of a report.

use std::collections::BTreeSet;

use serde_json::Value;

use super::chart::{ChartPoint, LegendEntry, STYLES};
use super::document::{CellEmphasis, TableCell};
use crate::metric::{RoundMetric, foreign_bottleneck, kept_connections};
use crate::record::{BottleneckPart, MeasuredTarget, RunCase, RunRecord, TargetResult, TargetRole};
use crate::statistics::{SampleSpread, median, relative_deviation};
use crate::verdict::{Verdict, VerdictDecision, VerdictLimits};

/// A run with its lookup functions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReportContext<'a> {
    pub(crate) run: &'a RunRecord,
}

impl<'a> ReportContext<'a> {
    pub(crate) fn new(run: &'a RunRecord) -> Self {
        Self { run }
    }

    /// Style of a target in every chart; the neutral one for the baseline.
    pub(crate) fn style(&self, name: &str) -> usize {
        let gateways = || self.run.targets.iter().filter(|target| target.role == TargetRole::Gateway);
        gateways().position(|target| target.name == name).map_or(0, |index| 1 + index % (STYLES - 1))
    }

    /// Legend of all targets.
    pub(crate) fn legend(&self) -> Vec<LegendEntry> {
        let entry = |target: &MeasuredTarget| LegendEntry {
            name: target.name.clone(),
            style: self.style(&target.name),
        };
        self.run.targets.iter().map(entry).collect()
    }

    /// Result of a target in a case, if it was measured.
    pub(crate) fn result(&self, case: &'a RunCase, target: &MeasuredTarget) -> Option<&'a TargetResult> {
        case.results.iter().find(|result| result.target == target.name && !result.rounds.is_empty())
    }

    /// Values of a target's rounds in a case; empty if not measured.
    pub(crate) fn values(&self, case: &'a RunCase, target: &MeasuredTarget, metric: RoundMetric) -> Vec<f64> {
        self.result(case, target).map(|result| metric.over(&result.rounds)).unwrap_or_default()
    }

    /// Median of these values.
    pub(crate) fn middle(
        &self,
        case: &'a RunCase,
        target: &MeasuredTarget,
        metric: RoundMetric,
    ) -> Option<f64> {
        median(&self.values(case, target, metric))
    }

    /// Spread of these values.
    pub(crate) fn spread(
        &self,
        case: &'a RunCase,
        target: &MeasuredTarget,
        metric: RoundMetric,
    ) -> Option<SampleSpread> {
        SampleSpread::of(&self.values(case, target, metric))
    }

    /// Bottleneck of the figures, if it was not the gateway.
    pub(crate) fn foreign(&self, case: &'a RunCase, target: &MeasuredTarget) -> Option<BottleneckPart> {
        foreign_bottleneck(target, self.result(case, target)?)
    }

    /// Letter of the note that explains why a figure does not show the gateway's own limit.
    pub(crate) fn doubt(&self, case: &'a RunCase, target: &MeasuredTarget) -> Option<char> {
        if kept_connections(self.result(case, target)?) {
            return Some(KEPT);
        }
        self.foreign(case, target).map(flag_letter)
    }

    /// Point of a chart.
    pub(crate) fn point(
        &self,
        case: &'a RunCase,
        target: &MeasuredTarget,
        metric: RoundMetric,
        x: f64,
    ) -> Option<ChartPoint> {
        let spread = self.spread(case, target, metric)?;
        let flagged = self.doubt(case, target).is_some();
        Some(ChartPoint { x, y: spread.median, interval: Some(spread.interval), flagged })
    }

    /// Cells of a row, one per target: median, deviation, flags; bold for a gateway that is better than all others.
    pub(crate) fn cells(&self, case: &'a RunCase, metric: RoundMetric) -> Vec<TableCell> {
        let best = self.best(case, metric);
        let cell = |target: &MeasuredTarget| {
            let values = self.values(case, target, metric);
            let Some(middle) = median(&values) else { return TableCell::none() };
            let mut text = metric.unit().show(middle);
            if let Some(deviation) = relative_deviation(&values).filter(|_| metric != RoundMetric::Errors) {
                text.push_str(&format!(" ±{:.1}%", deviation * 100.0));
            }
            let is_best = best == Some(target.name.as_str());
            let emphasis = match target.role {
                TargetRole::Baseline => CellEmphasis::Quiet,
                TargetRole::Gateway if is_best => CellEmphasis::Best,
                TargetRole::Gateway => CellEmphasis::None,
            };
            let flag = self.doubt(case, target);
            TableCell { text, emphasis, flag, bar: None }
        };
        self.run.targets.iter().map(cell).collect()
    }

    /// The gateway that is better than every other in a case, beyond the noise.
    pub(crate) fn best(&self, case: &'a RunCase, metric: RoundMetric) -> Option<&'a str> {
        let comparable = |target: &&MeasuredTarget| {
            target.role == TargetRole::Gateway && self.doubt(case, target) != Some(KEPT)
        };
        let gateways = self.run.targets.iter().filter(comparable);
        let measured: Vec<(&str, Vec<f64>)> = gateways
            .map(|target| (target.name.as_str(), self.values(case, target, metric)))
            .filter(|(_, values)| !values.is_empty())
            .collect();
        let is_better = |first: &[f64], second: &[f64]| {
            let verdict = Verdict::paired(metric, first, second, VerdictLimits::default());
            verdict.is_some_and(|verdict| verdict.decision == VerdictDecision::Better)
        };
        // A single gateway is not the best of anything.
        let mut rivals = measured.iter().filter(|_| measured.len() > 1);
        let best = rivals.find(|(name, values)| {
            let others = measured.iter().filter(|(other, _)| other != name);
            others.into_iter().all(|(_, other)| is_better(values, other))
        });
        best.map(|(name, _)| *name)
    }

    /// Notes that explain the flags of a table, one per flag in use.
    pub(crate) fn flag_notes(&self, cases: &[&'a RunCase]) -> Vec<String> {
        let doubts = cases
            .iter()
            .flat_map(|case| self.run.targets.iter().filter_map(|target| self.doubt(case, target)));
        let letters: BTreeSet<char> = doubts.collect();
        letters
            .into_iter()
            .map(|letter| format!("{letter}: {}; hollow in charts.", flag_meaning(letter)))
            .collect()
    }

    /// Names of parameters that differ between cases, without the one on the axis of a view.
    pub(crate) fn varying(&self, over: Option<&str>) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.run.cases.iter().flat_map(|case| case.parameters.keys()) {
            if !names.contains(&name.as_str()) && Some(name.as_str()) != over {
                names.push(name);
            }
        }
        let first = self.run.cases.first();
        let differs = |name: &&str| {
            self.run
                .cases
                .iter()
                .any(|case| case.parameters.get(*name) != first.and_then(|first| first.parameters.get(*name)))
        };
        names.into_iter().filter(differs).collect()
    }

    /// Groups of cases that differ in one parameter only, each with a heading if there are several.
    pub(crate) fn groups(&self, over: &str) -> Vec<(String, Vec<&'a RunCase>)> {
        let names = self.varying(Some(over));
        let key = |case: &'a RunCase| -> Vec<Option<&'a Value>> {
            names.iter().map(|name| case.parameters.get(*name)).collect()
        };
        let mut groups: Vec<(Vec<Option<&Value>>, Vec<&RunCase>)> = Vec::new();
        for case in self.run.cases.iter().filter(|case| number(case, over).is_some()) {
            match groups.iter_mut().find(|(known, _)| *known == key(case)) {
                Some((_, cases)) => cases.push(case),
                None => groups.push((key(case), vec![case])),
            }
        }
        let named = |(_, mut cases): (_, Vec<&'a RunCase>)| {
            cases.sort_by(|a, b| number(a, over).unwrap_or(0.0).total_cmp(&number(b, over).unwrap_or(0.0)));
            (cases.first().map(|case| label_without(case, over)).unwrap_or_default(), cases)
        };
        groups.into_iter().map(named).collect()
    }
}

/// Label of a case without the parameter on the axis of a view.
fn label_without(case: &RunCase, over: &str) -> String {
    let value = case.parameters.get(over).map(plain).unwrap_or_default();
    let axis = format!("{over}={value}");
    case.label.split(", ").filter(|part| *part != axis).collect::<Vec<_>>().join(", ")
}

/// A parameter as a number.
pub(crate) fn number(case: &RunCase, name: &str) -> Option<f64> {
    case.parameters.get(name)?.as_f64()
}

/// Text form of a parameter's value.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(" + "),
        other => other.to_string(),
    }
}

/// The round with the value closest to the median: shown where only one round fits.
pub(crate) fn typical_round(
    result: &TargetResult,
    metric: RoundMetric,
) -> Option<&crate::record::RoundRecord> {
    let middle = median(&metric.over(&result.rounds));
    let distance = |round: &&crate::record::RoundRecord| match (metric.of(round), middle) {
        (Some(value), Some(middle)) => (value - middle).abs(),
        _ => f64::INFINITY,
    };
    result.rounds.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

/// Table headings, one per target.
pub(crate) fn target_names(run: &RunRecord) -> Vec<String> {
    run.targets.iter().map(|target| target.name.clone()).collect()
}

/// Flag of a figure measured on connections that should have been closed.
const KEPT: char = 'k';

/// Flag of a figure that the gateway did not limit.
fn flag_letter(part: BottleneckPart) -> char {
    match part {
        BottleneckPart::Upstream => 'u',
        BottleneckPart::Generator => 'g',
        BottleneckPart::Machine => 'm',
        BottleneckPart::Load => 'l',
        BottleneckPart::Latency => 'c',
        BottleneckPart::Gateway | BottleneckPart::Unknown => '?',
    }
}

fn flag_meaning(letter: char) -> &'static str {
    match letter {
        KEPT => "kept connections although asked to close them: not comparable with those that closed",
        'u' => "bounded by the upstream, not by the gateway",
        'g' => "bounded by the generator, not by the gateway",
        'm' => "bounded by the machine, not by the gateway alone",
        'l' => "bounded by the offered load; everybody had room left",
        'c' => "bounded by having so few connections: shows latency, not capacity",
        _ => "the bottleneck is unknown",
    }
}
