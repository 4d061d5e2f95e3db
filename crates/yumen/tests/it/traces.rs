//! Tracing plugins against collectors of this test: parents over every protocol, retries, mirrors and subrequests; a
//! collector that is down; stop.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use yumen_test::{
    ReceivedMetric, ReceivedRecord, ReceivedSpan, received_metrics, received_records, received_spans,
};

use crate::harness::gateway::YUMEN;
use crate::harness::http2::{self, Http2Client, Http2Upstream};
use crate::harness::upstream::{Request, respond};
use crate::harness::{Client, Gateway, Options, Scratch, Upstream, eventually, free_port, run};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// An HTTP server with the requests that it received.
struct Collector {
    server: Upstream,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Collector {
    fn start() -> Collector {
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let seen = requests.clone();
        let server = Upstream::start(move |request, stream| {
            seen.lock().unwrap().push(request.clone());
            respond(stream, 200, "", b"")
        });
        Collector { server, requests }
    }

    fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// All OTLP spans, once there are `count`.
    fn wait_for(&self, count: usize) -> Vec<ReceivedSpan> {
        let spans =
            || self.requests().iter().flat_map(|request| received_spans(&request.body)).collect::<Vec<_>>();
        eventually("the collector has the spans", 15, || spans().len() >= count);
        let spans = spans();
        assert_eq!(spans.len(), count, "{spans:#?}");
        spans
    }

    /// The members of all JSON lists at `target`, once there are `count`.
    fn wait_for_json(&self, target: &str, count: usize) -> Vec<Value> {
        let members = || {
            let requests = self.requests().into_iter().filter(|request| request.target == target);
            requests
                .flat_map(|request| match serde_json::from_slice(&request.body).expect("JSON") {
                    Value::Array(list) => list,
                    other => vec![other],
                })
                .collect::<Vec<_>>()
        };
        eventually("the collector has the members", 15, || members().len() >= count);
        members()
    }
}

/// Resources with the plugin, which exports to `collector` without delay.
fn resources(route: Value, collector: &Collector, metadata: Value) -> Value {
    let mut route = route;
    route["id"] = json!("1");
    route["plugins"]["opentelemetry"] = json!({ "sampler": { "name": "always_on" } });
    let mut all = json!({
        "id": "opentelemetry",
        "collector": { "address": collector.server.address.to_string() },
        "batch_span_processor": { "max_export_batch_size": 1 },
    });
    all.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    json!({ "routes": [route], "plugin_metadata": [all] })
}

fn traceparent() -> String {
    format!("traceparent: 00-{TRACE}-{SPAN}-01\r\ntracestate: vendor=1\r\n")
}

/// Asserts that the endpoint continues the server span, which continues the client's.
fn check_parents(received: &str, span: &ReceivedSpan) {
    assert_eq!(received, format!("00-{TRACE}-{}-01", span.span_id));
    assert_eq!((span.trace_id.as_str(), span.parent_id.as_str()), (TRACE, SPAN));
    assert_eq!((span.kind, span.trace_state.as_str()), (2, "vendor=1"));
}

/// An HTTP/2 server that responds with the `traceparent` that it received.
fn http2_echo() -> Http2Upstream {
    Http2Upstream::start(|call, mut respond| async move {
        let parent = call.headers()["traceparent"].clone();
        assert_eq!(call.headers()["tracestate"], "vendor=1");
        let head = Response::builder().header("content-type", "application/grpc").header("x-parent", parent);
        let mut body = respond.send_response(head.body(()).unwrap(), false)?;
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        body.send_trailers(trailers)
    })
}

#[test]
fn http1_endpoints_continue_the_trace() {
    let (collector, upstream) = (Collector::start(), Upstream::echo("a"));
    let route = json!({ "uri": "/orders/*", "name": "orders", "upstream": upstream.alone() });
    let gateway = Gateway::start(&resources(route, &collector, json!({})));
    let seen = gateway.get_with("/orders/7?a=b", &traceparent()).json();
    let span = collector.wait_for(1).remove(0);
    check_parents(seen["fields"]["traceparent"].as_str().unwrap(), &span);
    assert_eq!(seen["fields"]["tracestate"], "vendor=1");
    assert_eq!(span.name, "GET /orders/*");
    assert_eq!(span.attribute("apisix.response_source"), "upstream");
    assert_eq!(span.attribute("http.target"), "/orders/7?a=b");
    assert_eq!(span.attribute("http.status_code"), "200");
    assert!(span.start_ns < span.end_ns, "{span:?}");
    // A malformed parent is the begin of a new trace.
    let seen = gateway.get_with("/orders/8", "traceparent: 00-abc\r\ntracestate: vendor=1\r\n").json();
    let span = collector.wait_for(2).remove(1);
    let received = seen["fields"]["traceparent"].as_str().unwrap();
    assert_eq!(received, format!("00-{}-{}-01", span.trace_id, span.span_id));
    assert_eq!((span.parent_id.as_str(), seen["fields"].get("tracestate")), ("", None));
}

#[test]
fn http2_and_grpc_endpoints_continue_the_trace() {
    for (scheme, version) in [("http", "2"), ("grpc", "1.1")] {
        let (collector, upstream) = (Collector::start(), http2_echo());
        let upstream = json!({ "nodes": { upstream.address.to_string(): 1 }, "scheme": scheme, "http_version": version });
        let route = json!({ "uri": "/*", "upstream": upstream });
        let gateway = Gateway::start(&resources(route, &collector, json!({})));
        let answer = http2::run(async {
            let mut call = http2::request("POST", "/shop.Cart/Add");
            let fields = call.headers_mut();
            fields.insert("content-type", "application/grpc".parse().unwrap());
            fields.insert("te", "trailers".parse().unwrap());
            fields.insert("traceparent", format!("00-{TRACE}-{SPAN}-01").parse().unwrap());
            fields.insert("tracestate", "vendor=1".parse().unwrap());
            Http2Client::connect(gateway.http).await.ask(call, b"\0\0\0\0\x02hi").await.expect("an answer")
        });
        assert_eq!(answer.status, 200, "{scheme}");
        check_parents(answer.field("x-parent"), &collector.wait_for(1)[0]);
    }
}

#[test]
fn websocket_endpoints_continue_the_trace() {
    let collector = Collector::start();
    let upstream = Upstream::start(|request, stream| {
        let parent = request.field("traceparent").unwrap_or_default();
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Parent: {parent}\r\n\r\n"
        );
        let _ = stream.write_all(head.as_bytes());
        // The tunnel ends with the client.
        let _ = stream.read(&mut [0; 64]);
        false
    });
    let route = json!({ "uri": "/*", "enable_websocket": true, "upstream": upstream.alone() });
    let gateway = Gateway::start(&resources(route, &collector, json!({})));
    let mut client = Client::connect(gateway.http);
    let request = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{}\r\n",
        traceparent()
    );
    let head = client.send(request).head().expect("a head");
    drop(client);
    let parent = crate::harness::client::field(&head, "x-parent").expect("echoed").to_owned();
    let span = collector.wait_for(1).remove(0);
    check_parents(&parent, &span);
    assert_eq!(span.attribute("http.status_code"), "101");
}

