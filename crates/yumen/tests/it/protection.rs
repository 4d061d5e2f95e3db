//! Overloaded upstreams, and endpoints that fail while others do not.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::http2::{self, Http2Client};
use crate::harness::upstream::{Gate, respond};
use crate::harness::{Client, Gateway, Options, Reply, Upstream, eventually, eventually_async, free_port};
use crate::l4;

/// Responds when the gate is open.
fn gated(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |_, stream| {
        gate.pass();
        respond(stream, 200, "", b"done")
    })
}

fn document(upstreams: &[&Upstream], settings: &Value) -> Value {
    let nodes: serde_json::Map<String, Value> =
        upstreams.iter().map(|upstream| (upstream.address.to_string(), json!(1))).collect();
    let mut upstream = settings.clone();
    upstream["nodes"] = nodes.into();
    json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] })
}

fn ask(gateway: &Gateway) -> Client {
    let mut client = Client::connect(gateway.http);
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    client
}

#[track_caller]
fn refused(reply: &Reply, status: u16, message: &str) {
    assert_eq!((reply.status, reply.json()["error_msg"].as_str()), (status, Some(message)));
}

fn pending(gateway: &Gateway) -> f64 {
    gateway.metric("yumen_upstream_pending{upstream=\"routes/1\"}")
}

#[test]
fn requests_beyond_the_bound_wait_and_those_beyond_the_queue_are_refused() {
    let gate = Gate::default();
    let upstream = gated(&gate);
    let limits = json!({ "limits": { "max_requests": 2, "max_pending": 1, "pending_timeout": 60 } });
    let gateway = Gateway::start(&document(&[&upstream], &limits));
    let mut busy = vec![ask(&gateway), ask(&gateway)];
    eventually("two are at the upstream", 10, || upstream.requests() == 2);
    // A change of the configuration does not reset the counts.
    let mut changed = document(&[&upstream], &limits);
    let other = json!({ "id": "2", "uri": "/other", "upstream": upstream.alone() });
    changed["routes"].as_array_mut().unwrap().push(other);
    gateway.apply(&changed);
    busy.push(ask(&gateway));
    eventually("one waits", 10, || pending(&gateway) == 1.0);
    let reply = gateway.get("/");
    refused(&reply, 503, "the upstream has no room for another request");
    assert_eq!(reply.field("retry-after"), Some("1"));
    assert_eq!(upstream.requests(), 2);
    gate.open();
    for client in &mut busy {
        assert_eq!(client.reply().text(), "done");
    }
    assert_eq!((upstream.requests(), pending(&gateway)), (3, 0.0));
    gateway.assert_metric("yumen_upstream_refused_total{reason=\"full\",upstream=\"routes/1\"}", 1.0);
    eventually("nothing is counted any more", 10, || {
        gateway.metric("yumen_upstream_requests{upstream=\"routes/1\"}") == 0.0
    });
}

#[test]
fn no_request_waits_longer_than_the_queue_timeout() {
    let gate = Gate::default();
    let upstream = gated(&gate);
    let limits = json!({ "limits": { "max_requests": 1, "max_pending": 5, "pending_timeout": 0.2 } });
    let gateway = Gateway::start(&document(&[&upstream], &limits));
    let mut busy = ask(&gateway);
    eventually("one is at the upstream", 10, || upstream.requests() == 1);
    refused(&gateway.get("/"), 503, "there was no room at the upstream in time");
    gate.open();
    assert_eq!(busy.reply().status, 200);
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn an_endpoint_that_is_full_is_passed_over() {
    let gate = Gate::default();
    let (a, b) = (gated(&gate), gated(&gate));
    for settings in [
        json!({ "limits": { "per_endpoint": { "max_requests": 2 } } }),
        json!({ "limits": { "per_endpoint": { "max_connections": 2 } }, "type": "chash", "key": "uri" }),
    ] {
        let (before_a, before_b) = (a.requests(), b.requests());
        let gateway = Gateway::start(&document(&[&a, &b], &settings));
        let _busy: Vec<Client> = (0..4).map(|_| ask(&gateway)).collect();
        eventually("both have two", 10, || a.requests() == before_a + 2 && b.requests() == before_b + 2);
        refused(&gateway.get("/"), 503, "the upstream has no room for another request");
    }
    gate.open();
}

#[test]
fn connections_are_shared_by_all_who_wait() {
    let (running, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let counted = (running.clone(), most.clone());
    let upstream = Upstream::start(move |_, stream| {
        let (running, most) = &counted;
        most.fetch_max(running.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
        // Scripted: requests overlap at the endpoint if the gateway allows it.
        std::thread::sleep(std::time::Duration::from_millis(2));
        running.fetch_sub(1, Ordering::AcqRel);
        respond(stream, 200, "", b"done")
    });
    let limits = json!({ "limits": { "max_connections": 2, "max_pending": 100, "pending_timeout": 60 } });
    let gateway = Gateway::start(&document(&[&upstream], &limits));
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let address = gateway.http;
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                (0..10).filter(|_| client.get("/").status == 200).count()
            })
        })
        .collect();
    let served: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert_eq!((served, upstream.requests()), (200, 200));
    assert!(most.load(Ordering::Acquire) <= 2, "{most:?} at a time");
    assert!(gateway.metric("yumen_upstream_connections{upstream=\"routes/1\"}") <= 2.0);
}

