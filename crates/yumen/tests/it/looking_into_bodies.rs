//! Conditions on request bodies, and exchanges that they must not affect.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::harness::{Client, Gateway, Upstream};

/// A condition on the body.
fn looks() -> Value {
    json!([["post_arg_a", "==", "1"]])
}

fn post(path: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\n");
    format!("{head}Content-Length: {length}\r\n\r\n{body}")
}

fn chunked(path: &str, body: &str) -> String {
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n");
    format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

#[test]
fn a_bound_on_bodies_holds_also_where_a_variable_looked_into_them() {
    let upstream = Upstream::text("served");
    let filter = json!({ "headers": { "set": { "a": "b" } }, "_meta": { "filter": looks() } });
    let split = json!({ "rules": [
        { "match": [{ "vars": looks() }], "weighted_upstreams": [{ "weight": 1 }] }
    ] });
    let bounds = [
        ("client-control", json!({ "max_body_size": 10 })),
        ("request-validation", json!({ "body_schema": { "type": "object" }, "max_req_body_size": 10 })),
        (
            "forward-auth",
            json!({ "uri": format!("http://{}/", upstream.address), "request_method": "POST",
            "max_req_body_size": 10 }),
        ),
    ];
    let mut routes =
        vec![json!({ "id": "other", "uri": "/any*", "vars": looks(), "upstream": upstream.alone() })];
    for (name, settings) in &bounds {
        let mut route = |path: String, more: &[(&str, &Value)]| {
            let mut plugins = json!({ *name: settings });
            more.iter().for_each(|(name, settings)| plugins[*name] = (*settings).clone());
            let id = path.replace('/', "");
            routes.push(json!({ "id": id, "uri": path, "plugins": plugins, "upstream": upstream.alone() }));
        };
        route(format!("/plain-{name}"), &[]);
        route(format!("/any-{name}"), &[]);
        route(format!("/filter-{name}"), &[("response-rewrite", &filter)]);
        route(format!("/split-{name}"), &[("traffic-split", &split)]);
    }
    let gateway = Gateway::start(&json!({ "routes": routes }));
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(42));
    for (name, _) in &bounds {
        for variant in ["plain", "any", "filter", "split"] {
            let path = format!("/{variant}-{name}");
            assert_eq!(gateway.send(post(&path, "application/json", &long)).status, 413, "{path}");
            assert_eq!(gateway.send(chunked(&path, &long)).status, 413, "{path}, chunked");
            assert_eq!(gateway.send(post(&path, "application/json", r#"{"a":"x"}"#)).status, 200, "{path}");
        }
    }
}

#[test]
fn a_condition_on_bodies_concerns_only_requests_that_come_to_its_route() {
    let upstream = Upstream::text("served");
    let to = |id: &str, uri: &str, upstream: &Upstream| json!({ "id": id, "uri": uri, "upstream": upstream.alone() });
    let mut looking = to("looking", "/looking/*", &upstream);
    looking["vars"] = looks();
    looking["methods"] = json!(["POST"]);
    let mut both = to("both", "/both", &upstream);
    both["vars"] = json!([["arg_v", "==", "1"], ["post_arg_a", "==", "1"]]);
    let routes = json!([looking, both, to("plain", "/*", &upstream)]);
    let gateway = Gateway::start(&json!({ "routes": routes }));
    let large = "x".repeat(2_000_000);
    let status = |path: &str, content_type: &str| gateway.send(post(path, content_type, &large)).status;
    assert_eq!(status("/plain", "application/json"), 200);
    assert_eq!(status("/looking/", "application/octet-stream"), 200, "nothing in it can be looked at");
    assert_eq!(status("/looking/", "application/json"), 413, "nobody knows whose it is");
    assert_eq!(status("/both", "application/json"), 200, "decided without it");
    assert_eq!(status("/both?v=1", "application/json"), 413);
    let put = post("/looking/", "application/json", &large).replacen("POST", "PUT", 1);
    assert_eq!(gateway.send(put).status, 200);
    let small = gateway.send(post("/looking/", "application/json", r#"{"a":"1"}"#));
    assert_eq!((small.status, small.text().as_str()), (200, "served"));
}

#[test]
fn an_upload_streams_beside_a_route_that_looks_into_bodies() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = json!({ "nodes": { listener.local_addr().unwrap().to_string(): 1 } });
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "looking", "uri": "/looking", "vars": looks(), "upstream": upstream },
        { "id": "plain", "uri": "/*", "upstream": upstream },
    ] }));
    let mut client = Client::connect(gateway.http);
    let fields = "Host: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    client.send(format!("POST /up HTTP/1.1\r\n{fields}\r\n3\r\nabc\r\n"));
    // The body is still incomplete.
    let (mut endpoint, _) = listener.accept().unwrap();
    let mut bytes = [0; 4096];
    assert!(endpoint.read(&mut bytes).unwrap() > 0);
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    endpoint.write_all(answer).unwrap();
    assert_eq!(client.reply().text(), "ok");
}
