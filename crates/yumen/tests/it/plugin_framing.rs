//! Plugins may change lengths, methods and statuses: the framing follows the bytes that are sent.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::http2::{
    self, DATA, END_HEADERS, HEADERS, Http2Client, Http2Upstream, RST_STREAM, RawUpstream, frame,
};
use crate::harness::upstream::{Gate, respond};
use crate::harness::{Client, Gateway, Upstream, eventually};

/// A route `/id/*` for each set of plugins.
fn start(upstream: &Upstream, plugins: Value) -> Gateway {
    let Value::Object(plugins) = plugins else { panic!("plugins by route") };
    let route = |(id, plugins): (String, Value)| json!({ "id": id, "uri": format!("/{id}/*"), "plugins": plugins, "upstream": upstream.alone() });
    Gateway::start(&json!({ "routes": plugins.into_iter().map(route).collect::<Vec<_>>() }))
}

/// Responds with the framing fields and the body of the request.
fn length_echo() -> Upstream {
    Upstream::start(|request, stream| {
        let is_length = |line: &&str| {
            let line = line.to_ascii_lowercase();
            line.starts_with("content-length") || line.starts_with("transfer-encoding")
        };
        let lines: Vec<&str> = request.head.lines().filter(is_length).collect();
        let record = json!({ "lines": lines, "body": String::from_utf8_lossy(&request.body) });
        respond(stream, 200, "", record.to_string().as_bytes())
    })
}

#[test]
fn an_endpoint_is_told_the_length_of_what_it_is_sent() {
    let upstream = length_echo();
    let headers = |edit: Value| json!({ "proxy-rewrite": { "method": "GET", "headers": edit } });
    let gateway = start(
        &upstream,
        json!({
            "remove": headers(json!({ "remove": ["Content-Length", "Transfer-Encoding"] })),
            "set": headers(json!({ "set": { "Content-Length": "2", "Transfer-Encoding": "gzip" } })),
            "add": headers(json!({ "add": { "Content-Length": "0" } })),
        }),
    );
    let length = "Content-Length: 3\r\n\r\nabc";
    let chunked = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    for id in ["remove", "set", "add"] {
        let mut client = Client::connect(gateway.http);
        for (body, lines, sent) in [
            (length, json!(["Content-Length: 3"]), "abc"),
            (chunked, json!(["Transfer-Encoding: chunked"]), "abc"),
            ("\r\n", json!([]), ""),
        ] {
            let reply = client.send(format!("POST /{id}/x HTTP/1.1\r\nHost: a\r\n{body}")).reply();
            let record = json!({ "lines": lines, "body": sent });
            assert_eq!((reply.status, reply.json()), (200, record), "{id}: {body:?}");
        }
    }
}

#[test]
fn a_client_is_told_the_length_of_what_it_is_sent() {
    // The query contains the status of the response.
    let upstream = Upstream::start(|request, stream| match request.target.split_once('?') {
        Some((_, status)) => {
            let head = format!("HTTP/1.1 {status} x\r\nContent-Length: 9\r\n\r\n");
            std::io::Write::write_all(stream, head.as_bytes()).is_ok()
        }
        None => respond(stream, 200, "X-Method: a\r\n", b"HTTP/1.1 "),
    });
    let rewrite = |settings: Value| json!({ "response-rewrite": settings });
    let gateway = start(
        &upstream,
        json!({
            "s200": rewrite(json!({ "status_code": 200 })),
            "s204": rewrite(json!({ "status_code": 204 })),
            "s304": rewrite(json!({ "status_code": 304 })),
            "body": rewrite(json!({ "status_code": 204, "body": "rewritten" })),
            "set": rewrite(json!({ "headers": { "set": { "Content-Length": "5" } } })),
            "add": rewrite(json!({ "headers": { "add": ["Content-Length: 3"] } })),
            "post": json!({ "proxy-rewrite": { "method": "POST" } }),
            "head": json!({ "proxy-rewrite": { "method": "HEAD" } }),
        }),
    );
    let mut client = Client::connect(gateway.http);
    let whole = "HTTP/1.1 ";
    for (method, path, status, length, body) in [
        ("GET", "/s200/x?304", 200, Some("0"), ""),
        ("GET", "/s200/x?204", 200, Some("0"), ""),
        ("GET", "/s200/x", 200, Some("9"), whole),
        ("GET", "/s204/x", 204, None, ""),
        ("GET", "/s304/x", 304, Some("9"), ""),
        ("GET", "/body/x", 204, None, ""),
        ("GET", "/set/x", 200, Some("9"), whole),
        ("GET", "/add/x", 200, Some("9"), whole),
        ("HEAD", "/post/x", 200, Some("9"), ""),
        ("GET", "/post/x", 200, Some("9"), whole),
        ("GET", "/head/x?200", 200, Some("0"), ""),
        ("HEAD", "/head/x?200", 200, Some("9"), ""),
        ("HEAD", "/nowhere", 404, Some("36"), ""),
    ] {
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let reply = if method == "HEAD" { client.reply_to_head() } else { client.reply() };
        let case = format!("{method} {path}: {}", reply.head);
        assert_eq!((reply.status, reply.text().as_str()), (status, body), "{case}");
        assert_eq!(reply.field("content-length"), length, "{case}");
        assert_eq!(
            reply.head.to_ascii_lowercase().matches("content-length").count(),
            usize::from(length.is_some())
        );
    }
}