#[test]
fn upstreams_of_one_node_do_not_take_each_others_connections() {
    let gate = Gate::default();
    let upstream = gated(&gate);
    let bounded = json!({ "nodes": { upstream.address.to_string(): 1 }, "limits": { "max_connections": 1 } });
    let document = json!({ "routes": [
        { "id": "1", "uri": "/bounded", "upstream": bounded },
        { "id": "2", "uri": "/*", "upstream": upstream.alone() },
    ] });
    let gateway = Gateway::with(&document, &Options { workers: 1, ..Options::default() });
    let ask = |path: &str| {
        let mut client = Client::connect(gateway.http);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        client
    };
    let answered =
        |clients: &mut Vec<Client>| clients.drain(..).all(|mut client| client.reply().status == 200);
    gate.open();
    assert!(answered(&mut vec![ask("/bounded")]));
    gate.close();
    // An unbounded upstream leaves the one slot to the bounded one.
    let mut busy = vec![ask("/other")];
    eventually("the other is at the upstream", 10, || upstream.requests() == 2);
    busy.push(ask("/bounded"));
    eventually("so is the bounded one", 10, || upstream.requests() == 3);
    busy.extend((0..3).map(|_| ask("/other")));
    eventually("there are four", 10, || upstream.requests() == 6);
    gate.open();
    assert!(answered(&mut busy));
    gate.close();
    // Five connections are idle, of which the bound counts one.
    busy.push(ask("/bounded"));
    eventually("one is at the upstream", 10, || upstream.requests() == 7);
    for _ in 0..2 {
        refused(&gateway.get("/bounded"), 503, "the upstream has no room for another request");
    }
    gate.open();
    assert!(answered(&mut busy));
}

#[test]
fn a_bound_that_is_lowered_holds_for_connections_that_idle() {
    let gate = Gate::default();
    let upstream = gated(&gate);
    let bound = |most: u32| document(&[&upstream], &json!({ "limits": { "max_connections": most } }));
    let gateway = Gateway::with(&bound(6), &Options { workers: 1, ..Options::default() });
    let mut busy: Vec<Client> = (0..6).map(|_| ask(&gateway)).collect();
    eventually("six are at the upstream", 10, || upstream.requests() == 6);
    gate.open();
    assert!(busy.drain(..).all(|mut client| client.reply().status == 200));
    gate.close();
    gateway.apply(&bound(2));
    busy.extend((0..2).map(|_| ask(&gateway)));
    eventually("two are at the upstream", 10, || upstream.requests() == 8);
    refused(&gateway.get("/"), 503, "the upstream has no room for another request");
    let open = || gateway.metric("yumen_upstream_connections{upstream=\"routes/1\"}");
    eventually("no more are open", 10, || open() == 2.0);
    gate.open();
    assert!(busy.drain(..).all(|mut client| client.reply().status == 200));
}

#[test]
fn an_endpoint_that_fails_is_left_out_and_comes_back_by_itself() {
    let ill = Arc::new(AtomicBool::new(true));
    let switch = ill.clone();
    let a = Upstream::start(move |_, stream| {
        respond(stream, if switch.load(Ordering::Acquire) { 500 } else { 200 }, "", b"a")
    });
    let b = Upstream::text("b");
    let outliers = json!({ "outlier_detection": {
        "consecutive_5xx": 3, "base_ejection_time": 2, "max_ejection_time": 2,
    } });
    let gateway = Gateway::start(&document(&[&a, &b], &outliers));
    let only_b = || (0..8).all(|_| gateway.get("/").text() == "b");
    eventually("a is left out", 20, only_b);
    let name = format!("{{endpoint=\"{}\",upstream=\"routes/1\"}}", a.address);
    eventually("the line is logged", 20, || {
        (0..8).for_each(|_| drop(gateway.get("/")));
        let status = gateway.status_json("/status");
        let is_listed = status["ejected"][0]["endpoint"] == a.address.to_string();
        is_listed && gateway.metric(&format!("yumen_endpoint_ejected{name}")) == 1.0
    });
    ill.store(false, Ordering::Release);
    eventually("a is back", 20, || gateway.get("/").text() == "a");
    assert!(gateway.metric(&format!("yumen_endpoint_ejections_total{name}")) >= 1.0);
    gateway.assert_metric(&format!("yumen_endpoint_ejected{name}"), 0.0);
}