#[test]
fn each_attempt_has_a_span_that_its_endpoint_continues() {
    let (collector, upstream) = (Collector::start(), Upstream::echo("a"));
    let refusing = free_port();
    let nodes = json!([
        { "host": "127.0.0.1", "port": refusing.port(), "weight": 1, "priority": 1 },
        { "host": "127.0.0.1", "port": upstream.address.port(), "weight": 1, "priority": 0 },
    ]);
    let route = json!({ "uri": "/*", "upstream": { "nodes": nodes, "retries": 1 } });
    let gateway = Gateway::start(&resources(route, &collector, json!({ "span_detail": "attempts" })));
    let seen = gateway.get_with("/", &traceparent()).json();
    let spans = collector.wait_for(3);
    let [server, failed, answered] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!((server.kind, server.parent_id.as_str()), (2, SPAN));
    for attempt in [failed, answered] {
        assert_eq!((attempt.kind, &attempt.parent_id), (3, &server.span_id));
        assert!(attempt.start_ns >= server.start_ns && attempt.end_ns <= server.end_ns, "{spans:#?}");
    }
    assert!(failed.error.is_some() && failed.attribute("server.port") == refusing.port().to_string());
    assert_eq!(answered.attribute("http.response.status_code"), "200");
    let received = seen["fields"]["traceparent"].as_str().unwrap();
    assert_eq!(received, format!("00-{TRACE}-{}-01", answered.span_id));
}

