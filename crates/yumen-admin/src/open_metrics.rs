//! Metric families in the OpenMetrics text format 1.0, with exemplars.
//!
//! Series are merged as for the Prometheus text format; invalid ones are left out.

use std::collections::BTreeMap;
use std::fmt::Write;

use yumen_base::metric::{MetricExemplar, MetricFamily, MetricKind, MetricValue};

use crate::exposition::{Labels, MergedFamily, merge};

/// The media type of the text.
pub(crate) const CONTENT_TYPE_OPEN_METRICS: &str =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether a scraper accepts the format, by its `Accept`.
pub(crate) fn is_accepted(accept: &str) -> bool {
    accept.split(',').any(|range| {
        let mut parts = range.split(';').map(str::trim);
        parts.next().is_some_and(|name| name.eq_ignore_ascii_case("application/openmetrics-text"))
            && !parts.any(|parameter| matches!(parameter, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

/// Encodes `families`, ascending by name, with an exemplar in each bucket that has one.
pub(crate) fn open_metrics(families: Vec<MetricFamily>, exemplars: &[MetricExemplar]) -> String {
    let families = merge(families);
    let mut out = String::new();
    for family in families.values().filter(|family| !family.series.is_empty()) {
        write_family(family, &families, exemplars, &mut out);
    }
    out.push_str("# EOF\n");
    out
}

fn write_family(
    family: &MergedFamily,
    all: &BTreeMap<String, MergedFamily>,
    exemplars: &[MetricExemplar],
    out: &mut String,
) {
    // Names of counters end in `_total` in samples only (OpenMetrics, "Counter"). Those of APISIX without this end are of
    // unknown type here, under their own name.
    let base = family.name.strip_suffix("_total").filter(|base| !all.contains_key(*base));
    let (name, kind) = match (family.kind, base) {
        (MetricKind::Counter, Some(base)) => (base, "counter"),
        (MetricKind::Counter, None) => (family.name.as_str(), "unknown"),
        (MetricKind::Gauge, _) => (family.name.as_str(), "gauge"),
        (MetricKind::Histogram, _) => (family.name.as_str(), "histogram"),
    };
    append(out, format_args!("# TYPE {name} {kind}\n# HELP {name} {}\n", escaped(&family.help)));
    for (labels, value) in &family.series {
        match value {
            MetricValue::Number(number) => {
                append(
                    out,
                    format_args!("{}{} {}\n", family.name, LabelBraces(labels, None), number_text(*number)),
                );
            }
            MetricValue::Buckets { buckets, sum, count } => {
                let own = |one: &&MetricExemplar| one.family == family.name && labels.is_empty();
                let mut below = f64::NEG_INFINITY;
                let last = (f64::INFINITY, *count);
                for (bound, count) in buckets.iter().copied().chain([last]) {
                    append(out, format_args!("{name}_bucket{} {count}", LabelBraces(labels, Some(bound))));
                    let is_in = |one: &&MetricExemplar| one.value > below && one.value <= bound;
                    if let Some(one) = exemplars.iter().filter(own).find(is_in) {
                        write_exemplar(one, out);
                    }
                    out.push('\n');
                    below = bound;
                }
                append(out, format_args!("{name}_count{} {count}\n", LabelBraces(labels, None)));
                append(out, format_args!("{name}_sum{} {}\n", LabelBraces(labels, None), number_text(*sum)));
            }
        }
    }
}

fn write_exemplar(one: &MetricExemplar, out: &mut String) {
    let MetricExemplar { trace_id, value, unix_ms, .. } = one;
    let (seconds, ms) = (unix_ms / 1000, unix_ms % 1000);
    append(out, format_args!(" # {{trace_id=\"{trace_id}\"}} {} {seconds}.{ms:03}", number_text(*value)));
}

fn append(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a String cannot fail");
}

/// Labels in braces, with the bound of a bucket; nothing without labels.
struct LabelBraces<'a>(&'a Labels, Option<f64>);

impl std::fmt::Display for LabelBraces<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LabelBraces(labels, bound) = self;
        if labels.is_empty() && bound.is_none() {
            return Ok(());
        }
        f.write_char('{')?;
        for (index, (name, value)) in labels.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{name}=\"{}\"", escaped(value))?;
        }
        if let Some(bound) = bound {
            let comma = if labels.is_empty() { "" } else { "," };
            write!(f, "{comma}le=\"{}\"", number_text(*bound))?;
        }
        f.write_char('}')
    }
}