#[test]
fn retries_beyond_the_budget_are_not_made() {
    let up = Upstream::text("up");
    let nodes = json!({ up.address.to_string(): 1, free_port().to_string(): 1 });
    let with = |budget: Value| {
        let upstream = json!({ "nodes": nodes, "retry_budget": budget });
        Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] }))
    };
    let statuses = |gateway: &Gateway| (0..8).map(|_| gateway.get("/").status).collect::<Vec<_>>();
    // By round robin, every second request needs a retry.
    assert_eq!(statuses(&with(json!({}))), [200; 8]);
    let none = with(json!({ "percent": 0, "min_concurrency": 0 }));
    let found = statuses(&none);
    assert!(found.contains(&502) && found.contains(&200), "{found:?}");
    assert!(none.metric("yumen_upstream_refused_total{reason=\"retry_budget\",upstream=\"routes/1\"}") > 0.0);
}

#[test]
fn waiting_requests_use_raised_limits() {
    for changed in [json!({ "limits": { "max_requests": 3, "max_pending": 9 } }), json!({})] {
        let gate = Gate::default();
        let upstream = gated(&gate);
        let limits = json!({ "limits": { "max_requests": 1, "max_pending": 9, "pending_timeout": 60 } });
        let gateway = Gateway::start(&document(&[&upstream], &limits));
        let mut clients = [(); 3].map(|()| ask(&gateway));
        eventually("two wait", 10, || pending(&gateway) == 2.0 && upstream.requests() == 1);
        gateway.apply(&document(&[&upstream], &changed));
        eventually("nobody waits", 10, || upstream.requests() == 3);
        gate.open();
        assert_eq!(clients.each_mut().map(|client| client.reply().status), [200; 3], "{changed}");
    }
}

#[test]
fn waiting_requests_use_new_endpoints() {
    let limits = json!({ "limits": {
        "per_endpoint": { "max_requests": 1 }, "max_pending": 2, "pending_timeout": 60,
    } });
    for is_added in [false, true] {
        let gate = Gate::default();
        let (hangs, idles) = (gated(&gate), Upstream::text("idle"));
        let gateway = Gateway::start(&document(&[&hangs], &limits));
        let mut clients = [(); 3].map(|()| ask(&gateway));
        eventually("two wait", 10, || pending(&gateway) == 2.0 && hangs.requests() == 1);
        let both = [&hangs, &idles];
        gateway.apply(&document(&both[usize::from(!is_added)..], &limits));
        eventually("nobody waits", 10, || pending(&gateway) == 0.0 && idles.requests() == 2);
        // A new request does not wait either if there is room.
        assert_eq!(gateway.get("/").text(), "idle", "added: {is_added}");
        gate.open();
        let mut texts = clients.each_mut().map(|client| client.reply().text());
        texts.sort();
        assert_eq!(texts, ["done", "idle", "idle"], "added: {is_added}");
    }
}

