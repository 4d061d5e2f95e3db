use serde_json::{Value, json};
use yumen_plugin::{
    AttemptTiming, ExchangeOutcome, ExchangeTimeline, Now, Phase, PluginTiming, ResponseSource,
};
use yumen_test::{ReceivedSpan, received_spans};

use crate::testing::PluginBench;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

fn bench(metadata: Value) -> PluginBench {
    let mut bench = PluginBench::new();
    bench.metadata = Some(metadata);
    bench
}

fn always_on() -> Value {
    json!({"sampler": {"name": "always_on"}})
}

fn spans(bench: &PluginBench) -> Vec<ReceivedSpan> {
    bench.sink_requests().iter().flat_map(|request| received_spans(&request.body.concat())).collect()
}

/// `traceparent` of the upstream request as its four parts.
fn parts(value: &str) -> [&str; 4] {
    value.split('-').collect::<Vec<_>>().try_into().expect("four parts")
}

#[test]
fn the_sampler_and_the_caller_decide() {
    fn check(sampler: Value, caller: Option<&str>, is_sampled: bool) {
        let bench = bench(json!({}));
        let plugin = bench.plugin("opentelemetry", json!({"sampler": sampler}));
        let field = caller.map_or(String::new(), |flags| format!("\ntraceparent: 00-{TRACE}-{SPAN}-{flags}"));
        let reply = bench.run(&plugin, &format!("GET /a HTTP/1.1{field}"));
        let parent = reply.upstream_field("traceparent").expect("always sent");
        let [version, trace, span, flags] = parts(&parent);
        assert_eq!((version, flags), ("00", if is_sampled { "01" } else { "00" }), "{sampler} {caller:?}");
        assert_eq!(trace == TRACE, caller.is_some(), "a caller's trace is continued");
        assert_ne!(span, SPAN);
        let spans = spans(&bench);
        assert_eq!(spans.len(), usize::from(is_sampled), "{sampler} {caller:?}");
        for sent in spans {
            assert_eq!((sent.trace_id.as_str(), sent.span_id.as_str()), (trace, span));
            assert_eq!(sent.parent_id, if caller.is_some() { SPAN } else { "" });
        }
    }
    for caller in [None, Some("00"), Some("01")] {
        check(json!({"name": "always_on"}), caller, true);
        check(json!({}), caller, false);
        check(json!({"name": "always_off"}), caller, false);
        check(json!({"name": "trace_id_ratio", "options": {"fraction": 1}}), caller, true);
        check(json!({"name": "trace_id_ratio"}), caller, false);
    }
    check(json!({"name": "parent_base"}), Some("01"), true);
    check(json!({"name": "parent_base"}), None, false);
    let on = json!({"name": "parent_base", "options": {"root": {"name": "always_on"}}});
    check(on.clone(), Some("00"), false);
    check(on, None, true);
    let ratio = json!({"name": "trace_id_ratio", "options": {"fraction": 1}});
    check(json!({"name": "parent_base", "options": {"root": ratio}}), None, true);
}

#[test]
fn malformed_context_begins_a_new_trace_without_state() {
    let bench = bench(json!({}));
    let plugin = bench.plugin("opentelemetry", always_on());
    for parent in ["x", &format!("ff-{TRACE}-{SPAN}-01"), &format!("00-{TRACE}-{SPAN}-01-more")] {
        let request = format!("GET /a HTTP/1.1\ntraceparent: {parent}\nTRACEPARENT_: x\ntracestate: a=1");
        let reply = bench.run(&plugin, &request);
        let sent = reply.upstream_field("traceparent").expect("sent");
        assert_ne!(parts(&sent)[1], TRACE, "{parent}");
        assert_eq!(reply.upstream_field("tracestate"), None, "{parent}");
    }
    let request =
        format!("GET /a HTTP/1.1\ntraceparent: 00-{TRACE}-{SPAN}-01\ntracestate: a=1\ntracestate: b=2");
    let reply = bench.run(&plugin, &request);
    assert_eq!(reply.upstream_field("tracestate").as_deref(), Some("a=1,b=2"));
    assert_eq!(spans(&bench).last().expect("a span").trace_state, "a=1,b=2");
}

