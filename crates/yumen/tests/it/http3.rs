//! HTTP/3 from outside: bodies in both directions, and all kinds of ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, Bytes};
use h3::error::Code;
use http::HeaderMap;
use serde_json::{Value, json};

use crate::harness::certs::{self, Authority, Pair};
use crate::harness::http2::{self, Http2Upstream};
use crate::harness::http3::{Http3Client, request};
use crate::harness::upstream::{Gate, respond};
use crate::harness::{Gateway, Options, Upstream, eventually, eventually_async, noise, run, settles};

/// A gateway with HTTP/3 for `a.test`, and the authority of its certificate.
pub(crate) struct World {
    pub(crate) gateway: Gateway,
    authority: Authority,
}

impl World {
    pub(crate) fn start(routes: Value, workers: u32, more: &str) -> World {
        World::with(routes, workers, more, &json!({}))
    }

    /// `ssl` are further settings of the certificate object.
    fn with(routes: Value, workers: u32, more: &str, ssl: &Value) -> World {
        let authority = Authority::new("known");
        let pair = authority.sign("a", &["a.test"], certs::ecdsa());
        let mut object = json!({ "id": "a", "cert": pair.cert, "key": pair.key, "snis": ["a.test"] });
        object.as_object_mut().unwrap().extend(ssl.as_object().unwrap().clone());
        // The system chooses the ports.
        let any = "address: '127.0.0.1:0'";
        let node = format!("listen: [{{{any}}}, {{{any}, tls: true, http3: true}}]\n{more}");
        let options = Options { node: &node, own_listeners: true, workers, ..Options::default() };
        let gateway = Gateway::with(&json!({ "routes": routes, "ssls": [object] }), &options);
        World { gateway, authority }
    }

    pub(crate) async fn client(&self) -> Http3Client {
        self.try_client().await.expect("a handshake")
    }

    pub(crate) async fn try_client(&self) -> Result<Http3Client, quinn::ConnectionError> {
        Http3Client::connect(self.gateway.https, "a.test", &self.authority.cert, None).await
    }

    /// A client with this receive window for each stream.
    pub(crate) async fn client_with_window(&self, window_bytes: u32) -> Http3Client {
        Http3Client::with_window(self.gateway.https, "a.test", &self.authority.cert, window_bytes).await
    }

    async fn client_as(&self, client_pair: &Pair) -> Result<Http3Client, quinn::ConnectionError> {
        Http3Client::connect(self.gateway.https, "a.test", &self.authority.cert, Some(client_pair)).await
    }

    /// Whether a client gets a response. A refused client certificate may only show then.
    async fn serves(&self, client_pair: Option<&Pair>) -> bool {
        let connected =
            Http3Client::connect(self.gateway.https, "a.test", &self.authority.cert, client_pair).await;
        let Ok(client) = connected else { return false };
        client.try_ask(request("GET", "/")).await
    }
}

fn echo_http1() -> Upstream {
    Upstream::start(|request, stream| respond(stream, 200, "X-Version: 1\r\n", &request.body))
}

#[test]
fn bodies_of_all_sizes_go_both_ways_to_upstreams_of_both_versions() {
    let (old, new) = (echo_http1(), Http2Upstream::echo());
    let world = World::start(
        json!([
            { "id": "1", "uri": "/1", "upstream": old.alone() },
            { "id": "2", "uri": "/2", "upstream": new.alone() },
        ]),
        2,
        "",
    );
    http2::run(async {
        let client = world.client().await;
        for (path, version) in [("/1", "1"), ("/2", "2")] {
            for size in [0, 1, 16_385, 300_000, 3_000_000] {
                let body = noise(size);
                let answer = client.ask(request("POST", path), &body).await;
                assert!(answer.status == 200 && answer.body == body, "to {version}, {size}");
                assert_eq!(answer.field("x-version"), version);
            }
        }
        let head = client.ask(request("HEAD", "/1"), b"").await;
        assert_eq!((head.status, head.body.len(), head.field("content-length")), (200, 0, "0"));
    });
    // All requests shared one connection.
    world.gateway.assert_metric("yumen_http3_connections_total", 1.0);
    world.gateway.assert_metric("yumen_http3_faults_total", 0.0);
}