#[test]
fn a_retry_without_attempt_spans_continues_the_server_span() {
    let (collector, upstream) = (Collector::start(), Upstream::echo("a"));
    let nodes = json!([
        { "host": "127.0.0.1", "port": free_port().port(), "weight": 1, "priority": 1 },
        { "host": "127.0.0.1", "port": upstream.address.port(), "weight": 1, "priority": 0 },
    ]);
    let route = json!({ "uri": "/*", "upstream": { "nodes": nodes, "retries": 1 } });
    let gateway = Gateway::start(&resources(route, &collector, json!({})));
    let seen = gateway.get_with("/", &traceparent()).json();
    check_parents(seen["fields"]["traceparent"].as_str().unwrap(), &collector.wait_for(1)[0]);
}

#[test]
fn mirrors_and_subrequests_belong_to_the_trace() {
    let (collector, upstream) = (Collector::start(), Upstream::echo("a"));
    let (mirror, service) = (Collector::start(), Collector::start());
    let plugins = json!({
        "proxy-mirror": { "host": format!("http://{}", mirror.server.address) },
        "forward-auth": { "uri": format!("http://{}/check", service.server.address) },
    });
    let route = json!({ "uri": "/*", "plugins": plugins, "upstream": upstream.alone() });
    let gateway = Gateway::start(&resources(route, &collector, json!({})));
    assert_eq!(gateway.get_with("/", &traceparent()).status, 200);
    let span = collector.wait_for(1).remove(0);
    for copy in [&mirror, &service] {
        eventually("the copy arrives", 10, || copy.requests().len() == 1);
        let request = copy.requests().remove(0);
        check_parents(request.field("traceparent").unwrap_or_default(), &span);
        assert_eq!(request.field("tracestate"), Some("vendor=1"));
    }
}

#[test]
fn plugins_have_spans_on_request() {
    let (collector, upstream) = (Collector::start(), Upstream::text("ok"));
    let plugins = json!({ "fault-injection": { "delay": { "duration": 0.05 } } });
    let route = json!({ "uri": "/*", "plugins": plugins, "upstream": upstream.alone() });
    let gateway = Gateway::start(&resources(route, &collector, json!({ "span_detail": "plugins" })));
    assert_eq!(gateway.get("/").status, 200);
    eventually("the spans arrive", 15, || !collector.requests().is_empty());
    let spans = received_spans(&collector.requests()[0].body);
    let delay =
        spans.iter().find(|span| span.name == "fault-injection rewrite").expect("a span of the plugin");
    assert!(delay.end_ns - delay.start_ns >= 50_000_000, "{delay:?}");
    assert_eq!((delay.kind, &delay.parent_id), (1, &spans[0].span_id));
}

