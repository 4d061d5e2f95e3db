//! Loggers against sinks of this test: entries, bodies, changed configurations, hanging sinks, stop.

use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::gateway::YUMEN;
use crate::harness::upstream::respond;
use crate::harness::{Client, Gateway, Options, Scratch, Upstream, eventually, run};

/// An HTTP sink with the bodies that it received.
struct HttpSink {
    server: Upstream,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl HttpSink {
    fn start() -> HttpSink {
        let bodies = Arc::<Mutex<Vec<String>>>::default();
        let seen = bodies.clone();
        let server = Upstream::start(move |request, stream| {
            seen.lock().unwrap().push(String::from_utf8(request.body.clone()).expect("UTF-8"));
            respond(stream, 200, "", b"")
        });
        HttpSink { server, bodies }
    }

    fn url(&self) -> String {
        format!("http://{}/logs", self.server.address)
    }

    /// All entries, in the order of their arrival.
    fn entries(&self) -> Vec<Value> {
        let bodies = self.bodies.lock().unwrap();
        let entries = bodies.iter().flat_map(|body| match serde_json::from_str(body).expect("JSON") {
            Value::Array(entries) => entries,
            entry => vec![entry],
        });
        entries.collect()
    }

    fn wait_for(&self, count: usize) -> Vec<Value> {
        eventually("the sink has the entries", 10, || self.entries().len() >= count);
        let entries = self.entries();
        assert_eq!(entries.len(), count, "{entries:?}");
        entries
    }
}

fn routes(plugins: &Value, to: &Upstream) -> Value {
    json!({ "routes": [{ "id": "1", "uri": "/*", "plugins": plugins, "upstream": to.alone() }] })
}

/// Settings of http-logger with these members.
fn http_logger(sink: &HttpSink, more: &Value) -> Value {
    let mut settings = json!({ "uri": sink.url(), "inactive_timeout": 1 });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "http-logger": settings })
}

#[test]
fn each_request_becomes_an_entry() {
    let (sink, upstream) = (HttpSink::start(), Upstream::text("hello"));
    let gateway = Gateway::start(&routes(&http_logger(&sink, &json!({ "batch_max_size": 1 })), &upstream));
    assert_eq!(gateway.get_with("/a?b=1", "X-One: 1\r\n").status, 200);
    let entry = sink.wait_for(1).remove(0);
    assert_eq!(entry["request"]["uri"], "/a?b=1");
    assert_eq!(entry["request"]["headers"]["x-one"], "1");
    assert_eq!(entry["request"]["querystring"], json!({ "b": "1" }));
    assert_eq!((&entry["response"]["status"], &entry["route_id"]), (&json!(200), &json!("1")));
    assert!(entry["response"]["headers"]["content-length"] == "5", "{entry}");
    assert_eq!(entry["upstream"], upstream.address.to_string());
    assert!(entry["latency"].as_f64() >= entry["upstream_latency"].as_f64(), "{entry}");
    let labels = format!("plugin=\"http-logger\",result=\"sent\",sink=\"http://{}\"", sink.server.address);
    let sent =
        || gateway.status_text("/metrics").1.contains(&format!("yumen_sink_entries_total{{{labels}}} 1"));
    eventually("the entry is counted", 5, sent);
}

