//! Cases that every logger passes, each over all loggers at once: sinks that are down, refuse, are restarted or hang,
//! batches and their bounds, drops, the end of the process.
//!
//! One route per logger. A request to `/LOGGER/eN` becomes an entry that contains this path in any form of entry.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::certs::{Authority, ecdsa};
use crate::harness::tls::TlsUpstream;
use crate::harness::upstream::respond;
use crate::harness::{Client, Gateway, Options, Scratch, Upstream, eventually, free_port};

/// Loggers whose sinks are HTTP servers.
const HTTP: [&str; 7] = [
    "clickhouse-logger",
    "elasticsearch-logger",
    "http-logger",
    "loggly",
    "loki-logger",
    "skywalking-logger",
    "splunk-hec-logging",
];
/// Loggers whose sinks are TCP servers.
const TCP: [&str; 2] = ["syslog", "tcp-logger"];
/// Loggers whose sinks are UDP servers. Datagrams of `datadog` have no paths.
const UDP: [&str; 1] = ["udp-logger"];

/// The settings of a logger for a sink at this address.
fn settings(plugin: &str, scheme: &str, sink: SocketAddr) -> Value {
    let (origin, host, port) = (format!("{scheme}://{sink}"), sink.ip().to_string(), sink.port());
    match plugin {
        "clickhouse-logger" => {
            json!({ "endpoint_addr": origin, "user": "u", "password": "p", "database": "d", "logtable": "t" })
        }
        "elasticsearch-logger" => json!({ "endpoint_addr": origin, "field": { "index": "i" } }),
        "http-logger" => json!({ "uri": format!("{origin}/logs"), "ssl_verify": true }),
        "loggly" => json!({ "customer_token": "token" }),
        "loki-logger" => json!({ "endpoint_addrs": [origin], "ssl_verify": true }),
        "skywalking-logger" => json!({ "endpoint_addr": origin }),
        "splunk-hec-logging" => json!({ "endpoint": { "uri": format!("{origin}/collector"), "token": "t" } }),
        "sls-logger" => json!({
            "host": host, "port": port, "project": "p", "logstore": "l", "access_key_id": "i", "access_key_secret": "s",
        }),
        "syslog" | "tcp-logger" | "udp-logger" => json!({ "host": host, "port": port }),
        "datadog" => json!({ "include_path": true }),
        other => panic!("no settings for {other}"),
    }
}

/// A route per logger with these further settings, and the metadata of loggers whose address is in it.
fn resources(loggers: &[&str], scheme: &str, sink: SocketAddr, more: &Value, to: &Upstream) -> Value {
    let (mut routes, mut metadata) = (Vec::new(), Vec::new());
    for logger in loggers {
        let mut settings = settings(logger, scheme, sink);
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        routes.push(json!({
            "id": logger, "uri": format!("/{logger}/*"), "plugins": { *logger: settings }, "upstream": to.alone(),
        }));
        let mut of_logger = json!({ "id": logger });
        match *logger {
            "loggly" => {
                of_logger["protocol"] = json!(scheme);
                (of_logger["host"], of_logger["port"]) = (json!(sink.ip().to_string()), json!(sink.port()));
            }
            "datadog" => {
                (of_logger["host"], of_logger["port"]) = (json!(sink.ip().to_string()), json!(sink.port()));
            }
            _ => continue,
        }
        metadata.push(of_logger);
    }
    json!({ "routes": routes, "plugin_metadata": metadata })
}

/// Everything that a sink has received: a text per request, connection or datagram.
#[derive(Clone, Default)]
struct ReceivedTexts(Arc<Mutex<Vec<String>>>);

impl ReceivedTexts {
    fn add(&self, text: &[u8]) {
        self.0.lock().unwrap().push(String::from_utf8_lossy(text).into_owned());
    }

    /// The texts with an entry of this logger.
    fn of(&self, logger: &str) -> Vec<String> {
        let marker = format!("/{logger}/e");
        self.0.lock().unwrap().iter().filter(|text| text.contains(&marker)).cloned().collect()
    }