#[test]
fn an_endpoint_gets_the_path_that_the_route_was_chosen_by() {
    let upstream = Http2Upstream::echo();
    let guard = json!({ "ip-restriction": { "whitelist": ["10.0.0.1"] } });
    let routes = json!([
        { "id": "open", "uri": "/pub/*", "upstream": upstream.alone() },
        { "id": "guarded", "uri": "/admin/*", "plugins": guard, "upstream": upstream.alone() },
    ]);
    let world = World::start(routes, 1, "");
    http2::run(async {
        let client = world.client().await;
        // The endpoint gets the normalized path, by which the route was chosen.
        for path in ["/admin/../pub/y", "/admin/%2e%2e/pub/y", "/admin/x%2F..%2F..%2Fpub/y"] {
            assert_eq!(client.ask(request("GET", path), b"").await.field("x-target"), "/pub/y", "{path}");
        }
        // Other servers resolve these forms as dot segments, so they belong to the guarded route.
        for path in ["/pub/..;/admin/x", "/pub/..%5cadmin/x"] {
            assert_eq!(client.ask(request("GET", path), b"").await.status, 403, "{path}");
        }
        let refused = client.ask(request("TRACE", "/pub/y"), b"").await;
        assert_eq!(refused.status, 405);
    });
}

#[test]
fn many_streams_are_served_at_once() {
    let upstream = echo_http1();
    let world = World::start(json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]), 2, "");
    http2::run(async {
        let client = world.client().await;
        let bodies: Vec<Vec<u8>> = (0..300).map(|count| noise(count * 100)).collect();
        let requests = bodies.iter().map(|body| client.ask(request("POST", "/"), body));
        let answers = futures(requests).await;
        for (answer, body) in answers.iter().zip(&bodies) {
            assert!(answer.status == 200 && answer.body == *body, "{}", body.len());
        }
    });
}

/// Waits until every buffer on a path is full, and returns the number of bytes that were sent.
async fn settled(sent: &AtomicUsize) -> usize {
    eventually_async("the buffers are full", 20, settles(|| sent.load(Ordering::Acquire))).await;
    sent.load(Ordering::Acquire)
}

const LARGE: usize = 96 * 1024 * 1024;
/// Upper bound of all windows and socket buffers on the path, with a margin.
const HELD: usize = 48 * 1024 * 1024;

#[test]
fn an_answer_is_read_no_faster_than_the_client_takes_it() {
    let written = Arc::<AtomicUsize>::default();
    let counted = written.clone();
    let upstream = Upstream::start(move |_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes());
        let piece = vec![b'x'; 64 * 1024];
        (0..LARGE / piece.len()).all(|_| {
            counted.fetch_add(piece.len(), Ordering::AcqRel);
            stream.write_all(&piece).is_ok()
        })
    });
    let world = World::start(json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]), 1, "");
    http2::run(async {
        let client = world.client().await;
        let mut stream = client.begin(request("GET", "/")).await;
        stream.finish().await.unwrap();
        assert_eq!(stream.recv_response().await.unwrap().status(), 200);
        // Nothing is read until here, so every buffer on the path fills.
        let held = settled(&written).await;
        assert!(held < HELD, "{held} bytes were taken of the endpoint");
        let mut received = 0;
        while let Some(data) = stream.recv_data().await.unwrap() {
            received += data.remaining();
        }
        assert_eq!(received, LARGE);
    });
}

