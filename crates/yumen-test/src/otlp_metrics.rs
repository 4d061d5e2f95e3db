//! Metrics of OTLP as collectors read them (opentelemetry-proto 1.9), for tests of exporters.

use std::collections::BTreeMap;

use prost::Message;

use crate::otlp::{OtlpPair, OtlpResource, pairs};

#[derive(Clone, PartialEq, Message)]
struct MetricsRequest {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<OtlpResource>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<OtlpMetric>,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpMetric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "5")]
    gauge: Option<OtlpNumbers>,
    #[prost(message, optional, tag = "7")]
    sum: Option<OtlpNumbers>,
    #[prost(message, optional, tag = "9")]
    histogram: Option<OtlpHistograms>,
}

/// `Gauge` and `Sum`, which have the same field of points.
#[derive(Clone, PartialEq, Message)]
struct OtlpNumbers {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberPoint>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
struct NumberPoint {
    #[prost(double, tag = "4")]
    as_double: f64,
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<OtlpPair>,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpHistograms {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<HistogramPoint>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
struct HistogramPoint {
    #[prost(fixed64, tag = "4")]
    count: u64,
    #[prost(fixed64, repeated, tag = "6")]
    bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<OtlpPair>,
}

/// One received point.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedMetric {
    /// Name of the metric.
    pub name: String,
    /// Attributes of the point.
    pub attributes: BTreeMap<String, String>,
    /// The number, or the count of a histogram.
    pub value: f64,
    /// Whether the metric is a counter.
    pub is_monotonic: bool,
    /// Counts of the buckets of a histogram.
    pub bucket_counts: Vec<u64>,
    /// Bounds between the buckets.
    pub bounds: Vec<f64>,
    /// Attributes of the resource.
    pub resource: BTreeMap<String, String>,
}

/// Decodes an export request of metrics.
///
/// # Panics
///
/// If the request is malformed, or a counter or histogram is not cumulative.
pub fn received_metrics(body: &[u8]) -> Vec<ReceivedMetric> {
    let request = MetricsRequest::decode(body).expect("a message of OTLP");
    let mut received = Vec::new();
    for of_resource in request.resource_metrics {
        let resource = pairs(of_resource.resource.expect("a resource").attributes);
        for metric in of_resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
            let OtlpMetric { name, gauge, sum, histogram } = metric;
            if let Some(sum) = &sum {
                assert_eq!(sum.aggregation_temporality, 2, "{name} is not cumulative");
            }
            let is_monotonic = sum.as_ref().is_some_and(|sum| sum.is_monotonic);
            for point in gauge.into_iter().chain(sum).flat_map(|numbers| numbers.data_points) {
                received.push(ReceivedMetric {
                    name: name.clone(),
                    attributes: pairs(point.attributes),
                    value: point.as_double,
                    is_monotonic,
                    bucket_counts: Vec::new(),
                    bounds: Vec::new(),
                    resource: resource.clone(),
                });
            }
            if let Some(histograms) = histogram {
                assert_eq!(histograms.aggregation_temporality, 2, "{name} is not cumulative");
                received.extend(histograms.data_points.into_iter().map(|point| ReceivedMetric {
                    name: name.clone(),
                    attributes: pairs(point.attributes),
                    value: point.count as f64,
                    is_monotonic: false,
                    bucket_counts: point.bucket_counts,
                    bounds: point.explicit_bounds,
                    resource: resource.clone(),
                }));
            }
        }
    }
    received
}
