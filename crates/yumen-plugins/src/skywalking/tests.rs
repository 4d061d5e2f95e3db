use serde_json::{Value, json};
use yumen_plugin::{ExchangeOutcome, ResponseSource};

use crate::testing::{PluginBench, TestReply};
use crate::traces::sw8::Sw8Context;

fn run(bench: &PluginBench, settings: Value, fields: &str) -> (TestReply, Vec<Value>) {
    let plugin = bench.plugin("skywalking", settings);
    let reply = bench.run(&plugin, &format!("GET /a?b=1 HTTP/1.1{fields}"));
    let requests = bench.sink_requests();
    assert!(requests.iter().all(|request| request.target == "/v3/segments"), "{requests:?}");
    let lists =
        requests.iter().map(|request| serde_json::from_slice::<Vec<Value>>(&request.body.concat()).unwrap());
    (reply, lists.flatten().collect())
}

fn sent(reply: &TestReply) -> Option<Sw8Context> {
    reply.upstream_field("sw8").map(|value| Sw8Context::parse(value.as_bytes()).expect("well-formed"))
}

fn caller() -> Sw8Context {
    Sw8Context {
        is_sampled: true,
        trace_id: "trace.1".to_owned(),
        segment_id: "segment.2".to_owned(),
        span_id: 5,
        service: "web".to_owned(),
        instance: "web-1".to_owned(),
        endpoint: "/home".to_owned(),
        address: "gateway:80".to_owned(),
    }
}

#[test]
fn a_segment_has_an_entry_and_an_exit_span() {
    let mut bench = PluginBench::new();
    bench.node.plugin_attributes =
        json!({"skywalking": {"service_name": "shop", "service_instance_name": "shop-1"}});
    bench.outcome = ExchangeOutcome {
        source: ResponseSource::Upstream,
        duration_us: 9000,
        upstream_us: Some(4000),
        attempts: 1,
        ..Default::default()
    };
    bench.upstream_reply = "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n".to_owned();
    let (reply, segments) = run(&bench, json!({}), &format!("\nsw8: {}", caller().text()));
    let context = sent(&reply).expect("sent");
    let expected = Sw8Context {
        is_sampled: true,
        trace_id: "trace.1".to_owned(),
        segment_id: context.segment_id.clone(),
        span_id: 1,
        service: "shop".to_owned(),
        instance: "shop-1".to_owned(),
        endpoint: "/a".to_owned(),
        address: "upstream service".to_owned(),
    };
    assert_eq!(context, expected);
    let tags = json!([
        {"key": "http.method", "value": "GET"},
        {"key": "url", "value": "http://test.com/a?b=1"},
        {"key": "http.status_code", "value": "500"},
    ]);
    let end = 1_700_000_000_009u64;
    let common = |kind: &str, start: u64| {
        json!({"operationName": "/a", "startTime": start, "endTime": end, "spanType": kind, "spanLayer": "Http",
            "componentId": 6002, "isError": true, "tags": tags})
    };
    let mut entry = common("Entry", 1_700_000_000_000);
    entry.as_object_mut().unwrap().extend([
        ("spanId".to_owned(), json!(0)),
        ("parentSpanId".to_owned(), json!(-1)),
        (
            "refs".to_owned(),
            json!([{"refType": "CrossProcess", "traceId": "trace.1", "parentTraceSegmentId": "segment.2",
                "parentSpanId": 5, "parentService": "web", "parentServiceInstance": "web-1",
                "parentEndpoint": "/home", "networkAddressUsedAtPeer": "gateway:80"}]),
        ),
    ]);
    let mut exit = common("Exit", 1_700_000_000_005);
    exit.as_object_mut().unwrap().extend([
        ("spanId".to_owned(), json!(1)),
        ("parentSpanId".to_owned(), json!(0)),
        ("peer".to_owned(), json!("upstream service")),
    ]);
    let expected = json!({"traceId": "trace.1", "traceSegmentId": context.segment_id, "service": "shop",
        "serviceInstance": "shop-1", "spans": [entry, exit]});
    assert_eq!(segments, [expected]);
}

#[test]
fn traces_begin_at_the_gateway_without_a_valid_caller() {
    for fields in ["", "\nsw8: x", "\nsw8: 1-MQ==-Mg==-3"] {
        let (reply, segments) = run(&PluginBench::new(), json!({}), fields);
        let context = sent(&reply).expect("sent");
        assert_eq!(context.trace_id.len(), 32);
        assert_eq!((context.service.as_str(), context.instance.as_str()), ("APISIX", "APISIX Instance Name"));
        assert_eq!(segments[0]["traceId"], context.trace_id);
        // Without an attempt there is no exit.
        let spans = segments[0]["spans"].as_array().expect("spans");
        assert!(spans.len() == 1 && spans[0].get("refs").is_none(), "{spans:?}");
    }
}

#[test]
fn unsampled_requests_pass_the_context_on() {
    let denied = Sw8Context { is_sampled: false, ..caller() };
    let (reply, segments) = run(&PluginBench::new(), json!({}), &format!("\nsw8: {}", denied.text()));
    assert_eq!((sent(&reply), segments.len()), (Some(denied), 0));
    let (reply, segments) = run(&PluginBench::new(), json!({"sample_ratio": 0.00001}), "");
    assert_eq!((sent(&reply), segments.len()), (None, 0));
}

#[test]
fn the_instance_is_announced_and_kept_alive() {
    use super::{SegmentEncoder, ServiceInstance};
    use yumen_plugin::SinkEncoder;

    let names = ServiceInstance { service: "shop".to_owned(), instance: "shop-1".to_owned() };
    let encoder = SegmentEncoder { prefix: "/base".to_owned(), names };
    let of = |taken| {
        let request = encoder.heartbeat(taken).expect("due").request;
        (request.target, serde_json::from_slice::<Value>(&request.body.concat()).expect("JSON"))
    };
    let (target, body) = of(0);
    assert_eq!(target, "/base/v3/management/reportProperties");
    assert!(body["service"] == "shop" && body["properties"].is_array(), "{body}");
    let alive = json!({"service": "shop", "serviceInstance": "shop-1"});
    assert_eq!(of(1), ("/base/v3/management/keepAlive".to_owned(), alive.clone()));
    assert_eq!(of(2).1, alive);
}