#[test]
fn a_body_is_taken_no_faster_than_the_endpoint_reads_it() {
    let gate = Gate::default();
    let waits = gate.clone();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // Nothing is read until the gate opens.
        waits.pass();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        let read = std::io::copy(&mut reader.take(LARGE as u64), &mut std::io::sink());
        assert_eq!(read.unwrap(), LARGE as u64);
        respond(&mut stream, 200, "", b"ok");
    });
    let nodes = json!({ "nodes": { address.to_string(): 1 } });
    let world = World::start(json!([{ "id": "1", "uri": "/*", "upstream": nodes }]), 1, "");
    http2::run(async {
        let client = world.client().await;
        let mut request = request("POST", "/");
        request.headers_mut().insert("content-length", LARGE.into());
        let (mut sender, mut receiver) = client.begin(request).await.split();
        let taken = AtomicUsize::new(0);
        let sending = async {
            let piece = Bytes::from(vec![b'x'; 64 * 1024]);
            for _ in 0..LARGE / piece.len() {
                sender.send_data(piece.clone()).await.unwrap();
                taken.fetch_add(piece.len(), Ordering::AcqRel);
            }
            sender.finish().await.unwrap();
        };
        let watching = async {
            let held = settled(&taken).await;
            gate.open();
            held
        };
        let ((), held, answer) = tokio::join!(sending, watching, receiver.recv_response());
        assert!(held < HELD, "{held} bytes were taken of the client");
        assert_eq!(answer.unwrap().status(), 200);
    });
}

/// Runs all futures concurrently, started in order.
async fn futures<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|cx| {
        for (one, output) in &mut waiting {
            if output.is_none()
                && let std::task::Poll::Ready(ready) = one.as_mut().poll(cx)
            {
                *output = Some(ready);
            }
        }
        match waiting.iter().all(|(_, output)| output.is_some()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    waiting.into_iter().filter_map(|(_, output)| output).collect()
}

#[test]
fn the_protocol_is_told_to_plugins_logs_and_clients() {
    let mocking = json!({ "mocking": { "response_example": "$server_protocol $scheme $ssl_server_name" } });
    let upstream = Upstream::echo("up");
    let routes = json!([
        { "id": "1", "uri": "/mock", "plugins": mocking },
        { "id": "2", "uri": "/up", "upstream": upstream.alone() },
    ]);
    let world = World::start(routes, 2, "logs: {access: {enabled: true, path: '-', format: combined}}\n");
    http2::run(async {
        let client = world.client().await;
        let answer = client.get("/mock").await;
        assert_eq!(answer.text(), "HTTP/3.0 https a.test");
        assert_eq!(answer.field("alt-svc"), "", "who speaks it needs not be told");
        let seen: Value = serde_json::from_slice(&client.get("/up").await.body).unwrap();
        assert_eq!(seen["fields"]["host"], "a.test");
        assert_eq!(seen["fields"]["x-forwarded-proto"], "https");
        assert_eq!(seen["fields"].get("transfer-encoding"), None, "a request without a body stays one");
    });
    eventually("the request is logged", 10, || {
        world.gateway.lines().iter().any(|line| line.contains("\"GET /up HTTP/3.0\" 200"))
    });
    let address = world.gateway.https;
    for version in ["--http1.1", "--http2"] {
        let (_, out, err) = run("curl", &["-sSik", version, "-m", "20", &format!("https://{address}/up")]);
        let expected = format!("alt-svc: h3=\":{}\"; ma=86400", address.port());
        assert!(out.to_ascii_lowercase().contains(&expected), "{out}{err}");
    }
    // HTTP/3 is announced over TLS only.
    let plain = world.gateway.get("/mock");
    assert_eq!(plain.field("alt-svc"), None, "nobody is told in the clear");
}

#[test]
fn trailers_of_answers_pass_and_those_of_requests_do_not() {
    let upstream = Http2Upstream::start(|request, mut respond| async move {
        let (body, trailers) = http2::read_body(&mut request.into_body()).await?;
        assert_eq!((&body[..], trailers.len()), (&b"abc"[..], 0));
        let mut sender = respond.send_response(http::Response::new(()), false)?;
        http2::send(&mut sender, &body, false).await?;
        sender.send_trailers(HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]))
    });
    let world = World::start(json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]), 2, "");
    http2::run(async {
        let client = world.client().await;
        let mut trailers = HeaderMap::new();
        trailers.insert("x-other", "8".parse().unwrap());
        let answer = client.ask_with(request("POST", "/"), b"abc", Some(trailers)).await.unwrap();
        assert_eq!((answer.text().as_str(), &answer.trailers["x-sum"]), ("abc", &"7".parse().unwrap()));
    });
}

