//! Decides whether two sets of rounds differ, by size and by significance.
//!
//! Depends on numbers and their better direction, but not on the measurement.

use serde::Serialize;

use crate::metric::{BetterDirection, RoundMetric};
use crate::quantity::QuantityUnit;
use crate::statistics::{
    ConfidenceInterval, EffectSize, PairedRatio, RankTest, SampleSpread, TestTail, cliffs_delta,
    interval_of_ratio, mann_whitney, smallest_p,
};

/// Limits of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct VerdictLimits {
    /// Largest relative difference of medians that counts as equal.
    pub threshold: f64,
    /// Largest p-value of the rank test that counts as significant.
    pub alpha: f64,
}

impl Default for VerdictLimits {
    fn default() -> Self {
        Self { threshold: 0.05, alpha: 0.05 }
    }
}

/// Largest difference of shares that counts as equal: 0.1 percentage points.
const SHARE_THRESHOLD: f64 = 0.001;

/// Decision of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictDecision {
    /// The first is better.
    Better,
    /// The first is worse.
    Worse,
    /// The difference is below the threshold.
    Same,
    /// The difference is not significant.
    Undecided,
    /// The number of rounds is too small for significance.
    TooFew,
}

/// Comparison of a first set of rounds with a second.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// Decision.
    pub decision: VerdictDecision,
    /// Spread of the first set.
    pub first: SampleSpread,
    /// Spread of the second set.
    pub second: SampleSpread,
    /// First / second; `None` if the second is zero.
    pub ratio: Option<f64>,
    /// 95 % confidence interval of the ratio.
    pub ratio_interval: Option<ConfidenceInterval>,
    /// P-value in the direction of the difference.
    pub p_value: f64,
    /// Cliff's delta, first against second.
    pub delta: f64,
    /// Verbal size of the delta.
    pub effect: EffectSize,
}

impl Verdict {
    /// Compares rounds measured side by side by their ratios.
    pub fn paired(metric: RoundMetric, first: &[f64], second: &[f64], limits: VerdictLimits) -> Option<Self> {
        // The decision rests on the rank test, which the pairing does not change; pairing narrows the ratio only.
        let mut verdict = Self::without_ratio(metric, first, second, limits)?;
        let paired = (first.len() == second.len()).then(|| PairedRatio::of(first, second)).flatten();
        match paired {
            Some(paired) => {
                verdict.ratio = Some(paired.median);
                verdict.ratio_interval = Some(paired.interval);
            }
            // Sets of different lengths do not pair.
            None => verdict.set_ratio(first, second),
        }
        Some(verdict)
    }

    /// Compares independent rounds; `None` for an empty set.
    pub fn of(metric: RoundMetric, first: &[f64], second: &[f64], limits: VerdictLimits) -> Option<Self> {
        let mut verdict = Self::without_ratio(metric, first, second, limits)?;
        verdict.set_ratio(first, second);
        Some(verdict)
    }

    fn set_ratio(&mut self, first: &[f64], second: &[f64]) {
        // Independent rounds have no common disturbance to cancel, so the medians are divided.
        self.ratio = (self.second.median != 0.0).then(|| self.first.median / self.second.median);
        self.ratio_interval = interval_of_ratio(first, second);
    }

