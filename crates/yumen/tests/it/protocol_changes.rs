//! Protocol upgrades: permission and forwarding.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::upstream::{Request, respond};
use crate::harness::{Client, Gateway, Upstream};

const CHANGED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// Switches protocols according to the path, then echoes every byte.
fn endpoint() -> Upstream {
    Upstream::start(|request, stream| {
        let is_upgrade = request.field("upgrade").is_some();
        match request.target.as_str() {
            "/426" => return respond(stream, 426, "Connection: upgrade\r\nUpgrade: websocket\r\n", b"no"),
            _ if !is_upgrade => return respond(stream, 200, "", b"plain"),
            "/unsaid" => drop(stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")),
            _ => drop(stream.write_all(CHANGED.as_bytes())),
        }
        echo(request, stream)
    })
}

fn echo(_: &Request, stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 512];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        if stream.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    false
}

fn ask(path: &str, version: &str) -> String {
    let fields = "Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n";
    format!("GET {path} HTTP/{version}\r\n{fields}")
}

fn gateway(endpoint: &Upstream) -> Gateway {
    let route = |path: &str, plugins: Value| {
        json!({ "id": path.replace(&['/', '*'][..], "r"), "uri": path, "enable_websocket": true, "plugins": plugins,
            "upstream": endpoint.alone() })
    };
    Gateway::start(&json!({ "routes": [
        route("/*", json!({})),
        route("/status", json!({ "response-rewrite": { "status_code": 200, "headers": { "set": { "a": "b" } } } })),
        route("/body", json!({ "response-rewrite": { "body": "other" } })),
        route("/removed", json!({ "response-rewrite": { "headers": { "remove": ["Upgrade"] } } })),
    ] }))
}

#[test]
fn a_change_of_protocols_stands_whatever_plugins_make_of_answers() {
    let endpoint = endpoint();
    let gateway = gateway(&endpoint);
    for path in ["/", "/status", "/body", "/removed"] {
        let mut client = Client::connect(gateway.http);
        let reply = client.send(ask(path, "1.1")).reply();
        assert_eq!(reply.status, 101, "{path}: {reply:?}");
        assert_eq!(reply.field("upgrade"), Some("websocket"), "{path}");
        assert_eq!(reply.field("content-length"), None, "{path}");
        assert_eq!(client.send("hello").bytes(5), b"hello", "{path}");
        assert_eq!(reply.field("a"), (path == "/status").then_some("b"));
    }
}

#[test]
fn a_client_of_an_old_version_changes_no_protocol() {
    let endpoint = endpoint();
    let reply = gateway(&endpoint).send(ask("/", "1.0"));
    assert_eq!((reply.status, reply.text().as_str()), (200, "plain"));
}

#[test]
fn a_client_that_has_to_ask_for_a_protocol_is_told_which() {
    let endpoint = endpoint();
    let gateway = gateway(&endpoint);
    let mut client = Client::connect(gateway.http);
    let reply = client.send("GET /426 HTTP/1.1\r\nHost: x\r\n\r\n").reply();
    let fields = (reply.field("upgrade"), reply.field("connection"));
    assert_eq!((reply.status, fields), (426, (Some("websocket"), Some("upgrade"))));
    assert_eq!(client.get("/").status, 200, "the connection goes on");
    let reply = gateway.get("/426");
    assert_eq!(reply.field("connection"), Some("upgrade, close"));
}

#[test]
fn a_change_that_does_not_say_to_what_is_refused() {
    let endpoint = endpoint();
    assert_eq!(gateway(&endpoint).send(ask("/unsaid", "1.1")).status, 502);
}