#[test]
fn a_body_that_is_not_as_long_as_its_head_says_does_not_reach_the_endpoint_as_whole() {
    let upstream = echo_http1();
    let world = World::start(json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]), 1, "");
    http2::run(async {
        let client = world.client().await;
        for (length, body) in [("3", "POST /smuggled HTTP/1.1\r\n\r\n"), ("9", "short")] {
            let mut request = request("POST", "/");
            request.headers_mut().insert("content-length", length.parse().unwrap());
            let answer = client.ask_with(request, body.as_bytes(), None).await;
            assert!(answer.as_ref().is_err() || answer.as_ref().unwrap().status >= 400, "{answer:?}");
        }
        assert_eq!(client.get("/after").await.status, 200, "the connection is not to blame");
    });
}

#[test]
fn an_answer_that_breaks_off_does_not_look_whole() {
    let upstream = Upstream::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome");
        false
    });
    let world = World::start(json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]), 1, "");
    http2::run(async {
        let client = world.client().await;
        let answer = client.ask_with(request("GET", "/"), b"", None).await;
        match answer {
            Err(h3::error::StreamError::RemoteTerminate { code, .. }) => {
                assert_eq!(code, Code::H3_INTERNAL_ERROR);
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn what_is_too_large_or_unknown_is_refused_and_the_connection_lives_on() {
    let upstream = echo_http1();
    let routes = json!([{ "id": "1", "uri": "/up", "upstream": upstream.alone() }]);
    let world = World::start(routes, 1, "limits: {body_bytes: 1000, fields: 60}\n");
    http2::run(async {
        let client = world.client().await;
        assert_eq!(client.get("/none").await.status, 404);
        // More fields than the limit.
        let mut large = request("GET", "/up");
        for i in 0..70 {
            let name: http::HeaderName = format!("x-{i}").parse().unwrap();
            large.headers_mut().insert(name, "y".parse().unwrap());
        }
        assert_eq!(client.ask(large, b"").await.status, 431);
        assert_eq!(client.ask(request("POST", "/up"), &noise(5000)).await.status, 413);
        assert_eq!(client.ask(request("POST", "/up"), &noise(500)).await.status, 200);
        for (name, value, status) in [
            ("te", "trailers", 200),
            ("te", "gzip", 400),
            ("transfer-encoding", "chunked", 400),
            ("connection", "x-a", 400),
            ("keep-alive", "1", 400),
        ] {
            let mut odd = request("GET", "/up");
            odd.headers_mut().insert(name, value.parse().unwrap());
            assert_eq!(client.ask(odd, b"").await.status, status, "{name}: {value}");
        }
    });
}

#[test]
fn requests_in_flight_are_answered_when_the_gateway_ends() {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::start(move |request, stream| {
        if request.target == "/slow" {
            waits.pass();
        }
        respond(stream, 200, "", &noise(200_000))
    });
    let mut world = World::start(json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]), 2, "");
    http2::run(async {
        let client = world.client().await;
        assert_eq!(client.get("/quick").await.status, 200);
        let slow = client.get("/slow");
        let ending = async {
            // The request is in flight first.
            eventually_async("it is at the upstream", 10, || upstream.requests() == 2).await;
            world.gateway.terminate();
            // New connections are refused.
            while world.try_client().await.is_ok() {}
            gate.open();
        };
        let (answer, ()) = tokio::join!(slow, ending);
        assert!(answer.status == 200 && answer.body == noise(200_000));
        let end = client.driver.await.unwrap();
        assert!(end.is_h3_no_error(), "{end}");
    });
    assert_eq!(world.gateway.wait(60).code(), Some(0));
}

#[test]
fn a_client_that_takes_back_all_it_asks_is_sent_away() {
    let upstream = echo_http1();
    let routes = json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]);
    let world = World::start(routes, 1, "http2: {control_frames: 100}\n");
    http2::run(async {
        let client = world.client().await;
        let mut sent = 0;
        // Far more cancelled requests than the limit of control frames.
        while client.quic.close_reason().is_none() && sent < 20_000 {
            let Ok(mut stream) = client.sender.clone().send_request(request("POST", "/")).await else {
                break;
            };
            stream.stop_stream(Code::H3_REQUEST_CANCELLED);
            sent += 1;
        }
        match client.quic.closed().await {
            quinn::ConnectionError::ApplicationClosed(close) => {
                assert_eq!(close.error_code, Code::H3_EXCESSIVE_LOAD.value().try_into().unwrap());
            }
            other => panic!("{other}"),
        }
    });
    world.gateway.assert_metric("yumen_http3_floods_total", 1.0);
}

