use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use yumen_plugin::{SinkBatch, SinkChunk, SinkEncoder, SinkReply, SinkVerdict};

use super::BulkEncoder;
use crate::testing::PluginBench;

fn encoder() -> BulkEncoder {
    BulkEncoder { base: String::new(), fields: Vec::new(), has_types: AtomicBool::new(false) }
}

fn reply(status: u16, body: &Value) -> SinkReply {
    SinkReply { status, body: body.to_string().into_bytes(), ..SinkReply::default() }
}

#[test]
fn a_document_follows_its_index() {
    let bench = PluginBench::new();
    let settings = json!({
        "endpoint_addrs": ["https://search:9200/es"], "field": {"index": "logs-$host-{%Y.%m.%d}"},
        "auth": {"username": "elastic", "password": "123456"}, "log_format": {"m": "$request_method"},
    });
    let plugin = bench.plugin("elasticsearch-logger", settings);
    bench.run(&plugin, "GET / HTTP/1.1");
    let requests = bench.sink_requests();
    assert_eq!(requests[0].target, "/es/_bulk");
    assert!(requests[0].fields.contains(&("Authorization".into(), "Basic ZWxhc3RpYzoxMjM0NTY=".into())));
    let expected = "{\"index\":{\"_index\":\"logs-test.com-2023.11.14\"}}\n\
                    {\"m\":\"GET\",\"service_id\":\"s1\",\"route_id\":\"1\"}\n";
    assert_eq!(String::from_utf8(requests[0].body.concat()).unwrap(), expected);
}

#[test]
fn old_servers_get_a_document_type() {
    fn check(version: &str, expected: &str) {
        let encoder = encoder();
        encoder.learn(&reply(200, &json!({"version": {"number": version}})));
        let chunks = [SinkChunk::single(b"\"i\"\0{}".to_vec())];
        let batch = SinkBatch { chunks: &chunks, entries: 1, now: yumen_plugin::Now::default() };
        assert_eq!(String::from_utf8(encoder.requests(&batch)[0].body.concat()).unwrap(), expected);
    }
    check("6.8.0", "{\"index\":{\"_index\":\"i\",\"_type\":\"_doc\"}}\n{}\n");
    check("8.9.0", "{\"index\":{\"_index\":\"i\"}}\n{}\n");
}

#[test]
fn refused_documents_are_repeated_only_if_the_server_is_busy() {
    let item = |status: u16| json!({"index": {"status": status, "error": {"reason": "r"}}});
    let result = json!({"errors": true, "items": [item(201), item(429), item(400)]});
    let expected =
        SinkVerdict::Partial { retry: vec![1], dropped: 1, reason: "document refused: \"r\"".into() };
    assert_eq!(encoder().verdict(&reply(200, &result)), expected);
    assert_eq!(encoder().verdict(&reply(200, &json!({"errors": false}))), SinkVerdict::Sent);
    assert!(matches!(encoder().verdict(&reply(500, &json!({}))), SinkVerdict::Retry(_)));
}
