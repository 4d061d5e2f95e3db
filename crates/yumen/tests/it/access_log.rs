//! The access log: one line per request, without loss, in a machine-readable form.

use std::collections::BTreeSet;

use http::HeaderName;
use serde_json::{Value, json};

use crate::harness::http2::{self, Http2Client, request};
use crate::harness::{Client, Gateway, Options, Scratch, Upstream, eventually};

/// A gateway with an access log file, and that file.
fn gateway(format: &str, upstream: &Upstream) -> (Gateway, std::path::PathBuf) {
    let scratch = Scratch::new();
    let log = scratch.file("access.log");
    let node = format!("logs: {{access: {{enabled: true, path: \"{}\", format: {format}}}}}", log.display());
    let route = json!({ "id": "r1", "uri": "/a*", "upstream": upstream.alone() });
    let routes = scratch.write("routes.yaml", json!({ "routes": [route] }).to_string());
    (Gateway::launch(scratch, &Options { node: &node, ..Options::default() }, &["--file", &routes]), log)
}

/// Sends 300 requests over 10 connections, every third without a route; returns all lines.
fn lines_of_300(gateway: &mut Gateway, log: &std::path::Path) -> Vec<String> {
    for i in 0..10 {
        let mut client = Client::connect(gateway.http);
        for j in 0..30 {
            let path = if j % 3 == 0 { "/none" } else { "/a\"b" };
            let agent = format!("User-Agent: agent \"{i}\" \\ \u{e9}\r\n");
            let reply =
                client.send(format!("GET {path}?{j} HTTP/1.1\r\nHost: shop.test\r\n{agent}\r\n")).reply();
            assert_eq!(reply.status, if j % 3 == 0 { 404 } else { 200 });
        }
    }
    let read = || std::fs::read_to_string(log).unwrap_or_default();
    eventually("all lines are written", 5, || read().lines().count() >= 300);
    // No line comes later than the end of the process.
    gateway.terminate();
    gateway.wait(60);
    read().lines().map(str::to_owned).collect()
}

#[test]
fn every_request_has_a_json_line() {
    let upstream = Upstream::text("x");
    let (mut gateway, log) = gateway("json", &upstream);
    let lines = lines_of_300(&mut gateway, &log);
    assert_eq!(lines.len(), 300);
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    let routed: Vec<&Value> = lines.iter().filter(|line| line["route_id"] == "r1").collect();
    assert_eq!(routed.len(), 200);
    for line in routed {
        assert_eq!(
            (&line["status"], &line["method"], &line["host"]),
            (&json!(200), &json!("GET"), &json!("shop.test"))
        );
        assert_eq!(line["endpoint"], upstream.address.to_string());
        assert_eq!((&line["remote_addr"], &line["attempts"]), (&json!("127.0.0.1"), &json!(1)));
        assert!(line["target"].as_str().unwrap().starts_with("/a\"b?"));
        assert!(line["user_agent"].as_str().unwrap().starts_with("agent \""));
        assert!(line["duration_us"].as_u64().is_some() && line["time_unix_ms"].as_u64().unwrap() > 0);
    }
    assert_eq!(lines.iter().filter(|line| line["status"] == 404 && line["source"] == "gateway").count(), 100);
}

#[test]
fn a_refused_request_is_logged_with_its_request_line() {
    let upstream = Upstream::text("x");
    let (gateway, log) = gateway("json", &upstream);
    let refused = [
        ("GET /a?b HTTP/1.1\r\nHost: a b\r\n\r\n", "GET", "/a?b"),
        ("HEAD /a HTTP/1.0\r\nBad Name: x\r\n\r\n", "HEAD", "/a"),
        ("\r\nPOST http://x/a HTTP/1.1\r\n folded: x\r\n\r\n", "POST", "http://x/a"),
        // The request line itself is malformed.
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", "", ""),
        ("GET /a HTTP/3.7\r\nHost: a\r\n\r\n", "", ""),
    ];
    for (text, method, _) in refused {
        let mut client = Client::connect(gateway.http);
        client.send(text);
        let reply = if method == "HEAD" { client.reply_to_head() } else { client.reply() };
        assert!(matches!(reply.status, 400 | 505), "{text:?}: {reply:?}");
    }
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually("all lines are written", 5, || read().lines().count() >= refused.len());
    let lines: Vec<Value> = read().lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    // Each worker writes its own lines.
    let text = |value: &Value| value.as_str().unwrap_or("absent").to_owned();
    let logged: BTreeSet<_> =
        lines.iter().map(|line| (text(&line["method"]), text(&line["target"]))).collect();
    let expected = refused.iter().map(|(_, method, target)| ((*method).to_owned(), (*target).to_owned()));
    assert_eq!(logged, expected.collect());
}

