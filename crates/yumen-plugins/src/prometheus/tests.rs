//! Outcomes and the resulting series.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use yumen_base::metric::{MetricFamily, MetricSeries, MetricSource, MetricValue};
use yumen_plugin::{ExchangeOutcome, ResponseSource};

use super::metrics;
use super::series::SERIES_MAX;
use crate::testing::PluginBench;

const PROXIED: ExchangeOutcome<'static> = ExchangeOutcome {
    status: 200,
    source: ResponseSource::Upstream,
    received_bytes: 100,
    sent_bytes: 250,
    sent_head_bytes: 100,
    duration_us: 3_500,
    upstream_us: Some(2_000),
    endpoint: None,
    upstream_status: Some(200),
    attempts: 1,
    fault: "",
    upstream_failure: None,
};

fn log(bench: &PluginBench, settings: Json, outcome: &ExchangeOutcome<'_>) {
    let plugin = bench.plugin("prometheus", settings);
    let endpoint = Some("10.0.0.1:80".parse().expect("an address"));
    plugin.log(&bench.exchange("GET / HTTP/1.1"), &ExchangeOutcome { endpoint, ..*outcome });
}

fn gather(bench: &PluginBench) -> Vec<MetricFamily> {
    let mut families = Vec::new();
    metrics(&bench.carry).gather(&mut families);
    families
}

fn family<'a>(families: &'a [MetricFamily], name: &str) -> &'a [MetricSeries] {
    &families.iter().find(|family| family.name == name).expect(name).samples
}