#[test]
fn spans_reach_a_grpc_collector() {
    let bodies = Arc::<Mutex<Vec<(String, Vec<u8>)>>>::default();
    let seen = bodies.clone();
    let server = Http2Upstream::start(move |call, mut respond| {
        let seen = seen.clone();
        async move {
            let target = call.uri().path().to_owned();
            assert_eq!(call.headers()["x-token"], "7");
            let (body, _) = http2::read_body(&mut call.into_body()).await?;
            seen.lock().unwrap().push((target, body));
            let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            let mut answer = respond.send_response(head, false)?;
            answer.send_data(Bytes::from_static(b"\0\0\0\0\0"), false)?;
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            answer.send_trailers(trailers)
        }
    });
    let (unused, upstream) = (Collector::start(), Upstream::text("ok"));
    let collector = json!({ "collector": {
        "address": server.address.to_string(), "protocol": "grpc", "request_headers": { "X-Token": 7 },
    } });
    let route = json!({ "uri": "/*", "upstream": upstream.alone() });
    let gateway = Gateway::start(&resources(route, &unused, collector));
    for _ in 0..3 {
        assert_eq!(gateway.get_with("/", &traceparent()).status, 200);
    }
    eventually("the calls arrive", 15, || bodies.lock().unwrap().len() == 3);
    for (target, body) in &*bodies.lock().unwrap() {
        assert_eq!(target, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
        let length = u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
        assert_eq!((body[0], length), (0, body.len() - 5));
        assert_eq!(received_spans(&body[5..])[0].trace_id, TRACE);
    }
    let sent = format!(
        "yumen_sink_entries_total{{plugin=\"opentelemetry\",result=\"sent\",sink=\"http://{}\"}} 3",
        server.address
    );
    eventually("the spans are counted", 5, || gateway.status_text("/metrics").1.contains(&sent));
}

#[test]
fn waiting_spans_are_sent_at_the_stop() {
    let (collector, upstream) = (Collector::start(), Upstream::text("ok"));
    let slow = json!({ "batch_span_processor": { "inactive_timeout": 600, "batch_timeout": 600 } });
    let route = json!({ "uri": "/*", "upstream": upstream.alone() });
    let mut gateway = Gateway::start(&resources(route, &collector, slow));
    for _ in 0..3 {
        assert_eq!(gateway.get("/").status, 200);
    }
    gateway.terminate();
    gateway.wait(10);
    collector.wait_for(3);
    assert_eq!(collector.requests().len(), 1, "one batch");
}

#[test]
fn a_collector_that_hangs_costs_spans_and_no_request() {
    let upstream = Upstream::text("ok");
    // Accepts connections and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let metadata = json!({
        "collector": { "address": address.to_string(), "request_timeout": 600 },
        "batch_span_processor": { "max_export_batch_size": 1, "max_queue_size": 5 },
    });
    let unused = Collector::start();
    let route = json!({ "uri": "/*", "upstream": upstream.alone() });
    let gateway = Gateway::start(&resources(route, &unused, metadata));
    let mut client = Client::connect(gateway.http);
    for _ in 0..30 {
        assert_eq!(client.get("/").status, 200);
    }
    let dropped = format!(
        "yumen_sink_entries_total{{plugin=\"opentelemetry\",result=\"dropped_full\",sink=\"http://{address}\"}} 25"
    );
    eventually("drops are counted", 5, || gateway.status_text("/metrics").1.contains(&dropped));
}

#[test]
fn a_collector_that_refuses_costs_spans_and_no_request() {
    let upstream = Upstream::text("ok");
    let address = free_port();
    let metadata = json!({ "collector": { "address": address.to_string() } });
    let unused = Collector::start();
    let route = json!({ "uri": "/*", "upstream": upstream.alone() });
    let mut gateway = Gateway::start(&resources(route, &unused, metadata));
    assert_eq!(gateway.get("/").status, 200);
    gateway.terminate();
    gateway.wait(15);
    let log = gateway.log();
    assert!(log.contains("Batch Processor[opentelemetry] exceeded the max_retry_count"), "{log}");
}

#[test]
fn zipkin_receives_b3_traces() {
    let (collector, upstream) = (Collector::start(), Upstream::echo("a"));
    let endpoint = format!("http://{}/api/v2/spans", collector.server.address);
    let plugins = json!({ "zipkin": { "endpoint": endpoint, "sample_ratio": 0.00001 } });
    let resources =
        json!({ "routes": [{ "id": "1", "uri": "/*", "plugins": plugins, "upstream": upstream.alone() }] });
    let mut gateway = Gateway::start(&resources);
    let seen = gateway.get_with("/a", &format!("b3: {TRACE}-{SPAN}-1\r\nuberctx-user: jack\r\n")).json();
    let fields = &seen["fields"];
    assert_eq!((&fields["x-b3-traceid"], fields.get("b3")), (&json!(TRACE), None));
    assert_eq!((&fields["x-b3-sampled"], &fields["uberctx-user"]), (&json!("1"), &json!("jack")));
    let unsampled = gateway.get("/a").json();
    assert_eq!(unsampled["fields"]["x-b3-sampled"], "0");
    assert_eq!(gateway.get_with("/a", "b3: abc\r\n").status, 400);
    gateway.terminate();
    gateway.wait(10);
    let spans = collector.wait_for_json("/api/v2/spans", 3);
    let names: Vec<&Value> = spans.iter().map(|span| &span["name"]).collect();
    assert_eq!(names, ["apisix.request", "apisix.proxy", "apisix.response_span"]);
    assert_eq!((&spans[0]["traceId"], &spans[0]["parentId"]), (&json!(TRACE), &json!(SPAN)));
    assert_eq!((&spans[1]["id"], &spans[1]["parentId"]), (&fields["x-b3-spanid"], &spans[0]["id"]));
}

