//! Endpoints that fail and recover, and names that must be resolved.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, Response};
use serde_json::{Value, json};

use crate::harness::certs::{Authority, ecdsa};
use crate::harness::http2::{
    self, ACK, END_HEADERS, END_STREAM, HEADERS, Http2Client, Http2Upstream, SETTINGS, frame,
};
use crate::harness::tls::TlsUpstream;
use crate::harness::upstream::respond;
use crate::harness::{Gateway, Options, Upstream, eventually};

/// Fails all requests, including probes, while the switch is on.
fn switched(name: &'static str) -> (Upstream, Arc<AtomicBool>) {
    let ill = Arc::<AtomicBool>::default();
    let switch = ill.clone();
    let upstream = Upstream::start(move |request, stream| {
        let status = if switch.load(Ordering::Acquire) { 500 } else { 200 };
        let body = if request.target == "/health" { "" } else { name };
        respond(stream, status, "", body.as_bytes())
    });
    (upstream, ill)
}

fn document(a: &Upstream, b: &Upstream, checks: &Value, extra: usize) -> Value {
    let nodes = json!({ a.address.to_string(): 1, b.address.to_string(): 1 });
    let mut routes =
        vec![json!({ "id": "1", "uri": "/*", "upstream": { "nodes": nodes, "checks": checks } })];
    for i in 0..extra {
        routes.push(json!({ "id": format!("x{i}"), "uri": format!("/x{i}"), "upstream": b.alone() }));
    }
    json!({ "routes": routes })
}

fn active() -> Value {
    json!({ "active": {
        "type": "http", "http_path": "/health",
        "healthy": { "interval": 1, "successes": 1, "http_statuses": [200] },
        "unhealthy": { "interval": 1, "http_failures": 1, "http_statuses": [500] },
    } })
}

/// Whether `count` consecutive requests are served by this endpoint.
fn only(gateway: &Gateway, name: &str, count: usize) -> bool {
    (0..count).all(|_| gateway.get("/").text() == name)
}

#[test]
fn an_endpoint_whose_checks_fail_gets_nothing_until_it_is_well_again() {
    let ((a, ill), (b, _)) = (switched("a"), switched("b"));
    let gateway = Gateway::start(&document(&a, &b, &active(), 0));
    assert_eq!(gateway.get("/").status, 200);
    ill.store(true, Ordering::Release);
    eventually("a is out", 8, || only(&gateway, "b", 8));
    let report = gateway.status_json("/v1/healthcheck").to_string();
    assert!(report.contains(&a.address.port().to_string()) && report.contains("unhealthy"), "{report}");
    // The health survives a change of the configuration.
    gateway.apply(&document(&a, &b, &active(), 1));
    assert!(only(&gateway, "b", 8));
    ill.store(false, Ordering::Release);
    eventually("a is back", 8, || !only(&gateway, "b", 8));
}

#[test]
fn where_all_are_ill_all_are_asked() {
    let ((a, a_ill), (b, b_ill)) = (switched("a"), switched("b"));
    let gateway = Gateway::start(&document(&a, &b, &active(), 0));
    a_ill.store(true, Ordering::Release);
    b_ill.store(true, Ordering::Release);
    eventually("both are out", 8, || {
        gateway.status_json("/v1/healthcheck").to_string().matches("\"unhealthy\"").count() >= 2
    });
    // A response of an endpoint, not a local one.
    let reply = gateway.get("/");
    assert_eq!(reply.status, 500);
    assert!(["a", "b"].contains(&reply.text().as_str()), "{reply:?}");
}

#[test]
fn after_an_outage_of_all_one_successful_probe_draws_the_traffic() {
    let ((a, a_ill), (b, b_ill)) = (switched("a"), switched("b"));
    // An endpoint that has recovered stays unhealthy for long, and no retry hides the other one.
    let mut checks = active();
    checks["active"]["healthy"]["successes"] = json!(200);
    let mut document = document(&a, &b, &checks, 0);
    document["routes"][0]["upstream"]["retries"] = json!(0);
    let gateway = Gateway::start(&document);
    a_ill.store(true, Ordering::Release);
    b_ill.store(true, Ordering::Release);
    let states = || gateway.status_json("/v1/healthcheck")[0]["nodes"].to_string();
    eventually("both are out", 8, || states().matches("\"unhealthy\"").count() == 2);
    a_ill.store(false, Ordering::Release);
    eventually("a gets all requests", 8, || only(&gateway, "a", 8));
    assert_eq!(gateway.get("/").status, 200);
    let states = states();
    assert!(states.contains("mostly_unhealthy") && !states.contains("\"healthy\""), "{states}");
}

