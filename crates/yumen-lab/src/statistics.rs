//! Statistics of small samples: medians with intervals, rank tests, effect sizes.
//!
//! Pure arithmetic. All results are deterministic: the bootstrap uses a fixed seed.

mod resample;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub use resample::{interval_of_median, interval_of_ratio};

/// Maximum number of observations for an exact rank test; above, the normal approximation is used.
const EXACT_OBSERVATIONS_MAX: usize = 50;

/// A closed interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ConfidenceInterval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Location and spread of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SampleSpread {
    /// Number of values.
    pub count: usize,
    /// Middle value, or the mean of the two middle ones.
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation, with the denominator n - 1; zero for a single value.
    pub standard_deviation: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// 95 % confidence interval of the median, by bootstrap.
    pub interval: ConfidenceInterval,
}

impl SampleSpread {
    /// Summarizes the finite values of a sample; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        // Ends here for an empty sample, so that no division by zero follows.
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let mean = mean(&sorted);
        Some(Self {
            count: sorted.len(),
            median: median_of_sorted(&sorted),
            mean,
            standard_deviation: deviation(&sorted, mean),
            min,
            max,
            interval: interval_of_median(&sorted)?,
        })
    }
}

/// Standard deviation as a share of the mean; `None` for fewer than two values or a mean of zero.
pub fn relative_deviation(values: &[f64]) -> Option<f64> {
    let values = finite(values);
    let mean = mean(&values);
    (values.len() > 1 && mean != 0.0).then(|| deviation(&values, mean) / mean.abs())
}

/// Middle value of a sample, or the mean of the two middle ones.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    (!sorted.is_empty()).then(|| median_of_sorted(&sorted))
}

/// Quantile for a share from 0 to 1, with linear interpolation (R's type 7).
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    quantile_of_sorted(&sorted(values), share)
}

fn quantile_of_sorted(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = share.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    Some(below + (above - below) * position.fract())
}

/// Alternative of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestTail {
    /// Two-sided.
    Both,
    /// The first sample tends to be greater.
    Greater,
    /// The first sample tends to be less.
    Less,
}

/// Result of a rank test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankTest {
    /// U of the first sample (Mann-Whitney), or the rank sum of the positive differences (Wilcoxon).
    pub statistic: f64,
    /// Probability of a result at least as extreme by chance.
    pub p_value: f64,
    /// Whether the p-value is exact rather than approximated.
    pub exact: bool,
}

/// Mann-Whitney's U test of two independent samples, ties included; `None` for an empty sample.
///
/// Up to 50 values in total, all arrangements of the observed ranks are counted, so ties need no correction.
pub fn mann_whitney(first: &[f64], second: &[f64], tail: TestTail) -> Option<RankTest> {
    let (first, second) = (finite(first), finite(second));
    let (n, m) = (first.len(), second.len());
    if n == 0 || m == 0 {
        return None;
    }
    let all: Vec<f64> = first.iter().chain(&second).copied().collect();
    let ranks = doubled_ranks(&all);
    // In doubled ranks, so that the sums are integers and can index the counts.
    let rank_sum: usize = ranks[..n].iter().sum();
    // U is the rank sum less its smallest possible value.
    let statistic = rank_sum as f64 / 2.0 - (n * (n + 1)) as f64 / 2.0;
    // Exact where affordable: with few rounds and ties, the normal approximation is poor.
    if n + m <= EXACT_OBSERVATIONS_MAX {
        let counts = subset_sums(&ranks, n);
        return Some(RankTest { statistic, p_value: exact_p(&counts, rank_sum, tail), exact: true });
    }
    let total = (n + m) as f64;
    // Ties reduce the variance of the statistic.
    let ties = tie_term(&all) / (total * (total - 1.0));
    let variance = (n * m) as f64 / 12.0 * (total + 1.0 - ties);
    let p_value = normal_p(statistic, (n * m) as f64 / 2.0, variance, tail);
    Some(RankTest { statistic, p_value, exact: false })
}

