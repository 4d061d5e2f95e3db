use serde_json::json;
use yumen_plugin::{ExchangeOutcome, SinkBatch, SinkChunk, SinkEncoder};

use super::StatsdEncoder;
use crate::testing::PluginBench;

#[test]
fn each_request_has_its_metrics_and_tags() {
    let mut bench = PluginBench::new();
    bench.outcome = ExchangeOutcome {
        received_bytes: 10,
        sent_bytes: 20,
        duration_us: 3000,
        upstream_us: Some(1000),
        endpoint: Some("10.0.0.1:80".parse().unwrap()),
        attempts: 1,
        ..ExchangeOutcome::default()
    };
    bench.metadata = Some(json!({"namespace": "shop", "constant_tags": ["env:test"]}));
    let plugin = bench.plugin("datadog", json!({"include_method": true, "constant_tags": ["team:a"]}));
    bench.run(&plugin, "GET /a HTTP/1.1");
    let tags = "env:test,team:a,route_name:r1,method:GET,service_name:svc,balancer_ip:10.0.0.1,\
                response_status:200,response_status_class:2xx,scheme:http";
    let line = |metric: &str| format!("shop.{metric}|#{tags}");
    let expected = [
        "request.counter:1|c",
        "request.latency:3|h",
        "upstream.latency:1|h",
        "apisix.latency:2|h",
        "ingress.size:10|ms",
        "egress.size:20|ms",
    ];
    assert_eq!(bench.sink_bodies(), [expected.map(line).join("\n")]);
}

#[test]
fn datagrams_have_as_many_entries_as_fit() {
    let entry = |length| SinkChunk::single(vec![b'x'; length]);
    let chunks = [entry(4000), entry(4000), entry(4000), entry(9000)];
    let batch = SinkBatch { chunks: &chunks, entries: 4, now: yumen_plugin::Now::default() };
    let requests = StatsdEncoder.requests(&batch);
    let sizes: Vec<_> =
        requests.iter().map(|request| (request.body.concat().len(), request.entries)).collect();
    assert_eq!(sizes, [(8001, 2), (4000, 1), (9000, 1)]);
}
