//! A histogram of durations with exponential buckets, precise enough for percentiles.
//!
//! Plain data: this file must not know clocks or metrics.

/// Buckets per doubling, so that a percentile is at most 25 % too high.
const PER_OCTAVE: u64 = 4;
/// Number of buckets; the last one counts all durations above two minutes.
const BUCKETS_MAX: usize = 106;

/// A histogram with microsecond resolution. Allocates only the buckets up to the longest duration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DurationHistogram {
    counts: Vec<u64>,
    pub(crate) sum_ns: u64,
}

impl DurationHistogram {
    /// Adds a duration with the weight of its sample.
    pub(crate) fn add(&mut self, ns: u64, weight: u64) {
        let bucket = bucket_of(ns / 1000);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += weight;
        self.sum_ns += ns * weight;
    }

    /// Adds the counts of another histogram.
    pub(crate) fn merge(&mut self, other: &DurationHistogram) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum_ns += other.sum_ns;
    }

    /// Returns the non-empty buckets: exclusive upper bound in microseconds, and count.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bucket, count)| (end_of(bucket), *count))
    }
}

/// Returns the index of a bucket: one per microsecond below 4 µs, then four per doubling.
fn bucket_of(us: u64) -> usize {
    if us < PER_OCTAVE {
        return us as usize;
    }
    let octave = u64::from(us.ilog2());
    let within = (us >> (octave - 2)) & (PER_OCTAVE - 1);
    (((octave - 1) * PER_OCTAVE + within) as usize).min(BUCKETS_MAX - 1)
}

/// Returns the exclusive upper bound of a bucket, in microseconds.
fn end_of(bucket: usize) -> u64 {
    let next = bucket as u64 + 1;
    if next < PER_OCTAVE {
        return next;
    }
    let (octave, within) = (next / PER_OCTAVE + 1, next % PER_OCTAVE);
    (PER_OCTAVE + within) << (octave - 2)
}

#[cfg(test)]
mod tests;
