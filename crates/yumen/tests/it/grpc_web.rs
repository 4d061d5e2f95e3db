//! gRPC-Web calls over HTTP/1.1 and HTTP/2, as services see them.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Response};
use serde_json::{Value, json};

use crate::harness::http2::{self, Http2Client, Http2Upstream, request};
use crate::harness::upstream::respond;
use crate::harness::{Client, Gateway, Reply, Upstream, eventually};

/// A message in its frame.
const MESSAGE: &[u8] = b"\0\0\0\0\x02hi";
const OK: &[u8] = b"\x80\0\0\0\x10grpc-status: 0\r\n";

/// Echoes the message with status 0. `/s.S/Refuse` responds with a head only, `/s.S/Break` breaks off,
/// `/s.S/Stream` echoes each message on arrival.
fn service() -> Http2Upstream {
    Http2Upstream::start(|call, mut respond| async move {
        let (parts, mut incoming) = call.into_parts();
        let kind = parts.headers["content-type"].to_str().unwrap().to_owned();
        let answer = Response::builder().header("content-type", &kind);
        if parts.uri.path() == "/s.S/Refuse" {
            let refusal = answer.header("grpc-status", "7").header("grpc-message", "no").body(()).unwrap();
            return respond.send_response(refusal, true).map(drop);
        }
        assert_eq!(parts.headers["te"], "trailers");
        let answer = answer.header("x-path", parts.uri.path()).body(()).unwrap();
        let mut sender = respond.send_response(answer, false)?;
        while let Some(data) = incoming.data().await {
            let data = data?;
            incoming.flow_control().release_capacity(data.len())?;
            http2::send(&mut sender, &data, false).await?;
        }
        if parts.uri.path() == "/s.S/Break" {
            sender.send_reset(h2::Reason::INTERNAL_ERROR);
            return Ok(());
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        sender.send_trailers(trailers)
    })
}

fn document(service: SocketAddr) -> Value {
    let upstream = |address: &str| json!({ "nodes": { address: 1 }, "scheme": "grpc" });
    let (web, alive) = (json!({ "grpc-web": {} }), service.to_string());
    let timeout = json!([{ "name": "grpc-timeout", "format": "grpc" }]);
    let hasty = json!({ "grpc-web": {}, "deadline": { "request_headers": timeout } });
    json!({ "routes": [
        { "id": "1", "uri": "/*", "plugins": web, "upstream": upstream(&alive) },
        { "id": "2", "uri": "/web/*", "plugins": web, "upstream": upstream(&alive) },
        { "id": "3", "uri": "/dead/*", "plugins": web, "upstream": upstream("127.0.0.1:1") },
        { "id": "4", "uri": "/hasty/*", "plugins": hasty, "upstream": upstream(&alive) },
    ] })
}

fn ask(gateway: &Gateway, path: &str, kind: &str, body: &[u8]) -> Reply {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/{kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    Client::connect(gateway.http).send(head).send(body).reply()
}

#[test]
fn a_call_of_a_browser_reaches_a_service() {
    let service = service();
    let gateway = Gateway::start(&document(service.address));
    let check = |path: &str, kind: &str, body: &[u8], expected: &[u8]| {
        let reply = ask(&gateway, path, kind, body);
        assert_eq!(reply.status, 200, "{path} {kind}");
        assert_eq!(reply.field("content-type"), Some(format!("application/{kind}").as_str()));
        assert_eq!(reply.field("x-path"), Some("/s.S/M"), "{path}");
        assert_eq!(reply.body, expected, "{path} {kind}: {:?}", reply.text());
    };
    check("/s.S/M", "grpc-web+proto", MESSAGE, &[MESSAGE, OK].concat());
    check("/web/s.S/M", "grpc-web", MESSAGE, &[MESSAGE, OK].concat());
    check("/s.S/M", "grpc-web", b"", OK);
    // The chunks depend on timing, so both encodings are valid.
    let reply = ask(&gateway, "/s.S/M", "grpc-web-text+proto", b"AAAAAAJoaQ==");
    assert_eq!(reply.field("content-type"), Some("application/grpc-web-text+proto"));
    assert!(
        ["AAAAAAJoaQ==gAAAABBncnBjLXN0YXR1czogMA0K", "AAAAAAJoaYAAAAAQZ3JwYy1zdGF0dXM6IDANCg=="]
            .contains(&&*reply.text()),
        "{}",
        reply.text()
    );
    eventually("calls are counted", 10, || gateway.metric("yumen_grpc_calls_total{status=\"0\"}") == 4.0);
}

#[test]
fn failures_come_as_a_status_of_grpc() {
    let service = service();
    let gateway = Gateway::start(&document(service.address));
    let check = |path: &str, status: &str, message: &str| {
        let reply = ask(&gateway, path, "grpc-web+proto", MESSAGE);
        assert_eq!(reply.status, 200, "{path}: {}", reply.head);
        assert_eq!(reply.field("content-type"), Some("application/grpc-web+proto"), "{path}");
        assert_eq!(reply.field("access-control-allow-origin"), Some("*"), "{path}");
        assert_eq!(reply.field("grpc-status"), Some(status), "{path}");
        assert_eq!(reply.field("grpc-message"), Some(message), "{path}");
        assert_eq!(reply.body, b"", "{path}");
    };
    check("/s.S/Refuse", "7", "no");
    check("/dead/s.S/M", "14", "the upstream could not be reached");
    let reply = ask(&gateway, "/s.S/M", "json", MESSAGE);
    assert_eq!((reply.status, reply.field("grpc-status")), (400, None), "it is no call");
}

#[test]
fn a_foreign_origin_is_told_nothing_beside_cors() {
    let service = service();
    let origins = json!({ "allow_origins": "https://good.example", "allow_methods": "POST",
        "allow_headers": "x-a", "allow_credential": true });
    let gateway = Gateway::start(&json!({ "routes": [{
        "id": "1", "uri": "/*", "plugins": { "grpc-web": {}, "cors": origins },
        "upstream": { "nodes": { service.address.to_string(): 1 }, "scheme": "grpc" },
    }] }));
    for (origin, expected) in
        [("https://good.example", Some("https://good.example")), ("https://evil.example", None)]
    {
        for method in ["OPTIONS", "POST"] {
            let head = format!(
                "{method} /s.S/M HTTP/1.1\r\nHost: test\r\nOrigin: {origin}\r\n\
                 Content-Type: application/grpc-web\r\nContent-Length: 7\r\n\r\n"
            );
            let reply = Client::connect(gateway.http).send(head).send(MESSAGE).reply();
            assert_eq!(reply.status, 200, "{origin} {method}");
            assert_eq!(reply.field("access-control-allow-origin"), expected, "{origin} {method}");
        }
    }
}

#[test]
fn an_answer_that_breaks_off_ends_with_a_status_too() {
    let service = service();
    let gateway = Gateway::start(&document(service.address));
    let mut client = Client::connect(gateway.http);
    let head = "POST /s.S/Break HTTP/1.1\r\nHost: test\r\nContent-Type: application/grpc-web\r\n\
                Transfer-Encoding: chunked\r\n\r\n7\r\n";
    client.send(head).send(MESSAGE).send("\r\n");
    let head = client.head().unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut body = Vec::new();
    assert!(client.chunk(&mut body).unwrap());
    assert_eq!(body, MESSAGE, "the call is under way");
    client.send("0\r\n\r\n");
    while client.chunk(&mut body).expect("the answer ends as it should") {}
    let end = b"\x80\0\0\0\x43grpc-status: 14\r\ngrpc-message: the upstream closed the connection\r\n";
    assert_eq!(body, [MESSAGE, end].concat());
}

#[test]
fn an_answer_its_deadline_cuts_off_says_so() {
    let service = service();
    let gateway = Gateway::start(&document(service.address));
    let mut client = Client::connect(gateway.http);
    let head = "POST /hasty/s.S/Stream HTTP/1.1\r\nHost: test\r\nContent-Type: application/grpc-web\r\n\
                grpc-timeout: 1500m\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n";
    client.send(head).send(MESSAGE).send("\r\n");
    assert!(client.head().unwrap().starts_with("HTTP/1.1 200"));
    let mut body = Vec::new();
    while client.chunk(&mut body).expect("the answer ends as it should") {}
    let end = b"\x80\0\0\0\x46grpc-status: 4\r\ngrpc-message: the deadline of the request has passed\r\n";
    assert_eq!(body, [MESSAGE, end].concat(), "{}", String::from_utf8_lossy(&body));
}

#[test]
fn answers_stream_to_clients_of_http2() {
    let service = service();
    let gateway = Gateway::start(&document(service.address));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let mut call = request("POST", "/s.S/Stream");
        call.headers_mut().insert("content-type", "application/grpc-web".parse().unwrap());
        let (answer, mut stream) = client.begin(call).await;
        let mut incoming = answer.await.unwrap().into_body();
        for _ in 0..20 {
            http2::send(&mut stream, MESSAGE, false).await.unwrap();
            let data = incoming.data().await.expect("a message comes back").unwrap();
            incoming.flow_control().release_capacity(data.len()).unwrap();
            assert_eq!(data, MESSAGE);
        }
        stream.send_data(Bytes::new(), true).unwrap();
        let (rest, trailers) = http2::read_body(&mut incoming).await.unwrap();
        assert_eq!((&rest[..], trailers.len()), (OK, 0));
    });
}

