use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use yumen_http::proxy_protocol::ProxyVersion;
use yumen_http::{HeadLimits, RequestHead, parse};
use yumen_plugin::{ClientInfo, ConsumerIndex, Exchange, Now, StillHost};
use yumen_snapshot::upstream::{
    ActiveChecks, Endpoint, EndpointHealth, EndpointSelection, EndpointState, EndpointTls, HealthChecks,
    KeepaliveLimits, ProbeKind, ProbeMessage, RetryPolicy, TriedEndpoints, UpstreamProtocol,
    UpstreamStreamSettings,
};
use yumen_snapshot::{AttemptTimeouts, Balancer, HostRewrite, Upstream, UpstreamTls};

use super::report::{NodeStatus, of_upstream, samples_of};
use super::request::ProbeRequest;
use super::{Supervisor, report};
use crate::upstream::health::HealthObservation;

/// An endpoint that responds with its configured status; 0 never responds, 1 closes the connection.
struct Server {
    addr: SocketAddr,
    status: Arc<AtomicU16>,
    requests: Arc<AtomicU32>,
    last: Arc<Mutex<String>>,
}

async fn answer(mut stream: TcpStream, status: u16, last: Arc<Mutex<String>>) {
    let mut received = vec![0; 4096];
    let length = stream.read(&mut received).await.unwrap_or(0);
    *last.lock().unwrap() = String::from_utf8_lossy(&received[..length]).into_owned();
    match status {
        0 => sleep(Duration::from_secs(60)).await,
        1 => {}
        2 => drop(stream.write_all(b"SMTP, is it?\r\n\r\n").await),
        status => {
            let text =
                format!("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 {status} So\r\nContent-Length: 0\r\n\r\n");
            drop(stream.write_all(text.as_bytes()).await);
        }
    }
}

impl Server {
    async fn start(status: u16) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server {
            addr: listener.local_addr().unwrap(),
            status: Arc::new(status.into()),
            requests: Arc::default(),
            last: Arc::default(),
        };
        let (status, requests, last) = (server.status.clone(), server.requests.clone(), server.last.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                requests.fetch_add(1, Relaxed);
                tokio::spawn(answer(stream, status.load(Relaxed), last.clone()));
            }
        });
        server
    }

    fn requests(&self) -> u32 {
        self.requests.load(Relaxed)
    }
}

fn http() -> ProbeKind {
    ProbeKind::Http { path: "/up".into(), host: None, fields: [("X-Probe".into(), "yes".into())].into() }
}

fn checks(probe: ProbeKind) -> HealthChecks {
    let active = ActiveChecks {
        probe,
        message: ProbeMessage::default(),
        port: None,
        proxy_protocol: None,
        timeout_ms: 500,
        healthy_interval_ms: 20,
        healthy_statuses: [200].into(),
        successes: 2,
        unhealthy_interval_ms: 20,
        unhealthy_statuses: [500].into(),
        http_failures: 3,
        tcp_failures: 2,
        timeouts: 2,
    };
    HealthChecks { active, passive: None }
}

fn endpoint(addr: SocketAddr, health: Option<Arc<EndpointHealth>>) -> Endpoint {
    Endpoint {
        addr,
        authority: addr.to_string().into(),
        host: addr.ip().to_string().into(),
        weight: 1,
        priority: 0,
        state: Arc::new(EndpointState::new()),
        health,
        outlier: None,
    }
}

fn upstream(origin: &str, endpoints: Vec<Endpoint>, checks: Option<HealthChecks>) -> Arc<Upstream> {
    Arc::new(Upstream {
        slot: yumen_snapshot::UpstreamSlotId(0),
        origin: origin.into(),
        protocol: UpstreamProtocol::default(),
        streams: UpstreamStreamSettings::default(),
        endpoints: endpoints.into(),
        selection: EndpointSelection { balancer: Balancer::LeastConn(Default::default()), slow_start: None },
        pass_host: HostRewrite::Pass,
        retry: RetryPolicy::default(),
        timeouts: AttemptTimeouts {
            connect_ms: 1000,
            send_ms: 1000,
            read_ms: 1000,
            total_ms: 0,
            attempt_ms: 0,
        },
        keepalive: KeepaliveLimits { size: 1, idle_timeout_ms: 5000, requests: 1 },
        tls: EndpointTls::default(),
        protection: None,
        checks: checks.map(Arc::new),
        on_change: Default::default(),
        unresolved: Box::default(),
    })
}