#[test]
fn a_span_has_the_attributes_of_apisix() {
    let mut bench = bench(json!({
        "resource": {"service.name": "shop", "replicas": 3, "share": 0.5, "canary": true},
    }));
    bench.patterns.uris = ["/orders/*".into()];
    bench.outcome =
        ExchangeOutcome { source: ResponseSource::Upstream, duration_us: 2500, ..Default::default() };
    let settings = json!({
        "sampler": {"name": "always_on"},
        "additional_attributes": ["arg_user", "status", "arg_none"],
        "additional_header_prefix_attributes": ["X-My-*", "x-one", "x-none"],
    });
    let plugin = bench.plugin("opentelemetry", settings);
    let request = "POST /orders/7?user=jack HTTP/1.1\nUser-Agent: curl\nX-My-A: 1\nx-my-b: 2\nX-One: 3";
    bench.run(&plugin, request);
    let span = spans(&bench).remove(0);
    assert_eq!((span.name.as_str(), span.kind, &span.error), ("POST /orders/*", 2, &None));
    assert_eq!(span.end_ns - span.start_ns, 2_500_000);
    assert_eq!(span.start_ns / 1_000_000, 1_700_000_000_000);
    let expected = [
        ("apisix.response_source", "upstream"),
        ("apisix.route_id", "1"),
        ("apisix.route_name", "r1"),
        ("apisix.service_id", "s1"),
        ("apisix.service_name", "svc"),
        ("arg_user", "jack"),
        ("http.method", "POST"),
        ("http.request.method", "POST"),
        ("http.response.status_code", "200"),
        ("http.route", "/orders/*"),
        ("http.scheme", "http"),
        ("http.status_code", "200"),
        ("http.target", "/orders/7?user=jack"),
        ("http.user_agent", "curl"),
        ("net.host.name", "test.com"),
        ("status", "200"),
        ("url.path", "/orders/7"),
        ("url.scheme", "http"),
        ("user_agent.original", "curl"),
        ("x-my-a", "1"),
        ("x-my-b", "2"),
        ("x-one", "3"),
    ];
    let found: Vec<(&str, &str)> =
        span.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(found, expected);
    for (name, value) in [("service.name", "shop"), ("replicas", "3"), ("share", "0.5"), ("canary", "true")] {
        assert_eq!(span.resource.get(name).map(String::as_str), Some(value), "{name}");
    }
}

#[test]
fn failures_name_their_source() {
    fn check(status: u16, outcome: ExchangeOutcome<'static>, source: &str, error: Option<&str>) {
        let mut bench = bench(json!({}));
        bench.upstream_reply = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
        bench.outcome = outcome;
        let plugin = bench.plugin("opentelemetry", always_on());
        bench.run(&plugin, "GET / HTTP/1.1");
        let span = spans(&bench).remove(0);
        assert_eq!(span.attribute("apisix.response_source"), source);
        assert_eq!(span.error.as_deref(), error);
        assert_eq!(span.resource.get("service.name").map(String::as_str), Some("APISIX"));
    }
    let upstream = ExchangeOutcome { source: ResponseSource::Upstream, ..Default::default() };
    check(404, upstream, "upstream", None);
    check(500, upstream, "upstream", Some("upstream error: 500"));
    check(503, ExchangeOutcome::default(), "apisix", Some("apisix error: 503"));
    let fault = ExchangeOutcome { fault: "connect_refused", ..Default::default() };
    check(502, fault, "nginx", Some("nginx error: 502"));
}

#[test]
fn trace_identifiers_may_come_from_the_request_id() {
    fn check(id: &str, expected: Option<&str>) {
        let bench = bench(json!({"trace_id_source": "x-request-id"}));
        let plugin = bench.plugin("opentelemetry", always_on());
        let reply = bench.run(&plugin, &format!("GET / HTTP/1.1\nX-Request-Id: {id}"));
        let parent = reply.upstream_field("traceparent").expect("sent");
        match expected {
            Some(expected) => assert_eq!(parts(&parent)[1], expected),
            None => assert!(parts(&parent)[1] != id && parts(&parent)[1].len() == 32, "{parent}"),
        }
    }
    check("01010101010101010101010101010101", Some("01010101010101010101010101010101"));
    check("ABCDEF0101010101010101010101010A", Some("abcdef0101010101010101010101010a"));
    check("00000000000000000000000000000000", None);
    check("01010101-0101-0101-0101-010101010101", None);
    check("x", None);
}

#[test]
fn variables_are_set_on_request() {
    fn check(metadata: Value, sampler: &str, is_set: bool) {
        let bench = bench(metadata);
        let plugin = bench.plugin("opentelemetry", json!({"sampler": {"name": sampler}}));
        let logger = json!({"uri": "http://sink.test", "batch_max_size": 1, "log_format": {
            "parent": "$opentelemetry_context_traceparent", "trace": "$opentelemetry_trace_id",
            "span": "$opentelemetry_span_id",
        }});
        let logger = bench.plugin("http-logger", logger);
        let reply = bench.run_all(&[plugin, logger], "GET / HTTP/1.1");
        let parent = reply.upstream_field("traceparent").expect("sent");
        let requests = bench.sink_requests();
        let entry = requests.iter().find(|request| request.target == "/").expect("an entry");
        let entry: Value = serde_json::from_slice(&entry.body.concat()).expect("JSON");
        let [_, trace, span, _] = parts(&parent);
        let found =
            ["parent", "trace", "span"].map(|name| entry[name].as_str().unwrap_or_default().to_owned());
        assert_eq!(found, if is_set { [&*parent, trace, span] } else { [""; 3] }, "{entry}");
    }
    check(json!({"set_ngx_var": true}), "always_on", true);
    check(json!({"set_ngx_var": true}), "always_off", true);
    check(json!({}), "always_on", false);
}