#[test]
fn what_judges_targets_sees_those_in_absolute_form_as_all_others() {
    let upstream = Upstream::echo("u");
    let gateway = start(
        &upstream,
        json!({
            "block": json!({ "uri-blocker": { "block_rules": ["^/block/admin"] } }),
            "away": json!({ "redirect": { "http_to_https": true } }),
            "shown": json!({ "mocking": { "response_example": "$request_uri", "content_type": "text/plain" } }),
        }),
    );
    for target in ["/block/admin", "http://a/block/admin"] {
        let reply = gateway.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(reply.status, 403, "{target}");
    }
    let ask = |path: &str| gateway.send(format!("GET http://a{path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let away = ask("/away/x?q");
    let location = away.field("location").unwrap_or_default().to_owned();
    assert!(location.starts_with("https://a") && location.ends_with("/away/x?q"), "{location}");
    assert!(!location.contains("http://"), "{location}");
    assert_eq!(ask("/shown/x?q").text(), "/shown/x?q");
}

/// "a secret, told", gzipped.
const GZIPPED: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x4b\x54\x28\x4e\x4d\x2e\x4a\x2d\xd1\x51\x28\xc9\xcf\x49\x01\x00\xa1\xeb\x07\xf0\x0e\x00\x00\x00";

#[test]
fn what_an_endpoint_compressed_is_rewritten_and_broken_off_where_it_is_not_whole() {
    let upstream = Upstream::start(|request, stream| {
        let cut = if request.target.ends_with("cut") { 6 } else { 0 };
        respond(
            stream,
            200,
            "Content-Encoding: gzip\r\nContent-Type: text/plain\r\n",
            &GZIPPED[..GZIPPED.len() - cut],
        )
    });
    let filters = json!({ "filters": [{ "regex": "secret", "replace": "***" }] });
    let gateway = start(
        &upstream,
        json!({
            "plain": { "response-rewrite": filters },
            "coded": { "response-rewrite": filters, "gzip": { "types": "*", "min_length": 1 } },
        }),
    );
    let ask = |path: &str| {
        let mut client = Client::connect(gateway.http);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"));
        client
    };
    let reply = ask("/plain/x").reply();
    assert_eq!((reply.text(), reply.field("content-encoding")), ("a ***, told".into(), None));
    assert_eq!(ask("/coded/x").reply().field("content-encoding"), Some("gzip"));
    for path in ["/plain/cut", "/coded/cut"] {
        assert!(ask(path).try_reply(false).is_err(), "{path}: an end that is none");
    }
    gateway.assert_metric("yumen_faults_total{fault=\"upstream_body\",side=\"upstream\"}", 2.0);
}

/// Reads one chunked request as raw bytes, and responds.
fn sees_all_bytes() -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let seen = std::thread::spawn(move || {
        let (mut stream, mut seen) = (listener.accept().unwrap().0, Vec::new());
        let is_whole = |seen: &[u8]| {
            let at = seen.windows(5).position(|bytes| bytes == b"\r\n0\r\n");
            at.is_some_and(|at| seen[at + 3..].ends_with(b"\r\n\r\n"))
        };
        while !is_whole(&seen) {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0, "cut off");
            seen.extend_from_slice(&bytes[..count]);
        }
        respond(&mut stream, 200, "", b"");
        String::from_utf8(seen).unwrap()
    });
    (address, seen)
}

