//! Traffic split between upstreams, and mirrored.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{HeaderMap, Response};
use serde_json::{Value, json};

use crate::harness::http2::{self, Http2Client, Http2Upstream, request};
use crate::harness::upstream::{Gate, respond};
use crate::harness::{Client, Gateway, Upstream, eventually};

#[test]
fn traffic_is_split_as_the_rules_say() {
    let (stable, next, beta) = (Upstream::text("stable"), Upstream::text("next"), Upstream::text("beta"));
    let rules = json!([
        { "match": [{ "vars": [["http_x_beta", "==", "1"]] }],
          "weighted_upstreams": [{ "upstream": beta.alone() }] },
        { "weighted_upstreams": [{ "upstream_id": "next", "weight": 3 }, { "weight": 2 }] },
    ]);
    let gateway = Gateway::start(&json!({
        "upstreams": [{ "id": "next", "nodes": next.nodes() }],
        "routes": [{ "id": "1", "uri": "/*", "plugins": { "traffic-split": { "rules": rules } },
            "upstream": stable.alone() }],
    }));
    let mut client = Client::connect(gateway.http);
    let answers: Vec<String> = (0..20).map(|_| client.get("/").text()).collect();
    let count = |name: &str| answers.iter().filter(|answer| *answer == name).count();
    assert_eq!((count("next"), count("stable")), (12, 8), "{answers:?}");
    client.send("GET / HTTP/1.1\r\nHost: test\r\nX-Beta: 1\r\n\r\n");
    assert_eq!(client.reply().text(), "beta");
}

/// The copies at a mirror: request line, host and body of each.
type Seen = Arc<Mutex<Vec<(String, String, String)>>>;

fn mirror(gate: Gate) -> (Upstream, Seen) {
    let seen = Seen::default();
    let log = seen.clone();
    let upstream = Upstream::start(move |request, stream| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let line = request.head.lines().next().unwrap_or_default().to_owned();
        log.lock().unwrap().push((line, request.field("host").unwrap_or_default().to_owned(), body));
        gate.pass();
        respond(stream, 500, "", b"nobody reads this")
    });
    (upstream, seen)
}

fn mirrored(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric(&format!("yumen_mirrored_requests_total{{outcome=\"{outcome}\"}}"))
}

#[test]
fn copies_go_to_a_mirror_and_nobody_waits_for_it() {
    let gate = Gate::default();
    let (copies, seen) = mirror(gate.clone());
    let main = Upstream::echo("main");
    let host = format!("http://{}", copies.address);
    let route = |id: &str, uri: &str, more: Value| {
        let mut settings = json!({ "host": host });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "id": id, "uri": uri, "plugins": { "proxy-mirror": settings, "proxy-rewrite": {
            "regex_uri": ["^/(.*)", "/v2/$1"], "host": "inner.test" } }, "upstream": main.alone() })
    };
    let gateway = Gateway::start(&json!({ "routes": [
        route("1", "/a", json!({})),
        route("2", "/b", json!({ "path": "/copy" })),
        route("3", "/c", json!({ "path": "/copy", "path_concat_mode": "prefix", "max_req_body_size": 3 })),
    ] }));
    let mut client = Client::connect(gateway.http);
    let mut post = |path: &str, body: &str| {
        let length = body.len();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n{body}"));
        let reply = client.reply();
        assert_eq!((reply.status, reply.json()["body"].as_str()), (200, Some(body)), "{path}");
    };
    // The mirror responds only after all requests have been served.
    post("/a?x=1", "tea");
    post("/b?x=2", "milk");
    post("/c?x=3", "abc");
    post("/c?x=4", "too long");
    eventually("the copies arrive", 30, || seen.lock().unwrap().len() == 3);
    let mut copies_seen = seen.lock().unwrap().clone();
    copies_seen.sort();
    let copy = |line: &str, body: &str| (line.to_owned(), "inner.test".to_owned(), body.to_owned());
    assert_eq!(
        copies_seen,
        [
            copy("POST /copy/v2/c?x=3 HTTP/1.1", "abc"),
            copy("POST /copy?x=2 HTTP/1.1", "milk"),
            copy("POST /v2/a?x=1 HTTP/1.1", "tea"),
        ]
    );
    assert_eq!((mirrored(&gateway, "answered"), mirrored(&gateway, "dropped")), (0.0, 1.0));
    gate.open();
    eventually("the answers are read", 30, || mirrored(&gateway, "answered") == 3.0);
}

#[test]
fn a_mirror_that_is_not_there_harms_nobody() {
    let main = Upstream::text("main");
    let gateway = Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": main.alone(),
        "plugins": { "proxy-mirror": { "host": "http://127.0.0.1:1" } } }] }));
    assert_eq!(Client::connect(gateway.http).get("/").text(), "main");
    eventually("it is counted", 30, || mirrored(&gateway, "failed") == 1.0);
}

#[test]
fn calls_of_grpc_are_mirrored_as_such() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let start = |log: Option<Arc<Mutex<Vec<String>>>>| {
        Http2Upstream::start(move |call, mut respond| {
            let log = log.clone();
            async move {
                let (parts, mut incoming) = call.into_parts();
                let (body, _) = http2::read_body(&mut incoming).await?;
                if let Some(log) = log {
                    let text = String::from_utf8_lossy(&body).into_owned();
                    log.lock().unwrap().push(format!("{} {text}", parts.uri.path()));
                }
                let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
                let mut sender = respond.send_response(head, false)?;
                let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
                sender.send_trailers(trailers)
            }
        })
    };
    let (main, copies) = (start(None), start(Some(seen.clone())));
    let gateway = Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/*",
        "plugins": { "proxy-mirror": { "host": format!("grpc://{}", copies.address) } },
        "upstream": { "nodes": { main.address.to_string(): 1 }, "scheme": "grpc" } }] }));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let mut call = request("POST", "/s.S/M");
        call.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        call.headers_mut().insert("content-length", "4".parse().unwrap());
        let answer = client.ask(call, b"call").await.unwrap();
        assert_eq!((answer.status, answer.trailers["grpc-status"].as_bytes()), (200, &b"0"[..]));
    });
    eventually("the copy is answered", 30, || mirrored(&gateway, "answered") == 1.0);
    assert_eq!(*seen.lock().unwrap(), ["/s.S/M call"]);
}

#[test]
fn a_copy_that_was_not_looked_at_is_sent_again() {
    let turn = Arc::new(AtomicUsize::new(0));
    let copies = Http2Upstream::start(move |_, mut respond| {
        let is_looked_at = turn.fetch_add(1, Ordering::AcqRel) % 2 == 1;
        async move {
            if !is_looked_at {
                respond.send_reset(h2::Reason::REFUSED_STREAM);
                return Ok(());
            }
            respond.send_response(Response::new(()), true).map(drop)
        }
    });
    let main = Upstream::text("main");
    let gateway = Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/*",
        "plugins": { "proxy-mirror": { "host": format!("grpc://{}", copies.address) } },
        "upstream": main.alone() }] }));
    for sent in 1..=3 {
        assert_eq!(gateway.get("/").text(), "main");
        eventually("the copy is answered", 30, || mirrored(&gateway, "answered") == f64::from(sent));
    }
    assert_eq!(copies.requests(), 6);
}
