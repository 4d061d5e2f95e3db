//! Metrics as data, before any text format.

use std::borrow::Cow;

/// What a family's numbers mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Observations in buckets.
    Histogram,
}

/// One number, or one set of buckets.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricValue {
    /// A count or a level.
    Number(f64),
    /// Buckets as (upper bound, observations at most that large), ascending, without the infinite one.
    Buckets {
        /// The cumulated buckets.
        buckets: Vec<(f64, u64)>,
        /// The sum of all observations.
        sum: f64,
        /// How many observations there were.
        count: u64,
    },
}

/// One series of a family.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSeries {
    /// Label names and values, in the family's order.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: MetricValue,
}

/// All series of one name.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricFamily {
    /// The metric's name.
    pub name: Cow<'static, str>,
    /// One sentence.
    pub help: Cow<'static, str>,
    /// What the numbers mean.
    pub kind: MetricKind,
    /// The series.
    pub samples: Vec<MetricSeries>,
}

/// A component that has metrics.
pub trait MetricSource: Send + Sync {
    /// Appends what was measured so far. Called by the status listener, never by a worker.
    fn gather(&self, out: &mut Vec<MetricFamily>);
}
