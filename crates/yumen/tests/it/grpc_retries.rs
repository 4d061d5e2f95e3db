//! Retries of calls by gRPC status, and the response if a retry is not possible.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use http::{HeaderMap, Request, Response};
use serde_json::{Value, json};

use crate::harness::http2::{self, Answer, Http2Client, Http2Upstream, request};
use crate::harness::{Client, Gateway};

const MESSAGE: &[u8] = b"\0\0\0\0\x02hi";

fn call(path: &str) -> Request<()> {
    let mut call = request("POST", path);
    call.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    call.headers_mut().insert("te", "trailers".parse().unwrap());
    call
}

/// Refuses every call according to its path: after a delay, after the complete request, or with
/// REFUSED_STREAM.
fn busy() -> Http2Upstream {
    Http2Upstream::start(|call, mut respond| async move {
        let path = call.uri().path().to_owned();
        if path.starts_with("/slow") {
            // Scripted.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        if path.starts_with("/read") {
            http2::read_body(&mut call.into_body()).await?;
        }
        if path.starts_with("/unseen") {
            respond.send_reset(h2::Reason::REFUSED_STREAM);
            return Ok(());
        }
        respond.send_response(refusal(), true).map(drop)
    })
}

fn refusal() -> Response<()> {
    let refusal = Response::builder().header("content-type", "application/grpc");
    refusal.header("grpc-status", "8").header("grpc-message", "boom").header("x-own", "yes").body(()).unwrap()
}

/// Refuses every call after the number of bytes in this segment of its path; the response ends with the
/// request.
fn lingering(part: usize) -> Http2Upstream {
    Http2Upstream::start(move |call, mut respond| async move {
        let length: usize = call.uri().path()[1..].split('/').nth(part).unwrap().parse().unwrap();
        let mut body = call.into_body();
        let mut calls_seen = 0;
        while calls_seen < length {
            let data = body.data().await.expect("more of the call")?;
            body.flow_control().release_capacity(data.len())?;
            calls_seen += data.len();
        }
        let mut answer = respond.send_response(refusal(), false)?;
        http2::read_body(&mut body).await?;
        answer.send_data(Bytes::new(), true)
    })
}

fn status_of(answer: &Answer) -> (&str, &str, &str) {
    status_fields(&answer.fields)
}

fn status_fields(fields: &HeaderMap) -> (&str, &str, &str) {
    let text = |name| fields.get(name).map_or("", |value| value.to_str().unwrap());
    (text("grpc-status"), text("grpc-message"), text("x-own"))
}

/// Nodes by priority, in this order.
fn nodes_in_order(nodes: &[SocketAddr]) -> Value {
    let node = |(at, node): (usize, &SocketAddr)| json!({ "host": "127.0.0.1", "port": node.port(), "weight": 1, "priority": nodes.len() - at });
    nodes.iter().enumerate().map(node).collect()
}

fn retrying(nodes: Value) -> Value {
    json!({ "nodes": nodes, "scheme": "grpc", "retries": 1, "grpc_retry_statuses": [8] })
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
    ] }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let services = ["spent", "all-tried", "alone", "no-weight", "slow", "no-budget"];
        for service in services {
            for message in [b"", MESSAGE] {
                let answer = client.ask(call(&format!("/{service}/m")), message).await.unwrap();
                assert_eq!(status_of(&answer), ("8", "boom", "yes"), "{service}");
            }
        }
    });
}

/// A call that continues, and the head of its response so far.
async fn begin_call(client: &mut Http2Client, length: usize) -> (HeaderMap, SendStream<Bytes>) {
    let (answer, mut sender) = client.begin(call(&format!("/{length}"))).await;
    // The response shows whether the data was accepted.
    let _ = http2::send(&mut sender, &vec![7; length], false).await;
    let answer = tokio::time::timeout(Duration::from_secs(20), answer).await.expect("an answer");
    (answer.unwrap().headers().clone(), sender)
}