#[test]
fn what_endpoints_break_off_is_not_held_against_the_client() {
    let upstream = Upstream::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
        false
    });
    let routes = json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]);
    let world = World::start(routes, 1, "http2: {control_frames: 100}\n");
    http2::run(async {
        let client = world.client().await;
        // More streams than the limit, but the endpoint breaks them off.
        for _ in 0..300 {
            assert!(client.ask_with(request("GET", "/"), b"", None).await.is_err(), "it is not whole");
        }
        assert!(client.quic.close_reason().is_none());
    });
    world.gateway.assert_metric("yumen_http3_floods_total", 0.0);
}

#[test]
fn a_certificate_of_the_client_is_asked_for_where_the_name_wants_one() {
    let clients = Authority::new("clients");
    let example = "$ssl_client_verify|$ssl_client_s_dn|$ssl_client_serial";
    let plugins = json!({ "mocking": { "response_example": example, "content_type": "text/plain" } });
    let routes = json!([{ "id": "1", "uri": "/*", "plugins": plugins }]);
    let ada = clients.issue_client("ada", 0x1a, 2100);
    let stranger = Authority::new("clients").issue_client("ada", 0x1a, 2100);
    for more in ["", "http3: {early_data: true}\n"] {
        let world = World::with(routes.clone(), 1, more, &json!({ "client": { "ca": clients.cert } }));
        http2::run(async {
            let client = world.client_as(&ada).await.expect("a handshake");
            let answer = client.get("/").await;
            assert_eq!((answer.status, answer.text()), (200, r"SUCCESS|O=Shop\, Inc,CN=ada|1A".into()));
            // A resumed session is verified again.
            if let Some(again) = client.again(world.gateway.https, "a.test").await {
                assert_eq!(again.get("/").await.status, 200);
            }
            assert!(!world.serves(None).await, "nobody");
            assert!(!world.serves(Some(&stranger)).await, "a stranger");
        });
    }
}

#[test]
fn paths_that_need_no_certificate_of_the_client_are_served_without() {
    let clients = Authority::new("clients");
    let plugins = json!({ "mocking": { "response_example": "$ssl_client_verify" } });
    let routes = json!([{ "id": "1", "uri": "/*", "plugins": plugins }]);
    let rules = json!({ "client": { "ca": clients.cert, "skip_mtls_uri_regex": ["^/public"] } });
    let world = World::with(routes, 1, "", &rules);
    http2::run(async {
        let client = world.client().await;
        assert_eq!(client.get("/public").await.text(), "NONE");
        assert_eq!(client.get("/private").await.status, 400);
        let known = world.client_as(&clients.issue_client("ada", 1, 2100)).await.expect("a handshake");
        assert_eq!(known.get("/private").await.text(), "SUCCESS");
    });
}

#[test]
fn suites_and_versions_of_a_name_hold_here_too() {
    let routes = json!([{ "id": "1", "uri": "/*", "plugins": { "mocking": { "response_example": "in" } } }]);
    let serves = |ssl: Value| {
        let world = World::with(routes.clone(), 1, "", &ssl);
        http2::run(world.serves(None))
    };
    let problem_of = |ssl: Value| {
        let world = World::with(routes.clone(), 1, "", &ssl);
        let at = world.gateway.https;
        let resolve = format!("a.test:{}:{}", at.port(), at.ip());
        let url = format!("https://a.test:{}/", at.port());
        let (_, out, err) = run("curl", &["-sSik", "--resolve", &resolve, "-m", "20", &url]);
        assert!(out.contains("200"), "{out}{err}");
        out.to_ascii_lowercase().contains("alt-svc: h3")
    };
    assert!(problem_of(json!({ "ssl_protocols": ["TLSv1.2", "TLSv1.3"] })));
    assert!(!problem_of(json!({ "ssl_protocols": ["TLSv1.2"] })), "nobody is sent where he is refused");
    assert!(serves(json!({ "ssl_protocols": ["TLSv1.3"] })));
    assert!(serves(json!({ "ssl_protocols": ["TLSv1.2", "TLSv1.3"] })));
    // QUIC requires TLS 1.3 (RFC 9001 §4.2).
    assert!(!serves(json!({ "ssl_protocols": ["TLSv1.2"] })));
    assert!(serves(json!({ "ssl_ciphers": ["TLS_CHACHA20_POLY1305_SHA256"] })));
}

