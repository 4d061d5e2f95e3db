//! Collected metrics, independent of any text format.

use std::borrow::Cow;

/// The kind of a metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only increases.
    Counter,
    /// Increases and decreases.
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
        /// The cumulative buckets.
        buckets: Vec<(f64, u64)>,
        /// The sum of all observations.
        sum: f64,
        /// The number of observations.
        count: u64,
    },
}

/// One series of a family.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSeries {
    /// Label names and values, in the family's order.
    pub labels: Vec<(&'static str, String)>,
    /// A number or buckets, by the kind of the family.
    pub value: MetricValue,
}

/// All series of one name.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricFamily {
    /// The name of the metric.
    pub name: Cow<'static, str>,
    /// Description in one sentence.
    pub help: Cow<'static, str>,
    /// The kind of all series.
    pub kind: MetricKind,
    /// The series.
    pub samples: Vec<MetricSeries>,
}

/// A traced observation of a histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricExemplar {
    /// Name of the family, whose series has no labels.
    pub family: &'static str,
    /// Identifier of the trace.
    pub trace_id: String,
    /// The observed value.
    pub value: f64,
    /// The time of the observation in milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

/// A component that collects metrics.
pub trait MetricSource: Send + Sync {
    /// Appends the current metrics. Called by the status listener, never by a worker.
    fn gather(&self, out: &mut Vec<MetricFamily>);

    /// Appends traced observations, at most one per bucket. Called as `gather` is.
    fn exemplars(&self, _out: &mut Vec<MetricExemplar>) {}
}