    fn without_ratio(
        metric: RoundMetric,
        first: &[f64],
        second: &[f64],
        limits: VerdictLimits,
    ) -> Option<Self> {
        let (a, b) = (SampleSpread::of(first)?, SampleSpread::of(second)?);
        let higher = a.median > b.median;
        // One-sided, in the observed direction.
        let tail = if higher { TestTail::Greater } else { TestTail::Less };
        let RankTest { p_value, .. } = mann_whitney(first, second, tail)?;
        let delta = cliffs_delta(first, second)?;
        let is_distinct = are_distinct(metric, a.median, b.median, limits);
        let good = higher == (metric.better() == BetterDirection::Higher);
        let decision = match (is_distinct, p_value <= limits.alpha, good) {
            // Size before significance: many rounds make even an irrelevant difference significant.
            (false, _, _) => VerdictDecision::Same,
            (true, true, true) => VerdictDecision::Better,
            (true, true, false) => VerdictDecision::Worse,
            // More rounds could decide it, which "undecided" would not suggest.
            (true, false, _) if smallest_p(a.count, b.count, tail) > limits.alpha => VerdictDecision::TooFew,
            (true, false, _) => VerdictDecision::Undecided,
        };
        let effect = EffectSize::of(delta);
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

    /// Whether the number of rounds allows a significant difference.
    pub fn has_enough_rounds(&self, limits: VerdictLimits) -> bool {
        smallest_p(self.first.count, self.second.count, TestTail::Greater) <= limits.alpha
    }

    /// Whether the first is behind the second, significant or not.
    pub fn is_worse(&self, metric: RoundMetric) -> bool {
        let higher = self.first.median > self.second.median;
        self.decision != VerdictDecision::Same && higher != (metric.better() == BetterDirection::Higher)
    }
}

fn are_distinct(metric: RoundMetric, first: f64, second: f64, limits: VerdictLimits) -> bool {
    // Absolute difference: error shares are mostly zero, which makes a ratio meaningless.
    if metric.unit() == QuantityUnit::Share {
        return (first - second).abs() > SHARE_THRESHOLD;
    }
    (first - second).abs() > limits.threshold * second.abs()
}

impl VerdictDecision {
    /// Text for tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
            Self::Undecided => "inconclusive",
            Self::TooFew => "too few rounds",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(metric: RoundMetric, first: &[f64], second: &[f64], expected: VerdictDecision) {
        let verdict = Verdict::of(metric, first, second, VerdictLimits::default()).expect("rounds");
        assert_eq!(verdict.decision, expected, "{verdict:?}");
    }

    #[test]
    fn rounds_that_lie_apart_are_better_or_worse() {
        let (low, high) = ([100.0, 102.0, 101.0], [120.0, 119.0, 121.0]);
        check(RoundMetric::Throughput, &high, &low, VerdictDecision::Better);
        check(RoundMetric::Throughput, &low, &high, VerdictDecision::Worse);
        check(RoundMetric::LatencyP99, &high, &low, VerdictDecision::Worse);
        check(RoundMetric::LatencyP99, &low, &high, VerdictDecision::Better);
    }

    #[test]
    fn difference_below_the_threshold_is_same() {
        let (low, high) = ([100.0, 100.1, 100.2, 100.3, 100.4], [101.0, 101.1, 101.2, 101.3, 101.4]);
        check(RoundMetric::Throughput, &low, &high, VerdictDecision::Same);
    }

    #[test]
    fn rounds_that_overlap_do_not_decide() {
        check(
            RoundMetric::Throughput,
            &[80.0, 100.0, 130.0, 90.0],
            &[85.0, 120.0, 140.0, 110.0],
            VerdictDecision::Undecided,
        );
    }

    #[test]
    fn a_round_or_two_can_never_decide() {
        check(RoundMetric::Throughput, &[80.0], &[160.0], VerdictDecision::TooFew);
        check(RoundMetric::Throughput, &[80.0, 81.0], &[160.0, 161.0], VerdictDecision::TooFew);
    }

    #[test]
    fn errors_are_compared_by_their_difference() {
        check(RoundMetric::Errors, &[0.0; 3], &[0.0; 3], VerdictDecision::Same);
        check(RoundMetric::Errors, &[0.000_4; 3], &[0.0; 3], VerdictDecision::Same);
        check(RoundMetric::Errors, &[0.02, 0.03, 0.025], &[0.0; 3], VerdictDecision::Worse);
    }

    #[test]
    fn paired_rounds_have_paired_ratios() {
        let verdict = Verdict::paired(
            RoundMetric::Throughput,
            &[20.0, 40.0, 80.0],
            &[10.0, 20.0, 40.0],
            VerdictLimits::default(),
        );
        assert_eq!(verdict.and_then(|verdict| verdict.ratio), Some(2.0));
    }
}