#[test]
fn a_request_that_no_endpoint_has_seen_waits_for_room_though_one_was_tried() {
    let gate = Gate::default();
    let upstream = gated(&gate);
    let limits = json!({ "per_endpoint": { "max_requests": 1 }, "max_pending": 9, "pending_timeout": 60 });
    let nodes = json!({ upstream.address.to_string(): 1, free_port().to_string(): 1 });
    let settings = json!({ "nodes": nodes, "limits": limits });
    let gateway = Gateway::start(&json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": settings }] }));
    let mut clients = [(); 6].map(|()| {
        let mut client = Client::connect(gateway.http);
        client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
        client
    });
    eventually("five wait", 10, || pending(&gateway) == 5.0 && upstream.requests() == 1);
    gate.open();
    assert_eq!(clients.each_mut().map(|client| client.reply().status), [200; 6]);
    assert_eq!(upstream.requests(), 6);
}

#[test]
fn a_request_that_is_out_of_time_is_given_up() {
    let gate = Gate::default();
    let upstream = gated(&gate);
    let timeout = json!({ "connect": 60, "send": 60, "read": 60, "total": 0.3 });
    let gateway = Gateway::start(&document(&[&upstream], &json!({ "timeout": timeout })));
    let mut client = ask(&gateway);
    refused(&client.reply(), 504, "the deadline of the request has passed");
    gate.open();
    // The next request has its own deadline.
    assert_eq!(client.get("/").status, 200);
    gateway.assert_metric("yumen_faults_total{fault=\"deadline\",side=\"client\"}", 1.0);
}

#[test]
fn a_deadline_is_not_held_against_the_endpoint() {
    let gate = Gate::default();
    let (a, b) = (gated(&gate), gated(&gate));
    let settings = json!({
        "timeout": { "connect": 60, "send": 60, "read": 60, "total": 0.1 },
        "outlier_detection": { "consecutive_gateway_failures": 1 },
    });
    let gateway = Gateway::start(&document(&[&a, &b], &settings));
    for _ in 0..4 {
        refused(&gateway.get("/"), 504, "the deadline of the request has passed");
    }
    // A deadline is no reason for a retry either.
    assert_eq!(a.requests() + b.requests(), 4);
    assert_eq!(gateway.status_json("/status")["ejected"], json!([]));
    gate.open();
}

#[test]
fn clients_open_no_circuit_by_deadlines_of_their_own_and_operators_do() {
    let unhealthy = json!({ "http_statuses": [504], "failures": 3 });
    let breaker = json!({ "break_response_code": 502, "unhealthy": unhealthy });
    let plugins = json!({ "deadline": {}, "api-breaker": breaker });
    let start = |upstream: &Upstream, timeouts: Value| {
        let mut resources = document(&[upstream], &json!({ "timeout": timeouts }));
        resources["routes"][0]["plugins"] = plugins.clone();
        Gateway::start(&resources)
    };
    let gate = Gate::default();
    let upstream = gated(&gate);
    let patient = start(&upstream, json!({ "connect": 60, "send": 60, "read": 60 }));
    // Deadlines and aborts of clients must not open the circuit.
    for _ in 0..3 {
        assert_eq!(patient.get_with("/", "X-Envoy-Expected-Rq-Timeout-Ms: 30\r\n").status, 504);
        drop(ask(&patient));
    }
    for timeouts in [
        json!({ "connect": 60, "send": 60, "read": 60, "total": 0.1 }),
        json!({ "connect": 60, "send": 60, "read": 0.1 }),
    ] {
        let strict = start(&upstream, timeouts.clone());
        assert_eq!([(); 3].map(|()| strict.get("/").status), [504; 3], "{timeouts}");
        // The outcome is recorded after the response.
        eventually("the circuit opens", 10, || strict.get("/").status == 502);
    }
    gate.open();
    assert_eq!(patient.get("/").status, 200);
}

#[test]
fn a_deadline_counts_the_wait_for_room_and_is_passed_on() {
    let gate = Gate::default();
    let upstream = gated(&gate);
    let limits = json!({ "limits": { "max_requests": 1, "max_pending": 5, "pending_timeout": 60 } });
    let mut resources = document(&[&upstream], &limits);
    let echo = Upstream::echo("echo");
    let route = json!({ "id": "2", "uri": "/echo", "upstream": echo.alone() });
    resources["routes"].as_array_mut().unwrap().push(route);
    resources["global_rules"] = json!([{ "id": "1", "plugins": { "deadline": {} } }]);
    let gateway = Gateway::start(&resources);
    let mut busy = ask(&gateway);
    eventually("one is at the upstream", 10, || upstream.requests() == 1);
    let late = gateway.get_with("/", "X-Envoy-Expected-Rq-Timeout-Ms: 200\r\n");
    refused(&late, 504, "the deadline of the request has passed");
    // Expired on arrival.
    let over = gateway.get_with("/echo", "X-Request-Deadline: 1600000000000\r\n");
    refused(&over, 504, "the deadline of the request has passed");
    assert_eq!((upstream.requests(), echo.requests()), (1, 0));
    let reply = gateway.get_with("/echo", "Grpc-Timeout: 50S\r\n");
    let left = reply.json()["fields"]["x-envoy-expected-rq-timeout-ms"].as_str().map(str::to_owned);
    let left: u64 = left.expect("the line is logged").parse().unwrap();
    assert!((1..=50_000).contains(&left), "{left}");
    gate.open();
    assert_eq!(busy.reply().status, 200);
}

#[test]
fn an_adaptive_limit_refuses_what_is_above_it() {
    let gate = Gate::default();
    let upstream = gated(&gate);
    let mut resources = document(&[&upstream], &json!({}));
    let settings = json!({ "min_concurrency": 2, "max_concurrency": 2 });
    resources["routes"][0]["plugins"] = json!({ "adaptive-concurrency": settings });
    let gateway = Gateway::start(&resources);
    let mut busy = [ask(&gateway), ask(&gateway)];
    eventually("two are at the upstream", 10, || upstream.requests() == 2);
    refused(&gateway.get("/"), 503, "the upstream is at its concurrency limit");
    gateway.assert_metric("yumen_adaptive_concurrency_limit{owner=\"routes/1\"}", 2.0);
    gate.open();
    busy.iter_mut().for_each(|client| assert_eq!(client.reply().status, 200));
    eventually("there is room again", 10, || gateway.get("/").status == 200);
}

/// An address with a full backlog, which accepts no connection.
fn black_hole() -> (std::net::TcpListener, Vec<std::net::TcpStream>) {
    let listener = http2::run(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        socket.listen(0).unwrap().into_std().unwrap()
    });
    let address = listener.local_addr().unwrap();
    let wait = std::time::Duration::from_millis(300);
    let waiting = std::iter::from_fn(|| std::net::TcpStream::connect_timeout(&address, wait).ok());
    let waiting = waiting.take(10).collect();
    (listener, waiting)
}