#[test]
fn failing_answers_take_an_endpoint_out_until_a_check_finds_it_well() {
    let ((a, ill), (b, _)) = (switched("a"), switched("b"));
    // The active checks use another port and rarely succeed: only traffic detects the failure.
    let checks = json!({
        "active": {
            "type": "tcp",
            "healthy": { "interval": 3600, "successes": 1 }, "unhealthy": { "interval": 1, "tcp_failures": 1 },
        },
        "passive": { "unhealthy": { "http_statuses": [500], "http_failures": 2 } },
    });
    let gateway = Gateway::start(&document(&a, &b, &checks, 0));
    ill.store(true, Ordering::Release);
    let before = a.requests();
    for _ in 0..40 {
        gateway.get("/");
    }
    let probes = a.requests() - before;
    assert!((2..20).contains(&probes), "{probes} of 40");
    ill.store(false, Ordering::Release);
    eventually("a is back", 8, || !only(&gateway, "b", 8));
}

#[test]
fn names_of_endpoints_are_resolved() {
    let upstream = Upstream::text("x");
    let nodes = json!({ format!("localhost:{}", upstream.address.port()): 1 });
    let gateway =
        Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": { "nodes": nodes } }] }));
    assert_eq!(gateway.get("/").text(), "x", "{}", gateway.log());
    let unknown = json!({ "upstream": { "nodes": { "no-such-name.invalid:80": 1 } } });
    let at = |id: &str, uri: &str| {
        let mut route = unknown.clone();
        (route["id"], route["uri"]) = (json!(id), json!(uri));
        route
    };
    gateway.apply(&json!({ "routes": [at("1", "/*"), at("2", "/new")] }));
    assert_eq!(gateway.get("/new").status, 503);
    assert_eq!(gateway.get("/").text(), "x", "it goes on to what it had");
    eventually("both are told", 5, || {
        let problems = gateway.status_json("/yumen/v1/problems");
        let message = |at: usize| problems[at]["message"].as_str().unwrap_or_default().to_owned();
        [message(0), message(1)] == ["no-such-name.invalid has no address"; 2].map(str::to_owned)
    });
}

/// A gRPC service that responds with its name; its health service reports the switch.
fn healthy_service(name: &'static str) -> (Http2Upstream, Arc<AtomicBool>) {
    let ill = Arc::<AtomicBool>::default();
    let switch = ill.clone();
    let service = Http2Upstream::start(move |call, mut respond| {
        let ill = switch.load(Ordering::Acquire);
        async move {
            let is_check = call.uri().path() == "/grpc.health.v1.Health/Check";
            let (message, _) = http2::read_body(&mut call.into_body()).await?;
            let head = Response::builder().header("content-type", "application/grpc").header("x-name", name);
            let mut sender = respond.send_response(head.body(()).unwrap(), false)?;
            if is_check {
                assert_eq!(message, b"\0\0\0\0\x05\x0a\x03s.S");
                let status = if ill { 2 } else { 1 };
                http2::send(&mut sender, &[0, 0, 0, 0, 2, 8, status], false).await?;
            }
            sender
                .send_trailers(HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]))
        }
    });
    (service, ill)
}

#[test]
fn a_health_service_of_grpc_takes_an_endpoint_out_and_back() {
    let ((a, ill), (b, _)) = (healthy_service("a"), healthy_service("b"));
    let checks = json!({ "active": { "type": "grpc", "grpc_service": "s.S",
        "healthy": { "interval": 1, "successes": 1 },
        "unhealthy": { "interval": 1, "http_failures": 1 } } });
    let nodes = json!({ a.address.to_string(): 1, b.address.to_string(): 1 });
    let upstream = json!({ "nodes": nodes, "scheme": "grpc", "checks": checks });
    let gateway = Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] }));
    let only_b = || {
        http2::run(async {
            let mut client = Http2Client::connect(gateway.http).await;
            let mut names = Vec::new();
            for _ in 0..8 {
                let mut call = http2::request("POST", "/s.S/M");
                call.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
                names.push(client.ask(call, b"").await.unwrap().field("x-name").to_owned());
            }
            names.iter().all(|name| name == "b")
        })
    };
    assert!(!only_b());
    ill.store(true, Ordering::Release);
    eventually("a is out", 60, only_b);
    let report = gateway.status_json("/v1/healthcheck").to_string();
    assert!(report.contains("\"grpc\"") && report.contains("unhealthy"), "{report}");
    ill.store(false, Ordering::Release);
    eventually("a is back", 60, || !only_b());
}

