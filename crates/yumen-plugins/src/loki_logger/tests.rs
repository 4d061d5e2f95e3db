use serde_json::json;
use yumen_plugin::{SinkReply, SinkVerdict};

use super::{LokiEncoder, SinkEncoder};
use crate::testing::PluginBench;

#[test]
fn entries_with_equal_labels_share_a_stream() {
    let bench = PluginBench::new();
    let settings = json!({
        "endpoint_addrs": ["http://loki:3100"], "tenant_id": "shop", "headers": {"X-A": "1"},
        "log_labels": {"job": "gateway", "origin": "$arg_from", "kept": "$arg_none"},
        "log_format": {"m": "\"q\""},
    });
    let plugin = bench.plugin("loki-logger", settings);
    for from in ["a", "b", "a"] {
        bench.run(&plugin, &format!("GET /?from={from} HTTP/1.1"));
    }
    let requests = bench.sink_requests();
    assert_eq!((requests.len(), requests[0].target.as_str()), (1, "/loki/api/v1/push"));
    let fields: Vec<String> =
        requests[0].fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    assert_eq!(fields, ["X-Scope-OrgID: shop", "Content-Type: application/json", "X-A: 1"]);
    let body: serde_json::Value = serde_json::from_slice(&requests[0].body.concat()).unwrap();
    let line = r#"{"m":"\"q\"","service_id":"s1","route_id":"1"}"#;
    let value = json!(["1700000000000000000", line]);
    let expected = json!({"streams": [
        {"stream": {"job": "gateway", "kept": "$arg_none", "origin": "a"}, "values": [value, value]},
        {"stream": {"job": "gateway", "kept": "$arg_none", "origin": "b"}, "values": [value]},
    ]});
    assert_eq!(body, expected);
}

#[test]
fn a_status_from_300_on_is_a_failure() {
    let encoder = LokiEncoder { target: String::new(), fields: Vec::new() };
    let verdict =
        |status| encoder.verdict(&SinkReply { status, body: b"late".to_vec(), ..SinkReply::default() });
    assert_eq!(verdict(204), SinkVerdict::Sent);
    assert_eq!(verdict(400), SinkVerdict::Retry("loki server returned status: 400, body: late".into()));
}