/// An upstream of one server and the health of its endpoint.
fn watched(server: &Server) -> (Arc<Upstream>, Arc<EndpointHealth>) {
    let health = Arc::new(EndpointHealth::default());
    let endpoints = vec![endpoint(server.addr, Some(health.clone()))];
    (upstream("upstreams/1", endpoints, Some(checks(http()))), health)
}

fn snapshot(supervisor: &mut Supervisor, slots: &[Option<&Arc<Upstream>>]) {
    let slots = slots.iter().enumerate();
    supervisor.reconcile(slots.filter_map(|(slot, upstream)| Some((slot, (*upstream)?))));
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = timeout(Duration::from_secs(60), async {
        while !holds() {
            sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn an_endpoint_that_fails_goes_down_and_comes_back() {
    for status in [500, 0, 1, 2] {
        let server = Server::start(200).await;
        let (upstream, health) = watched(&server);
        let mut supervisor = Supervisor::default();
        snapshot(&mut supervisor, &[Some(&upstream)]);
        until("three probes", || server.requests() >= 3).await;
        assert!(health.is_up());
        server.status.store(status, Relaxed);
        until("down", || !health.is_up()).await;
        assert_eq!(of_upstream(&upstream).unwrap().nodes[0].status, NodeStatus::Unhealthy);
        server.status.store(200, Relaxed);
        until("up", || health.is_up()).await;
    }
}

#[tokio::test]
async fn it_takes_as_many_failures_as_the_threshold_says() {
    let server = Server::start(500).await;
    let (upstream, health) = watched(&server);
    let mut supervisor = Supervisor::default();
    snapshot(&mut supervisor, &[Some(&upstream)]);
    until("down", || !health.is_up()).await;
    // Another probe may have run before the check.
    assert!(server.requests() >= 3);
}

#[tokio::test]
async fn a_connection_is_enough_for_tcp_checks_and_a_refused_one_is_a_failure() {
    let server = Server::start(0).await;
    // Port 1 is never assigned to a test, unlike a port that was closed a moment ago.
    let closed = SocketAddr::from(([127, 0, 0, 1], 1));
    let healths: [Arc<EndpointHealth>; 2] = Default::default();
    let endpoints =
        vec![endpoint(server.addr, Some(healths[0].clone())), endpoint(closed, Some(healths[1].clone()))];
    let mut supervisor = Supervisor::default();
    snapshot(&mut supervisor, &[Some(&upstream("upstreams/1", endpoints, Some(checks(ProbeKind::Tcp))))]);
    until("down", || !healths[1].is_up()).await;
    until("probes", || server.requests() >= 3).await;
    assert!(healths[0].is_up());
}

#[tokio::test]
async fn a_probe_says_what_the_checks_say_and_goes_where_they_say() {
    let server = Server::start(200).await;
    let unreachable = SocketAddr::from(([127, 0, 0, 1], 1));
    let mut checks = checks(http());
    checks.active.port = Some(server.addr.port());
    let request = ProbeRequest::new(&checks.active, &endpoint(unreachable, None), &UpstreamTls::default());
    assert_eq!(request.send(1000).await, HealthObservation::Status(200));
    let expected = format!(
        "GET /up HTTP/1.1\r\nHost: {}\r\nUser-Agent: yumen-healthcheck\r\nConnection: close\r\nX-Probe: yes\r\n\r\n",
        server.addr
    );
    assert_eq!(*server.last.lock().unwrap(), expected);
}

#[tokio::test]
async fn probe_has_a_local_proxy_header() {
    let server = Server::start(200).await;
    for (version, port, expected) in [
        (ProxyVersion::V1, None, "PROXY UNKNOWN\r\nGET /up HTTP/1.1\r\n"),
        (ProxyVersion::V2, None, "\r\n\r\n\0\r\nQUIT\n \0\0\0GET /up HTTP/1.1\r\n"),
        // A separate check port receives no PROXY header.
        (ProxyVersion::V1, Some(server.addr.port()), "GET /up HTTP/1.1\r\n"),
    ] {
        let mut checks = checks(http());
        (checks.active.port, checks.active.proxy_protocol) = (port, Some(version));
        let addr = if port.is_some() { SocketAddr::from(([127, 0, 0, 1], 1)) } else { server.addr };
        let tls = UpstreamTls::default();
        let request = ProbeRequest::new(&checks.active, &endpoint(addr, None), &tls);
        assert_eq!(request.send(1000).await, HealthObservation::Status(200));
        let sent = server.last.lock().unwrap().clone();
        assert!(sent.starts_with(expected), "{sent:?}");
    }
}

#[tokio::test]
async fn a_new_snapshot_leaves_checkers_and_states_alone() {
    let server = Server::start(500).await;
    let (first, health) = watched(&server);
    let mut supervisor = Supervisor::default();
    snapshot(&mut supervisor, &[Some(&first)]);
    let id = || supervisor.checkers.values().map(|checker| checker.task.id()).collect::<Vec<_>>();
    let before = id();
    until("down", || !health.is_up()).await;
    // The same endpoint and checks, in another upstream and another slot.
    let second = upstream("upstreams/1", vec![first.endpoints[0].clone()], Some(checks(http())));
    snapshot(&mut supervisor, &[None, Some(&second)]);
    let id = || supervisor.checkers.values().map(|checker| checker.task.id()).collect::<Vec<_>>();
    assert_eq!(id(), before);
    assert!(!health.is_up());
    let requests = server.requests();
    until("more probes", || server.requests() > requests).await;
}

#[tokio::test]
async fn upstreams_that_share_an_endpoint_and_its_checks_share_its_checker() {
    let server = Server::start(200).await;
    let (first, health) = watched(&server);
    let second = upstream("upstreams/2", vec![first.endpoints[0].clone()], Some(checks(http())));
    let mut supervisor = Supervisor::default();
    snapshot(&mut supervisor, &[Some(&first), Some(&second)]);
    assert_eq!((supervisor.checkers.len(), supervisor.tasks.len()), (1, 1));
    snapshot(&mut supervisor, &[None, Some(&second)]);
    assert_eq!(supervisor.checkers.len(), 1);
    until("a probe", || server.requests() > 0).await;
    snapshot(&mut supervisor, &[]);
    assert_eq!(supervisor.checkers.len(), 0);
    drop((first, second));
    // The old health state is released, so that the next snapshot creates a new one.
    until("released", || Arc::strong_count(&health) == 1).await;
    // Time for probes in flight to arrive.
    sleep(Duration::from_millis(300)).await;
    let requests = server.requests();
    sleep(Duration::from_millis(100)).await;
    assert_eq!(server.requests(), requests);
}

#[tokio::test]
async fn checks_that_disappear_end_their_checkers() {
    let server = Server::start(200).await;
    let (with, _) = watched(&server);
    let without = upstream("upstreams/1", vec![endpoint(server.addr, None)], None);
    let mut supervisor = Supervisor::default();
    snapshot(&mut supervisor, &[Some(&without), Some(&with), None]);
    assert_eq!(supervisor.counters().checkers.get(), 1);
    snapshot(&mut supervisor, &[Some(&without), Some(&without)]);
    assert_eq!(supervisor.counters().checkers.get(), 0);
    assert!(supervisor.checkers.is_empty());
    snapshot(&mut supervisor, &[None, Some(&with)]);
    assert_eq!(supervisor.counters().checkers.get(), 1);
    snapshot(&mut supervisor, &[]);
    assert_eq!((supervisor.checkers.len(), supervisor.seen.len()), (0, 0));
}

#[tokio::test]
async fn snapshots_are_followed_until_their_sender_is_gone() {
    let (sender, receiver) = tokio::sync::watch::channel(Arc::default());
    let task = tokio::spawn(Supervisor::default().supervise(receiver));
    sender.send_replace(Arc::default());
    sleep(Duration::from_millis(20)).await;
    assert!(!task.is_finished());
    drop(sender);
    timeout(Duration::from_secs(5), task).await.unwrap().unwrap();
    assert!(report(&Default::default()).is_empty());
}

#[tokio::test]
async fn certificates_are_verified_where_the_checks_say_so() {
    let issued = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    let pair = crate::tls::load_key_pair(&issued.cert.pem(), &issued.signing_key.serialize_pem()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(pair)));
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut received = [0; 1024];
            let _ = stream.read(&mut received).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            let _ = stream.shutdown().await;
        }
    });
    let own_ca = UpstreamTls { ca_pem: Some(issued.cert.pem().into()), ..UpstreamTls::default() };
    for (host, verify, upstream_tls, expected) in [
        (Some("a.test:8443"), true, own_ca.clone(), HealthObservation::Status(200)),
        (Some("b.test"), true, own_ca.clone(), HealthObservation::TcpFailure),
        (None, true, own_ca, HealthObservation::TcpFailure),
        (Some("b.test"), false, UpstreamTls::default(), HealthObservation::Status(200)),
        (Some("*.no.name"), false, UpstreamTls::default(), HealthObservation::Status(200)),
        (None, false, UpstreamTls::default(), HealthObservation::Status(200)),
    ] {
        let probe =
            ProbeKind::Https { path: "/".into(), host: host.map(Box::from), fields: [].into(), verify };
        let request = ProbeRequest::new(&checks(probe).active, &endpoint(addr, None), &upstream_tls);
        assert_eq!(request.send(5000).await, expected, "{host:?} {verify}");
    }
}