/// Checks the statuses of concurrent calls with these lengths. The first endpoint refuses all calls, the
/// second serves them.
#[track_caller]
fn check_begun_calls(settings: &Value, calls: [(usize, &str); 3]) -> Gateway {
    let (lingering, well) = (lingering(0), Http2Upstream::echo());
    let mut upstream = retrying(nodes_in_order(&[lingering.address, well.address]));
    upstream.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let gateway = Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] }));
    let statuses = http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let mut going_on = Vec::new();
        for (length, _) in calls {
            going_on.push(begin_call(&mut client, length).await);
        }
        going_on.iter().map(|(fields, _)| status_fields(fields).0.to_owned()).collect::<Vec<_>>()
    });
    assert_eq!(statuses, calls.map(|(_, status)| status), "{settings}");
    gateway
}

const LONG: usize = 66_000;

#[test]
fn a_refused_call_takes_no_room_elsewhere_and_keeps_its_own() {
    let limits = json!({ "limits": { "per_endpoint": { "max_requests": 1 } } });
    // The first call cannot be repeated and stays at the first endpoint. The second goes to the other at
    // once, and no endpoint has room for the third.
    check_begun_calls(&limits, [(LONG, "8"), (2, ""), (2, "14")]);
    // The first call is retried on the second endpoint, which then has no room for the second call.
    check_begun_calls(&limits, [(2, ""), (2, "8"), (2, "14")]);
}

#[test]
fn a_refused_call_that_cannot_be_made_again_is_no_retry() {
    let budget = json!({ "retry_budget": { "percent": 0, "min_concurrency": 1 } });
    let gateway = check_begun_calls(&budget, [(LONG, "8"), (2, ""), (2, "8")]);
    let refused = "yumen_upstream_refused_total{reason=\"retry_budget\",upstream=\"routes/1\"}";
    gateway.assert_metric(refused, 1.0);
}

/// All calls go to the busy endpoint first, then to the other.
fn refused_then_served(busy: &Http2Upstream, well: &Http2Upstream) -> Gateway {
    let upstream = retrying(nodes_in_order(&[busy.address, well.address]));
    Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] }))
}

#[test]
fn a_call_is_made_again_however_long_its_message_took_to_come() {
    let (busy, well) = (busy(), Http2Upstream::echo());
    let gateway = refused_then_served(&busy, &well);
    let message: Vec<u8> = (0..60_000u32).map(|at| (at / 7) as u8).collect();
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        for service in ["/at-once/m", "/read/m", "/unseen/m"] {
            for length in [1, 20_000, 60_000] {
                let answer = client.ask(call(service), &message[..length]).await.unwrap();
                assert_eq!(
                    (answer.field("x-version"), &answer.body[..]),
                    ("2", &message[..length]),
                    "{service}"
                );
            }
            let (answer, mut sender) = client.begin(call(service)).await;
            for piece in message[..20_000].chunks(6_000) {
                // A slow client.
                tokio::time::sleep(Duration::from_millis(30)).await;
                http2::send(&mut sender, piece, false).await.unwrap();
            }
            let mut trailers = http::HeaderMap::new();
            trailers.insert("x-last", "yes".parse().unwrap());
            sender.send_trailers(trailers).unwrap();
            let answer = http2::read(answer.await.unwrap()).await.unwrap();
            assert_eq!((&answer.body[..], answer.trailers.len()), (&message[..20_000], 0), "{service}");
        }
    });
    gateway.assert_metric("yumen_upstream_retries_total", 12.0);
}

#[test]
fn a_call_without_a_message_is_made_again_to_its_end() {
    let (busy, well) = (busy(), Http2Upstream::echo());
    let gateway = refused_then_served(&busy, &well);
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        for service in ["/read/m", "/unseen/m"] {
            for trailers in [None, Some("yes")] {
                let (answer, mut sender) = client.begin(call(service)).await;
                // A slow client: the end comes later than the head.
                tokio::time::sleep(Duration::from_millis(50)).await;
                if let Some(value) = trailers {
                    let mut fields = http::HeaderMap::new();
                    fields.insert("x-last", value.parse().unwrap());
                    sender.send_trailers(fields).unwrap();
                } else {
                    http2::send(&mut sender, b"", true).await.unwrap();
                }
                let whole = async { http2::read(answer.await.unwrap()).await.unwrap() };
                let answer = tokio::time::timeout(Duration::from_secs(10), whole).await.expect("an answer");
                assert_eq!((answer.field("x-version"), answer.body.len()), ("2", 0), "{service}");
                assert!(answer.trailers.is_empty(), "{service}");
            }
        }
    });
}