    /// Whether each of these loggers has all entries from 1 to `count`.
    fn has_all(&self, loggers: &[&str], count: usize) -> bool {
        loggers.iter().all(|logger| {
            let found: BTreeSet<usize> =
                self.of(logger).iter().flat_map(|text| entries_in(text, logger)).collect();
            found == (1..=count).collect()
        })
    }

    fn wait_for_all(&self, loggers: &[&str], count: usize) {
        let awaited = format!("{count} entries of each of {loggers:?}");
        eventually(&awaited, 20, || self.has_all(loggers, count));
    }
}

/// The numbers of the entries of a logger in a text, each once.
fn entries_in(text: &str, logger: &str) -> BTreeSet<usize> {
    let number = |rest: &str| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    text.split(&format!("/{logger}/e")).skip(1).filter_map(number).collect()
}

/// Sends a request for the entries from `first` to `last` to the route of each logger.
fn request(gateway: &Gateway, loggers: &[&str], first: usize, last: usize) {
    for logger in loggers {
        for number in first..=last {
            assert_eq!(gateway.get(&format!("/{logger}/e{number}")).status, 200, "{logger}");
        }
    }
}

/// Answers as all HTTP sinks do on success.
const ACCEPTED: &[u8] = br#"{"version":{"number":"8.1.0"},"errors":false,"items":[]}"#;

/// An HTTP sink that answers the first requests with entries of each logger by `plan`, and keeps the times.
struct PlannedSink {
    server: Upstream,
    received: ReceivedTexts,
    times: Arc<Mutex<BTreeMap<String, Vec<Instant>>>>,
}

impl PlannedSink {
    /// A plan is a list of status codes with further fields.
    fn start(address: SocketAddr, plan: &'static [(u16, &'static str)]) -> PlannedSink {
        let received = ReceivedTexts::default();
        let times = Arc::<Mutex<BTreeMap<String, Vec<Instant>>>>::default();
        let (texts, seen) = (received.clone(), times.clone());
        let server = Upstream::on(address, move |request, stream| {
            let text = String::from_utf8_lossy(&request.body).into_owned();
            let Some(logger) = HTTP.iter().find(|logger| text.contains(&format!("/{logger}/e"))) else {
                return respond(stream, 200, "", ACCEPTED);
            };
            let nth = {
                let mut seen = seen.lock().unwrap();
                let times = seen.entry((*logger).to_owned()).or_default();
                times.push(Instant::now());
                times.len() - 1
            };
            match plan.get(nth) {
                Some((status, fields)) => respond(stream, *status, fields, b"{}"),
                None => {
                    texts.add(&request.body);
                    respond(stream, 200, "", ACCEPTED)
                }
            }
        });
        PlannedSink { server, received, times }
    }
}

/// Accepts connections and keeps their bytes when they end.
fn tcp_sink(address: SocketAddr) -> ReceivedTexts {
    let received = ReceivedTexts::default();
    let (listener, texts) = (TcpListener::bind(address).expect("a free port"), received.clone());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let texts = texts.clone();
            std::thread::spawn(move || {
                let mut room = [0; 65_536];
                // Kept connections have no end, so each read counts as a text.
                while let Ok(count @ 1..) = stream.read(&mut room) {
                    texts.add(&room[..count]);
                }
            });
        }
    });
    received
}

fn udp_sink() -> (SocketAddr, ReceivedTexts) {
    let received = ReceivedTexts::default();
    let (socket, texts) = (UdpSocket::bind("127.0.0.1:0").unwrap(), received.clone());
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut room = [0; 65_536];
        while let Ok(count) = socket.recv(&mut room) {
            texts.add(&room[..count]);
        }
    });
    (address, received)
}

