//! Bootstrap confidence intervals: resamples with replacement from a fixed seed.
//!
//! Pure arithmetic. The same sample gives the same interval on every machine.

use super::{ConfidenceInterval, quantile_of_sorted, sorted};

/// Number of resamples.
const RESAMPLES: usize = 2000;
/// Seed of every bootstrap.
const SEED: u64 = 0x59_75_6d_65_6e;
/// Share of resampled values left out at each end; 95 % remain.
const TAIL_SHARE: f64 = 0.025;

/// 95 % confidence interval of the median; `None` for an empty sample.
///
/// With fewer than six values, the interval is close to the range of the sample.
pub fn interval_of_median(values: &[f64]) -> Option<ConfidenceInterval> {
    let sorted = sorted(values);
    if sorted.is_empty() {
        return None;
    }
    // A new generator per interval: the result depends on the sample only, not on earlier calls.
    let mut resample = BootstrapResample::new();
    middle_of((0..RESAMPLES).map(|_| resample.median_of(&sorted)).collect())
}

/// 95 % confidence interval of median(first) / median(second), for unpaired samples.
///
/// `None` if a sample is empty or the second contains a value of zero or less.
pub fn interval_of_ratio(first: &[f64], second: &[f64]) -> Option<ConfidenceInterval> {
    let (first, second) = (sorted(first), sorted(second));
    if first.is_empty() || second.first().is_none_or(|smallest| *smallest <= 0.0) {
        return None;
    }
    let mut resample = BootstrapResample::new();
    // Drawn independently, as the samples are. Positive values keep every ratio finite.
    middle_of((0..RESAMPLES).map(|_| resample.median_of(&first) / resample.median_of(&second)).collect())
}

/// Interval of the resampled values without both tails.
fn middle_of(mut resampled: Vec<f64>) -> Option<ConfidenceInterval> {
    resampled.sort_unstable_by(f64::total_cmp);
    let (low, high) = (TAIL_SHARE, 1.0 - TAIL_SHARE);
    Some(ConfidenceInterval {
        low: quantile_of_sorted(&resampled, low)?,
        high: quantile_of_sorted(&resampled, high)?,
    })
}

/// Resampling with replacement. From a sorted sample, only indexes are drawn, which are cheap to sort.
struct BootstrapResample {
    random: SplitMix,
    indices: Vec<usize>,
}

impl BootstrapResample {
    fn new() -> Self {
        Self { random: SplitMix(SEED), indices: Vec::new() }
    }

    fn median_of(&mut self, sorted: &[f64]) -> f64 {
        // One allocation serves all resamples.
        self.indices.clear();
        self.indices.extend((0..sorted.len()).map(|_| self.random.below(sorted.len())));
        self.indices.sort_unstable();
        let middle = sorted.len() / 2;
        let upper = sorted[self.indices[middle]];
        if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[self.indices[middle - 1]], upper) }
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): small, well mixed, and identical on all platforms.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Random number below `limit`, without modulo bias.
    fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }
}
