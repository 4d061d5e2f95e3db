//! Configuration changes after an upgrade also apply to connections of earlier processes.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Line, runs};
use crate::harness::upstream::respond;
use crate::harness::{Client, Reply, Upstream, eventually};

/// A write that waits until it is applied. A process that is still handing over the store responds with a
/// retry.
fn write(line: &Line, key: &str, method: &str, path: &str, body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = format!(
        "{method} /apisix/admin/{path}?wait=applied HTTP/1.1\r\nHost: admin\r\nX-API-KEY: {key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut reply = None;
    eventually("the store has been handed over", 10, || {
        let received = Client::connect(line.gateway.admin).send(&request).reply();
        let is_handing_over = received.status == 503 && received.field("retry-after").is_some();
        reply = Some(received);
        !is_handing_over
    });
    let reply = reply.expect("at least one reply");
    assert!((200..300).contains(&reply.status), "{reply:?}");
    assert_eq!(reply.field("x-yumen-applied"), Some("true"), "{reply:?}");
    reply
}

fn get(client: &mut Client, path: &str) -> u16 {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\napikey: of-eve\r\n\r\n")).reply().status
}

fn connected(line: &Line, count: usize) -> Vec<Client> {
    let connect = |_| {
        let mut client = Client::connect(line.gateway.http);
        assert_eq!(get(&mut client, "/secret"), 200);
        client
    };
    (0..count).map(connect).collect()
}

fn mock(plugins: &Value) -> Value {
    let mut all = json!({"mocking": {"response_example": "x"}});
    all.as_object_mut().unwrap().extend(plugins.as_object().unwrap().clone());
    all
}

/// Sends on old connections, one after another because each gets one more response, until one has this
/// status.
fn follows(clients: &mut Vec<Client>, path: &str, status: u16) {
    let until = Instant::now() + Duration::from_secs(20);
    while get(&mut clients.pop().expect("a connection that is left"), path) != status {
        assert!(Instant::now() < until, "{path} is not answered with {status}");
        // Pacing: each look takes one of the connections.
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// The current problems.
fn problems(line: &Line) -> String {
    line.gateway.status_json("/yumen/v1/problems").to_string()
}

#[test]
fn revoked_access_is_refused_on_connections_of_the_predecessor() {
    let (mut line, key) = super::store::embedded("");
    let eve = json!({"username": "eve", "plugins": {"key-auth": {"key": "of-eve"}}});
    write(&line, &key, "PUT", "consumers/eve", &eve);
    let secret = json!({"uri": "/secret", "plugins": mock(&json!({"key-auth": {}}))});
    write(&line, &key, "PUT", "routes/secret", &secret);
    let mut clients = connected(&line, 6);
    line.upgrade();
    write(&line, &key, "PUT", "routes/late", &json!({"uri": "/late", "plugins": mock(&json!({}))}));
    assert_eq!(get(&mut clients[0], "/late"), 200, "what is new is there");
    clients.extend(connected(&line, 2));
    write(&line, &key, "DELETE", "consumers/eve", &Value::Null);
    for client in &mut clients[1..4] {
        assert_eq!(get(client, "/secret"), 401);
    }
    for client in &mut clients[6..] {
        assert_eq!(get(client, "/secret"), 401);
    }
    write(&line, &key, "DELETE", "routes/secret", &Value::Null);
    for client in &mut clients[4..6] {
        assert_eq!(get(client, "/secret"), 404);
    }
}

#[test]
fn a_process_follows_one_predecessor_at_a_time() {
    let (mut line, key) = super::store::embedded("timeouts: {drain_ms: 500}");
    let open = json!({"uri": "/secret", "plugins": mock(&json!({}))});
    write(&line, &key, "PUT", "routes/secret", &open);
    let mut clients = connected(&line, 2);
    let (first, second) = (line.serving(), line.upgrade());
    let refused = || {
        let output = line.ask(&[]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let is_refused_with = |count: usize| {
        let message = refused();
        for part in [
            &*format!("the predecessor, process {first}, still drains"),
            &format!("{count} client connections open"),
            "s left (upgrade.drain_s)",
            "--end-drain",
        ] {
            assert!(message.contains(part), "{message}");
        }
    };
    is_refused_with(2);
    clients.pop();
    eventually("a closed connection no longer counts", 10, || {
        refused().contains("1 client connections open")
    });
    assert_eq!(line.serving(), second);
    // A refused upgrade changes nothing for the predecessor: it still follows changes.
    write(&line, &key, "DELETE", "routes/secret", &Value::Null);
    let third = line.upgrade_ending_drain();
    assert!(!runs(first), "its end was waited for");
    assert!(clients[0].is_closed_within(Duration::from_secs(5)));
    line.wait_for_end_of(first);
    line.wait_for_end_of(second);
    write(&line, &key, "PUT", "routes/secret", &open);
    assert_eq!(line.serving(), third);
}

#[test]
fn a_predecessor_ends_after_its_successor_was_killed() {
    let (mut line, key) = super::store::embedded("timeouts: {drain_ms: 500}");
    let open = json!({"uri": "/secret", "plugins": mock(&json!({}))});
    write(&line, &key, "PUT", "routes/secret", &open);
    let mut client = connected(&line, 1).remove(0);
    let (first, second) = (line.serving(), line.upgrade());
    super::service::signal(second, rustix::process::Signal::KILL);
    line.wait_for_end_of(first);
    assert!(client.is_closed_within(Duration::from_secs(5)));
}

#[test]
fn an_edited_resource_file_applies_to_connections_of_the_predecessor() {
    let open = |path: &str| json!({"routes": [{"id": "1", "uri": path, "plugins": mock(&json!({}))}]});
    let mut line = super::start(&open("/secret"), "");
    let mut clients = connected(&line, 100);
    let text = std::fs::read_to_string(line.gateway.scratch.file("routes.yaml")).unwrap();
    line.upgrade();
    line.gateway.apply(&open("/next"));
    follows(&mut clients, "/secret", 404);
    follows(&mut clients, "/next", 200);
    std::fs::write(line.gateway.scratch.file("routes.yaml"), text).unwrap();
    follows(&mut clients, "/secret", 200);
}

/// Echoes the bytes of tunnels.
fn echoing() -> Upstream {
    Upstream::start(|request, stream| {
        if request.field("upgrade") != Some("websocket") {
            return respond(stream, 200, "", b"done");
        }
        let switched =
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let _ = stream.write_all(switched);
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            if stream.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        false
    })
}

fn tunnel(line: &Line, path: &str) -> Client {
    let mut client = Client::connect(line.gateway.http);
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ));
    assert_eq!(client.reply().status, 101);
    client
}

#[test]
fn tunnels_of_the_predecessor_end_by_on_change() {
    let (upstream, other) = (echoing(), echoing());
    let (mut line, key) = super::store::embedded("");
    write(&line, &key, "PUT", "upstreams/ws", &upstream.alone());
    for (id, on_change) in
        [("kept", json!("keep")), ("closed", json!("close")), ("drained", json!({"drain": 0.3}))]
    {
        let route = json!({
            "uri": format!("/{id}"), "enable_websocket": true, "upstream_id": "ws", "on_change": on_change,
        });
        write(&line, &key, "PUT", &format!("routes/{id}"), &route);
    }
    let mut tunnels: Vec<Client> =
        ["/kept", "/closed", "/drained"].iter().map(|path| tunnel(&line, path)).collect();
    line.upgrade();
    write(&line, &key, "DELETE", "routes/closed", &Value::Null);
    // The end is preceded by a close frame.
    assert_eq!(tunnels[1].bytes(4), [0x88, 2, 0x03, 0xe9]);
    write(&line, &key, "PUT", "upstreams/ws", &other.alone());
    assert_eq!(tunnels[2].bytes(4), [0x88, 2, 0x03, 0xe9]);
    assert_eq!(tunnels[0].send("still").bytes(5), b"still");
}

#[test]
fn no_write_is_applied_while_the_predecessor_hangs() {
    let (mut line, key) = super::store::embedded("");
    let open = json!({"uri": "/secret", "plugins": mock(&json!({}))});
    write(&line, &key, "PUT", "routes/secret", &open);
    let _client = connected(&line, 1);
    let first = line.serving();
    line.upgrade();
    write(&line, &key, "PUT", "routes/secret", &open);
    super::service::signal(first, rustix::process::Signal::STOP);
    let delete = format!(
        "DELETE /apisix/admin/routes/secret?wait=applied&timeout=0.5 HTTP/1.1\r\nHost: admin\r\nX-API-KEY: {key}\r\n\r\n"
    );
    let started = Instant::now();
    let reply = Client::connect(line.gateway.admin).send(delete).reply();
    assert_eq!((reply.status, reply.field("x-yumen-applied")), (200, Some("false")), "{reply:?}");
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(get(&mut Client::connect(line.gateway.http), "/secret"), 404);
    eventually("a problem names the process that hangs", 20, || {
        problems(&line).contains(&format!("process {first}, does not apply configuration changes"))
    });
    let output = line.ask(&[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    super::service::signal(first, rustix::process::Signal::CONT);
    write(&line, &key, "PUT", "routes/other", &open);
    eventually("it follows again", 20, || !problems(&line).contains("does not apply"));
}