#[test]
fn requests_go_to_the_collector_of_the_metadata() {
    fn check(collector: Value, expected: (&str, &str)) {
        let bench = bench(json!({"collector": collector}));
        let plugin = bench.plugin("opentelemetry", always_on());
        bench.run(&plugin, "GET / HTTP/1.1");
        let request = bench.sink_requests().remove(0);
        let fields: Vec<String> =
            request.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert_eq!((request.target.as_str(), fields.join("\n").as_str()), expected);
        assert_eq!((request.method, request.entries), ("POST", 1));
    }
    let kind = "Content-Type: application/x-protobuf";
    check(json!({}), ("/v1/traces", kind));
    check(json!({"address": "https://otel.test:4318/base/"}), ("/base/v1/traces", kind));
    let fields = format!("{kind}\nAuthorization: token\nX-Number: 7");
    let headers = json!({"request_headers": {"Authorization": "token", "X-Number": 7}});
    check(headers, ("/v1/traces", &fields));
    let method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    check(json!({"address": "127.0.0.1:4317", "protocol": "grpc"}), (method, kind));
}

#[test]
fn nothing_is_done_without_metadata() {
    let bench = PluginBench::new();
    let plugin = bench.plugin("opentelemetry", always_on());
    let field = format!("00-{TRACE}-{SPAN}-01");
    let reply = bench.run(&plugin, &format!("GET / HTTP/1.1\ntraceparent: {field}"));
    assert_eq!(reply.upstream_field("traceparent"), Some(field));
    assert!(spans(&bench).is_empty());
}

#[test]
fn attempts_and_plugins_have_spans_on_request() {
    let bench = bench(json!({"span_detail": "plugins"}));
    let plugin = bench.plugin("opentelemetry", always_on());
    let mut ex = bench.exchange("GET / HTTP/1.1");
    let plugins = std::slice::from_ref(&plugin);
    assert!(bench.admit(plugins, &mut ex, "GET / HTTP/1.1").is_none());
    assert!(ex.requires_timeline());
    let attempt = |started_ns, fault| AttemptTiming {
        endpoint: "127.0.0.1:80".parse().unwrap(),
        started_ns,
        connect_ns: Some(1000),
        head_ns: 2_000_000,
        fault,
    };
    // The bench begins the first attempt itself.
    plugin.upstream_request(&mut yumen_plugin::UpstreamRequestPhase::new(&mut ex));
    let timing = |name, run_ns| PluginTiming {
        name,
        phase: Phase::Access,
        origin: None,
        started_ns: 0,
        run_ns,
        wait_ns: 0,
        answered: false,
    };
    ex.set_timeline(Box::new(ExchangeTimeline {
        started: Now { mono_us: ex.now.mono_us + 100, unix_ms: ex.now.unix_ms },
        plugins: vec![timing("key-auth", 20_000), timing("cors", 100)],
        attempts: vec![attempt(0, "connect_refused"), attempt(3_000_000, "")],
    }));
    let mut bench_outcome = ExchangeOutcome { source: ResponseSource::Upstream, ..Default::default() };
    (bench_outcome.duration_us, bench_outcome.upstream_status) = (9000, Some(200));
    let parent = {
        let mut phase = yumen_plugin::UpstreamRequestPhase::new(&mut ex);
        plugin.upstream_request(&mut phase);
        String::from_utf8(phase.request.fields.get("traceparent").unwrap().to_vec()).unwrap()
    };
    plugin.log(&ex, &ExchangeOutcome { status: 200, ..bench_outcome });
    let spans = spans(&bench);
    let [server, first, second, key_auth] = &spans[..] else { panic!("{spans:#?}") };
    for child in [first, second, key_auth] {
        assert_eq!((&child.trace_id, &child.parent_id), (&server.trace_id, &server.span_id));
    }
    assert_eq!(parts(&parent)[2], second.span_id, "the endpoint continues its attempt");
    assert_eq!((first.error.as_deref(), second.error.as_deref()), (Some("connect_refused"), None));
    assert_eq!((first.kind, second.attribute("http.response.status_code")), (3, "200"));
    assert_eq!((first.start_ns - server.start_ns, first.end_ns - first.start_ns), (100_000, 2_001_000));
    assert_eq!(second.end_ns, server.end_ns);
    assert_eq!((key_auth.name.as_str(), key_auth.kind), ("key-auth access", 1));
}
