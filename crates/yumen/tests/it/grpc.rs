//! gRPC: local responses, deadlines, counters.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use serde_json::json;

use crate::harness::http2::{self, Answer, Http2Client, Http2Upstream, request};
use crate::harness::{Client, Gateway, Options, eventually};

fn call(path: &str) -> Request<()> {
    let mut call = request("POST", path);
    call.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    call.headers_mut().insert("te", "trailers".parse().unwrap());
    call
}

/// A message in its frame.
const MESSAGE: &[u8] = b"\0\0\0\0\x02hi";

fn status(answer: &Answer) -> (&str, &str) {
    let fields = if answer.fields.contains_key("grpc-status") { &answer.fields } else { &answer.trailers };
    let text = |name: &str| fields.get(name).map_or("", |value| value.to_str().unwrap());
    (text("grpc-status"), text("grpc-message"))
}

fn grpc(upstream: &Http2Upstream) -> serde_json::Value {
    json!({ "nodes": { upstream.address.to_string(): 1 }, "scheme": "grpc" })
}

/// Echoes the message of a call; `/s/hang` never responds, `/s/half` breaks off.
fn service() -> Http2Upstream {
    Http2Upstream::start(|call, mut respond| async move {
        let (parts, mut incoming) = call.into_parts();
        if parts.uri.path() == "/s/hang" {
            std::future::pending::<()>().await;
        }
        let left = parts.headers.get("grpc-timeout").cloned();
        let mut answer = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        answer.headers_mut().extend(left.map(|left| (http::HeaderName::from_static("x-left"), left)));
        let mut sender = respond.send_response(answer, false)?;
        let (body, _) = http2::read_body(&mut incoming).await?;
        http2::send(&mut sender, &body, false).await?;
        if parts.uri.path() == "/s/half" {
            sender.send_reset(h2::Reason::INTERNAL_ERROR);
            return Ok(());
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "5".parse().unwrap());
        trailers.insert("grpc-message", "not found".parse().unwrap());
        sender.send_trailers(trailers)
    })
}

