//! Metrics of the control thread: revision, compile and propagation times, problems.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_base::{Histogram, ProblemLevel};

use super::ControlStatus;
use super::status::{COMPILE_BOUNDS_US, PROPAGATION_BOUNDS_MS};

/// Describes the metric families without values, for the reference.
pub(crate) fn describe(out: &mut Vec<MetricFamily>) {
    ControlStatus::new(Arc::default()).gather(out);
}

impl MetricSource for ControlStatus {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let mut family = |name: &'static str, help: &'static str, kind, samples| {
            out.push(MetricFamily { name: name.into(), help: help.into(), kind, samples });
        };
        let one = |value| vec![MetricSeries { labels: Vec::new(), value }];
        family(
            "yumen_config_propagation_seconds",
            "Time from the commit of a change until all new requests use it.",
            MetricKind::Histogram,
            one(buckets(&self.propagation, PROPAGATION_BOUNDS_MS, 1e3)),
        );
        family(
            "yumen_config_compile_seconds",
            "Compiling and publishing one change of configuration.",
            MetricKind::Histogram,
            one(buckets(&self.compile, COMPILE_BOUNDS_US, 1e6)),
        );
        family(
            "yumen_config_compile_last_seconds",
            "Compiling and publishing the last change of configuration.",
            MetricKind::Gauge,
            one(MetricValue::Number(self.compile_last_us.load(Ordering::Relaxed) as f64 / 1e6)),
        );
        family(
            "yumen_config_revision",
            "Revision of the active configuration.",
            MetricKind::Gauge,
            one(MetricValue::Number(self.revision.load(Ordering::Relaxed) as f64)),
        );
        let problems = self.problems();
        let level = |level: ProblemLevel, name: &str| MetricSeries {
            labels: vec![("level", name.to_owned())],
            value: MetricValue::Number(
                problems.iter().filter(|problem| problem.level == level).count() as f64
            ),
        };
        family(
            "yumen_config_problems",
            "Problems of the active configuration.",
            MetricKind::Gauge,
            vec![level(ProblemLevel::Error, "error"), level(ProblemLevel::Warning, "warning")],
        );
    }
}

/// A histogram as a family's value, in seconds.
fn buckets(histogram: &Histogram, bounds: &[u64], per_second: f64) -> MetricValue {
    let counts: Vec<u64> = histogram.counts().collect();
    let mut cumulated = 0;
    let buckets = bounds.iter().zip(&counts).map(|(bound, count)| {
        cumulated += count;
        (*bound as f64 / per_second, cumulated)
    });
    MetricValue::Buckets {
        buckets: buckets.collect(),
        sum: histogram.sum() as f64 / per_second,
        count: counts.iter().sum(),
    }
}
