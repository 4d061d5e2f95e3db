//! Whether two sets of rounds differ: by how much, and whether chance could have done it.
//!
//! Knows numbers and which way is better; not what they were measured on.

use serde::Serialize;

use crate::metric::{Better, Metric};
use crate::quantity::Unit;
use crate::statistics::{
    Effect, Interval, PairedRatio, RankTest, Spread, Tail, cliffs_delta, interval_of_ratio, mann_whitney,
    smallest_p,
};

/// What counts as different.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Limits {
    /// Medians closer than this share of each other are the same.
    pub threshold: f64,
    /// A rank test must give at most this p-value.
    pub alpha: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { threshold: 0.05, alpha: 0.05 }
    }
}

/// Shares closer than this are the same: a tenth of a percentage point.
const SHARE_THRESHOLD: f64 = 0.001;

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The first is better.
    Better,
    /// The first is worse.
    Worse,
    /// Closer than the threshold.
    Same,
    /// Apart, but chance could have done it.
    Undecided,
    /// Apart, but so few rounds can never decide.
    TooFew,
}

/// The first set of rounds against the second.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// What was decided.
    pub decision: Decision,
    /// The first.
    pub first: Spread,
    /// The second.
    pub second: Spread,
    /// First / second; `None` where the second is zero.
    pub ratio: Option<f64>,
    /// Where the ratio lies with 95 % confidence.
    pub ratio_interval: Option<Interval>,
    /// How often chance alone gives as much, in the direction seen.
    pub p_value: f64,
    /// Cliff's delta, first against second.
    pub delta: f64,
    /// The delta in a word.
    pub effect: Effect,
}

impl Verdict {
    /// Judges rounds that were measured side by side: their ratios are taken round by round.
    pub fn paired(metric: Metric, first: &[f64], second: &[f64], limits: Limits) -> Option<Self> {
        let mut verdict = Self::without_ratio(metric, first, second, limits)?;
        let paired = (first.len() == second.len()).then(|| PairedRatio::of(first, second)).flatten();
        match paired {
            Some(paired) => {
                verdict.ratio = Some(paired.median);
                verdict.ratio_interval = Some(paired.interval);
            }
            None => verdict.set_ratio(first, second),
        }
        Some(verdict)
    }

    /// Judges rounds that have nothing to do with each other; `None` where there are none.
    pub fn of(metric: Metric, first: &[f64], second: &[f64], limits: Limits) -> Option<Self> {
        let mut verdict = Self::without_ratio(metric, first, second, limits)?;
        verdict.set_ratio(first, second);
        Some(verdict)
    }

    fn set_ratio(&mut self, first: &[f64], second: &[f64]) {
        self.ratio = (self.second.median != 0.0).then(|| self.first.median / self.second.median);
        self.ratio_interval = interval_of_ratio(first, second);
    }

    fn without_ratio(metric: Metric, first: &[f64], second: &[f64], limits: Limits) -> Option<Self> {
        let (a, b) = (Spread::of(first)?, Spread::of(second)?);
        let higher = a.median > b.median;
        let tail = if higher { Tail::Greater } else { Tail::Less };
        let RankTest { p_value, .. } = mann_whitney(first, second, tail)?;
        let delta = cliffs_delta(first, second)?;
        let apart = is_apart(metric, a.median, b.median, limits);
        let good = higher == (metric.better() == Better::Higher);
        let decision = match (apart, p_value <= limits.alpha, good) {
            (false, _, _) => Decision::Same,
            (true, true, true) => Decision::Better,
            (true, true, false) => Decision::Worse,
            (true, false, _) if smallest_p(a.count, b.count, tail) > limits.alpha => Decision::TooFew,
            (true, false, _) => Decision::Undecided,
        };
        let effect = Effect::of(delta);
        Some(Self {
            decision,
            first: a,
            second: b,
            ratio: None,
            ratio_interval: None,
            p_value,
            delta,
            effect,
        })
    }

    /// Whether the first is behind the second, certain or not.
    pub fn is_behind(&self, metric: Metric) -> bool {
        let higher = self.first.median > self.second.median;
        self.decision != Decision::Same && higher != (metric.better() == Better::Higher)
    }
}

fn is_apart(metric: Metric, first: f64, second: f64, limits: Limits) -> bool {
    if metric.unit() == Unit::Share {
        return (first - second).abs() > SHARE_THRESHOLD;
    }
    (first - second).abs() > limits.threshold * second.abs()
}

impl Decision {
    /// As tables write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
            Self::Undecided => "not told from chance",
            Self::TooFew => "too few rounds to tell",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(metric: Metric, first: &[f64], second: &[f64], expected: Decision) {
        let verdict = Verdict::of(metric, first, second, Limits::default()).expect("rounds");
        assert_eq!(verdict.decision, expected, "{verdict:?}");
    }

    #[test]
    fn rounds_that_lie_apart_are_better_or_worse() {
        let (low, high) = ([100.0, 102.0, 101.0], [120.0, 119.0, 121.0]);
        check(Metric::Throughput, &high, &low, Decision::Better);
        check(Metric::Throughput, &low, &high, Decision::Worse);
        check(Metric::LatencyP99, &high, &low, Decision::Worse);
        check(Metric::LatencyP99, &low, &high, Decision::Better);
    }

    #[test]
    fn what_is_closer_than_the_threshold_is_the_same_however_certain() {
        let (low, high) = ([100.0, 100.1, 100.2, 100.3, 100.4], [101.0, 101.1, 101.2, 101.3, 101.4]);
        check(Metric::Throughput, &low, &high, Decision::Same);
    }

    #[test]
    fn rounds_that_overlap_do_not_decide() {
        check(
            Metric::Throughput,
            &[80.0, 100.0, 130.0, 90.0],
            &[85.0, 120.0, 140.0, 110.0],
            Decision::Undecided,
        );
    }

    #[test]
    fn a_round_or_two_can_never_decide() {
        check(Metric::Throughput, &[80.0], &[160.0], Decision::TooFew);
        check(Metric::Throughput, &[80.0, 81.0], &[160.0, 161.0], Decision::TooFew);
    }

    #[test]
    fn errors_are_compared_by_their_difference() {
        check(Metric::Errors, &[0.0; 3], &[0.0; 3], Decision::Same);
        check(Metric::Errors, &[0.000_4; 3], &[0.0; 3], Decision::Same);
        check(Metric::Errors, &[0.02, 0.03, 0.025], &[0.0; 3], Decision::Worse);
    }

    #[test]
    fn paired_rounds_have_paired_ratios() {
        let verdict =
            Verdict::paired(Metric::Throughput, &[20.0, 40.0, 80.0], &[10.0, 20.0, 40.0], Limits::default());
        assert_eq!(verdict.and_then(|verdict| verdict.ratio), Some(2.0));
    }
}