#[test]
fn calls_pass_and_their_statuses_are_counted() {
    let service = service();
    let gateway =
        Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/s/*", "upstream": grpc(&service) }] }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let answer = client.ask(call("/s/m"), MESSAGE).await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, MESSAGE));
        assert_eq!(status(&answer), ("5", "not found"));
    });
    let count = |status: &str| gateway.metric(&format!("yumen_grpc_calls_total{{status=\"{status}\"}}"));
    eventually("it is counted", 10, || count("5") == 1.0);
    assert_eq!(count("0"), 0.0);
}

#[test]
fn an_answer_that_says_that_it_is_empty_keeps_its_trailers() {
    let service = Http2Upstream::start(|_, mut respond| async move {
        let head =
            Response::builder().header("content-type", "application/grpc").header("content-length", "0");
        // Both frames are sent before the runtime yields.
        let mut sender = respond.send_response(head.body(()).unwrap(), false)?;
        sender.send_trailers(HeaderMap::from_iter([("grpc-status".parse().unwrap(), "5".parse().unwrap())]))
    });
    let gateway =
        Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/s/*", "upstream": grpc(&service) }] }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        for _ in 0..10 {
            let answer = client.ask(call("/s/m"), MESSAGE).await.unwrap();
            assert_eq!((answer.status, answer.body.len(), status(&answer).0), (200, 0, "5"));
        }
    });
}

#[test]
fn what_the_gateway_says_is_said_as_grpc_says_it() {
    let service = service();
    let keyed = json!({ "key-auth": {} });
    let gateway = Gateway::start(&json!({
        "routes": [
            { "id": "1", "uri": "/s/*", "upstream": grpc(&service) },
            { "id": "2", "uri": "/key/*", "plugins": keyed, "upstream": grpc(&service) },
            { "id": "3", "uri": "/dead/*", "upstream": { "nodes": { "127.0.0.1:1": 1 }, "scheme": "grpc" } },
        ],
    }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let table = [
            ("/none/m", "12", "404 Route Not Found"),
            ("/key/m", "16", "Missing API key in request"),
            ("/dead/m", "14", "the upstream could not be reached"),
            ("/s/half", "14", "the upstream "),
        ];
        for (path, code, message) in table {
            let answer = client.ask(call(path), MESSAGE).await.unwrap();
            assert_eq!((answer.status, answer.field("content-type")), (200, "application/grpc"), "{path}");
            // Whether the head or the end of the stream is seen first is a matter of timing.
            let (grpc_status, grpc_message) = status(&answer);
            assert!(
                grpc_status == code && grpc_message.starts_with(message),
                "{path}: {grpc_status} {grpc_message}"
            );
        }
        // Other requests get normal responses.
        let plain = client.ask(request("POST", "/none"), b"x").await.unwrap();
        assert_eq!((plain.status, plain.field("content-type")), (404, "application/json"));
    });
}

#[test]
fn a_call_ends_at_its_deadline() {
    let service = service();
    let gateway =
        Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/s/*", "upstream": grpc(&service) }] }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let mut hasty = call("/s/hang");
        hasty.headers_mut().insert("grpc-timeout", "100m".parse().unwrap());
        let answer = client.ask(hasty, MESSAGE).await.unwrap();
        assert_eq!(status(&answer), ("4", "the deadline of the request has passed"));
        // The same for a call with a response in flight.
        let mut hasty = call("/s/m");
        hasty.headers_mut().insert("grpc-timeout", "1500m".parse().unwrap());
        let (answer, mut stream) = client.begin(hasty).await;
        http2::send(&mut stream, MESSAGE, false).await.unwrap();
        let answer = http2::read(answer.await.unwrap()).await.unwrap();
        assert_eq!(status(&answer), ("4", "the deadline of the request has passed"));
        drop(stream);
        // The endpoint gets the remaining time.
        let mut patient = call("/s/m");
        patient.headers_mut().insert("grpc-timeout", "1M".parse().unwrap());
        let answer = client.ask(patient, MESSAGE).await.unwrap();
        let left = answer.fields["x-left"].to_str().unwrap().strip_suffix('m').map(str::parse::<u64>);
        assert!(matches!(left, Some(Ok(1..=60_000))), "{left:?}");
    });
    eventually("both are counted", 10, || gateway.metric("yumen_grpc_calls_total{status=\"4\"}") == 2.0);
}

#[test]
fn a_stream_of_messages_is_not_held_back() {
    let service = Http2Upstream::start(|call, mut respond| async move {
        let answer = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        let mut sender = respond.send_response(answer, false)?;
        let mut incoming = call.into_body();
        // Each message is echoed before the next one is sent.
        while let Some(data) = incoming.data().await {
            let data = data?;
            incoming.flow_control().release_capacity(data.len())?;
            http2::send(&mut sender, &data, false).await?;
        }
        sender.send_data(Bytes::new(), true)
    });
    let gateway =
        Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/s/*", "upstream": grpc(&service) }] }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let (answer, mut stream) = client.begin(call("/s/m")).await;
        let mut incoming = answer.await.unwrap().into_body();
        for _ in 0..20 {
            http2::send(&mut stream, MESSAGE, false).await.unwrap();
            let data = tokio::time::timeout(Duration::from_secs(60), incoming.data()).await;
            let data = data.expect("a message comes back").unwrap().unwrap();
            incoming.flow_control().release_capacity(data.len()).unwrap();
            assert_eq!(data, MESSAGE);
        }
        stream.send_data(Bytes::new(), true).unwrap();
        let (rest, _) = http2::read_body(&mut incoming).await.unwrap();
        assert!(rest.is_empty());
    });
}

#[test]
fn a_call_that_one_endpoint_refuses_is_made_to_another_where_the_upstream_says_so() {
    let busy = Http2Upstream::start(|_, mut respond| async move {
        let refusal = Response::builder().header("content-type", "application/grpc");
        let refusal = refusal.header("grpc-status", "14").header("grpc-message", "busy").body(()).unwrap();
        respond.send_response(refusal, true).map(drop)
    });
    let well = service();
    let upstream = |statuses: serde_json::Value| {
        let nodes = json!([
            { "host": "127.0.0.1", "port": busy.address.port(), "weight": 1, "priority": 1 },
            { "host": "127.0.0.1", "port": well.address.port(), "weight": 1, "priority": 0 },
        ]);
        json!({ "nodes": nodes, "scheme": "grpc", "grpc_retry_statuses": statuses })
    };
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "1", "uri": "/s/*", "upstream": upstream(json!([14])) },
        { "id": "2", "uri": "/plain/*", "upstream": upstream(json!([1])) },
        { "id": "3", "uri": "/alone/*", "upstream": {
            "nodes": { busy.address.to_string(): 1 }, "scheme": "grpc", "grpc_retry_statuses": [14] } },
    ] }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let answer = client.ask(call("/s/m"), MESSAGE).await.unwrap();
        assert_eq!((status(&answer).0, &answer.body[..]), ("5", MESSAGE), "the second endpoint answered");
        let answer = client.ask(call("/plain/m"), MESSAGE).await.unwrap();
        assert_eq!(status(&answer), ("14", "busy"), "another status is passed on");
        let answer = client.ask(call("/alone/m"), MESSAGE).await.unwrap();
        assert_eq!(status(&answer), ("14", "busy"), "where nobody else is there, it is passed on");
    });
    gateway.assert_metric("yumen_upstream_retries_total", 1.0);
}

#[test]
fn an_endpoint_that_refuses_call_after_call_is_left_out() {
    let busy = Http2Upstream::start(|_, mut respond| async move {
        let refusal = Response::builder().header("content-type", "application/grpc");
        respond.send_response(refusal.header("grpc-status", "14").body(()).unwrap(), true).map(drop)
    });
    let well = service();
    let mut upstream = grpc(&well);
    upstream["nodes"][busy.address.to_string()] = json!(1);
    upstream["outlier_detection"] = json!({ "consecutive_gateway_failures": 2, "base_ejection_time": 600 });
    let gateway = Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/s/*", "upstream": upstream }] }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let mut refused = 0;
        for _ in 0..20 {
            let answer = client.ask(call("/s/m"), MESSAGE).await.unwrap();
            refused += usize::from(status(&answer).0 == "14");
        }
        assert_eq!(refused, 2);
    });
}

#[test]
fn an_endpoint_that_resets_request_after_request_is_left_out() {
    let broken = Http2Upstream::start(|_, mut respond| async move {
        respond.send_reset(h2::Reason::INTERNAL_ERROR);
        Ok(())
    });
    let well = Http2Upstream::start(|_, mut respond| async move {
        respond.send_response(Response::new(()), true).map(drop)
    });
    let mut upstream = grpc(&well);
    upstream["nodes"][broken.address.to_string()] = json!(1);
    upstream["outlier_detection"] = json!({ "consecutive_gateway_failures": 2, "base_ejection_time": 600 });
    let document = json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] });
    let gateway = Gateway::with(&document, &Options { workers: 1, ..Options::default() });
    let mut client = Client::connect(gateway.http);
    // On reused connections, where a close alone would not count against the endpoint.
    let mut status = || {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        client.reply().status
    };
    let failed = (0..20).filter(|_| status() == 502).count();
    assert_eq!(
        (failed, gateway.metric("yumen_faults_total{fault=\"upstream_reset\",side=\"upstream\"}")),
        (2, 2.0)
    );
}

#[test]
fn a_call_may_pause_between_its_messages_as_long_as_its_upstream_may_be_silent() {
    // Responds after the complete request.
    let service = Http2Upstream::start(|call, mut respond| async move {
        let (body, _) = http2::read_body(&mut call.into_body()).await?;
        let answer = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        let mut sender = respond.send_response(answer, false)?;
        http2::send(&mut sender, &body, true).await
    });
    let mut impatient = grpc(&service);
    impatient["timeout"] = json!({ "connect": 5, "send": 5, "read": 0.5 });
    let document = json!({ "routes": [
        { "id": "1", "uri": "/s/*", "upstream": grpc(&service) },
        { "id": "2", "uri": "/impatient/*", "upstream": impatient },
    ] });
    let node = Options { node: "timeouts: { body_ms: 300 }", ..Options::default() };
    let gateway = Gateway::with(&document, &node);
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let mut pausing = async |begun: Request<()>| {
            let (answer, mut stream) = client.begin(begun).await;
            http2::send(&mut stream, MESSAGE, false).await.unwrap();
            // A slow client: longer than `body_ms` and the read timeout.
            tokio::time::sleep(Duration::from_millis(1500)).await;
            // A call that was ended cannot send either.
            let _ = http2::send(&mut stream, MESSAGE, true).await;
            http2::read(answer.await.unwrap()).await.unwrap()
        };
        assert_eq!(pausing(call("/s/m")).await.body, [MESSAGE, MESSAGE].concat());
        assert_eq!(status(&pausing(call("/impatient/m")).await).1, "the request did not arrive in time");
        assert_eq!(pausing(request("POST", "/s/m")).await.status, 408, "what is no call may not");
    });
}