/// A number as the Prometheus format writes it, so that series keep their labels.
fn number_text(number: f64) -> String {
    match number {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        number => number.to_string(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use yumen_base::metric::MetricSeries;

    use super::*;

    fn family(
        name: &'static str,
        kind: MetricKind,
        labels: &[(&'static str, &str)],
        value: MetricValue,
    ) -> MetricFamily {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        MetricFamily {
            name: name.into(),
            help: "Some \"help\".".into(),
            kind,
            samples: vec![MetricSeries { labels, value }],
        }
    }

    #[test]
    fn families_have_the_form_of_openmetrics() {
        let buckets = MetricValue::Buckets { buckets: vec![(0.1, 1), (2.0, 3)], sum: 4.5, count: 4 };
        let families = vec![
            family("requests_total", MetricKind::Counter, &[("a", "b\"c")], MetricValue::Number(3.0)),
            family("status", MetricKind::Counter, &[], MetricValue::Number(1.0)),
            family("open", MetricKind::Gauge, &[], MetricValue::Number(0.5)),
            family("duration_seconds", MetricKind::Histogram, &[], buckets),
        ];
        let exemplar = |value, digit: &str| MetricExemplar {
            family: "duration_seconds",
            trace_id: digit.repeat(32),
            value,
            unix_ms: 1_700_000_000_007,
        };
        let text = open_metrics(families, &[exemplar(0.05, "1"), exemplar(7.0, "2")]);
        let expected = format!(
            "# TYPE duration_seconds histogram\n# HELP duration_seconds Some \\\"help\\\".\n\
             duration_seconds_bucket{{le=\"0.1\"}} 1 # {{trace_id=\"{}\"}} 0.05 1700000000.007\n\
             duration_seconds_bucket{{le=\"2\"}} 3\n\
             duration_seconds_bucket{{le=\"+Inf\"}} 4 # {{trace_id=\"{}\"}} 7 1700000000.007\n\
             duration_seconds_count 4\nduration_seconds_sum 4.5\n\
             # TYPE open gauge\n# HELP open Some \\\"help\\\".\nopen 0.5\n\
             # TYPE requests counter\n# HELP requests Some \\\"help\\\".\nrequests_total{{a=\"b\\\"c\"}} 3\n\
             # TYPE status unknown\n# HELP status Some \\\"help\\\".\nstatus 1\n# EOF\n",
            "1".repeat(32),
            "2".repeat(32)
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn a_counter_whose_base_is_taken_keeps_its_name() {
        let families = vec![
            family("load", MetricKind::Gauge, &[], MetricValue::Number(1.0)),
            family("load_total", MetricKind::Counter, &[], MetricValue::Number(2.0)),
        ];
        let text = open_metrics(families, &[]);
        assert!(
            text.contains("# TYPE load gauge\n") && text.contains("# TYPE load_total unknown\n"),
            "{text}"
        );
    }

    #[test]
    fn scrapers_ask_for_the_format() {
        fn check(accept: &str, expected: bool) {
            assert_eq!(is_accepted(accept), expected, "{accept}");
        }
        check("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3", true);
        check("text/plain, application/OpenMetrics-Text", true);
        check("application/openmetrics-text;q=0", false);
        check("text/plain", false);
        check("*/*", false);
        check("", false);
    }
}
