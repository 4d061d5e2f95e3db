//! Authorization by Open Policy Agent: decisions, their fields, and servers that give none.

use serde_json::{Value, json};

use crate::harness::gateway::YUMEN;
use crate::harness::upstream::respond;
use crate::harness::{Gateway, Options, Upstream, free_port, run};

/// A server whose policy admits by the input: consumer `ann`, route `open`, or the path `/public`.
fn policy_server() -> Upstream {
    Upstream::start(|request, stream| {
        assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/v1/data/shop/http"));
        let body: Value = serde_json::from_slice(&request.body).expect("the input is JSON");
        let input = &body["input"];
        let admits = input["request"]["path"] == "/public"
            || input["route"]["name"] == "open" && input["service"]["name"] == "shop"
            || input["consumer"]["username"] == "ann";
        let text = input.to_string();
        let result = match admits {
            true => json!({ "allow": true, "headers": { "X-User": "ann" } }),
            false => json!({
                "allow": false,
                "status_code": 401,
                "reason": { "path": input["request"]["path"], "has_secret": text.contains("s3cret") },
                "headers": { "WWW-Authenticate": "Basic" },
            }),
        };
        respond(
            stream,
            200,
            "Content-Type: application/json\r\n",
            json!({ "result": result }).to_string().as_bytes(),
        )
    })
}

fn opa(server: &str) -> Value {
    json!({
        "host": server, "policy": "shop/http", "with_route": true, "with_service": true, "with_consumer": true,
        "send_headers_upstream": ["X-User"],
    })
}

fn resources(server: &str, upstream: &Upstream) -> Value {
    let guarded = |id: &str, uri: &str, plugins: Value| json!({ "id": id, "name": id, "uri": uri, "service_id": "1", "plugins": plugins });
    json!({
        "consumers": [
            { "username": "ann", "plugins": { "key-auth": { "key": "s3cret" } } },
            { "username": "bob", "plugins": { "key-auth": { "key": "other" } } },
        ],
        "services": [{ "id": "1", "name": "shop", "upstream": upstream.alone() }],
        "routes": [
            guarded("any", "/*", json!({ "opa": opa(server) })),
            guarded("open", "/open", json!({ "opa": opa(server) })),
            guarded("keys", "/keys/*", json!({ "key-auth": {}, "opa": opa(server) })),
        ],
    })
}

#[test]
fn policy_decides_by_request_route_service_and_consumer() {
    let (server, upstream) = (policy_server(), Upstream::echo("a"));
    let resources = resources(&format!("http://{}", server.address), &upstream);
    let gateway = Gateway::with(&resources, &Options { workers: 1, ..Options::default() });
    let seen = gateway.get_with("/public", "X-User: root\r\nX_User: root\r\n").json();
    assert_eq!((&seen["fields"]["x-user"], &seen["fields"]["x_user"]), (&json!("ann"), &Value::Null));
    assert_eq!(gateway.get("/open").status, 200);
    let refused = gateway.get("/orders");
    assert_eq!((refused.status, refused.json()), (401, json!({ "has_secret": false, "path": "/orders" })));
    assert_eq!(refused.field("www-authenticate"), Some("Basic"));
    assert_eq!(gateway.get_with("/keys/1", "apikey: s3cret\r\n").status, 200);
    let refused = gateway.get_with("/keys/1", "apikey: other\r\n");
    // The input has the consumer, but none of its secrets.
    assert_eq!((refused.status, refused.json()["has_secret"].clone()), (401, json!(false)));
    // One connection carries all questions.
    assert_eq!((server.connections(), server.requests()), (1, 5));
    assert_eq!(upstream.requests(), 3);
    let answered = gateway.metric("yumen_plugin_calls_total{plugin=\"opa\",result=\"answered\"}");
    assert_eq!((answered, gateway.metric("yumen_plugin_calls_in_flight{plugin=\"opa\"}")), (5.0, 0.0));
}

#[test]
fn server_without_a_decision_refuses() {
    let upstream = Upstream::echo("a");
    let broken = Upstream::start(|_, stream| respond(stream, 200, "", b"{\"result\":true}"));
    let cut = Upstream::start(|_, stream| {
        let _ =
            std::io::Write::write_all(stream, b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{\"result\":");
        false
    });
    for (server, status) in [(free_port(), 403), (broken.address, 503), (cut.address, 403)] {
        let gateway = Gateway::start(&resources(&format!("http://{server}"), &upstream));
        assert_eq!(gateway.get("/public").status, status);
    }
    assert_eq!(upstream.requests(), 0);
}

#[test]
fn explain_names_the_server_that_it_would_ask() {
    let upstream = Upstream::echo("a");
    let gateway = Gateway::start(&resources("http://127.0.0.1:9", &upstream));
    let file = gateway.scratch.file("routes.yaml").display().to_string();
    let (code, out, err) = run(YUMEN, &["explain", "--file", &file, "http://x/orders"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("http://127.0.0.1:9/v1/data/shop/http"), "{out}");
}
