//! Calls that are made again where the upstream says after which statuses, and what becomes of the answer where
//! they are not.

use std::time::Duration;

use http::{Request, Response};
use serde_json::{Value, json};

use crate::harness::Gateway;
use crate::harness::http2::{self, Answer, Http2Client, Http2Upstream, request};

const MESSAGE: &[u8] = b"\0\0\0\0\x02hi";

fn call(path: &str) -> Request<()> {
    let mut call = request("POST", path);
    call.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    call.headers_mut().insert("te", "trailers".parse().unwrap());
    call
}

/// Refuses every call, after a while where the path says so.
fn busy() -> Http2Upstream {
    Http2Upstream::start(|call, mut respond| async move {
        if call.uri().path().starts_with("/slow") {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let refusal = Response::builder().header("content-type", "application/grpc");
        let refusal =
            refusal.header("grpc-status", "8").header("grpc-message", "boom").header("x-own", "yes");
        respond.send_response(refusal.body(()).unwrap(), true).map(drop)
    })
}

fn told(answer: &Answer) -> (&str, &str, &str) {
    (answer.field("grpc-status"), answer.field("grpc-message"), answer.field("x-own"))
}

fn route(id: &str, mut upstream: Value, nodes: &[(&Http2Upstream, u32)]) -> Value {
    let node = |(node, weight): &(&Http2Upstream, u32)| (node.address.to_string(), json!(weight));
    upstream["nodes"] = nodes.iter().map(node).collect::<serde_json::Map<_, _>>().into();
    upstream["scheme"] = json!("grpc");
    upstream["grpc_retry_statuses"] = json!([8]);
    json!({ "id": id, "uri": format!("/{id}/*"), "upstream": upstream })
}

#[test]
fn what_a_service_said_reaches_the_client_where_nobody_else_is_asked() {
    let (one, other) = (busy(), busy());
    let both = [(&one, 1), (&other, 1)];
    let gateway = Gateway::start(&json!({ "routes": [
        route("spent", json!({ "retries": 1 }), &both),
        route("all-tried", json!({ "retries": 5 }), &both),
        route("alone", json!({ "retries": 1 }), &[(&one, 1)]),
        route("no-weight", json!({ "retries": 1 }), &[(&one, 1), (&other, 0)]),
        route("slow", json!({ "retries": 1, "retry_timeout": 0.1 }), &both),
        route("no-budget", json!({ "retries": 1, "retry_budget": { "percent": 0, "min_concurrency": 0 } }), &both),
        route("no-room", json!({ "retries": 5, "limits": { "max_requests": 9 } }), &both),
    ] }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let ways = ["spent", "all-tried", "alone", "no-weight", "slow", "no-budget", "no-room"];
        for way in ways {
            for message in [b"", MESSAGE] {
                let answer = client.ask(call(&format!("/{way}/m")), message).await.unwrap();
                assert_eq!(told(&answer), ("8", "boom", "yes"), "{way}");
            }
        }
    });
}