#[test]
fn a_refused_request_of_http2_is_logged_with_what_it_was() {
    let upstream = Upstream::text("x");
    let (gateway, log) = gateway("json", &upstream);
    let long = format!("/a{}", "b".repeat(9000));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let mut many = request("PUT", "/a?b");
        for i in 0..150 {
            many.headers_mut().insert(HeaderName::try_from(format!("x-{i}")).unwrap(), "a".parse().unwrap());
        }
        assert_eq!(client.ask(many, b"").await.unwrap().status, 431);
        assert_eq!(client.get(&long).await.status, 414);
    });
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually("both lines are written", 5, || read().lines().count() == 2);
    let lines: Vec<Value> = read().lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for (line, status, method, target) in
        [(&lines[0], 431, "PUT", "/a?b"), (&lines[1], 414, "GET", &long[..8192])]
    {
        let fields = (&line["status"], &line["method"], &line["host"], &line["target"]);
        assert_eq!(fields, (&json!(status), &json!(method), &json!("test"), &json!(target)));
    }
}

#[test]
fn every_request_has_a_combined_line() {
    let upstream = Upstream::text("x");
    let (mut gateway, log) = gateway("combined", &upstream);
    let lines = lines_of_300(&mut gateway, &log);
    assert_eq!(lines.len(), 300);
    for line in lines {
        let (front, rest) = line.split_once(" [").expect(&line);
        assert_eq!(front, "127.0.0.1 - -");
        let (time, rest) = rest.split_once("] ").expect(&line);
        assert!(time.len() == 26 && time.as_bytes()[2] == b'/' && time.as_bytes()[11] == b':', "{time}");
        // Quotes in values are escaped, so that exactly these six remain.
        let quoted: Vec<&str> = rest.split('"').collect();
        assert_eq!(quoted.len(), 7, "{line}");
        assert!(quoted[1].starts_with("GET /") && quoted[1].ends_with(" HTTP/1.1"), "{line}");
        let numbers: Vec<u64> = quoted[2].split_whitespace().map(|n| n.parse().expect(&line)).collect();
        // Only the bytes of the body are logged, as in NGINX.
        let not_found = "{\"error_msg\":\"404 Route Not Found\"}\n".len() as u64;
        assert!(numbers == [200, 1] || numbers == [404, not_found], "{line}");
        assert_eq!(quoted[3], "-");
        assert!(quoted[5].starts_with("agent \\x22"), "{line}");
    }
}

#[test]
fn the_log_can_go_to_standard_output() {
    let upstream = Upstream::text("x");
    let options = Options { node: "logs: {access: {enabled: true}}", ..Options::default() };
    let gateway = Gateway::with(&upstream.everything(), &options);
    gateway.get("/seen");
    eventually("the line is printed", 5, || gateway.lines().iter().any(|line| line.contains("\"/seen\"")));
}

#[test]
fn a_line_of_ones_own_follows_the_file_that_is_moved_away() {
    let upstream = Upstream::text("x");
    let scratch = Scratch::new();
    let (log, moved) = (scratch.file("access.log"), scratch.file("access.log.1"));
    let line = "$request_method $uri $status $http_none ${upstream_status}";
    let node = format!("logs: {{access: {{enabled: true, path: \"{}\", line: \"{line}\"}}}}", log.display());
    let routes = scratch.write("routes.yaml", upstream.everything().to_string());
    let options = Options { node: &node, ..Options::default() };
    let gateway = Gateway::launch(scratch, &options, &["--file", &routes]);
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
    gateway.get("/one");
    eventually("the first line is written", 10, || read(&log) == "GET /one 200 - 200\n");
    std::fs::rename(&log, &moved).unwrap();
    gateway.get("/two");
    eventually("the second line is in a new file", 10, || read(&log) == "GET /two 200 - 200\n");
    assert_eq!(read(&moved), "GET /one 200 - 200\n");
}

/// Also checks received bytes and upstream time of requests without a response.
#[test]
fn a_request_that_failed_is_logged_with_what_it_moved() {
    let silent = Upstream::start(|_, _| {
        // Scripted: silent for longer than the read timeout.
        std::thread::sleep(std::time::Duration::from_secs(20));
        false
    });
    let scratch = Scratch::new();
    let log = scratch.file("access.log");
    let line = "$uri $status $upstream_status $request_length $upstream_response_time";
    let node = format!("logs: {{access: {{enabled: true, path: \"{}\", line: '{line}'}}}}", log.display());
    let upstream = json!({ "nodes": silent.nodes(), "retries": 0,
                           "timeout": { "connect": 1, "send": 1, "read": 0.5 } });
    // Buffers the body before the request is sent.
    let reading = json!({ "request-validation": { "body_schema": { "type": "object" } } });
    let routes = json!({ "routes": [{ "id": "streamed", "uri": "/streamed", "upstream": upstream },
                                    { "id": "read", "uri": "/read", "upstream": upstream, "plugins": reading }] });
    let routes = scratch.write("routes.yaml", routes.to_string());
    let gateway =
        Gateway::launch(scratch, &Options { node: &node, ..Options::default() }, &["--file", &routes]);
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(100_000));
    for path in ["/streamed", "/read"] {
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n");
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        assert_eq!(Client::connect(gateway.http).send(&request).reply().status, 504);
    }
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually("both are logged", 5, || read().lines().count() == 2);
    for line in read().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[1..3], ["504", "504"], "{line}");
        let length: usize = words[3].parse().unwrap();
        assert!((body.len()..body.len() + 200).contains(&length), "{line}");
        let waited: f64 = words[4].parse().unwrap();
        assert!((0.5..10.0).contains(&waited), "{line}");
    }
}
