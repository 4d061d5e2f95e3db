//! JSON requests to gRPC services.

use http::{HeaderMap, Response};
use serde_json::{Value, json};

use crate::harness::http2::{self, Http2Client, Http2Upstream, request};
use crate::harness::{Client, Gateway, eventually};

const GREETER: &str = r#"syntax = "proto3";
package test;
message Hello { string name = 1; int32 times = 2; }
service Greeter { rpc Say (Hello) returns (Hello); rpc Fail (Hello) returns (Hello); }
"#;

/// Echoes the message of a call; `Fail` has a status in its trailers.
fn service() -> Http2Upstream {
    Http2Upstream::start(|call, mut respond| async move {
        let (parts, mut incoming) = call.into_parts();
        assert_eq!(
            (parts.headers["content-type"].as_bytes(), parts.method.as_str()),
            (&b"application/grpc"[..], "POST")
        );
        let answer = Response::builder().header("content-type", "application/grpc").header("x-served", "yes");
        let mut sender = respond.send_response(answer.body(()).unwrap(), false)?;
        let (body, _) = http2::read_body(&mut incoming).await?;
        let fails = parts.uri.path() == "/test.Greeter/Fail";
        if !fails {
            http2::send(&mut sender, &body, false).await?;
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", if fails { "5" } else { "0" }.parse().unwrap());
        trailers.insert("grpc-message", if fails { "nobody" } else { "" }.parse().unwrap());
        sender.send_trailers(trailers)
    })
}

fn document(service: &Http2Upstream) -> Value {
    let upstream = |address: &str| json!({ "nodes": { address: 1 }, "scheme": "grpc" });
    let route = |id: &str, uri: &str, method: &str, address: &str, more: Value| {
        let mut settings = json!({ "proto_id": "1", "service": "test.Greeter", "method": method });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "id": id, "uri": uri, "plugins": { "grpc-transcode": settings }, "upstream": upstream(address) })
    };
    let alive = service.address.to_string();
    json!({
        "protos": [{ "id": "1", "content": GREETER }],
        "routes": [
            route("1", "/hello/:name", "Say", &alive, json!({})),
            route("2", "/hello", "Say", &alive, json!({ "pb_option": ["no_default_values"] })),
            route("3", "/fail", "Fail", &alive, json!({ "show_status_in_body": true })),
            route("4", "/dead", "Say", "127.0.0.1:1", json!({})),
            route("5", "/small", "Say", &alive, json!({ "max_resp_body_size": 8 })),
        ],
    })
}

#[test]
fn a_client_of_json_calls_a_service() {
    let service = service();
    let gateway = Gateway::start(&document(&service));
    // On one connection: a request must not leave bytes for the next.
    let mut client = Client::connect(gateway.http);
    let mut check = |head: &str, body: &str, status: u16, expected: Value| {
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        client.send(format!(
            "{head} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n{length}\r\n{body}"
        ));
        let reply = client.reply();
        assert_eq!((reply.status, reply.json()), (status, expected), "{head} {body}");
        assert_eq!(reply.field("content-type"), Some("application/json"), "{head}");
        assert_eq!(reply.field("grpc-status").is_some(), status == 404, "{head}");
    };
    check("GET /hello/yumen?times=2", "", 200, json!({ "name": "yumen", "times": 2 }));
    check("POST /hello", r#"{"name":"tea","times":"3"}"#, 200, json!({ "name": "tea", "times": 3 }));
    check("POST /hello", "{}", 200, json!({}));
    check("GET /hello?name=a", "not looked at", 200, json!({ "name": "a" }));
    check("GET /fail", "", 404, json!({ "error": { "code": 5, "message": "nobody" } }));
    check(
        "POST /hello",
        "{",
        400,
        json!({ "error_msg":
        "the request is no Hello: the body is not JSON: EOF while parsing an object at line 1 column 1" }),
    );
    check("GET /dead", "", 502, json!({ "error_msg": "the upstream could not be reached" }));
    check(
        "GET /small?name=longer-than-that",
        "",
        502,
        json!({ "error_msg": "the upstream's body is larger than allowed" }),
    );
    check("GET /hello/yumen", "", 200, json!({ "name": "yumen", "times": 0 }));
    eventually("calls are counted", 10, || gateway.metric("yumen_grpc_calls_total{status=\"5\"}") == 1.0);
}

#[test]
fn clients_of_http2_get_json_too() {
    let service = service();
    let gateway = Gateway::start(&document(&service));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let answer = client.get("/hello/yumen").await;
        assert_eq!((answer.status, answer.text().as_str()), (200, r#"{"name":"yumen","times":0}"#));
        assert_eq!((answer.field("x-served"), answer.trailers.len()), ("yes", 0));
        let mut post = request("POST", "/hello");
        post.headers_mut().insert("content-type", "application/json".parse().unwrap());
        let answer = client.ask(post, br#"{"name":"tea"}"#).await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, r#"{"name":"tea"}"#));
        let answer = client.get("/dead").await;
        assert_eq!((answer.status, answer.field("content-type")), (502, "application/json"));
        assert_eq!(client.get("/fail").await.status, 404);
    });
}

#[test]
fn a_call_nested_too_deep_is_refused_and_the_next_is_made() {
    let service = service();
    let content = "syntax = \"proto3\"; package test; message Node { string name = 1; Node next = 2; }\n\
                   service Greeter { rpc Say (Node) returns (Node); }";
    let settings = json!({ "proto_id": "1", "service": "test.Greeter", "method": "Say",
        "pb_option": ["no_default_values"], "max_req_body_size": 1 << 20 });
    let nodes = json!({ service.address.to_string(): 1 });
    let gateway = Gateway::start(&json!({
        "protos": [{ "id": "1", "content": content }],
        // A call is translated once even if two rules have the plugin.
        "global_rules": [{ "id": "1", "plugins": { "grpc-transcode": settings } }],
        "routes": [{ "id": "1", "uri": "/say", "plugins": { "grpc-transcode": settings },
            "upstream": { "nodes": nodes, "scheme": "grpc" } }],
    }));
    let ask = |line: &str, kind: &str, body: &str| {
        let length = body.len();
        let head = format!(
            "{line} HTTP/1.1\r\nHost: test\r\nContent-Type: application/{kind}\r\nContent-Length: {length}\r\n\r\n"
        );
        let reply = Client::connect(gateway.http).send(head).send(body).reply();
        (reply.status, reply.text())
    };
    let form = "x-www-form-urlencoded";
    let (get, deep) =
        (format!("GET /say?{}name=q", "next.".repeat(1000)), "next.".repeat(100_000) + "name=q");
    for (status, text) in [ask(&get, "json", ""), ask("POST /say", form, &deep)] {
        assert!(status == 400 && text.contains("leads into messages more than 100 deep"), "{status} {text}");
    }
    let (status, text) = ask("POST /say", "json", &r#"{"next":"#.repeat(100_000));
    assert!(status == 400 && text.contains("messages are nested more than 100 levels deep"), "{text}");
    assert_eq!(ask("POST /say", "json", &" ".repeat(2 << 20)).0, 413);
    let expected = (200, r#"{"name":"tea","next":{"name":"q"}}"#.to_owned());
    assert_eq!(ask("GET /say?next.name=q&name=tea", "json", ""), expected);
    assert_eq!(ask("POST /say", "json", r#"{"next":{"name":"q"},"name":"tea"}"#), expected);
}