#[test]
fn early_requests_are_served_where_that_is_wanted_and_only_what_changes_nothing() {
    let upstream = Upstream::echo("up");
    let routes = json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]);
    // The gateway marks early requests with `Early-Data` (RFC 8470 §5.1).
    let early = |seen: &[u8]| {
        let seen: Value = serde_json::from_slice(seen).unwrap();
        seen["fields"].get("early-data").is_some()
    };
    for (more, is_enabled) in [("", false), ("http3: {early_data: true}\n", true)] {
        let world = World::start(routes.clone(), 1, more);
        let mut was_early = false;
        http2::run(async {
            let mut client = world.client().await;
            assert_eq!(client.get("/").await.status, 200);
            // Several attempts, because a resumed connection need not accept early data.
            for _ in 0..20 {
                let Some(again) = client.again(world.gateway.https, "a.test").await else { break };
                let get = again.ask_with(request("GET", "/"), b"", None);
                let post = again.ask_with(request("POST", "/"), b"x", None);
                let (get, post) = tokio::join!(get, post);
                if let (Ok(get), Ok(post)) = (get, post) {
                    assert_eq!((get.status, post.status), (200, 200));
                    assert!(!early(&post.body), "what changes something waits");
                    was_early |= early(&get.body);
                }
                client = again;
            }
        });
        assert_eq!(was_early, is_enabled, "{more}");
    }
}

/// Forwards datagrams to `address` only: a client behind it never gets a reply.
fn one_way(address: SocketAddr) -> SocketAddr {
    let (front, back) = (std::net::UdpSocket::bind("127.0.0.1:0"), std::net::UdpSocket::bind("127.0.0.1:0"));
    let (front, back) = (front.unwrap(), back.unwrap());
    let entry = front.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut room = [0; 65_536];
        while let Ok((count, _)) = front.recv_from(&mut room) {
            let _ = back.send_to(&room[..count], address);
        }
    });
    entry
}

#[test]
fn an_early_request_whose_client_is_never_heard_of_again_is_not_acted_on() {
    let (gets, posts) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let counted = (gets.clone(), posts.clone());
    let upstream = Upstream::start(move |request, stream| {
        let count = if request.method == "POST" { &counted.1 } else { &counted.0 };
        count.fetch_add(1, Ordering::AcqRel);
        respond(stream, 200, "", b"x")
    });
    let routes = json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]);
    let world = World::start(routes, 1, "http3: {early_data: true}\ntimeouts: {idle_ms: 1000}\n");
    let deaf = one_way(world.gateway.https);
    http2::run(async {
        let client = world.client().await;
        assert_eq!(client.get("/").await.status, 200);
        let again = client.again(deaf, "a.test").await.expect("a ticket");
        let get = again.begin(request("GET", "/")).await;
        let post = again.begin(request("POST", "/")).await;
        let held =
            [get, post].map(|mut stream| tokio::spawn(async move { stream.finish().await.map(|()| stream) }));
        // The early GET is forwarded; the POST waits for the end of the handshake.
        eventually_async("it is at the upstream", 10, || gets.load(Ordering::Acquire) == 2).await;
        drop(held);
    });
    // Its handshake ends with the idle timeout.
    eventually("the connection is over", 20, || world.gateway.metric("yumen_connections") == 0.0);
    assert_eq!((gets.load(Ordering::Acquire), posts.load(Ordering::Acquire)), (2, 0));
}
