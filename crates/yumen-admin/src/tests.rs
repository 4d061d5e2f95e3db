//! Both listeners over real sockets.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_config::node::AdminConfig;

use crate::serve::{BOUNDS, ListenerAccess, ServerBounds, serve, serve_with};
use crate::whole_body::WholeBody;
use crate::{
    AdminAccess, AdminState, AdminTls, AllowedHosts, Document, StatusState, exposition::tests::lint, testing,
};
use crate::{ControlState, control_routes, serve_api, serve_control, serve_status, status};

struct Worker(&'static str);

impl MetricSource for Worker {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        out.push(MetricFamily {
            name: Cow::Borrowed("yumen_requests_total"),
            help: Cow::Borrowed("Requests."),
            kind: MetricKind::Counter,
            samples: vec![MetricSeries {
                labels: vec![("worker", self.0.to_owned())],
                value: MetricValue::Number(3.0),
            }],
        });
    }
}

fn state(ready: Result<(), &'static str>) -> StatusState {
    StatusState {
        ready: Arc::new(move || ready.map_err(str::to_owned)),
        gather: vec![Arc::new(Worker("0")), Arc::new(Worker("1"))],
        describe: Arc::new(|| json!({ "version": "0.1.0", "status": "hidden" })),
        health: Arc::new(|| json!([{ "name": "/apisix/upstreams/1" }])),
        listeners: Arc::new(|| json!({ "a": { "state": "opening" } })),
        problems: Arc::new(|| json!([{ "level": "error", "object": "routes/1" }])),
        top: Arc::new(|| json!({ "routes": [] })),
        recent: ready.is_ok().then(|| -> Document { Arc::new(|| json!([{ "path": "/a" }])) }),
        hosts: AllowedHosts::new(&[], "status.hosts"),
        more: control_routes(control_state()),
    }
}

fn control_state() -> ControlState {
    ControlState { admin: testing::state(), health: Arc::new(|| json!([])), discovery: Arc::new(|_| None) }
}

/// Sends `request` on a connection of its own and returns everything until it closes.
async fn exchange(address: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    // a reset after the reply is as good as an end
    let _ = timeout(Duration::from_secs(60), stream.read_to_end(&mut reply)).await.expect("an end");
    String::from_utf8(reply).unwrap()
}

/// A connection that has been served once and stays.
async fn connect_idle(address: std::net::SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(get("/status").replace("Connection: close\r\n", "").as_bytes()).await.unwrap();
    let mut reply = [0; 1024];
    assert!(stream.read(&mut reply).await.unwrap() > 0);
    stream
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
}

/// The reply's status code, head in lower case, and body.
fn parts(reply: &str) -> (u16, String, &str) {
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
    (head[9..12].parse().unwrap(), head.to_ascii_lowercase(), body)
}

async fn status_listener(ready: Result<(), &'static str>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_status(listener, state(ready), std::future::pending()));
    address
}

async fn check(address: std::net::SocketAddr, request: &str, status: u16, body: &str) -> String {
    let reply = exchange(address, request).await;
    let (found, head, found_body) = parts(&reply);
    assert_eq!((found, found_body), (status, body), "{request}");
    assert!(head.contains("\r\ncontent-type: application/json"), "{head}");
    head
}