/// The count of ended entries of a logger.
fn ended(gateway: &Gateway, logger: &str, result: &str) -> f64 {
    let labels = format!("yumen_sink_entries_total{{plugin=\"{logger}\",result=\"{result}\",");
    let metrics = gateway.status_text("/metrics").1;
    let line = metrics.lines().find(|line| line.starts_with(&labels));
    line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

fn wait_for_ended(gateway: &Gateway, loggers: &[&str], result: &str, count: f64) {
    for logger in loggers {
        eventually(&format!("{logger}: {count} entries {result}"), 20, || {
            ended(gateway, logger, result) == count
        });
    }
}

#[test]
fn entries_of_an_outage_arrive_when_the_sink_is_back() {
    let (http, tcp, upstream) = (free_port(), free_port(), Upstream::text("ok"));
    let more = json!({ "batch_max_size": 1, "max_retry_count": 10_000, "retry_delay": 0 });
    let mut all = resources(&HTTP, "http", http, &more, &upstream);
    let of_tcp = resources(&TCP, "http", tcp, &more, &upstream);
    all["routes"].as_array_mut().unwrap().extend(of_tcp["routes"].as_array().unwrap().clone());
    let gateway = Gateway::start(&all);
    request(&gateway, &HTTP, 1, 2);
    request(&gateway, &TCP, 1, 2);
    eventually("senders have failed", 20, || gateway.log().contains("failed to process entries [1/1]"));
    let (sink, lines) = (PlannedSink::start(http, &[]), tcp_sink(tcp));
    sink.received.wait_for_all(&HTTP, 2);
    lines.wait_for_all(&TCP, 2);
    for loggers in [&HTTP[..], &TCP[..]] {
        wait_for_ended(&gateway, loggers, "sent", 2.0);
        wait_for_ended(&gateway, loggers, "dropped_failed", 0.0);
    }
}

#[test]
fn a_sink_that_was_restarted_gets_the_next_entries() {
    let (address, upstream) = (free_port(), Upstream::text("ok"));
    let more = json!({ "batch_max_size": 1, "max_retry_count": 10_000, "retry_delay": 0 });
    let gateway = Gateway::start(&resources(&HTTP, "http", address, &more, &upstream));
    for number in 1..=2 {
        let sink = PlannedSink::start(address, &[]);
        request(&gateway, &HTTP, number, number);
        wait_for_ended(&gateway, &HTTP, "sent", number as f64);
        // Each entry arrived once, at the server of its time.
        for logger in HTTP {
            assert_eq!(sink.received.of(logger).len(), 1, "{logger}");
        }
        drop(sink);
        // Its thread closes the listener.
        eventually("the port is free", 5, || TcpListener::bind(address).is_ok());
    }
}

#[test]
fn failures_are_repeated_after_the_pause_that_the_sink_asks_for() {
    let upstream = Upstream::text("ok");
    let sink = PlannedSink::start(free_port(), &[(500, ""), (429, "Retry-After: 1\r\n"), (503, "")]);
    let more = json!({ "batch_max_size": 1, "max_retry_count": 5, "retry_delay": 0 });
    let gateway = Gateway::start(&resources(&HTTP, "http", sink.server.address, &more, &upstream));
    request(&gateway, &HTTP, 1, 1);
    sink.received.wait_for_all(&HTTP, 1);
    wait_for_ended(&gateway, &HTTP, "sent", 1.0);
    for (logger, times) in &*sink.times.lock().unwrap() {
        assert_eq!(times.len(), 4, "{logger}");
        // The jitter of a pause is 20 %.
        assert!(times[2] - times[1] >= Duration::from_millis(790), "{logger}: {times:?}");
    }
    assert_eq!(sink.times.lock().unwrap().len(), HTTP.len());
}

#[test]
fn a_failed_batch_without_repetitions_is_dropped_and_counted() {
    let upstream = Upstream::text("ok");
    let sink = PlannedSink::start(free_port(), &[(500, "")]);
    let more = json!({ "batch_max_size": 1 });
    let gateway = Gateway::start(&resources(&HTTP, "http", sink.server.address, &more, &upstream));
    request(&gateway, &HTTP, 1, 1);
    wait_for_ended(&gateway, &HTTP, "dropped_failed", 1.0);
    let log = gateway.log();
    let dropped = log.matches("exceeded the max_retry_count[0] dropping the entries").count();
    assert_eq!(dropped, HTTP.len(), "{log}");
    // The next batch is not affected.
    request(&gateway, &HTTP, 2, 2);
    wait_for_ended(&gateway, &HTTP, "sent", 1.0);
}

#[test]
fn batches_are_full_or_go_when_no_entry_follows() {
    let upstream = Upstream::text("ok");
    for (size, entries, expected) in [(2, 5, [1, 2, 2].as_slice()), (1000, 3, &[3])] {
        let sink = PlannedSink::start(free_port(), &[]);
        let more = json!({ "batch_max_size": size, "inactive_timeout": 1 });
        let gateway = Gateway::start(&resources(&HTTP, "http", sink.server.address, &more, &upstream));
        request(&gateway, &HTTP, 1, entries);
        sink.received.wait_for_all(&HTTP, entries);
        for logger in HTTP {
            let batches = sink.received.of(logger);
            let mut sizes: Vec<usize> = batches.iter().map(|text| entries_in(text, logger).len()).collect();
            sizes.sort_unstable();
            // Both workers hand entries over at their own times; on a slow machine a batch may go earlier.
            assert!(sizes.iter().all(|count| *count <= size), "{logger}: {sizes:?}");
            assert!(sizes.len() <= expected.len() + 2, "{logger}: {sizes:?} instead of {expected:?}");
        }
    }
}

#[test]
fn a_connection_that_the_sink_closes_between_batches_loses_nothing() {
    let upstream = Upstream::text("ok");
    let received = ReceivedTexts::default();
    let texts = received.clone();
    let sink = Upstream::start(move |request, stream| {
        texts.add(&request.body);
        respond(stream, 200, "", ACCEPTED);
        false
    });
    let gateway =
        Gateway::start(&resources(&HTTP, "http", sink.address, &json!({ "batch_max_size": 1 }), &upstream));
    for number in 1..=3 {
        request(&gateway, &HTTP, number, number);
        wait_for_ended(&gateway, &HTTP, "sent", f64::from(number as u32));
    }
    assert!(received.has_all(&HTTP, 3));
    wait_for_ended(&gateway, &HTTP, "dropped_failed", 0.0);
}

#[test]
fn a_certificate_for_another_name_gets_no_entry() {
    let upstream = Upstream::text("ok");
    let authority = Authority::new("sink authority");
    let sink = TlsUpstream::text(&authority.sign("other.test", &["other.test"], ecdsa()), "ok");
    // skywalking-logger, syslog and tcp-logger verify no certificate, as in APISIX.
    let mut loggers: Vec<&str> =
        HTTP.iter().copied().filter(|logger| *logger != "skywalking-logger").collect();
    loggers.push("sls-logger");
    let scratch = Scratch::new();
    let trust = scratch.write("trust.pem", &authority.cert);
    let all = resources(&loggers, "https", sink.address, &json!({ "batch_max_size": 1 }), &upstream);
    let routes = scratch.write("routes.yaml", all.to_string());
    let options = Options { env: &[("SSL_CERT_FILE", &trust)], ..Options::default() };
    let gateway = Gateway::launch(scratch, &options, &["--file", &routes]);
    request(&gateway, &loggers, 1, 1);
    wait_for_ended(&gateway, &loggers, "dropped_failed", 1.0);
    assert_eq!(sink.names(), [], "no handshake was completed");
}

#[test]
fn a_hanging_sink_holds_a_bounded_number_of_entries() {
    let upstream = Upstream::text("ok");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let more = json!({ "batch_max_size": 1 });
    let mut all = resources(&HTTP, "http", address, &more, &upstream);
    let metadata = all["plugin_metadata"].as_array_mut().unwrap();
    for logger in HTTP {
        match metadata.iter_mut().find(|one| one["id"] == logger) {
            Some(known) => known["max_pending_entries"] = json!(5),
            None => metadata.push(json!({ "id": logger, "max_pending_entries": 5 })),
        }
    }
    for route in all["routes"].as_array_mut().unwrap() {
        let logger = route["id"].as_str().unwrap().to_owned();
        match logger.as_str() {
            "splunk-hec-logging" => route["plugins"][&logger]["endpoint"]["timeout"] = json!(600),
            "loki-logger" => route["plugins"][&logger]["timeout"] = json!(60_000),
            "loggly" => {}
            _ => route["plugins"][&logger]["timeout"] = json!(600),
        }
    }
    for one in all["plugin_metadata"].as_array_mut().unwrap() {
        if one["id"] == "loggly" {
            one["timeout"] = json!(600_000);
        }
    }
    let gateway = Gateway::start(&all);
    request(&gateway, &HTTP, 1, 20);
    wait_for_ended(&gateway, &HTTP, "dropped_full", 15.0);
    let log = "max pending entries limit exceeded. discarding entry.";
    eventually("drops are logged", 5, || gateway.log().contains(log));
}

#[test]
fn the_end_of_the_process_sends_what_waits() {
    let upstream = Upstream::text("ok");
    let more = json!({ "inactive_timeout": 600 });
    let http = PlannedSink::start(free_port(), &[]);
    let tcp_address = free_port();
    let (tcp, (udp_address, udp)) = (tcp_sink(tcp_address), udp_sink());
    let mut all = resources(&HTTP, "http", http.server.address, &more, &upstream);
    for (loggers, address) in [(&TCP[..], tcp_address), (&UDP[..], udp_address)] {
        let others = resources(loggers, "http", address, &more, &upstream);
        for list in ["routes", "plugin_metadata"] {
            all[list].as_array_mut().unwrap().extend(others[list].as_array().unwrap().clone());
        }
    }
    let mut gateway = Gateway::start(&all);
    for loggers in [&HTTP[..], &TCP[..], &UDP[..]] {
        request(&gateway, loggers, 1, 3);
    }
    gateway.terminate();
    gateway.wait(20);
    http.received.wait_for_all(&HTTP, 3);
    tcp.wait_for_all(&TCP, 3);
    udp.wait_for_all(&UDP, 3);
}

#[test]
fn datagrams_and_lines_hold_as_many_entries_as_a_batch() {
    let upstream = Upstream::text("ok");
    let tcp_address = free_port();
    let (tcp, (udp_address, udp)) = (tcp_sink(tcp_address), udp_sink());
    for size in [1, 2] {
        let more = json!({ "batch_max_size": size, "inactive_timeout": 1 });
        let mut all = resources(&TCP, "http", tcp_address, &more, &upstream);
        let others = resources(&UDP, "http", udp_address, &more, &upstream);
        for list in ["routes", "plugin_metadata"] {
            all[list].as_array_mut().unwrap().extend(others[list].as_array().unwrap().clone());
        }
        let gateway = Gateway::start(&all);
        let last = size * 3;
        request(&gateway, &TCP, 1, last);
        request(&gateway, &UDP, 1, last);
        tcp.wait_for_all(&TCP, last);
        udp.wait_for_all(&UDP, last);
        for logger in UDP {
            let largest = udp.of(logger).iter().map(|text| entries_in(text, logger).len()).max();
            assert!(largest <= Some(size), "{logger}: {largest:?}");
        }
    }
}

#[test]
fn metrics_of_each_request_go_to_datadog() {
    let ((address, received), upstream) = (udp_sink(), Upstream::text("ok"));
    let gateway = Gateway::start(&resources(
        &["datadog"],
        "http",
        address,
        &json!({ "inactive_timeout": 1 }),
        &upstream,
    ));
    request(&gateway, &["datadog"], 1, 3);
    let lines = || received.0.lock().unwrap().join("\n");
    eventually("three requests", 20, || lines().matches("apisix.request.counter:1|c|#").count() == 3);
    assert!(lines().contains("route_name:datadog"), "{}", lines());
}

#[test]
fn entries_stay_valid_json_for_any_bytes_of_a_client() {
    let upstream = Upstream::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nX-Odd: a\xc3(b\r\nContent-Length: 2\r\n\r\nok").is_ok()
    });
    let received = ReceivedTexts::default();
    let texts = received.clone();
    let sink = Upstream::start(move |request, stream| {
        texts.add(&request.body);
        respond(stream, 200, "", ACCEPTED)
    });
    let more = json!({ "batch_max_size": 1, "include_req_body": true });
    let all = resources(&["http-logger"], "http", sink.address, &more, &upstream);
    let gateway = Gateway::start(&all);
    let mut request = b"POST /http-logger/e1?a=%ff%00&b=\"\\ HTTP/1.1\r\nHost: x\r\nX-Odd: \xff\xfe\"\\\r\n\
                        Content-Length: 6\r\n\r\n"
        .to_vec();
    request.extend_from_slice(b"\xff\0\"\\\n\x7f");
    gateway.send(request);
    eventually("the entry is there", 10, || !received.of("http-logger").is_empty());
    let entry: Value = serde_json::from_str(&received.of("http-logger")[0]).expect("JSON");
    assert_eq!(entry["request"]["headers"]["x-odd"], "\u{fffd}\u{fffd}\"\\");
    assert_eq!(entry["request"]["body"], "\u{fffd}\0\"\\\n\x7f");
}