/// Refused by the first, unreachable second, refused by the third, served by the last: at any progress of the
/// request.
#[test]
fn a_call_arrives_whole_and_once_wherever_it_was_refused_before() {
    let (first, second, well) = (lingering(0), lingering(1), Http2Upstream::echo());
    let unreachable = SocketAddr::from(([127, 0, 0, 1], 1));
    let mut upstream = retrying(nodes_in_order(&[first.address, unreachable, second.address, well.address]));
    upstream["retries"] = json!(3);
    let gateway = Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] }));
    let message: Vec<u8> = (0..40_000u32).map(|at| (at * at / 7) as u8).collect();
    let at = [(0, 0), (1, 40_000), (39_999, 1), (40_000, 0), (15_000, 33_000), (33_000, 15_000)];
    for (size, pause_ms) in [(40_000, 0), (7000, 5), (997, 0)] {
        for (one, other) in at {
            let path = format!("/{one}/{other}");
            let pause = Duration::from_millis(pause_ms);
            let answer = http2::run(async {
                let mut client = Http2Client::connect(gateway.http).await;
                let (answer, mut sender) = client.begin(call(&path)).await;
                for piece in message.chunks(size) {
                    http2::send(&mut sender, piece, false).await.unwrap();
                    // A slow client.
                    tokio::time::sleep(pause).await;
                }
                let mut trailers = HeaderMap::new();
                trailers.insert("x-last", "yes".parse().unwrap());
                sender.send_trailers(trailers).unwrap();
                http2::read(answer.await.unwrap()).await.unwrap()
            });
            assert_eq!(
                (status_of(&answer), answer.field("x-version")),
                (("", "", ""), "2"),
                "{path} by {size}"
            );
            assert!(answer.body == message && answer.trailers.is_empty(), "{path} by {size}");
            let mut client = Client::connect(gateway.http);
            client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\n"));
            client.send("TE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n");
            for piece in message.chunks(size) {
                client.send(format!("{:x}\r\n", piece.len()));
                client.send(piece);
                client.send("\r\n");
                // A slow client.
                std::thread::sleep(pause);
            }
            client.send("0\r\nx-last: yes\r\n\r\n");
            let reply = client.reply();
            assert_eq!((reply.status, reply.field("x-version")), (200, Some("2")), "{path} by {size}");
            assert!(reply.body == message, "{path} by {size}");
        }
    }
    let calls = 2 * 3 * at.len();
    assert_eq!((first.requests(), second.requests(), well.requests()), (calls, calls, calls));
}

#[test]
fn a_call_that_is_longer_than_what_is_kept_is_made_once() {
    let (busy, well) = (busy(), Http2Upstream::echo());
    let gateway = refused_then_served(&busy, &well);
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let answer = client.ask(call("/read/m"), &[7; 65 * 1024]).await.unwrap();
        assert_eq!(status_of(&answer), ("8", "boom", "yes"));
    });
    assert_eq!((busy.requests(), well.requests()), (1, 0));
}

#[test]
fn what_follows_a_call_that_was_kept_is_the_next_request() {
    let (busy, well) = (busy(), Http2Upstream::echo());
    let unreachable = SocketAddr::from(([127, 0, 0, 1], 1));
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "1", "uri": "/read/well", "upstream": retrying(nodes_in_order(&[busy.address, well.address])) },
        { "id": "2", "uri": "/read/dead", "upstream": retrying(nodes_in_order(&[busy.address, unreachable])) },
    ] }));
    for (path, status) in [("well", 200), ("dead", 502)] {
        let mut client = Client::connect(gateway.http);
        client.send(format!("POST /read/{path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\n"));
        client.send("Transfer-Encoding: chunked\r\n\r\n");
        let inner = "GET /read/well HTTP/1.1\r\nHost: a\r\n\r\n";
        for piece in [format!("{:x}\r\n", inner.len()), format!("{inner}\r\n0\r\n\r\n")] {
            // A slow client: each piece comes in a read of its own.
            std::thread::sleep(Duration::from_millis(50));
            client.send(piece);
        }
        client.send("GET /after HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!((client.reply().status, client.reply().status), (status, 404), "{path}");
    }
}