#[test]
fn credentials_in_trailers_are_ignored() {
    let claims = ["X-Consumer-Username", "X_Consumer_Username", "X-Credential-Identifier", "X-Tenant"];
    let (address, seen) = sees_all_bytes();
    let new = Http2Upstream::echo();
    let plugins =
        json!({ "key-auth": {}, "proxy-rewrite": { "headers": { "set": { "X-Tenant": "theirs" } } } });
    let route =
        |uri: &str, to: Value| json!({ "id": uri[1..], "uri": uri, "plugins": plugins, "upstream": to });
    let gateway = Gateway::start(&json!({
        "consumers": [{ "username": "jack", "plugins": { "key-auth": { "key": "jacks" } } }],
        "routes": [route("/1", json!({ "nodes": { address: 1 } })), route("/2", new.alone())],
    }));
    let mut client = Client::connect(gateway.http);
    // Trailers must not replace fields that plugins have set.
    client.send("POST /1 HTTP/1.1\r\nHost: a\r\nApikey: jacks\r\nTrailer: X-Tenant\r\n");
    client.send("Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n");
    client.send(claims.map(|name| format!("{name}: root\r\n")).concat()).send("\r\n");
    assert_eq!(client.reply().status, 200);
    let seen = seen.join().unwrap();
    assert!(
        seen.contains("X-Consumer-Username: jack\r\n") && seen.contains("X-Tenant: theirs\r\n"),
        "{seen}"
    );
    assert!(!seen.contains("root") && !seen.contains("Trailer"), "{seen}");
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let mut call = http2::request("POST", "/2");
        call.headers_mut().insert("apikey", "jacks".parse().unwrap());
        let (answer, mut sender) = client.begin(call).await;
        http2::send(&mut sender, b"abc", false).await.unwrap();
        let claim = |name: &str| (name.to_lowercase().parse().unwrap(), "root".parse().unwrap());
        sender.send_trailers(claims.iter().map(|name| claim(name)).collect()).unwrap();
        let answer = http2::read(answer.await.unwrap()).await.unwrap();
        assert_eq!((answer.text().as_str(), answer.trailers.len()), ("abc", 0));
    });
}

#[test]
fn an_answer_that_is_replaced_ends_at_once_however_its_endpoint_goes_on() {
    let upstream = Upstream::start(|request, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked";
        let _ = write!(stream, "{head}\r\n\r\n4\r\ntick\r\n");
        match request.target.as_str() {
            "/a/short" => stream.write_all(b"4\r\ntock\r\n0\r\n\r\n").is_ok(),
            "/a/broken" => false,
            "/a/fast" => {
                let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
                while stream.write_all(&chunk).is_ok() {}
                false
            }
            _ => {
                while stream.write_all(b"4\r\ntick\r\n").is_ok() {
                    // Scripted.
                    std::thread::sleep(Duration::from_millis(5));
                }
                false
            }
        }
    });
    let gzip = json!({ "types": "*", "min_length": 1 });
    let plugins = json!({ "response-rewrite": { "body": "replaced" }, "gzip": gzip });
    let gateway = start(&upstream, json!({ "a": plugins }));
    let mut client = Client::connect(gateway.http);
    for path in ["short", "short", "endless", "endless", "short", "broken", "short", "fast", "fast", "short"]
    {
        let reply = client.get(&format!("/a/{path}"));
        assert_eq!((reply.status, reply.text().as_str()), (200, "replaced"), "{path}");
    }
    client.send("GET /a/endless HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let reply = client.reply();
    assert_eq!(reply.field("content-encoding"), Some("gzip"));
    // The trailer of gzip contains the length.
    assert!(reply.body.ends_with(&[8, 0, 0, 0]), "{:?}", reply.body);
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let answer = client.ask(http2::request("GET", "/a/endless"), b"").await.unwrap();
        assert_eq!(answer.text(), "replaced");
    });
    let faults = gateway.status_text("/metrics").1;
    let faults: Vec<_> = faults.lines().filter(|line| line.starts_with("yumen_faults_total")).collect();
    assert!(faults.iter().all(|line| line.ends_with(" 0")), "{faults:?}");
}

