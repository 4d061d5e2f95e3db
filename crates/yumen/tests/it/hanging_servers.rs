//! Sinks and services that accept connections and never answer: memory is bounded, other routes go on, every entry and
//! every call is counted, and the failure is a problem. `bench/hang.py` is the long form, with a load.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::{Client, Gateway, Options, Upstream, eventually};

/// Entries that wait for each sink.
const PENDING: u64 = 50;
const LOGGERS: [&str; 4] = ["http-logger", "tcp-logger", "kafka-logger", "opentelemetry"];

/// A server that accepts connections and keeps them open.
struct SilentServer {
    address: SocketAddr,
    accepted: Arc<Mutex<Vec<TcpStream>>>,
}

impl SilentServer {
    fn start() -> SilentServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::<Mutex<Vec<TcpStream>>>::default();
        let kept = accepted.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                kept.lock().unwrap().push(stream);
            }
        });
        SilentServer { address, accepted }
    }

    fn connections(&self) -> usize {
        self.accepted.lock().unwrap().len()
    }
}

fn resources(silent: &SilentServer, upstream: &Upstream) -> Value {
    let (url, port) = (format!("http://{}", silent.address), silent.address.port());
    let route = |uri: &str, plugins: Value| json!({ "id": uri[1..], "uri": uri, "plugins": plugins, "upstream": upstream.alone() });
    let metadata = |id: &str| json!({ "id": id, "max_pending_entries": PENDING });
    json!({
        "routes": [
            route("/plain", json!({})),
            route("/logged", json!({
                "http-logger": { "uri": format!("{url}/log"), "timeout": 600 },
                "tcp-logger": { "host": "127.0.0.1", "port": port },
                "kafka-logger": { "brokers": [{ "host": "127.0.0.1", "port": port }], "kafka_topic": "t", "timeout": 600 },
                "opentelemetry": { "sampler": { "name": "always_on" } },
            })),
            route("/opa", json!({ "opa": { "host": url, "policy": "allow", "timeout": 100 } })),
            route("/auth", json!({ "forward-auth": { "uri": url, "timeout": 100 } })),
        ],
        "plugin_metadata": [
            metadata("http-logger"), metadata("tcp-logger"), metadata("kafka-logger"),
            { "id": "opentelemetry",
              "collector": { "address": silent.address.to_string(), "request_timeout": 600 },
              "batch_span_processor": { "max_queue_size": PENDING } },
        ],
    })
}

/// The sum of the series whose labels begin so.
fn sum(metrics: &str, series: &str) -> u64 {
    let values = metrics.lines().filter(|line| line.starts_with(series));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
}

#[test]
fn silent_sinks_cost_entries_and_neither_memory_nor_requests() {
    const REQUESTS: u64 = 3000;
    let (silent, upstream) = (SilentServer::start(), Upstream::text("ok"));
    let options = Options { workers: 1, ..Options::default() };
    let gateway = Gateway::with(&resources(&silent, &upstream), &options);
    let mut client = Client::connect(gateway.http);
    assert_eq!(client.get("/plain").status, 200);
    let before_kib = gateway.resident_kib();
    // 4 KB in each of several members of each entry: without bounds, the sinks would hold 100 MB.
    let target = format!("/logged?{}", "a".repeat(4000));
    for _ in 0..REQUESTS {
        assert_eq!(client.get(&target).status, 200);
    }
    assert_eq!(client.get("/plain").status, 200);
    let grown_kib = gateway.resident_kib().saturating_sub(before_kib);
    assert!(grown_kib < 32 * 1024, "{grown_kib} KiB");
    for logger in LOGGERS {
        let labels = format!("{{plugin=\"{logger}\",");
        let counted = || {
            let metrics = gateway.status_text("/metrics").1;
            let ended = sum(&metrics, &format!("yumen_sink_entries_total{labels}"));
            (ended, sum(&metrics, &format!("yumen_sink_waiting_entries{labels}")))
        };
        // Entries of the last moment are still with their worker.
        eventually(&format!("{logger}: all entries are counted"), 10, || {
            let (ended, waiting) = counted();
            waiting <= PENDING && ended + waiting == REQUESTS
        });
        assert!(counted().0 >= REQUESTS - PENDING, "{logger}: {:?}", counted());
        eventually(&format!("{logger}: the drops are a problem"), 10, || {
            let problems = gateway.status_json("/yumen/v1/problems");
            problems.as_array().unwrap().iter().any(|one| one["object"] == format!("plugins/{logger}"))
        });
    }
}

#[test]
fn a_silent_service_refuses_its_routes_at_once_and_no_others() {
    let (silent, upstream) = (SilentServer::start(), Upstream::text("ok"));
    let options = Options { workers: 1, ..Options::default() };
    let gateway = Gateway::with(&resources(&silent, &upstream), &options);
    let mut client = Client::connect(gateway.http);
    for (path, plugin) in [("/opa", "opa"), ("/auth", "forward-auth")] {
        let connections = silent.connections();
        for _ in 0..300 {
            // Guards fail closed.
            assert_eq!(client.get(path).status, 403, "{path}");
            assert_eq!(client.get("/plain").status, 200);
        }
        let count = |result: &str| {
            gateway.metric(&format!("yumen_plugin_calls_total{{plugin=\"{plugin}\",result=\"{result}\"}}"))
        };
        let (timeouts, busy) = (count("timeout"), count("busy"));
        assert_eq!(timeouts + busy, 300.0);
        // Five time-outs begin a pause, and then one call probes per second.
        assert!(timeouts >= 5.0 && busy >= 200.0, "{plugin}: {timeouts} time-outs, {busy} refused");
        gateway.assert_metric(&format!("yumen_plugin_calls_in_flight{{plugin=\"{plugin}\"}}"), 0.0);
        assert!((silent.connections() - connections) as f64 <= timeouts);
        eventually("the silent service is a problem", 10, || {
            let problems = gateway.status_json("/yumen/v1/problems");
            problems.as_array().unwrap().iter().any(|one| one["object"] == format!("plugins/{plugin}"))
        });
    }
}
