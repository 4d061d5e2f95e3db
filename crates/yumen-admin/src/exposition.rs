//! Metric families in the Prometheus text format 0.0.4.
//!
//! Series that several components collected under one name form one family. Invalid families and series are
//! left out, since one bad line fails the whole scrape.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus::proto;
use prometheus::{Encoder, TextEncoder};
use tracing::warn;
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricValue};

/// The media type of the text.
pub(crate) const CONTENT_TYPE_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Encodes `families`, ascending by name, with series ascending by labels.
///
/// Counters and histograms with the same name and labels are added; of gauges the last value counts. Families
/// with an invalid name, or with another kind than the first of their name, are left out, as are series with
/// invalid label names or a value of another kind. Errors are those of the encoder.
pub fn exposition(families: Vec<MetricFamily>) -> Result<String, prometheus::Error> {
    let families: Vec<_> = merge(families).into_values().filter_map(MergedFamily::into_proto).collect();
    let mut text = Vec::new();
    TextEncoder::new().encode(&families, &mut text)?;
    // The encoder writes valid UTF-8 only.
    String::from_utf8(text).map_err(|error| prometheus::Error::Msg(error.to_string()))
}

/// Families and series that were left out since the start of the process.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// The count of families and series that [`exposition`] left out, under the name by which APISIX's dashboards watch it.
pub fn left_out() -> MetricFamily {
    MetricFamily {
        name: "apisix_nginx_metric_errors_total".into(),
        help:
            "Metric families and series left out of the exposition because they are invalid, by the name of \
               APISIX."
                .into(),
        kind: MetricKind::Counter,
        samples: vec![MetricSeries {
            labels: Vec::new(),
            value: MetricValue::Number(LEFT_OUT.load(Ordering::Relaxed) as f64),
        }],
    }
}

fn count_left_out() {
    LEFT_OUT.fetch_add(1, Ordering::Relaxed);
}

pub(crate) type Labels = Vec<(&'static str, String)>;

/// The series of all families of one name.
pub(crate) struct MergedFamily {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) kind: MetricKind,
    pub(crate) series: BTreeMap<Labels, MetricValue>,
}

/// Merges families by name, without invalid ones.
pub(crate) fn merge(families: Vec<MetricFamily>) -> BTreeMap<String, MergedFamily> {
    let mut merged: BTreeMap<String, MergedFamily> = BTreeMap::new();
    for MetricFamily { name, help, kind, samples } in families {
        if !is_metric_name(&name) {
            count_left_out();
            warn!(%name, "metric skipped: invalid name");
            continue;
        }
        let fresh = || MergedFamily {
            name: name.to_string(),
            help: help.into_owned(),
            kind,
            series: BTreeMap::new(),
        };
        let into = merged.entry(name.to_string()).or_insert_with(fresh);
        // The format allows one TYPE line per name.
        if into.kind != kind {
            count_left_out();
            warn!(%name, "metric skipped: registered with two kinds");
            continue;
        }
        samples.into_iter().for_each(|sample| into.add(sample));
    }
    merged
}

impl MergedFamily {
    fn add(&mut self, sample: MetricSeries) {
        let MetricSeries { mut labels, value } = sample;
        // The order of labels does not distinguish series.
        labels.sort();
        // A number has no place in the lines of a histogram, and buckets have none elsewhere.
        let fits = matches!(value, MetricValue::Buckets { .. }) == (self.kind == MetricKind::Histogram);
        if !fits || !are_label_names(&labels, self.kind) {
            count_left_out();
            warn!(name = %self.name, "series skipped: invalid labels or value");
            return;
        }
        let kind = self.kind;
        match self.series.entry(labels) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(value);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                if !combine(kind, entry.get_mut(), value) {
                    count_left_out();
                    warn!(name = %self.name, "series skipped: histogram buckets differ");
                }
            }
        }
    }

    /// `None` without series: the encoder treats an empty family as an error.
    fn into_proto(self) -> Option<proto::MetricFamily> {
        if self.series.is_empty() {
            return None;
        }
        let mut family = proto::MetricFamily::default();
        family.set_name(self.name);
        family.set_help(self.help);
        family.set_field_type(match self.kind {
            MetricKind::Counter => proto::MetricType::COUNTER,
            MetricKind::Gauge => proto::MetricType::GAUGE,
            MetricKind::Histogram => proto::MetricType::HISTOGRAM,
        });
        let kind = self.kind;
        family
            .set_metric(self.series.into_iter().map(|(labels, value)| metric(kind, labels, value)).collect());
        Some(family)
    }
}

/// Merges `value` into `target`; false if the two are incompatible.
fn combine(kind: MetricKind, target: &mut MetricValue, value: MetricValue) -> bool {
    match (target, value) {
        (MetricValue::Number(target), MetricValue::Number(more)) => {
            // Every component counts its own events; a gauge has one true value.
            *target = if kind == MetricKind::Counter { *target + more } else { more };
            true
        }
        (
            MetricValue::Buckets { buckets, sum, count },
            MetricValue::Buckets { buckets: more, sum: more_sum, count: more_count },
        ) => {
            // Counts of different buckets cannot be added.
            if !buckets.iter().map(|(bound, _)| bound).eq(more.iter().map(|(bound, _)| bound)) {
                return false;
            }
            buckets.iter_mut().zip(more).for_each(|(target, (_, more))| target.1 += more);
            *sum += more_sum;
            *count += more_count;
            true
        }
        _ => false,
    }
}

fn metric(kind: MetricKind, labels: Labels, value: MetricValue) -> proto::Metric {
    let mut metric =
        proto::Metric::from_label(labels.into_iter().map(|(name, value)| label(name, value)).collect());
    match value {
        MetricValue::Number(number) if kind == MetricKind::Counter => {
            let mut counter = proto::Counter::default();
            counter.set_value(number);
            metric.set_counter(counter);
        }
        MetricValue::Number(number) => {
            let mut gauge = proto::Gauge::default();
            gauge.set_value(number);
            metric.set_gauge(gauge);
        }
        MetricValue::Buckets { buckets, sum, count } => {
            let mut histogram = proto::Histogram::default();
            histogram.set_bucket(buckets.into_iter().map(|(bound, count)| bucket(bound, count)).collect());
            histogram.set_sample_sum(sum);
            histogram.set_sample_count(count);
            metric.set_histogram(histogram);
        }
    }
    metric
}

fn label(name: &str, value: String) -> proto::LabelPair {
    let mut pair = proto::LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value);
    pair
}

fn bucket(upper_bound: f64, count: u64) -> proto::Bucket {
    let mut bucket = proto::Bucket::default();
    bucket.set_upper_bound(upper_bound);
    bucket.set_cumulative_count(count);
    bucket
}

fn is_metric_name(name: &str) -> bool {
    is_name(name, |byte| matches!(byte, b'_' | b':'))
}

/// Whether the sorted `labels` have valid names, none twice, and not the reserved `le` of histograms.
fn are_label_names(labels: &Labels, kind: MetricKind) -> bool {
    labels.iter().all(|(name, _)| {
        is_name(name, |byte| byte == b'_') && !(*name == "le" && kind == MetricKind::Histogram)
    }) && labels.windows(2).all(|pair| pair[0].0 != pair[1].0)
}

fn is_name(name: &str, extra: impl Fn(u8) -> bool) -> bool {
    !name.is_empty()
        && !name.as_bytes()[0].is_ascii_digit()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || extra(byte))
}