/// The rest of the original body arrives only after the client has its response and the end of its
/// connection.
#[test]
fn nobody_waits_for_what_is_said_behind_a_replaced_answer_and_its_endpoint_is_kept() {
    let gate = Gate::default();
    for (path, begins, accepts) in
        [("begun", "4\r\ntick\r\n", "identity"), ("head", "", "gzip"), ("head", "", "br")]
    {
        let waits = gate.clone();
        let upstream = Upstream::start(move |_, stream| {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked";
            let _ = write!(stream, "{head}\r\n\r\n{begins}");
            waits.pass();
            stream.write_all(b"0\r\n\r\n").is_ok()
        });
        let plugins = json!({ "response-rewrite": { "body": "replaced" }, "gzip": { "min_length": 1 } });
        let gateway = start(&upstream, json!({ "a": plugins }));
        eventually("its connection is kept", 10, || {
            gate.close();
            let mut client = TcpStream::connect(gateway.http).unwrap();
            let fields = format!("Host: a\r\nAccept-Encoding: {accepts}\r\nConnection: close");
            client.write_all(format!("GET /a/{path} HTTP/1.1\r\n{fields}\r\n\r\n").as_bytes()).unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            let is_coded = answer.windows(22).any(|part| part == b"Content-Encoding: gzip");
            assert_eq!(is_coded, accepts == "gzip");
            assert!(is_coded || answer.ends_with(b"\r\n\r\nreplaced"), "{}", answer.escape_ascii());
            gate.open();
            upstream.connections() < upstream.requests()
        });
    }
}

/// The next request uses the same upstream connection; its response ended after that of the client.
#[test]
fn a_replaced_answer_leaves_its_place_to_the_next_request() {
    let upstream = Upstream::start(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n";
        let _ = stream.write_all(head.as_bytes());
        // Scripted: the response ends later than that of the client.
        std::thread::sleep(std::time::Duration::from_millis(10));
        stream.write_all(b"0\r\n\r\n").is_ok()
    });
    for limits in [json!({ "max_connections": 1 }), json!({ "max_requests": 1 })] {
        let mut to = upstream.alone();
        to["limits"] = json!({ "per_endpoint": limits });
        let plugins = json!({ "response-rewrite": { "body": "replaced" } });
        let route = json!({ "id": "1", "uri": "/*", "plugins": plugins, "upstream": to });
        let gateway = Gateway::start(&json!({ "routes": [route] }));
        let mut client = Client::connect(gateway.http);
        for round in 0..20 {
            let reply = client.get("/");
            assert_eq!((reply.status, reply.text().as_str()), (200, "replaced"), "{limits} {round}");
        }
    }
}

#[test]
fn an_endpoint_of_http2_is_told_that_the_rest_of_its_answer_is_not_wanted() {
    let cancelled = Arc::new(AtomicUsize::new(0));
    let count = cancelled.clone();
    let upstream = RawUpstream::start(move |received| match received.kind {
        HEADERS => {
            let head = frame(HEADERS, END_HEADERS, received.stream, &[0x88]);
            [head, frame(DATA, 0, received.stream, b"tick")].concat()
        }
        RST_STREAM if received.payload.ends_with(&[8]) => {
            count.fetch_add(1, Ordering::AcqRel);
            Vec::new()
        }
        _ => Vec::new(),
    });
    let rewrite = json!({ "response-rewrite": { "body": "replaced" } });
    let route = json!({ "id": "1", "uri": "/*", "plugins": rewrite, "upstream": upstream.alone() });
    let gateway = Gateway::start(&json!({ "routes": [route] }));
    let mut client = Client::connect(gateway.http);
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "replaced");
    }
    eventually("all are cancelled", 10, || cancelled.load(Ordering::Acquire) == 3);
    assert_eq!(upstream.connections(), 1);
}