#[tokio::test]
async fn status_tells_life_readiness_health_and_problems() {
    let address = status_listener(Ok(())).await;
    for (target, body) in [
        ("/status", r#"{"status":"ok","version":"0.1.0"}"#),
        ("/status/ready", r#"{"status":"ok"}"#),
        ("/v1/healthcheck", r#"[{"name":"/apisix/upstreams/1"}]"#),
        ("/yumen/v1/problems", r#"[{"level":"error","object":"routes/1"}]"#),
        ("/yumen/v1/listeners", r#"{"a":{"state":"opening"}}"#),
        ("/yumen/v1/top", r#"{"routes":[]}"#),
        ("/yumen/v1/recent", r#"[{"path":"/a"}]"#),
    ] {
        check(address, &get(target), 200, &format!("{body}\n")).await;
    }
    let absent = "{\"error_msg\":\"not found: see GET / for the endpoints\"}\n";
    check(address, &get("/nowhere"), 404, absent).await;
    let refused = "{\"error_msg\":\"method not allowed: see GET / for the endpoints\"}\n";
    let head = check(address, &get("/status").replace("GET", "DELETE"), 405, refused).await;
    assert!(head.contains("\r\nallow: get,head\r\n"), "{head}");
    check(address, &get("/v1/routes").replace("GET", "DELETE"), 405, refused).await;
    check(address, &get("/v1/routes"), 200, "[]\n").await;
    check(address, &get("/status").replace("GET", "HEAD"), 200, "").await;
}

#[tokio::test]
async fn unready_gateway_gives_the_reason() {
    let address = status_listener(Err("worker 0 has no configuration")).await;
    let body = "{\"status\":\"error\",\"error\":\"worker 0 has no configuration\"}\n";
    check(address, &get("/status/ready"), 503, body).await;
}

/// Whether requests under `host` are served, on a listener that lists `names`.
async fn check_host(names: &[&str], host: Option<&str>, is_served: bool) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let status = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let control = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addresses = [&status, &control].map(|listener| listener.local_addr().unwrap());
    let hosts = AllowedHosts::new(&names, "status.hosts");
    let state = StatusState { hosts, ..state(Ok(())) };
    tokio::spawn(serve_status(status, state, std::future::pending()));
    let hosts = AllowedHosts::new(&names, "control.hosts");
    tokio::spawn(serve_control(control, control_state(), hosts, std::future::pending()));
    let field = host.map_or(String::new(), |host| format!("Host: {host}\r\n"));
    let version = if host.is_some() { "1.1" } else { "1.0" };
    for (address, setting) in addresses.into_iter().zip(["status.hosts", "control.hosts"]) {
        for target in ["/v1/routes", "/v1/schema", "/nowhere"] {
            let request = format!("GET {target} HTTP/{version}\r\n{field}Connection: close\r\n\r\n");
            let reply = exchange(address, &request).await;
            let (found, _, body) = parts(&reply);
            assert_eq!(found != 403, is_served, "{host:?} among {names:?} for {target}: {body}");
            assert!(is_served || body.contains(setting), "{body}");
        }
    }
}

#[tokio::test]
async fn status_and_control_refuse_hosts_that_a_page_may_hold() {
    for host in ["127.0.0.1", "127.0.0.1:9091", "[::1]:9091", "LocalHost:9091", "localhost."] {
        check_host(&[], Some(host), true).await;
    }
    check_host(&[], None, true).await;
    for host in ["rebound.example", "rebound.example:9091", "localhost.rebound.example", "", "a b"] {
        check_host(&[], Some(host), false).await;
    }
    for host in [
        "[::1].rebound.example",
        "[::1]rebound.example",
        "[::1]:rebound.example",
        "127.0.0.1:rebound.example",
        "[127.0.0.1]",
        "::1",
        "localhost\r\nHost: localhost",
    ] {
        check_host(&[], Some(host), false).await;
    }
    check_host(&["my_gateway"], Some("My_Gateway:9091"), true).await;
    check_host(&["my_gateway"], Some("rebound.example"), false).await;
    check_host(&["*"], Some("rebound.example"), true).await;
}

#[tokio::test]
async fn the_authority_of_an_absolute_target_is_checked_as_host_is() {
    let address = status_listener(Ok(())).await;
    for (authority, is_served) in [("localhost", true), ("rebound.example", false)] {
        let target = format!("http://{authority}/status");
        let reply = exchange(address, &get(&target)).await;
        assert_eq!(parts(&reply).0 != 403, is_served, "{reply}");
    }
}

#[tokio::test]
async fn every_path_of_the_index_is_served() {
    let address = status_listener(Ok(())).await;
    let reply = exchange(address, &get("/")).await;
    let index: serde_json::Value = serde_json::from_str(parts(&reply).2).unwrap();
    let paths = index["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 14);
    for path in paths.keys() {
        assert_eq!(parts(&exchange(address, &get(path)).await).0, 200, "{path}");
    }
}

#[tokio::test]
async fn metrics_are_the_text_format_whatever_is_accepted() {
    let address = status_listener(Ok(())).await;
    for target in ["/metrics", "/apisix/prometheus/metrics"] {
        let accept = "Accept: application/openmetrics-text; version=1.0.0\r\nHost";
        let reply = exchange(address, &get(target).replace("Host", accept)).await;
        let (status, head, body) = parts(&reply);
        assert_eq!(status, 200);
        assert!(head.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
        lint(body).unwrap();
        for worker in ["0", "1"] {
            assert!(body.contains(&format!("\nyumen_requests_total{{worker=\"{worker}\"}} 3\n")), "{body}");
        }
    }
}

/// An API without keys, with a store in memory.
fn api(allow: &str) -> AdminState {
    let admin = AdminConfig { allow: vec![allow.to_owned()], key_required: false, ..AdminConfig::default() };
    let store = Arc::new(yumen_store::MemoryMedium::store(10).unwrap());
    let mut state = AdminState::new(
        store,
        Arc::new(yumen_plugin::PluginRegistry::new(&[])),
        yumen_plugins::inactive::missing::<&str>(&[]),
        crate::testing::load_certificate(),
    );
    state.access = Arc::new(AdminAccess::new(&admin).unwrap());
    state
}

async fn admin_listener(tls: Option<AdminTls>, allow: &str) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let state = api(allow);
    let v1 = crate::v1::tests::state(state.clone());
    tokio::spawn(serve_api(listener, tls, state, v1, std::future::pending()));
    address
}

#[tokio::test]
async fn access_depends_on_the_peer_address() {
    let list = "{\"total\":0,\"list\":[]}\n";
    check(admin_listener(None, "127.0.0.0/8").await, &get("/apisix/admin/routes"), 200, list).await;
    let refused = "{\"error_msg\":\"127.0.0.1 is not allowed: not in admin.allow\"}\n";
    check(admin_listener(None, "10.0.0.1").await, &get("/apisix/admin/routes"), 403, refused).await;
}

#[tokio::test]
async fn with_a_certificate_the_admin_listener_speaks_tls_only() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let tls = AdminTls::new(certificate.as_bytes(), key.as_bytes(), None).ok();
    let address = admin_listener(Some(tls.expect("a pair")), "127.0.0.0/8").await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider);
    let client = client.with_safe_default_protocol_versions().unwrap();
    let client = Arc::new(client.with_root_certificates(roots).with_no_client_auth());
    let stream = TcpStream::connect(address).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(client).connect(name, stream).await.unwrap();
    stream.write_all(get("/apisix/admin/routes").as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    // an end without a close_notify alert is an end
    let _ = timeout(Duration::from_secs(30), stream.read_to_end(&mut reply)).await.expect("an end");
    assert_eq!(parts(&String::from_utf8(reply).unwrap()).0, 200);
    let plain = exchange(address, "GET /apisix/admin HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(!plain.contains("200"), "{plain}");
}

#[test]
fn a_certificate_that_is_none_is_refused_with_its_place() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    for (certificate, key, place) in [
        ("", key.as_str(), "admin.tls.certificate: "),
        (&certificate, "", "admin.tls.key: "),
        (&certificate, &other.signing_key.serialize_pem(), "admin.tls: "),
    ] {
        let error = AdminTls::new(certificate.as_bytes(), key.as_bytes(), None).err().expect("a refusal");
        assert!(error.starts_with(place), "{error}");
    }
    for client_ca in ["", "no PEM", &key, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let made = AdminTls::new(certificate.as_bytes(), key.as_bytes(), Some(client_ca.as_bytes()));
        let error = made.err().expect("a refusal");
        assert!(error.starts_with("admin.tls.client_ca: "), "{client_ca}: {error}");
    }
}

async fn bounded(bounds: ServerBounds) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, status::router(state(Ok(()))), bounds, std::future::pending()));
    address
}

#[tokio::test]
async fn a_head_too_large_is_refused() {
    let address = bounded(BOUNDS).await;
    let long = get(&format!("/{}", "a".repeat(32 * 1024)));
    let reply = exchange(address, &long).await;
    assert!(reply.is_empty() || matches!(parts(&reply).0, 414 | 431), "{reply}");
    let many = get("/status").replace("Host", &format!("{}Host", "A: b\r\n".repeat(100)));
    assert_eq!(parts(&exchange(address, &many).await).0, 431);
}

#[tokio::test]
async fn a_head_that_never_ends_and_an_idle_connection_are_cut() {
    let address = bounded(ServerBounds { head: Duration::from_millis(100), ..BOUNDS }).await;
    for request in ["GET /status HTT", ""] {
        let reply = exchange(address, request).await;
        assert!(reply.is_empty() || reply.contains(" 408 "), "{reply}");
    }
    let connect_idle = exchange(address, &get("/status").replace("Connection: close\r\n", "")).await;
    assert_eq!(parts(&connect_idle).0, 200);
}

#[tokio::test]
async fn a_connection_ends_with_its_lifetime() {
    let address = bounded(ServerBounds { lifetime: Duration::from_millis(100), ..BOUNDS }).await;
    let reply = exchange(address, &get("/status").replace("Connection: close\r\n", "")).await;
    assert_eq!(parts(&reply).0, 200);
}

#[tokio::test]
async fn closing_listener_answers_late_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let shutdown = async { drop(ended.await) };
    let serving = tokio::spawn(serve(listener, status::router(state(Ok(()))), BOUNDS, shutdown));
    let mut late = connect_idle(address).await;
    drop(end);
    while TcpStream::connect(address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let request = get("/status").replace("Connection: close\r\n", "");
    let (written, mut reply) = (late.write_all(request.as_bytes()).await, String::new());
    let _ = timeout(Duration::from_secs(30), late.read_to_string(&mut reply)).await.expect("an end");
    // after a second the listener waits for no further request
    assert!(written.is_err() || reply.is_empty() || reply.contains("\r\nconnection: close\r\n"), "{reply}");
    timeout(Duration::from_secs(30), serving).await.expect("an end").unwrap();
}

#[tokio::test]
async fn the_connection_that_idled_longest_gives_way_to_a_new_one() {
    let address = bounded(ServerBounds { connections: 2, ..BOUNDS }).await;
    let mut first = connect_idle(address).await;
    let mut second = connect_idle(address).await;
    assert_eq!(parts(&exchange(address, &get("/status")).await).0, 200);
    let closed = timeout(Duration::from_secs(30), first.read(&mut [0])).await.expect("the first left");
    assert_eq!(closed.unwrap_or(0), 0);
    second.write_all(get("/status").as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    let _ = timeout(Duration::from_secs(30), second.read_to_end(&mut reply)).await.expect("an end");
    assert_eq!(parts(&String::from_utf8(reply).unwrap()).0, 200, "the second stays");
}

/// A listener with one slot that responds to a body with its length.
async fn reader(bounds: ServerBounds, access: ListenerAccess) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new()
        .route("/", axum::routing::post(async |WholeBody(body): WholeBody| body.len().to_string()));
    tokio::spawn(serve_with(listener, access, router, bounds, std::future::pending()));
    address
}

#[tokio::test]
async fn a_connection_that_serves_a_request_keeps_its_place() {
    let address = reader(ServerBounds { connections: 1, ..BOUNDS }, ListenerAccess::default()).await;
    let head = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n";
    let mut busy = TcpStream::connect(address).await.unwrap();
    busy.write_all(format!("{head}a").as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let second = tokio::spawn(async move { exchange(address, &format!("{head}ab")).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!second.is_finished());
    busy.write_all(b"b").await.unwrap();
    let mut reply = String::new();
    let _ = timeout(Duration::from_secs(30), busy.read_to_string(&mut reply)).await.expect("an end");
    assert!(reply.ends_with("\r\n\r\n2"), "{reply}");
    assert!(second.await.unwrap().ends_with("\r\n\r\n2"));
}

#[tokio::test]
async fn stalled_body_times_out() {
    let address =
        reader(ServerBounds { stall: Duration::from_millis(100), ..BOUNDS }, ListenerAccess::default()).await;
    let reply = exchange(address, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc").await;
    assert_eq!(parts(&reply).0, 408, "{reply}");
}

#[tokio::test]
async fn refused_peers_take_no_connection_slot() {
    let none = yumen_base::IpSet::parse(["192.0.2.0/24"].into_iter()).unwrap();
    let access = ListenerAccess { allow: Some(none), ..ListenerAccess::default() };
    let address = reader(ServerBounds { connections: 1, ..BOUNDS }, access).await;
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
    let mut first = TcpStream::connect(address).await.unwrap();
    first.write_all(head.as_bytes()).await.unwrap();
    assert_ne!(first.read(&mut [0; 9]).await.unwrap(), 0);
    assert_eq!(exchange(address, head).await, "");
    first.write_all(head.as_bytes()).await.unwrap();
    assert_ne!(first.read(&mut [0; 9]).await.unwrap(), 0);
}

#[tokio::test]
async fn shutdown_closes_idle_connections_and_returns() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async { drop(stopped.await) };
    let serving = tokio::spawn(serve_status(listener, state(Ok(())), shutdown));
    let mut idle = connect_idle(address).await;
    stop.send(()).unwrap();
    timeout(Duration::from_secs(30), serving).await.expect("an end").unwrap();
    assert_eq!(idle.read(&mut [0]).await.unwrap_or(0), 0, "still open");
    assert!(TcpStream::connect(address).await.is_err());
}