#[test]
fn a_report_tells_the_state_and_what_speaks_for_another() {
    let addr = SocketAddr::from(([10, 0, 0, 1], 8080));
    let check = |up: bool, successes: u32, failures: u32, status: &str, gauge: f64| {
        let health = EndpointHealth::default();
        health.set(up);
        health.active.successes.store(successes, Relaxed);
        health.passive.tcp_failures.store(failures, Relaxed);
        let endpoints = vec![endpoint(addr, Some(Arc::new(health)))];
        let report = of_upstream(&upstream("routes/7", endpoints, Some(checks(http())))).unwrap();
        let expected = serde_json::json!([{
            "name": "/apisix/routes/7",
            "type": "http",
            "nodes": [{
                "ip": "10.0.0.1", "hostname": "10.0.0.1", "port": 8080, "status": status,
                "counter": {
                    "success": successes, "http_failure": 0, "tcp_failure": failures, "timeout_failure": 0,
                },
            }],
        }]);
        assert_eq!(serde_json::to_value([&report]).unwrap(), expected);
        let samples = samples_of(&report);
        assert_eq!(samples[0].value, yumen_base::metric::MetricValue::Number(gauge));
        let labels =
            samples[0].labels.iter().map(|(name, value)| format!("{name}={value} ")).collect::<String>();
        assert_eq!(labels, "name=/apisix/routes/7 ip=10.0.0.1 port=8080 ");
    };
    check(true, 0, 0, "healthy", 1.0);
    check(true, 0, 1, "mostly_healthy", 1.0);
    check(false, 1, 0, "mostly_unhealthy", 0.0);
    check(false, 0, 1, "unhealthy", 0.0);
}

