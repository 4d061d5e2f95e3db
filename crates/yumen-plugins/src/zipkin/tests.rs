use serde_json::{Value, json};
use yumen_plugin::{ExchangeOutcome, ResponseSource};

use crate::testing::{PluginBench, TestReply};

const TRACE: &str = "80f198ee56343ba864fe8b2a57d3eff7";
const SPAN: &str = "e457b5a2e4d86bd1";
const PARENT: &str = "05e3ac9a4f6e3b90";

fn settings(more: Value) -> Value {
    let mut settings = json!({"endpoint": "http://zipkin.test:9411/api/v2/spans", "sample_ratio": 1});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

fn run(bench: &PluginBench, more: Value, fields: &str) -> (TestReply, Vec<Value>) {
    let plugin = bench.plugin("zipkin", settings(more));
    let reply = bench.run(&plugin, &format!("GET /a?b=1 HTTP/1.1{fields}"));
    let lists =
        bench.sink_bodies().into_iter().map(|body| serde_json::from_str::<Vec<Value>>(&body).unwrap());
    (reply, lists.flatten().collect())
}

/// The B3 fields of the upstream request: trace, span, parent, sampled, flags.
fn sent(reply: &TestReply) -> [String; 5] {
    let names = ["x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled", "x-b3-flags"];
    names.map(|name| reply.upstream_field(name).unwrap_or_default())
}

#[test]
fn a_sampled_request_continues_the_trace() {
    fn check(fields: &str, trace_id: Option<&str>, parent_id: Option<&str>, decision: [&str; 2]) {
        let (reply, spans) = run(&PluginBench::new(), json!({}), fields);
        let [trace, span, parent, sampled, flags] = sent(&reply);
        assert_eq!([sampled, flags], decision, "{fields}");
        assert_eq!(reply.upstream_field("b3"), None, "{fields}");
        match trace_id {
            Some(expected) => assert_eq!(trace, expected, "{fields}"),
            None => assert!(trace.len() == 32 && trace != TRACE, "{fields}"),
        }
        let [request, proxy, response] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!(request["parentId"].as_str(), parent_id, "{fields}");
        assert_eq!((&request["id"], &proxy["id"]), (&json!(parent), &json!(span)), "{fields}");
        for child in [proxy, response] {
            assert_eq!((&child["traceId"], &child["parentId"]), (&json!(trace), &request["id"]));
        }
    }
    let short = &TRACE[16..];
    check("", None, None, ["1", ""]);
    check(&format!("\nb3: {TRACE}-{SPAN}-1-{PARENT}"), Some(TRACE), Some(SPAN), ["1", ""]);
    check(&format!("\nb3: {short}-{SPAN}-1"), Some(short), Some(SPAN), ["1", ""]);
    check(&format!("\nb3: {TRACE}-{SPAN}-d"), Some(TRACE), Some(SPAN), ["", "1"]);
    check("\nb3: 1", None, None, ["1", ""]);
    let several = format!("\nX-B3-TraceId: {TRACE}\nX-B3-SpanId: {SPAN}\nX-B3-ParentSpanId: {PARENT}");
    check(&several, Some(TRACE), Some(SPAN), ["1", ""]);
    check(&format!("{several}\nX-B3-Sampled: 1"), Some(TRACE), Some(SPAN), ["1", ""]);
    check(&format!("{several}\nX-B3-Sampled: 0\nX-B3-Flags: 1"), Some(TRACE), Some(SPAN), ["", "1"]);
    // Invalid identifiers.
    check("\nX-B3-TraceId: abc\nX-B3-SpanId: def", None, None, ["1", ""]);
    check(&format!("\nb3: {TRACE}-{SPAN}-1-xyz"), None, None, ["1", ""]);
}

#[test]
fn an_unsampled_request_passes_the_decision_on() {
    fn check(fields: &str, expected: [&str; 5]) {
        let (reply, spans) = run(&PluginBench::new(), json!({}), fields);
        assert_eq!(sent(&reply), expected, "{fields}");
        assert_eq!(reply.upstream_field("b3"), None);
        assert!(spans.is_empty(), "{spans:?}");
    }
    check("\nb3: 0", ["", "", "", "0", ""]);
    check(&format!("\nb3: {TRACE}-{SPAN}-0-{PARENT}"), [TRACE, SPAN, PARENT, "0", ""]);
    check(&format!("\nb3: {TRACE}-{SPAN}-0"), [TRACE, SPAN, "", "0", ""]);
    check("\nX-B3-Sampled: 0", ["", "", "", "0", ""]);
    check("\nX-B3-Sampled: false", ["", "", "", "0", ""]);
    let several = format!("\nX-B3-TraceId: {TRACE}\nX-B3-SpanId: {SPAN}\nX-B3-Sampled: 0");
    check(&several, [TRACE, SPAN, "", "0", ""]);
}

#[test]
fn a_malformed_single_field_is_refused() {
    for value in ["abc", TRACE, "", "true"] {
        let (reply, spans) = run(&PluginBench::new(), json!({}), &format!("\nb3: {value}"));
        assert_eq!((reply.status, reply.upstream.is_none()), (400, true), "{value}");
        assert!(spans.is_empty());
    }
}

#[test]
fn spans_have_the_form_of_apisix() {
    let mut bench = PluginBench::new();
    bench.outcome =
        ExchangeOutcome { source: ResponseSource::Upstream, duration_us: 1500, ..Default::default() };
    let (_, spans) = run(&bench, json!({"service_name": "shop", "server_addr": "192.0.2.1"}), "");
    let local = json!({"serviceName": "shop", "ipv4": "192.0.2.1", "port": 9080});
    let mut request = spans[0].clone();
    for name in ["traceId", "id"] {
        assert!(request.as_object_mut().unwrap().remove(name).is_some());
    }
    let expected = json!({
        "name": "apisix.request", "kind": "SERVER", "timestamp": 1_700_000_000_000_000u64, "duration": 1500,
        "localEndpoint": local,
        "remoteEndpoint": {"ipv4": "127.0.0.1", "port": 40000},
        "tags": {"component": "apisix", "http.method": "GET", "http.url": "/a?b=1", "http.status_code": "200",
            "apisix.response_source": "upstream"},
    });
    assert_eq!(request, expected);
    let names: Vec<&Value> = spans.iter().map(|span| &span["name"]).collect();
    assert_eq!(names, ["apisix.request", "apisix.proxy", "apisix.response_span"]);
    assert!(spans[1].get("kind").is_none() && spans[1]["localEndpoint"] == local);
}

#[test]
fn a_span_lasts_at_least_a_microsecond() {
    for (duration_us, expected) in [(0, 1), (1, 1), (2, 2)] {
        let mut bench = PluginBench::new();
        bench.outcome = ExchangeOutcome { duration_us, ..Default::default() };
        let (_, spans) = run(&bench, json!({}), "");
        assert_eq!(spans[0]["duration"], expected, "{duration_us}");
        assert!(spans.iter().all(|span| span["duration"].as_u64() >= Some(1)), "{spans:?}");
    }
}

#[test]
fn version_1_has_a_span_per_phase() {
    let (_, spans) = run(&PluginBench::new(), json!({"span_version": 1}), "");
    let names: Vec<&Value> = spans.iter().map(|span| &span["name"]).collect();
    let expected =
        ["apisix.request", "apisix.rewrite", "apisix.access", "apisix.proxy", "apisix.body_filter"];
    assert_eq!(names, expected);
    let parents: Vec<&Value> = spans.iter().map(|span| &span["parentId"]).collect();
    let (request, proxy) = (&spans[0]["id"], &spans[3]["id"]);
    assert_eq!(parents[1..], [request, request, request, proxy]);
}

#[test]
fn a_share_of_requests_is_sampled() {
    let bench = PluginBench::new();
    let plugin = bench.plugin("zipkin", settings(json!({"sample_ratio": 0.2})));
    let sampled = (0..1000).filter(|_| {
        let reply = bench.run(&plugin, "GET / HTTP/1.1");
        reply.upstream_field("x-b3-sampled").as_deref() == Some("1")
    });
    let count = sampled.count();
    assert!((150..250).contains(&count), "{count}");
}

#[test]
fn variables_are_set_by_the_node() {
    for is_on in [false, true] {
        let mut bench = PluginBench::new();
        bench.node.plugin_attributes = json!({"zipkin": {"set_ngx_var": is_on}});
        let plugin = bench.plugin("zipkin", settings(json!({})));
        let mut ex = bench.exchange("GET / HTTP/1.1");
        assert!(bench.admit(std::slice::from_ref(&plugin), &mut ex, "GET / HTTP/1.1").is_none());
        let value = |name: &str| {
            let value = yumen_plugin::vars::Var::parse(name).get(&ex).map(|value| value.into_owned());
            String::from_utf8(value.unwrap_or_default()).unwrap()
        };
        let parent = value("zipkin_context_traceparent");
        let expected = format!("00-{}-{}-01", value("zipkin_trace_id"), value("zipkin_span_id"));
        assert_eq!(parent, if is_on { expected } else { String::new() });
        assert_eq!(value("trace_id").len(), 32);
    }
}

#[test]
fn settings_are_those_of_apisix() {
    let bench = PluginBench::new();
    for bad in [
        json!({"sample_ratio": 1}),
        json!({"endpoint": "http://a"}),
        settings(json!({"sample_ratio": 0})),
        settings(json!({"sample_ratio": 1.5})),
        settings(json!({"server_addr": "host"})),
        settings(json!({"span_version": 3})),
        settings(json!({"endpoint": "zipkin:9411"})),
    ] {
        assert!(bench.build("zipkin", bad.clone()).is_err(), "{bad}");
    }
}