#[test]
fn a_client_that_leaves_while_an_endpoint_is_connected_to_gives_its_place_back() {
    let (hole, _waiting) = black_hole();
    let upstream = json!({
        "nodes": { hole.local_addr().unwrap().to_string(): 1 }, "timeout": { "connect": 3600, "send": 60, "read": 60 },
        "limits": { "max_requests": 1, "max_pending": 0 },
    });
    let document = json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] });
    let options = Options { node: "timeouts: {half_closed_ms: 50}", ..Options::default() };
    let gateway = Gateway::with(&document, &options);
    let is_under_way = |count: f64| {
        let sample = format!("yumen_upstream_requests{{upstream=\"routes/1\"}} {count}\n");
        gateway.status_text("/metrics").1.contains(&sample)
    };
    let client = ask(&gateway);
    eventually("the request is under way", 20, || is_under_way(1.0));
    drop(client);
    eventually("its place is free", 20, || is_under_way(0.0));
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let (answer, mut stream) = client.begin(http2::request("GET", "/")).await;
        eventually_async("the request is under way", 20, || is_under_way(1.0)).await;
        stream.send_reset(h2::Reason::CANCEL);
        assert!(answer.await.is_err());
        eventually_async("its place is free", 20, || is_under_way(0.0)).await;
    });
}

/// An endpoint that sends "a" on each connection while `streams` runs.
fn listen_for(address: SocketAddr, mut streams: impl FnMut()) {
    let listener = TcpListener::bind(address).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let is_over_writer = is_over.clone();
    let serving = std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept()
            && !is_over_writer.load(Ordering::Relaxed)
        {
            let _ = stream.write_all(b"a");
        }
    });
    streams();
    is_over.store(true, Ordering::Relaxed);
    drop(TcpStream::connect(address));
    serving.join().unwrap();
}

#[test]
fn streams_that_succeed_speak_for_their_endpoint() {
    let (wavering, other) = (free_port(), l4::named("b"));
    let mut upstream = l4::nodes(&[wavering, other]);
    upstream["outlier_detection"] = json!({ "consecutive_gateway_failures": 2, "base_ejection_time": 600 });
    let routes = json!({ "stream_routes": [{ "id": "s", "upstream": upstream }] });
    let (gateway, at) = l4::start(l4::TCP, &routes);
    let retries = || gateway.metric("yumen_upstream_retries_total");
    let ejected = format!("yumen_endpoint_ejected{{endpoint=\"{wavering}\",upstream=\"stream_routes/s\"}}");
    let fail_once = || {
        let before = retries();
        eventually("it fails", 10, || l4::first(&mut l4::connect(at[0])) == "b" && retries() > before);
    };
    for _ in 0..3 {
        fail_once();
        listen_for(wavering, || eventually("it is there", 10, || l4::first(&mut l4::connect(at[0])) == "a"));
    }
    gateway.assert_metric(&ejected, 0.0);
    (0..2).for_each(|_| fail_once());
    gateway.assert_metric(&ejected, 1.0);
}