/// The indices of the endpoints that several exchanges pick.
fn picked(upstream: &Upstream) -> Vec<usize> {
    let peer = SocketAddr::from(([10, 0, 0, 2], 5000));
    let client = ClientInfo {
        peer,
        local: peer,
        tls: None,
        connection_id: 1,
        listener: yumen_plugin::ListenerNumber::STATIC,
        mapped_port: 0,
    };
    let consumers = ConsumerIndex::default();
    let mut head = RequestHead::default();
    parse::request(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 0, &HeadLimits::default(), &mut head).unwrap();
    let host = StillHost::default();
    let ex = Exchange::new(head, &client, Now::default(), &host, &consumers);
    let mut tried = TriedEndpoints::default();
    let mut all = Vec::new();
    while let Some(index) = upstream.pick(&ex, &tried) {
        tried.push(index);
        all.push(index);
    }
    all.sort_unstable();
    all
}

#[tokio::test]
async fn requests_go_to_healthy_endpoints_and_to_all_where_none_is() {
    let servers = [Server::start(500).await, Server::start(200).await];
    let endpoints: Vec<Endpoint> =
        servers.iter().map(|server| endpoint(server.addr, Some(Arc::default()))).collect();
    let upstream = upstream("upstreams/1", endpoints, Some(checks(http())));
    let up = |index: usize| upstream.endpoints[index].health.as_ref().unwrap().is_up();
    let mut supervisor = Supervisor::default();
    snapshot(&mut supervisor, &[Some(&upstream)]);
    until("the first down", || !up(0)).await;
    assert_eq!(picked(&upstream), [1]);
    servers[1].status.store(500, Relaxed);
    until("both down", || !up(1)).await;
    assert_eq!(picked(&upstream), [0, 1]);
}