#[test]
fn what_is_no_translated_answer_passes_beside_plugins_that_change_bodies() {
    let service = service();
    let pages =
        Upstream::start(|_, stream| respond(stream, 404, "Content-Type: text/html\r\n", b"<p>no</p>"));
    let filters = json!([{ "regex": "never there", "replace": "x", "scope": "global" }]);
    let plugins = json!({ "grpc-web": {}, "response-rewrite": { "filters": filters } });
    let gateway = Gateway::start(&json!({
        // A call is translated once even if two rules have the plugin.
        "global_rules": [{ "id": "1", "plugins": { "grpc-web": {} } }],
        "routes": [
            { "id": "1", "uri": "/s.S/*", "plugins": plugins,
                "upstream": { "nodes": { service.address.to_string(): 1 }, "scheme": "grpc" } },
            { "id": "2", "uri": "/page/*", "plugins": plugins,
                "upstream": { "nodes": { pages.address.to_string(): 1 } } },
        ],
    }));
    for kind in ["grpc-web", "grpc-web-text"] {
        let refused = ask(&gateway, "/s.S/Refuse", kind, b"AAAAAAJoaQ==");
        assert_eq!((refused.field("grpc-status"), refused.text().as_str()), (Some("7"), ""), "{kind}");
        let page = ask(&gateway, "/page/s.S/M", kind, b"AAAAAAJoaQ==");
        assert_eq!((page.status, page.text().as_str()), (404, "<p>no</p>"), "{kind}");
    }
    assert_eq!(ask(&gateway, "/s.S/M", "grpc-web", MESSAGE).body, [MESSAGE, OK].concat());
    let text = ask(&gateway, "/s.S/M", "grpc-web-text", b"AAAAAAJoaQ==").text();
    let whole = ["AAAAAAJoaQ==gAAAABBncnBjLXN0YXR1czogMA0K", "AAAAAAJoaYAAAAAQZ3JwYy1zdGF0dXM6IDANCg=="];
    assert!(whole.contains(&&*text), "{text}");
}
