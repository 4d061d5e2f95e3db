//! An upstream process that is killed: requests in flight fail if they must not be repeated, and no others
//! do.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Client, Gateway, Options, eventually, free_port};

const CLIENTS: usize = 12;
/// All but one are killed, one after another.
const ENDPOINTS: usize = 3;
/// Longest time for a worker to see the end of a connection: without a pause between two requests it does not
/// poll the reactor.
const NOTICE_MAX: Duration = Duration::from_millis(250);

/// The protocol between gateway and upstream.
struct Case {
    scheme: &'static str,
    http_version: &'static str,
}

const CASES: [Case; 4] = [
    Case { scheme: "http", http_version: "1.1" },
    Case { scheme: "https", http_version: "1.1" },
    Case { scheme: "http", http_version: "2" },
    Case { scheme: "https", http_version: "2" },
];

/// A process that responds with a delay.
fn endpoint() -> Gateway {
    let plugins = json!({
        "fault-injection": { "delay": { "duration": 0.005 } },
        "mocking": { "response_example": "served", "content_type": "text/plain" },
    });
    // The gateway connects to these ports after the death, when the system may have assigned others to another test.
    let (http, https) = (free_port(), free_port());
    let node = format!("listen: [{{address: '{http}'}}, {{address: '{https}', tls: true}}]");
    let options = Options { node: &node, own_listeners: true, ..Options::default() };
    Gateway::with(&json!({ "routes": [{ "id": "1", "uri": "/*", "plugins": plugins }] }), &options)
}

fn address(endpoint: &Gateway, case: &Case) -> SocketAddr {
    if case.scheme == "https" { endpoint.https } else { endpoint.http }
}

/// The observations of the clients.
#[derive(Default)]
struct Seen {
    answers: AtomicUsize,
    /// Begin and error of each failed request.
    failures: Mutex<Vec<(Instant, String)>>,
    is_over: AtomicBool,
}

impl Seen {
    fn wait_for(&self, more: usize) {
        let until = self.answers.load(Ordering::Relaxed) + more;
        eventually("requests are answered", 60, || self.answers.load(Ordering::Relaxed) >= until);
    }
}

/// Sends requests on one connection, which never breaks.
fn request_until_stopped(gateway: &Gateway, method: &str, seen: &Seen) {
    let body = if method == "GET" { "" } else { "Content-Length: 5\r\n\r\nhello" };
    let end = if method == "GET" { "\r\n" } else { "" };
    let request = format!("{method} / HTTP/1.1\r\nHost: x\r\n{body}{end}");
    let mut client = Client::connect(gateway.http);
    while !seen.is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        match client.send(&request).try_reply(false) {
            Ok(reply) if reply.status == 200 && reply.text() == "served" => {
                seen.answers.fetch_add(1, Ordering::Relaxed);
                if reply.field("connection") == Some("close") {
                    client = Client::connect(gateway.http);
                }
            }
            Ok(reply) if reply.status == 502 => {
                seen.failures.lock().unwrap().push((began, reply.text()));
            }
            other => {
                seen.failures.lock().unwrap().push((Instant::now(), format!("{other:?}")));
                return;
            }
        }
    }
}

fn check(case: &Case, method: &str) {
    let mut endpoints: Vec<Gateway> = (0..ENDPOINTS).map(|_| endpoint()).collect();
    let nodes: serde_json::Map<String, Value> =
        endpoints.iter().map(|one| (address(one, case).to_string(), json!(1))).collect();
    let upstream = json!({ "scheme": case.scheme, "http_version": case.http_version, "nodes": nodes });
    let route = json!({ "id": "1", "uri": "/*", "upstream": upstream });
    let gateway = Gateway::with(&json!({ "routes": [route] }), &Options::default());
    let seen = Seen::default();
    let mut kills = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| request_until_stopped(&gateway, method, &seen));
        }
        let killing = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            seen.wait_for(50 * CLIENTS);
            while endpoints.len() > 1 {
                let mut dying = endpoints.pop().unwrap();
                let failures_before = seen.failures.lock().unwrap().len();
                let began = Instant::now();
                dying.kill();
                dying.wait(60);
                kills.push((began, Instant::now(), failures_before));
                seen.wait_for(50 * CLIENTS);
            }
        }));
        seen.is_over.store(true, Ordering::Relaxed);
        killing.unwrap();
    });
    let Case { scheme, http_version } = case;
    let what = format!("{method} over {scheme}, HTTP/{http_version}");
    let failures = seen.failures.into_inner().unwrap();
    assert!(method != "GET" || failures.is_empty(), "{what}: may be asked for twice: {failures:?}");
    for (number, (_, killed_at, before)) in kills.iter().enumerate() {
        let until = kills.get(number + 1).map_or(failures.len(), |(.., next)| *next);
        let of_this = &failures[*before..until];
        assert!(of_this.len() <= CLIENTS, "{what}: more than were under way: {of_this:?}");
        for (began, message) in of_this {
            let late = began.saturating_duration_since(*killed_at);
            assert!(late < NOTICE_MAX, "{what}: sent {late:?} after the endpoint had gone: {message}");
            assert!(message.contains("closed the connection"), "{what}: {message}");
        }
    }
    assert!(gateway.metric("yumen_upstream_retries_total") > 0.0, "{what}: somebody was asked instead");
}

#[test]
fn what_is_killed_takes_only_what_was_under_way_on_it_and_may_not_be_repeated() {
    for case in &CASES {
        for method in ["GET", "POST"] {
            check(case, method);
        }
    }
}