#[test]
fn requests_without_a_route_and_clients_that_left_are_logged_too() {
    let received = ReceivedTexts::default();
    let texts = received.clone();
    let sink = Upstream::start(move |request, stream| {
        texts.add(&request.body);
        respond(stream, 200, "", ACCEPTED)
    });
    let upstream = Upstream::text("ok");
    let rule = json!({ "id": "1", "plugins": { "http-logger": {
        "uri": format!("http://{}/", sink.address), "batch_max_size": 1, "include_resp_body": true,
    }}});
    let routes =
        json!([{ "id": "r", "uris": ["/http-logger/e1", "/http-logger/e2"], "upstream": upstream.alone() }]);
    let gateway = Gateway::start(&json!({ "routes": routes, "global_rules": [rule] }));
    let entry = |number: usize| {
        let marker = format!("/http-logger/e{number}");
        eventually("the entry is there", 10, || {
            received.of("http-logger").iter().any(|text| text.contains(&marker))
        });
        let text = received.of("http-logger").into_iter().find(|text| text.contains(&marker)).unwrap();
        serde_json::from_str::<Value>(&text).expect("JSON")
    };
    let mut client = Client::connect(gateway.http);
    let head = client.send("HEAD /http-logger/e1 HTTP/1.1\r\nHost: x\r\n\r\n").reply_to_head();
    assert_eq!(head.status, 200);
    let head = entry(1);
    assert_eq!((&head["route_id"], &head["response"]["body"]), (&json!("r"), &Value::Null));
    assert_eq!(gateway.get("/http-logger/e3").status, 404);
    let unmatched = entry(3);
    assert_eq!(
        (&unmatched["route_id"], &unmatched["response"]["status"]),
        (&json!("no-matched"), &json!(404))
    );
    let mut left = std::net::TcpStream::connect(gateway.http).unwrap();
    left.write_all(b"GET /http-logger/e2 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    drop(left);
    assert_eq!(entry(2)["request"]["method"], "GET");
}

#[test]
fn lines_of_the_node_log_go_to_the_server_of_the_metadata() {
    let (address, upstream) = (free_port(), Upstream::text("ok"));
    let lines = tcp_sink(address);
    let mut all = upstream.everything();
    all["plugin_metadata"] = json!([{
        "id": "error-log-logger", "level": "INFO", "batch_max_size": 1,
        "tcp": { "host": address.ip().to_string(), "port": address.port() },
    }]);
    let gateway = Gateway::start(&all);
    all["routes"][0]["plugins"] = json!({ "key-auth": { "header": 7 } });
    gateway.edit(&all);
    let text = || lines.0.lock().unwrap().concat();
    eventually("a line about the broken object", 20, || text().contains("routes/all"));
    let text = text();
    let line = text.lines().find(|line| line.contains("routes/all")).unwrap();
    assert!(line.contains("] ") && line.contains("#0: "), "{line}");
    // A line about a sink would make further lines.
    assert!(!text.contains("sender started"), "{text}");
    assert!(gateway.log().contains("sender started"), "{}", gateway.log());
}
