//! An authorization service over gRPC, in front of an upstream.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use serde_json::json;

use crate::harness::http2::{self, Http2Upstream};
use crate::harness::{Gateway, Upstream};

/// A member of a message: its number, then its bytes with their length.
fn member(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

/// `HeaderValueOption` with a field.
fn field(name: &str, value: &str) -> Vec<u8> {
    member(1, &[member(1, name.as_bytes()), member(2, value.as_bytes())].concat())
}

/// The response to a check: by the path that it is about.
fn answer(request: &[u8]) -> Vec<u8> {
    let asks = |path: &str| request.windows(path.len()).any(|part| part == path.as_bytes());
    if asks("/denied") {
        // Status 7 of the decision; status 401 for the client.
        let denied =
            [member(1, &[8, 145, 3]), member(2, &field("x-why", "unknown")), member(3, b"who are you?")];
        return [member(1, &[8, 7]), member(2, &denied.concat())].concat();
    }
    let admitted =
        [member(2, &field("x-user", "ada")), member(5, b"x-secret"), member(6, &field("x-decided", "yes"))];
    member(3, &admitted.concat())
}

fn service() -> Http2Upstream {
    Http2Upstream::start(|call, mut respond| async move {
        assert_eq!(call.uri().path(), "/envoy.service.auth.v3.Authorization/Check");
        let (request, _) = http2::read_body(&mut call.into_body()).await?;
        let message = answer(&request);
        let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        let mut stream = respond.send_response(head, false)?;
        if request.windows(5).any(|part| part == b"/slow") {
            // Scripted: later than the timeout of the decision.
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let prefix = [&[0], &(message.len() as u32).to_be_bytes()[..]].concat();
        stream.send_data(Bytes::from([prefix, message].concat()), false)?;
        let mut trailers = HeaderMap::new();
        let status = if request.windows(7).any(|part| part == b"/failed") { "14" } else { "0" };
        trailers.insert("grpc-status", status.parse().unwrap());
        stream.send_trailers(trailers)
    })
}

#[test]
fn a_service_over_grpc_admits_and_refuses() {
    let (service, upstream) = (service(), Upstream::echo("app"));
    let auth =
        |id: &str| json!({ "external_auth": { "upstream_id": id, "protocol": "grpc", "timeout_ms": 500 } });
    let gateway = Gateway::start(&json!({
        "upstreams": [
            { "id": "auth", "scheme": "grpc", "nodes": { service.address.to_string(): 1 } },
            { "id": "gone", "scheme": "grpc", "nodes": { "127.0.0.1:1": 1 } },
            { "id": "app", "nodes": { upstream.address.to_string(): 1 } },
        ],
        "routes": [
            { "id": "1", "uri": "/*", "actions": auth("auth"), "upstream_id": "app" },
            { "id": "2", "uri": "/gone", "actions": auth("gone"), "upstream_id": "app" },
        ],
    }));
    let get = |path: &str| gateway.get_with(path, "Host: a\r\nX-User: forged\r\nX-Secret: s\r\n");
    let reply = get("/admitted");
    assert_eq!((reply.status, reply.field("x-decided")), (200, Some("yes")), "{}", gateway.log());
    let seen = &reply.json()["fields"];
    assert_eq!((&seen["x-user"], &seen["x-secret"]), (&json!("ada"), &json!(null)), "{seen}");
    let reply = get("/denied");
    assert_eq!((reply.status, reply.field("x-why")), (401, Some("unknown")));
    assert_eq!(reply.text(), "who are you?");
    for path in ["/failed", "/slow", "/gone"] {
        assert_eq!(get(path).status, 403, "{path}");
    }
}