#[test]
fn skywalking_receives_segments_and_the_instance() {
    let (collector, upstream) = (Collector::start(), Upstream::echo("a"));
    let node = format!(
        "plugins: {{attr: {{skywalking: {{service_name: shop, service_instance_name: shop-1, endpoint_addr: \
         'http://{}', report_interval: 1}}}}}}",
        collector.server.address
    );
    let routes =
        json!([{ "id": "1", "uri": "/*", "plugins": { "skywalking": {} }, "upstream": upstream.alone() }]);
    let gateway = Gateway::with(&json!({ "routes": routes }), &Options { node: &node, ..Options::default() });
    let seen = gateway.get("/a").json();
    let instance = collector.wait_for_json("/v3/management/reportProperties", 1);
    assert_eq!(
        (&instance[0]["service"], &instance[0]["serviceInstance"]),
        (&json!("shop"), &json!("shop-1"))
    );
    let segment = collector.wait_for_json("/v3/segments", 1).remove(0);
    assert_eq!((&segment["service"], &segment["serviceInstance"]), (&json!("shop"), &json!("shop-1")));
    let sent = seen["fields"]["sw8"].as_str().expect("sent");
    assert!(sent.starts_with("1-") && sent.split('-').count() == 8, "{sent}");
    let spans = segment["spans"].as_array().expect("spans");
    let kinds: Vec<&Value> = spans.iter().map(|span| &span["spanType"]).collect();
    assert_eq!(kinds, ["Entry", "Exit"]);
}

#[test]
fn the_access_log_has_the_trace() {
    let (collector, upstream) = (Collector::start(), Upstream::text("ok"));
    let scratch = Scratch::new();
    let log = scratch.file("access.log");
    let node = format!(
        "logs: {{access: {{enabled: true, path: \"{}\", line: '$uri $opentelemetry_trace_id'}}}}",
        log.display()
    );
    let route = json!({ "uri": "/*", "upstream": upstream.alone() });
    let routes = resources(route, &collector, json!({ "set_ngx_var": true }));
    let routes = scratch.write("routes.yaml", routes.to_string());
    let gateway =
        Gateway::launch(scratch, &Options { node: &node, ..Options::default() }, &["--file", &routes]);
    assert_eq!(gateway.get_with("/a", &traceparent()).status, 200);
    let line = format!("/a {TRACE}\n");
    eventually("the line is written", 10, || std::fs::read_to_string(&log).is_ok_and(|text| text == line));
}

#[test]
fn explain_names_the_collector() {
    let (collector, upstream) = (Collector::start(), Upstream::text("ok"));
    let scratch = Scratch::new();
    let route = json!({ "uri": "/*", "upstream": upstream.alone() });
    let file = scratch.write("routes.yaml", resources(route, &collector, json!({})).to_string());
    let (code, out, err) = run(YUMEN, &["explain", "/a", "--file", &file]);
    let note = format!("records all traces for http://{}", collector.server.address);
    assert!(out.contains(&note), "{code}\n{out}\n{err}");
    assert!(collector.requests().is_empty(), "a dry run sends nothing");
}

