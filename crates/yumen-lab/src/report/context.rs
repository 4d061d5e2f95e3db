//! Looks things up in a run for all parts of a report: styles of targets, figures of cells, what bounded them.
//!
//! Knows the record; not how a report is laid out.

use serde_json::Value;

use super::chart::{LegendEntry, Point, STYLES};
use super::document::{Cell, Emphasis};
use crate::metric::{Better, Metric, foreign_bottleneck, who_name};
use crate::record::{Case, Role, Run, Target, TargetResult, Who};
use crate::statistics::{Spread, median};

/// A run with what the parts of a report ask of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) run: &'a Run,
}

impl<'a> Context<'a> {
    pub(crate) fn new(run: &'a Run) -> Self {
        Self { run }
    }

    /// The look of a target in every chart: the quiet one for what gateways are compared with.
    pub(crate) fn style(&self, name: &str) -> usize {
        let gateways = || self.run.targets.iter().filter(|target| target.role == Role::Gateway);
        gateways().position(|target| target.name == name).map_or(0, |index| 1 + index % (STYLES - 1))
    }

    /// Names and looks of all targets.
    pub(crate) fn legend(&self) -> Vec<LegendEntry> {
        let entry =
            |target: &Target| LegendEntry { name: target.name.clone(), style: self.style(&target.name) };
        self.run.targets.iter().map(entry).collect()
    }

    /// What a target did in a case, unless it could not.
    pub(crate) fn result(&self, case: &'a Case, target: &Target) -> Option<&'a TargetResult> {
        case.results.iter().find(|result| result.target == target.name && !result.rounds.is_empty())
    }

    /// The figures of a target's rounds in a case.
    pub(crate) fn spread(&self, case: &'a Case, target: &Target, metric: Metric) -> Option<Spread> {
        Spread::of(&metric.over(&self.result(case, target)?.rounds))
    }

    /// Who else bounded the figures, where it was not the gateway.
    pub(crate) fn foreign(&self, case: &'a Case, target: &Target) -> Option<Who> {
        foreign_bottleneck(target, self.result(case, target)?)
    }

    /// A point of a chart.
    pub(crate) fn point(&self, case: &'a Case, target: &Target, metric: Metric, x: f64) -> Option<Point> {
        let spread = self.spread(case, target, metric)?;
        let flagged = self.foreign(case, target).is_some();
        Some(Point { x, y: spread.median, interval: Some(spread.interval), flagged })
    }

    /// One row of cells, a cell for each target: median, deviation, the best gateway in bold, flags.
    pub(crate) fn cells(&self, case: &'a Case, metric: Metric) -> Vec<Cell> {
        let best = self.best(case, metric);
        let cell = |target: &Target| {
            let Some(spread) = self.spread(case, target, metric) else { return Cell::none() };
            let unit = metric.unit();
            let mut text = unit.show(spread.median);
            if spread.count > 1 && metric != Metric::Errors && spread.mean != 0.0 {
                text.push_str(&format!(" ±{}", super::Unit::Share.show(spread.relative_deviation())));
            }
            let is_best = best == Some(target.name.as_str());
            let emphasis = match target.role {
                Role::Baseline => Emphasis::Quiet,
                Role::Gateway if is_best => Emphasis::Best,
                Role::Gateway => Emphasis::None,
            };
            let flag = self.foreign(case, target).map(flag_letter);
            Cell { text, emphasis, flag, bar: None }
        };
        self.run.targets.iter().map(cell).collect()
    }

    /// The gateway with the best median in a case; `None` where fewer than two were measured or all are alike.
    fn best(&self, case: &'a Case, metric: Metric) -> Option<&'a str> {
        let gateways = self.run.targets.iter().filter(|target| target.role == Role::Gateway);
        let mut medians: Vec<(&str, f64)> = gateways
            .filter_map(|target| Some((target.name.as_str(), self.spread(case, target, metric)?.median)))
            .collect();
        medians.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        let (lowest, highest) = (*medians.first()?, *medians.last()?);
        if lowest.1 == highest.1 {
            return None;
        }
        Some(if metric.better() == Better::Higher { highest.0 } else { lowest.0 })
    }

    /// What the flags in a table mean: a line for each that occurs.
    pub(crate) fn flag_notes(&self, cases: &[&'a Case]) -> Vec<String> {
        let mut found: Vec<Who> = Vec::new();
        for case in cases {
            let foreign = self.run.targets.iter().filter_map(|target| self.foreign(case, target));
            for who in foreign {
                if !found.contains(&who) {
                    found.push(who);
                }
            }
        }
        found.sort_by_key(|who| flag_letter(*who));
        found.into_iter().map(|who| format!("{}: {}", flag_letter(who), flag_meaning(who))).collect()
    }

    /// Names of parameters whose values differ between cases, without the one a view is drawn over.
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

    /// Cases that differ in one parameter only, with a heading for each group where there are several.
    pub(crate) fn groups(&self, over: &str) -> Vec<(String, Vec<&'a Case>)> {
        let names = self.varying(Some(over));
        let mut groups: Vec<(String, Vec<&Case>)> = Vec::new();
        for case in self.run.cases.iter().filter(|case| number(case, over).is_some()) {
            let parts = names.iter().filter_map(|name| Some((*name, case.parameters.get(*name)?)));
            let parts: Vec<String> =
                parts.map(|(name, value)| format!("{name} = {}", plain(value))).collect();
            let heading = parts.join(", ");
            match groups.iter_mut().find(|(known, _)| *known == heading) {
                Some((_, cases)) => cases.push(case),
                None => groups.push((heading, vec![case])),
            }
        }
        for (_, cases) in &mut groups {
            cases.sort_by(|a, b| number(a, over).unwrap_or(0.0).total_cmp(&number(b, over).unwrap_or(0.0)));
        }
        groups
    }
}

/// A parameter as a number.
pub(crate) fn number(case: &Case, name: &str) -> Option<f64> {
    case.parameters.get(name)?.as_f64()
}

/// A parameter's value as a reader would write it.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(" + "),
        other => other.to_string(),
    }
}

/// The round whose figure is nearest to the median of all: the one to show where only one can be shown.
pub(crate) fn typical_round(result: &TargetResult, metric: Metric) -> Option<&crate::record::Round> {
    let middle = median(&metric.over(&result.rounds));
    let distance = |round: &&crate::record::Round| match (metric.of(round), middle) {
        (Some(value), Some(middle)) => (value - middle).abs(),
        _ => f64::INFINITY,
    };
    result.rounds.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

/// A table's heading for each target.
pub(crate) fn target_names(run: &Run) -> Vec<String> {
    run.targets.iter().map(|target| target.name.clone()).collect()
}

/// The sign of a figure that the gateway did not bound.
pub(crate) fn flag_letter(who: Who) -> char {
    match who {
        Who::Upstream => 'u',
        Who::Generator => 'g',
        Who::Machine => 'm',
        Who::Load => 'l',
        Who::Latency => 'c',
        Who::Gateway | Who::Unknown => '?',
    }
}

fn flag_meaning(who: Who) -> String {
    let why = match who {
        Who::Upstream => "the upstream was at its limit; the gateway could have done more",
        Who::Generator => "the generator was at its limit; the gateway could have done more",
        Who::Machine => "the machine was at its limit, or its host took time away",
        Who::Load => "everybody had room left; the offered load bounded the rate",
        Who::Latency => "too few connections to keep anybody busy; the figure shows latency, not capacity",
        Who::Gateway | Who::Unknown => "who bounded the rate cannot be told",
    };
    format!("not bounded by the gateway but by: {} ({why})", who_name(who))
}