/// Wilcoxon's signed-rank test of paired samples; pairs without a difference are left out.
///
/// `None` if the lengths differ or no pair has a difference. Up to 50 pairs, all arrangements of signs are
/// counted.
pub fn wilcoxon(first: &[f64], second: &[f64], tail: TestTail) -> Option<RankTest> {
    if first.len() != second.len() {
        return None;
    }
    // Zero differences have no sign (Wilcoxon, 1945).
    let differences: Vec<f64> =
        first.iter().zip(second).map(|(a, b)| a - b).filter(|d| d.is_finite() && *d != 0.0).collect();
    if differences.is_empty() {
        return None;
    }
    let sizes: Vec<f64> = differences.iter().map(|d| d.abs()).collect();
    let ranks = doubled_ranks(&sizes);
    let positive: usize = ranks.iter().zip(&differences).filter(|(_, d)| **d > 0.0).map(|(r, _)| r).sum();
    let statistic = positive as f64 / 2.0;
    let n = differences.len() as f64;
    if differences.len() <= EXACT_OBSERVATIONS_MAX {
        let counts = sign_sums(&ranks);
        return Some(RankTest { statistic, p_value: exact_p(&counts, positive, tail), exact: true });
    }
    // Ties reduce the variance here too.
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - tie_term(&sizes) / 48.0;
    Some(RankTest {
        statistic,
        p_value: normal_p(statistic, n * (n + 1.0) / 4.0, variance, tail),
        exact: false,
    })
}

/// Smallest p-value that the rank test can give for samples of these sizes without ties.
///
/// With too few rounds, no difference can be significant.
pub fn smallest_p(n: usize, m: usize, tail: TestTail) -> f64 {
    // The binomial coefficient of n + m over n, as a float because large samples exceed 64 bits.
    let arrangements = (1..=n).fold(1.0, |product, k| product * (m + k) as f64 / k as f64);
    // The most extreme arrangement exists at both ends.
    let sides = if tail == TestTail::Both { 2.0 } else { 1.0 };
    f64::min(1.0, sides / arrangements)
}

/// Cliff's delta from -1 to 1: the probability that a value of the first sample is greater than one of the
/// second, minus the probability that it is less.
pub fn cliffs_delta(first: &[f64], second: &[f64]) -> Option<f64> {
    let (first, second) = (finite(first), finite(second));
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let sign = |a: f64, b: f64| f64::from(i8::from(a > b) - i8::from(a < b));
    // All pairs: a set of rounds has some tens of values at most, so no sorting is needed.
    let sum: f64 = first.iter().map(|a| second.iter().map(|b| sign(*a, *b)).sum::<f64>()).sum();
    Some(sum / (first.len() * second.len()) as f64)
}

/// Verbal size of a delta, with the limits 0.147, 0.33 and 0.474 (Romano and others, 2006).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectSize {
    /// The samples overlap almost fully.
    Negligible,
    /// A tendency.
    Small,
    /// A clear tendency.
    Medium,
    /// The samples hardly overlap.
    Large,
}

impl EffectSize {
    /// Classifies a delta from -1 to 1.
    pub fn of(delta: f64) -> Self {
        match delta.abs() {
            d if d < 0.147 => Self::Negligible,
            d if d < 0.33 => Self::Small,
            d if d < 0.474 => Self::Medium,
            _ => Self::Large,
        }
    }

    /// Text for reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Negligible => "negligible",
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }
}

/// Comparison of two samples measured in the same rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PairedRatio {
    /// Number of common rounds.
    pub pairs: usize,
    /// Median of first / second over the rounds.
    pub median: f64,
    /// 95 % confidence interval of that median, by bootstrap over the rounds.
    pub interval: ConfidenceInterval,
}