#[test]
fn openmetrics_have_traces_beside_durations() {
    let (collector, upstream) = (Collector::start(), Upstream::text("ok"));
    let route = json!({ "uri": "/*", "upstream": upstream.alone() });
    let gateway = Gateway::start(&resources(route, &collector, json!({})));
    let metrics = |accept: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{accept}\r\n");
        Client::connect(gateway.status).send(request).reply()
    };
    let wanted = "Accept: application/openmetrics-text;version=1.0.0\r\n";
    assert_eq!(gateway.get_with("/a", &traceparent()).status, 200);
    let exemplar = format!(" # {{trace_id=\"{TRACE}\"}} ");
    eventually("a bucket has the trace", 10, || metrics(wanted).text().contains(&exemplar));
    let reply = metrics(wanted);
    let kind = reply.field("content-type").unwrap_or_default();
    assert!(kind.starts_with("application/openmetrics-text; version=1.0.0"), "{kind}");
    let text = reply.text();
    let line = text.lines().find(|line| line.contains(&exemplar)).expect("a line");
    assert!(line.starts_with("yumen_request_duration_seconds_bucket{le="), "{line}");
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    assert!(!metrics("").text().contains("trace_id"), "the Prometheus format has no exemplars");
}

#[test]
fn requests_become_log_records_with_their_spans() {
    let (collector, upstream) = (Collector::start(), Upstream::text("ok"));
    let node = format!(
        "observe: {{otlp: {{endpoint: 'http://{}/base/', metrics_interval_s: 1, metrics: false, logs: true}}}}",
        collector.server.address
    );
    let resources =
        resources(json!({ "uri": "/traced", "upstream": upstream.alone() }), &collector, json!({}));
    let mut gateway = Gateway::with(&resources, &Options { node: &node, ..Options::default() });
    assert_eq!(gateway.get_with("/traced?item=7", &traceparent()).status, 200);
    assert_eq!(gateway.get("/nowhere").status, 404);
    gateway.terminate();
    gateway.wait(15);
    let of_logs = |request: &&Request| request.target == "/base/v1/logs";
    assert!(!collector.requests().iter().any(|request| request.target.ends_with("metrics")));
    let records: Vec<ReceivedRecord> = collector
        .requests()
        .iter()
        .filter(of_logs)
        .flat_map(|request| received_records(&request.body))
        .collect();
    assert_eq!(records.len(), 2, "{records:#?}");
    let (traced, missing) = (&records[0], &records[1]);
    assert_eq!((&*traced.body, &*traced.trace_id, traced.flags), ("GET /traced?item=7 200", TRACE, 1));
    assert_eq!(traced.span_id.len(), 16);
    assert_eq!((&*traced.attributes["url.query"], &*traced.attributes["http.route"]), ("item=7", "/traced"));
    assert_eq!(traced.resource["service.name"], "yumen");
    assert_eq!((&*missing.body, &*missing.trace_id), ("GET /nowhere 404", ""));
    assert!(!missing.attributes.contains_key("yumen.route_id"), "{missing:?}");
}

#[test]
fn metrics_of_the_node_are_pushed() {
    let (collector, upstream) = (Collector::start(), Upstream::text("ok"));
    let node = format!(
        "observe: {{otlp: {{endpoint: 'http://{}', metrics_interval_s: 1, headers: {{X-Token: '7'}}}}}}",
        collector.server.address
    );
    let gateway = Gateway::with(&upstream.everything(), &Options { node: &node, ..Options::default() });
    assert_eq!(gateway.get("/a").status, 200);
    let newest = || -> Vec<ReceivedMetric> {
        let requests = collector.requests();
        let Some(request) = requests.last() else { return Vec::new() };
        assert_eq!((request.target.as_str(), request.field("x-token")), ("/v1/metrics", Some("7")));
        received_metrics(&request.body)
    };
    let value = |name: &str| -> f64 {
        newest().iter().filter(|metric| metric.name == name).map(|metric| metric.value).sum()
    };
    eventually("the request is counted", 20, || value("yumen_request_duration_seconds") == 1.0);
    let metrics = newest();
    let duration = metrics.iter().find(|metric| metric.name == "yumen_request_duration_seconds").unwrap();
    assert_eq!(duration.bucket_counts.iter().sum::<u64>(), 1);
    assert_eq!(duration.bucket_counts.len(), duration.bounds.len() + 1);
    assert_eq!(duration.resource["service.name"], "yumen");
    let status = metrics.iter().find(|metric| metric.name == "yumen_requests_total" && metric.value == 1.0);
    assert!(status.is_some_and(|metric| metric.is_monotonic), "{metrics:#?}");
}
