//! An external authorization service: connections that are reused, broken, silent, and over TLS.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::certs::{Authority, ecdsa};
use crate::harness::nginx::Nginx;
use crate::harness::upstream::respond;
use crate::harness::{Gateway, Options, Upstream, free_port};

/// Admits `open sesame` with a user name; closes the connection for `drop`.
fn auth_service() -> Upstream {
    Upstream::start(|request, stream| match request.field("authorization") {
        Some("open sesame") => respond(stream, 200, "X-User: jack\r\n", b""),
        Some("drop") => false,
        _ => {
            let fields =
                ["x-forwarded-method", "x-forwarded-uri"].map(|name| request.field(name).unwrap_or("-"));
            respond(stream, 401, "WWW-Authenticate: Basic\r\n", fields.join(" ").as_bytes())
        }
    })
}

fn gateway(uri: &str, more: &Value, to: &Upstream) -> Gateway {
    let mut settings = json!({
        "uri": uri,
        "request_headers": ["Authorization"],
        "upstream_headers": ["X-User"],
        "client_headers": ["WWW-Authenticate"],
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let plugins = json!({ "forward-auth": settings });
    let route = json!({ "id": "1", "uri": "/*", "plugins": plugins, "upstream": to.alone() });
    let options = Options { workers: 1, ..Options::default() };
    Gateway::with(&json!({ "routes": [route] }), &options)
}

#[test]
fn whoever_the_service_lets_in_passes() {
    let (auth_service, upstream) = (auth_service(), Upstream::echo("a"));
    let gateway = gateway(&format!("http://{}/check", auth_service.address), &json!({}), &upstream);
    let refused = gateway.get("/orders?a=b");
    assert_eq!((refused.status, refused.text().as_str()), (401, "GET /orders?a=b"));
    assert_eq!(refused.field("www-authenticate"), Some("Basic"));
    assert_eq!(upstream.requests(), 0);
    for _ in 0..5 {
        let seen = gateway.get_with("/", "Authorization: open sesame\r\nX-User: root\r\n").json();
        assert_eq!(seen["fields"]["x-user"], "jack");
    }
    // One connection to the service, one to the upstream.
    assert_eq!((auth_service.connections(), auth_service.requests()), (1, 6));
    // An incomplete response does not admit.
    assert_eq!(gateway.get_with("/", "Authorization: drop\r\n").status, 403);
    assert_eq!(gateway.get_with("/", "Authorization: open sesame\r\n").status, 200);
}

#[test]
fn a_body_goes_to_the_service_and_still_to_the_upstream() {
    let upstream = Upstream::echo("a");
    let service = Upstream::start(|request, stream| {
        let status = if request.body == b"good" { 200 } else { 400 };
        respond(stream, status, "", b"judged")
    });
    let more = json!({ "request_method": "POST" });
    let gateway = gateway(&format!("http://{}", service.address), &more, &upstream);
    let post = |body: &str| {
        let length = body.len();
        gateway.send(format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"))
    };
    assert_eq!(post("good").json()["body"], "good");
    let refused = post("bad");
    assert_eq!((refused.status, refused.text().as_str()), (400, "judged"));
    assert_eq!(upstream.requests(), 1);
}

#[test]
fn a_service_that_cannot_be_asked_refuses_unless_that_is_let_pass() {
    let upstream = Upstream::echo("a");
    let unreachable = format!("http://{}", free_port());
    let silent = Upstream::start(|_, stream| {
        let _ = std::io::Read::read(stream, &mut [0; 1]);
        false
    });
    let silent = format!("http://{}", silent.address);
    for (uri, more, status) in [
        (&unreachable, json!({}), 403),
        (&unreachable, json!({ "status_on_error": 502 }), 502),
        (&unreachable, json!({ "allow_degradation": true }), 200),
        (&silent, json!({ "timeout": 50 }), 403),
        (&silent, json!({ "timeout": 50, "allow_degradation": true }), 200),
    ] {
        let gateway = gateway(uri, &more, &upstream);
        assert_eq!(gateway.get("/").status, status, "{uri} {more}");
    }
}

#[test]
fn a_refusal_stands_whatever_becomes_of_its_body_and_a_yes_must_come_whole() {
    let upstream = Upstream::echo("a");
    let service = Upstream::start(|request, stream| {
        let field = |name| request.field(name).unwrap_or("");
        let status = if field("x-status") == "200" { "200 OK" } else { "403 Forbidden" };
        let length = 2 << 20;
        let _ = write!(stream, "HTTP/1.1 {status}\r\nX-User: jack\r\nContent-Length: {length}\r\n\r\n");
        match field("x-body") {
            "long" => drop(stream.write_all(&vec![b'x'; length])),
            // Scripted: longer than the timeout.
            "late" => std::thread::sleep(Duration::from_millis(700)),
            _ => drop(stream.write_all(b"broken off")),
        }
        false
    });
    for degrades in [false, true] {
        let more = json!({
            "request_headers": ["X-Status", "X-Body"], "timeout": 300, "allow_degradation": degrades,
        });
        let gateway = gateway(&format!("http://{}", service.address), &more, &upstream);
        for body in ["long", "late", "broken"] {
            let get =
                |status: u16| gateway.get_with("/", &format!("X-Status: {status}\r\nX-Body: {body}\r\n"));
            let refused = get(403);
            assert_eq!((refused.status, refused.text().as_str()), (403, ""), "{body}");
            let seen = get(200);
            // The response was complete; only its body exceeds the buffer.
            let is_let_in = body == "long" || degrades;
            assert_eq!(seen.status, if is_let_in { 200 } else { 403 }, "{body}");
            if is_let_in {
                let user = (body == "long").then_some("jack");
                assert_eq!(seen.json()["fields"]["x-user"].as_str(), user, "{body}");
            }
        }
    }
    assert_eq!(upstream.requests(), 4);
}

#[test]
fn a_kept_connection_that_was_closed_costs_no_request_of_any_method() {
    for method in ["GET", "POST"] {
        let upstream = Upstream::echo("a");
        // Every connection reads twice and responds once.
        let requests_by_path = std::sync::Mutex::new(std::collections::HashMap::new());
        let service = Upstream::start(move |_, stream| {
            let peer = stream.peer_addr().unwrap();
            let count =
                *requests_by_path.lock().unwrap().entry(peer).and_modify(|count| *count += 1).or_insert(1);
            count == 1 && respond(stream, 200, "", b"")
        });
        let more = json!({ "request_method": method });
        let gateway = gateway(&format!("http://{}", service.address), &more, &upstream);
        for _ in 0..4 {
            let reply = gateway.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
            assert_eq!((reply.status, &reply.json()["body"]), (200, &json!("abc")), "{method}");
        }
    }
}

#[test]
fn a_service_behind_tls_must_be_who_it_says_unless_nobody_cares() {
    let pair = Authority::new("unknown").sign("shop", &["shop.test"], ecdsa());
    let (nginx, upstream) = (Nginx::tls(&pair.cert, &pair.key), Upstream::echo("a"));
    let uri = format!("https://{}/host", nginx.address);
    assert_eq!(gateway(&uri, &json!({}), &upstream).get("/").status, 403);
    assert_eq!(gateway(&uri, &json!({ "ssl_verify": false }), &upstream).get("/").status, 200);
}