impl PairedRatio {
    /// Computes ratios round by round, which cancels changes common to a round.
    ///
    /// Pairs with a zero denominator are left out; `None` if no pair remains.
    pub fn of(first: &[f64], second: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> =
            first.iter().zip(second).filter(|(_, b)| **b != 0.0).map(|(a, b)| a / b).collect();
        let spread = SampleSpread::of(&ratios)?;
        Some(Self { pairs: spread.count, median: spread.median, interval: spread.interval })
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn deviation(values: &[f64], mean: f64) -> f64 {
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    // With n - 1: the mean stems from the same sample (Bessel's correction).
    if values.len() > 1 { (squares / (values.len() - 1) as f64).sqrt() } else { 0.0 }
}

fn finite(values: &[f64]) -> Vec<f64> {
    values.iter().copied().filter(|value| value.is_finite()).collect()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = finite(values);
    // The values are finite, so the total order is the numeric one.
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// Twice the rank of each value, with mean ranks for ties. Doubling keeps mean ranks integers.
fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let tied = order[start..].iter().take_while(|i| values[**i] == values[order[start]]).count();
        for index in &order[start..start + tied] {
            // The tied ranks are start + 1 to start + tied; this is twice their mean.
            ranks[*index] = 2 * start + tied + 1;
        }
        start += tied;
    }
    ranks
}

/// Sum of t^3 - t over groups of t equal values.
fn tie_term(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    sorted.chunk_by(|a, b| a == b).map(|group| (group.len() as f64).powi(3) - group.len() as f64).sum()
}

/// Number of ways to choose `size` ranks, by their sum as index.
fn subset_sums(ranks: &[usize], size: usize) -> Vec<f64> {
    let total: usize = ranks.iter().sum();
    let mut arrangement_counts = vec![vec![0.0; total + 1]; size + 1];
    // Floats are exact here: 50 ranks have at most 2^50 arrangements.
    arrangement_counts[0][0] = 1.0;
    for rank in ranks {
        // Descending, so that each rank is used at most once.
        for taken in (1..=size).rev() {
            for sum in (*rank..=total).rev() {
                arrangement_counts[taken][sum] += arrangement_counts[taken - 1][sum - rank];
            }
        }
    }
    arrangement_counts.swap_remove(size)
}

/// Number of ways to assign signs to the ranks, by the sum of the positive ones as index.
fn sign_sums(ranks: &[usize]) -> Vec<f64> {
    let total: usize = ranks.iter().sum();
    let mut arrangement_counts = vec![0.0; total + 1];
    arrangement_counts[0] = 1.0;
    for rank in ranks {
        for sum in (*rank..=total).rev() {
            arrangement_counts[sum] += arrangement_counts[sum - rank];
        }
    }
    arrangement_counts
}

fn exact_p(arrangement_counts: &[f64], observed: usize, tail: TestTail) -> f64 {
    // Every arrangement is equally likely if the samples do not differ.
    let all: f64 = arrangement_counts.iter().sum();
    let at_most = arrangement_counts[..=observed].iter().sum::<f64>() / all;
    let at_least = arrangement_counts[observed..].iter().sum::<f64>() / all;
    match tail {
        TestTail::Greater => at_least,
        TestTail::Less => at_most,
        // Both tails include the observed value, so twice the smaller one may exceed 1.
        TestTail::Both => f64::min(1.0, 2.0 * at_most.min(at_least)),
    }
}

/// P-value of the normal approximation with continuity correction.
fn normal_p(statistic: f64, mean: f64, variance: f64, tail: TestTail) -> f64 {
    // All values are equal, so no arrangement differs from another.
    if variance <= 0.0 {
        return 1.0;
    }
    let (distance, sides) = match tail {
        TestTail::Greater => (statistic - mean, 1.0),
        TestTail::Less => (mean - statistic, 1.0),
        TestTail::Both => ((statistic - mean).abs(), 2.0),
    };
    // With the continuity correction of one half.
    f64::min(1.0, sides * upper_tail((distance - 0.5) / variance.sqrt()))
}

/// Upper tail probability of the standard normal distribution: a Taylor series near the centre, and Laplace's
/// continued fraction in the tail, where the series loses precision.
fn upper_tail(z: f64) -> f64 {
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if z.abs() > 3.0 {
        // 40 levels from the innermost outwards; beyond 3 they converge to the precision of a float.
        let fraction = (1..=40).rev().fold(z.abs(), |below, k| z.abs() + f64::from(k) / below);
        return if z > 0.0 { density / fraction } else { 1.0 - density / fraction };
    }
    let (mut term, mut sum) = (z, z);
    // Up to 3, the terms vanish well before the sixtieth.
    for k in 1..=60 {
        term *= z * z / f64::from(2 * k + 1);
        sum += term;
    }
    0.5 - density * sum
}