#[test]
fn probes_call_an_endpoint_by_the_host_that_requests_get() {
    let named = || {
        Upstream::start(|request, stream| {
            let is_named = request.field("host") == Some("app.test:81");
            respond(stream, if is_named { 200 } else { 500 }, "", b"")
        })
    };
    let checks = |more: Value| {
        let mut checks = json!({ "active": {
            "type": "http", "healthy": { "interval": 1, "successes": 1 },
            "unhealthy": { "interval": 1, "http_failures": 1, "http_statuses": [500] } } });
        checks["active"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        checks
    };
    let (rewritten, written, passed) = (named(), named(), named());
    let pair = Authority::new("known").sign("app", &["app.test"], ecdsa());
    let tls = TlsUpstream::text(&pair, "app");
    let route = |id: &str, at: SocketAddr, more: Value, checked: Value| {
        let mut upstream = json!({ "nodes": { at.to_string(): 1 }, "checks": checks(checked) });
        upstream.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "id": id, "uri": format!("/{id}"), "upstream": upstream })
    };
    let rewrite = |host: &str| json!({ "pass_host": "rewrite", "upstream_host": host });
    let mut https = rewrite("app.test:81");
    https["scheme"] = "https".into();
    let unverified = json!({ "type": "https", "https_verify_certificate": false });
    let routes = [
        route("rewritten", rewritten.address, rewrite("app.test:81"), json!({})),
        route("written", written.address, rewrite("other.test"), json!({ "host": "app.test:81" })),
        route("passed", passed.address, json!({ "upstream_host": "app.test:81" }), json!({})),
        route("https", tls.address, https, unverified),
    ];
    let gateway = Gateway::start(&json!({ "routes": routes }));
    eventually("all were probed", 10, || {
        rewritten.requests() > 1 && written.requests() > 1 && passed.requests() > 1 && tls.connections() > 0
    });
    let states = gateway.status_json("/v1/healthcheck");
    let state = |id: &str| {
        let name = format!("/apisix/routes/{id}");
        let all = states.as_array().unwrap();
        all.iter().find(|one| one["name"] == name.as_str()).unwrap()["nodes"][0]["status"].clone()
    };
    assert_eq!([state("rewritten"), state("written"), state("passed")], ["healthy", "healthy", "unhealthy"]);
    eventually("the probe began TLS with it", 10, || tls.names().first() == Some(&Some("app.test".into())));
}

/// Responds to the first HTTP/2 request of each connection, and to further ones with a head without a status.
fn forgets_the_status() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = |mut stream: TcpStream| -> std::io::Result<()> {
        let mut head: &[u8] = &[0x88];
        stream.read_exact(&mut [0; 24])?;
        stream.write_all(&frame(SETTINGS, 0, 0, b""))?;
        loop {
            let mut begin = [0; 9];
            stream.read_exact(&mut begin)?;
            let length = u32::from_be_bytes([0, begin[0], begin[1], begin[2]]);
            std::io::copy(&mut (&mut stream).take(length.into()), &mut std::io::sink())?;
            if begin[3] == SETTINGS && begin[4] & ACK == 0 {
                stream.write_all(&frame(SETTINGS, ACK, 0, b""))?;
            } else if begin[3] == HEADERS {
                let id = u32::from_be_bytes([begin[5], begin[6], begin[7], begin[8]]);
                stream.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, id, head))?;
                head = b"\x00\x01a\x01b";
            }
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

#[test]
fn an_endpoint_whose_answers_are_none_is_left_out() {
    let (old, new) = (Upstream::text("x"), Http2Upstream::echo());
    let garbage = Upstream::start(|_, stream| stream.write_all(b"garbage\r\n\r\n").is_ok());
    let unchunked = Upstream::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n").is_ok()
    });
    let outliers = json!({ "outlier_detection": {
        "consecutive_gateway_failures": 2, "base_ejection_time": 600, "max_ejected_percent": 50 } });
    // The active checks use another port and rarely succeed: only traffic detects the failure.
    let passive = json!({ "checks": {
        "active": { "type": "tcp", "healthy": { "interval": 3600 }, "unhealthy": { "interval": 3600 } },
        "passive": { "unhealthy": { "http_failures": 2 } } } });
    let over_http2 = json!({ "http_version": "2" });
    for (broken, well, settings, fault) in [
        (garbage.address, old.address, [&outliers, &json!({})], "upstream_head"),
        (garbage.address, old.address, [&passive, &json!({})], "upstream_head"),
        (unchunked.address, old.address, [&passive, &json!({})], "upstream_body"),
        // On a reused connection, where a close alone would not count against the endpoint.
        (forgets_the_status(), new.address, [&outliers, &over_http2], "upstream_head"),
    ] {
        let mut upstream = json!({ "nodes": { broken.to_string(): 1, well.to_string(): 1 } });
        for more in settings {
            upstream.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        }
        let document = json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] });
        let gateway = Gateway::with(&document, &Options { workers: 1, ..Options::default() });
        let failed = (0..20).filter(|_| gateway.get("/").status == 502).count();
        let counted = gateway.metric(&format!("yumen_faults_total{{fault=\"{fault}\",side=\"upstream\"}}"));
        assert_eq!((failed, counted), (2, 2.0), "{settings:?}");
    }
}