#[test]
fn bodies_are_tapped_while_they_stream() {
    let (sink, upstream) = (HttpSink::start(), Upstream::echo("a"));
    let more = json!({
        "batch_max_size": 1, "include_req_body": true, "include_resp_body": true,
        "max_req_body_bytes": 10, "max_resp_body_bytes": 9,
        "log_format_extra": { "nothing": "$arg_none" },
    });
    let gateway = Gateway::start(&routes(&http_logger(&sink, &more), &upstream));
    let mut count = 0;
    let mut bodies = |request: String| {
        assert_eq!(gateway.send(request).status, 200);
        count += 1;
        let entry = sink.wait_for(count).pop().unwrap();
        (entry["request"]["body"].clone(), entry["response"]["body"].clone())
    };
    let long = "x".repeat(100_000);
    let post =
        |body: &str| format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let response = json!("{\"served_");
    let (request, found) = bodies(post("short"));
    assert_eq!(request, "short");
    assert_eq!(found.as_str().map(str::len), response.as_str().map(str::len));
    assert_eq!(bodies(post(&long)).0, "xxxxxxxxxx");
    let chunked =
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
    assert_eq!(bodies(chunked.to_owned()).0, "abcdefg");
    assert_eq!(bodies("GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()).0, Value::Null);
}

#[test]
fn a_compressed_body_is_logged_as_the_upstream_sent_it() {
    let sink = HttpSink::start();
    let upstream = Upstream::start(|_, stream| {
        respond(stream, 200, "Content-Type: text/plain\r\n", b"a text that the gateway compresses")
    });
    let more = json!({ "batch_max_size": 1, "include_resp_body": true });
    let mut plugins = http_logger(&sink, &more);
    plugins["gzip"] = json!({ "types": "*", "min_length": 1 });
    let gateway = Gateway::start(&routes(&plugins, &upstream));
    let reply = gateway.get_with("/", "Accept-Encoding: gzip\r\n");
    assert_eq!(reply.field("content-encoding"), Some("gzip"));
    let entry = sink.wait_for(1).remove(0);
    assert_eq!(entry["response"]["body"], "a text that the gateway compresses");
}

#[test]
fn masked_values_reach_neither_entry_nor_access_log() {
    let (sink, upstream) = (HttpSink::start(), Upstream::echo("a"));
    let mut plugins = http_logger(&sink, &json!({ "batch_max_size": 1, "include_req_body": true }));
    plugins["data-mask"] = json!({ "request": [
        { "type": "query", "name": "token", "action": "replace", "value": "***" },
        { "type": "header", "name": "Authorization", "action": "remove" },
        { "type": "body", "body_format": "json", "name": "$.card", "action": "replace", "value": "***" },
    ]});
    let options =
        Options { node: "logs: {access: {enabled: true, path: access.log}}\n", ..Options::default() };
    let gateway = Gateway::with(&routes(&plugins, &upstream), &options);
    let body = "{\"card\":\"canary-card\",\"a\":1}";
    let reply = gateway.send(format!(
        "POST /p?token=canary-token&b=2 HTTP/1.1\r\nHost: x\r\nAuthorization: canary-field\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let seen = reply.text();
    for value in ["canary-token", "canary-field", "canary-card"] {
        assert!(seen.contains(value), "the upstream receives {value}: {seen}");
    }
    let entry = sink.wait_for(1).remove(0);
    assert!(!entry.to_string().contains("canary"), "{entry}");
    assert_eq!(entry["request"]["uri"], "/p?token=***&b=2");
    assert_eq!(entry["request"]["body"], "{\"card\":\"***\",\"a\":1}");
    let path = gateway.scratch.file("access.log");
    let log = || std::fs::read_to_string(&path).unwrap_or_default();
    eventually("the access log has the line", 5, || log().contains("/p?"));
    assert!(!log().contains("canary"), "{}", log());
}

#[test]
fn entries_that_wait_go_to_the_place_of_their_time() {
    let (first, second, upstream) = (HttpSink::start(), HttpSink::start(), Upstream::text("ok"));
    let gateway = Gateway::start(&routes(&http_logger(&first, &json!({})), &upstream));
    gateway.get("/old");
    gateway.apply(&routes(&http_logger(&second, &json!({})), &upstream));
    gateway.get("/new");
    assert_eq!(first.wait_for(1)[0]["request"]["uri"], "/old");
    assert_eq!(second.wait_for(1)[0]["request"]["uri"], "/new");
}

#[test]
fn the_end_of_the_process_sends_entries_that_wait() {
    let (sink, upstream) = (HttpSink::start(), Upstream::text("ok"));
    let mut gateway =
        Gateway::start(&routes(&http_logger(&sink, &json!({ "inactive_timeout": 600 })), &upstream));
    for _ in 0..3 {
        gateway.get("/a");
    }
    gateway.terminate();
    gateway.wait(10);
    sink.wait_for(3);
}

#[test]
fn a_hanging_sink_costs_entries_and_no_request() {
    let upstream = Upstream::text("ok");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let plugins = json!({ "http-logger": {
        "uri": format!("http://{}/", listener.local_addr().unwrap()), "batch_max_size": 1, "timeout": 600,
    }});
    let mut resources = routes(&plugins, &upstream);
    resources["plugin_metadata"] = json!([{ "id": "http-logger", "max_pending_entries": 5 }]);
    let mut gateway = Gateway::start(&resources);
    let mut client = Client::connect(gateway.http);
    for _ in 0..30 {
        assert_eq!(client.get("/a").status, 200);
    }
    let labels = format!(
        "plugin=\"http-logger\",result=\"dropped_full\",sink=\"http://{}\"",
        listener.local_addr().unwrap()
    );
    let dropped =
        || gateway.status_text("/metrics").1.contains(&format!("yumen_sink_entries_total{{{labels}}} 25"));
    eventually("drops are counted", 5, dropped);
    let log = "max pending entries limit exceeded. discarding entry.";
    eventually("drops are logged", 5, || gateway.log().contains(log));
    gateway.terminate();
    gateway.wait(20);
    assert!(gateway.log().contains("waiting entries dropped"), "{}", gateway.log());
}

#[test]
fn sockets_and_files_receive_entries() {
    let upstream = Upstream::text("ok");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let syslog = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = |address: std::net::SocketAddr| address.port();
    let format = json!({ "uri": "$uri" });
    let folder = tempfile();
    let file = format!("{folder}/entries.log");
    let plugins = json!({
        "tcp-logger": { "host": "127.0.0.1", "port": port(tcp.local_addr().unwrap()), "batch_max_size": 1, "log_format": format },
        "udp-logger": { "host": "127.0.0.1", "port": port(udp.local_addr().unwrap()), "batch_max_size": 1, "log_format": format },
        "syslog": { "host": "127.0.0.1", "port": port(syslog.local_addr().unwrap()), "batch_max_size": 1, "log_format": format },
        "file-logger": { "path": file, "log_format": format },
    });
    let gateway = Gateway::start(&routes(&plugins, &upstream));
    gateway.get("/a");
    let entry = "{\"uri\":\"/a\",\"route_id\":\"1\"}";
    let mut text = String::new();
    tcp.accept().unwrap().0.read_to_string(&mut text).unwrap();
    assert_eq!(text, entry);
    let mut datagram = [0; 200];
    let length = udp.recv(&mut datagram).unwrap();
    assert_eq!(std::str::from_utf8(&datagram[..length]), Ok(entry));
    let mut line = [0; 200];
    let length = syslog.accept().unwrap().0.read(&mut line).unwrap();
    let line = String::from_utf8_lossy(&line[..length]).into_owned();
    assert!(line.starts_with("<46>1 20") && line.ends_with(&format!(" - - {entry}\n")), "{line}");
    eventually("the file has the line", 5, || {
        std::fs::read_to_string(&file).is_ok_and(|text| text == format!("{entry}\n"))
    });
    std::fs::rename(&file, format!("{folder}/old.log")).unwrap();
    gateway.get("/a");
    eventually("a new file has the line", 5, || {
        std::fs::read_to_string(&file).is_ok_and(|text| text == format!("{entry}\n"))
    });
    drop(gateway);
    std::fs::remove_dir_all(folder).unwrap();
}

fn tempfile() -> String {
    let folder = std::env::temp_dir().join(format!("yumen-loggers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder.to_str().unwrap().to_owned()
}

#[test]
fn explain_names_the_sink() {
    let scratch = Scratch::new();
    let upstream = Upstream::text("ok");
    let plugins = json!({ "http-logger": { "uri": "http://127.0.0.1:9/logs" } });
    let file = scratch.write("routes.yaml", routes(&plugins, &upstream).to_string());
    let (code, out, err) = run(YUMEN, &["explain", "/a", "--file", &file]);
    assert!(out.contains("1 entry to http://127.0.0.1:9, in batches of 1000"), "{code}\n{out}\n{err}");
}