fn labels(sample: &MetricSeries) -> String {
    let given = sample.labels.iter().filter(|(_, value)| !value.is_empty());
    given.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn lines(families: &[MetricFamily], name: &str) -> Vec<String> {
    let value = |sample: &MetricSeries| match &sample.value {
        MetricValue::Number(number) => number.to_string(),
        MetricValue::Buckets { sum, count, buckets } => {
            let below: Vec<String> = buckets.iter().take(4).map(|(b, n)| format!("{b}:{n}")).collect();
            format!("{count} of {sum} {}", below.join(" "))
        }
    };
    family(families, name).iter().map(|sample| format!("{} {}", labels(sample), value(sample))).collect()
}

/// The metrics live as long as a reference to them.
fn metrics_of(bench: &PluginBench) -> Arc<super::PrometheusMetrics> {
    metrics(&bench.carry)
}

#[test]
fn an_exchange_is_counted_under_its_labels() {
    let bench = PluginBench::new();
    let _held = metrics_of(&bench);
    log(&bench, json!({}), &PROXIED);
    log(&bench, json!({}), &PROXIED);
    let families = gather(&bench);
    let ai = "request_type=traditional_http";
    assert_eq!(
        lines(&families, "apisix_http_status"),
        [format!("code=200 route=1 matched_uri=/* service=s1 node=10.0.0.1 {ai} response_source=upstream 2")],
    );
    assert_eq!(
        lines(&families, "apisix_bandwidth"),
        [
            format!("type=egress route=1 service=s1 node=10.0.0.1 {ai} 500"),
            format!("type=ingress route=1 service=s1 node=10.0.0.1 {ai} 200"),
        ],
    );
    assert_eq!(
        lines(&families, "apisix_http_latency"),
        [
            format!("type=apisix route=1 service=s1 node=10.0.0.1 {ai} 2 of 3 1:0 2:2 5:2 10:2"),
            format!("type=request route=1 service=s1 node=10.0.0.1 {ai} 2 of 7 1:0 2:0 5:2 10:2"),
            format!("type=upstream route=1 service=s1 node=10.0.0.1 {ai} 2 of 4 1:0 2:2 5:2 10:2"),
        ],
    );
}

#[test]
fn names_replace_ids_if_preferred() {
    let bench = PluginBench::new();
    let _held = metrics_of(&bench);
    log(&bench, json!({"prefer_name": true}), &PROXIED);
    let line = lines(&gather(&bench), "apisix_http_status").remove(0);
    assert!(line.contains("route=r1 ") && line.contains("service=svc "), "{line}");
}

#[test]
fn the_source_says_who_answered() {
    let bench = PluginBench::new();
    let _held = metrics_of(&bench);
    let own = ExchangeOutcome { source: ResponseSource::Gateway, upstream_us: None, attempts: 0, ..PROXIED };
    log(&bench, json!({}), &ExchangeOutcome { status: 401, ..own });
    log(&bench, json!({}), &ExchangeOutcome { status: 502, attempts: 2, ..own });
    let families = gather(&bench);
    let status = lines(&families, "apisix_http_status").join("\n");
    assert!(
        status.contains("response_source=apisix") && status.contains("response_source=nginx"),
        "{status}"
    );
    let latency = lines(&families, "apisix_http_latency").join("\n");
    assert!(!latency.contains("type=upstream"), "{latency}");
}

#[test]
fn disabled_labels_are_left_empty_and_their_series_added_up() {
    let mut bench = PluginBench::new();
    let _held = metrics_of(&bench);
    bench.metadata = Some(json!({"disabled_labels": {"http_status": ["code", "node", "route"]}}));
    log(&bench, json!({}), &PROXIED);
    log(&bench, json!({}), &ExchangeOutcome { status: 404, ..PROXIED });
    let lines = lines(&gather(&bench), "apisix_http_status");
    let ai = "request_type=traditional_http";
    assert_eq!(lines, [format!("matched_uri=/* service=s1 {ai} response_source=upstream 2")]);
}

#[test]
fn counts_of_workers_are_summed() {
    let bench = PluginBench::new();
    let metrics_of = metrics_of(&bench);
    log(&bench, json!({}), &PROXIED);
    std::thread::scope(|scope| {
        let metrics_of = &metrics_of;
        scope.spawn(move || {
            let labels = super::SeriesLabels {
                status: 200,
                source: "upstream",
                route: "1",
                service: "s1",
                matched_uri: "/*",
                matched_host: "",
                consumer: "",
                node: Some("10.0.0.1".parse().expect("an address")),
            };
            metrics_of.record(&labels, &PROXIED, 1);
        });
    });
    let lines = lines(&gather(&bench), "apisix_http_status");
    assert!(lines.len() == 1 && lines[0].ends_with(" 2"), "{lines:?}");
}

#[test]
fn too_many_series_are_folded_into_one() {
    let mut bench = PluginBench::new();
    let metrics_of = metrics_of(&bench);
    let plugin = bench.plugin("prometheus", json!({}));
    for route in 0..SERIES_MAX + 50 {
        bench.route.id = route.to_string().into();
        plugin.log(&bench.exchange("GET / HTTP/1.1"), &PROXIED);
    }
    let families = gather(&bench);
    let lines = lines(&families, "apisix_http_status");
    assert_eq!(lines.len(), SERIES_MAX + 1);
    assert!(lines.iter().any(|line| line.contains("route=other ") && line.ends_with(" 50")));
    assert_eq!(metrics_of.retire(u64::MAX), SERIES_MAX + 1);
    plugin.log(&bench.exchange("GET / HTTP/1.1"), &PROXIED);
    assert_eq!(family(&gather(&bench), "apisix_http_status").len(), 1, "room is made again");
}

#[test]
fn idle_series_is_dropped_and_restarts() {
    let bench = PluginBench::new();
    let metrics_of = metrics_of(&bench);
    log(&bench, json!({}), &PROXIED);
    assert_eq!(metrics_of.retire(1_700_000_000), 0, "it was written in that second");
    assert_eq!(metrics_of.retire(1_700_000_001), 1);
    assert!(family(&gather(&bench), "apisix_http_status").is_empty());
    log(&bench, json!({}), &PROXIED);
    assert!(lines(&gather(&bench), "apisix_http_status")[0].ends_with(" 1"));
}

#[test]
#[ignore = "a measurement, not a test"]
#[allow(clippy::print_stdout, reason = "the number is the point")]
fn log_phase_cost() {
    let bench = PluginBench::new();
    let plugin = bench.plugin("prometheus", json!({}));
    let ex = bench.exchange("GET / HTTP/1.1");
    let rounds = 2_000_000u32;
    let begun = std::time::Instant::now();
    for _ in 0..rounds {
        plugin.log(&ex, &PROXIED);
    }
    println!("{} ns", begun.elapsed().as_nanos() / u128::from(rounds));
}

#[test]
fn streams_are_counted_by_route_in_families_of_their_own() {
    let bench = PluginBench::new();
    let _held = metrics_of(&bench);
    let plugin = bench.plugin("prometheus", json!({}));
    let route = yumen_plugin::RouteInfo { id: "db".into(), name: "orders".into(), ..Default::default() };
    for name in [false, false, true] {
        let plugin =
            if name { bench.plugin("prometheus", json!({"prefer_name": true})) } else { plugin.clone() };
        let mut ex = bench.exchange("GET / HTTP/1.1");
        ex.route.info = Some(&route);
        ex.client.stream = Some(yumen_plugin::StreamInfo { protocol: "tcp", mqtt_client_id: None });
        plugin.log(&ex, &PROXIED);
    }
    let families = gather(&bench);
    assert_eq!(lines(&families, "apisix_stream_connection_total"), ["route=db 2", "route=orders 1"]);
    let bandwidth = [
        "type=egress route=db 500",
        "type=egress route=orders 250",
        "type=ingress route=db 200",
        "type=ingress route=orders 100",
    ];
    assert_eq!(lines(&families, "apisix_stream_bandwidth"), bandwidth);
    assert!(lines(&families, "apisix_http_status").is_empty());
}
