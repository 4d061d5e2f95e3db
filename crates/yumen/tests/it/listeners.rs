//! Listeners of the configuration: opened, changed and closed while the gateway runs.

mod handover;
mod scopes;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Value, json};

use crate::datagrams::udp_echo;
use crate::harness::http2::{self, Http2Client};
use crate::harness::http3::{self, Http3Client};
use crate::harness::tls::{over_tls, trusting};
use crate::harness::upstream::respond;
use crate::harness::{Client, Gateway, Options, Reply, Upstream, certs, eventually, free_port};
use crate::l4::{connect, echo, nodes};

/// A document with these listeners. Each of them serves all requests by `upstream`, and all streams by `stream`.
pub(crate) fn document(listeners: &[Value], upstream: &Value, stream: &Value) -> Value {
    let ids: Vec<&Value> = listeners.iter().map(|listener| &listener["id"]).collect();
    let scopes = if ids.is_empty() { json!([]) } else { json!([{ "id": "s", "listeners": ids }]) };
    let route = |id: &str| json!({ "id": id, "uri": "/*", "upstream": upstream });
    let mut scoped = route("scoped");
    scoped["scopes"] = json!(["s"]);
    let mut routes = vec![route("static")];
    let mut streams = Vec::new();
    if !ids.is_empty() {
        routes.push(scoped);
        streams.push(json!({ "id": "scoped", "scopes": ["s"], "upstream": stream }));
        streams.push(json!({ "id": "static", "upstream": stream }));
    }
    json!({ "listeners": listeners, "scopes": scopes, "routes": routes, "stream_routes": streams })
}

/// Like [`document`], without streams.
pub(crate) fn http_document(listeners: &[Value], upstream: &Upstream) -> Value {
    document(listeners, &upstream.alone(), &json!({ "nodes": { "127.0.0.1:9": 1 }, "scheme": "tcp" }))
}

pub(crate) fn http(id: &str, address: SocketAddr) -> Value {
    json!({ "id": id, "address": address.to_string(), "protocol": "http" })
}

fn state(gateway: &Gateway, id: &str) -> Value {
    gateway.status_json("/yumen/v1/listeners")[id].clone()
}

pub(crate) fn is_open(gateway: &Gateway, id: &str, address: SocketAddr) -> bool {
    state(gateway, id) == json!({ "state": "open", "address": address.to_string() })
}

fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// The state of the problems of listeners, without those of others.
fn problems(gateway: &Gateway) -> Vec<Value> {
    let all = gateway.status_json("/yumen/v1/problems");
    let of_listeners =
        |one: &&Value| one["object"].as_str().is_some_and(|name| name.starts_with("listeners/"));
    all.as_array().expect("a list").iter().filter(of_listeners).cloned().collect()
}

fn get(address: SocketAddr) -> Reply {
    Client::connect(address).get("/")
}

/// Starts, and waits until the listeners are open or have failed.
fn start(resources: &Value) -> Gateway {
    start_with(resources, &Options::default())
}

fn start_with(resources: &Value, options: &Options<'_>) -> Gateway {
    let gateway = Gateway::with(resources, options);
    eventually("the gateway is ready", 5, || gateway.status_text("/status/ready").0 == 200);
    gateway
}

#[test]
fn a_listener_of_the_resource_file_opens_moves_and_closes() {
    let upstream = Upstream::text("x");
    let [first, second] = [free_port(), free_port()];
    let gateway = start(&http_document(&[http("a", first)], &upstream));
    assert_eq!(get(first).text(), "x", "{}", gateway.log());
    assert!(is_open(&gateway, "a", first));
    gateway.assert_metric("yumen_listeners{state=\"open\"}", 1.0);
    gateway.apply(&http_document(&[http("a", second)], &upstream));
    eventually("the new address is open", 5, || is_open(&gateway, "a", second));
    assert_eq!(get(second).text(), "x");
    eventually("the former address is closed", 5, || is_refused(first));
    gateway.apply(&http_document(&[], &upstream));
    eventually("the listener is closed", 5, || is_refused(second));
    assert_eq!(gateway.get("/").status, 200);
    gateway.assert_metric("yumen_listeners{state=\"open\"}", 0.0);
}

#[test]
fn conditions_of_routes_see_the_client_behind_a_trusted_proxy() {
    let upstream = Upstream::text("x");
    let address = free_port();
    let mut document = http_document(&[http("a", address)], &upstream);
    document["listeners"][0]["real_ip"] =
        json!({ "from": ["127.0.0.0/8"], "source": "http_x_forwarded_for", "recursive": true });
    document["routes"][1]["vars"] = json!([["remote_addr", "ipmatch", ["192.0.2.0/24"]]]);
    let gateway = start(&document);
    let get = |hops: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {hops}\r\n\r\n");
        Client::connect(address).send(request).reply().status
    };
    assert_eq!(get("192.0.2.7, 127.0.0.9"), 200, "{}", gateway.log());
    assert_eq!(get("192.0.2.7, 198.51.100.1"), 404);
    assert_eq!(Client::connect(address).get("/").status, 404);
}

#[test]
fn addresses_of_the_machine_are_no_endpoints_of_a_name_that_excludes_them() {
    let upstream = Upstream::text("x");
    let route = |id: &str, excludes: bool| {
        let port = upstream.address.port();
        let node = json!({ "host": "localhost", "port": port, "weight": 1, "excludes_local": excludes });
        json!({ "id": id, "uri": format!("/{id}"), "upstream": { "nodes": [node] } })
    };
    let gateway = Gateway::start(&json!({ "routes": [route("in", false), route("out", true)] }));
    assert_eq!(gateway.get("/in").status, 200, "{}", gateway.log());
    assert_eq!(gateway.get("/out").status, 503);
}

#[test]
fn a_listener_of_the_admin_api_opens_changes_and_closes() {
    // Responds with the client address and port as forwarded.
    let upstream = Upstream::start(|request, stream| {
        let field = |name: &str| request.field(name).unwrap_or_default().to_owned();
        let text = format!("{} {}", field("x-forwarded-for"), field("x-forwarded-port"));
        respond(stream, 200, "", text.as_bytes())
    });
    let (gateway, key) = Gateway::embedded();
    let ask = |method: &str, path: &str, body: &Value| {
        let body = body.to_string();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: admin\r\nX-API-KEY: {key}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let reply = Client::connect(gateway.admin).send(request).reply();
        assert!([200, 201].contains(&reply.status), "{method} {path}: {reply:?}");
        reply
    };
    let address = free_port();
    let document = http_document(&[http("a", address)], &upstream);
    for kind in ["listeners", "scopes", "routes"] {
        for object in document[kind].as_array().unwrap() {
            let id = object["id"].as_str().unwrap();
            // A write is confirmed before it is published.
            ask("PUT", &format!("/apisix/admin/{kind}/{id}?wait=applied"), object);
        }
    }
    eventually("the listener is open", 5, || is_open(&gateway, "a", address));
    let states = ask("GET", "/yumen/v1/listeners", &json!(null)).json();
    assert_eq!(states, json!({ "a": { "state": "open", "address": address.to_string() } }));
    assert_eq!(get(address).text(), format!("127.0.0.1 {}", address.port()));
    ask(
        "PATCH",
        "/apisix/admin/listeners/a",
        &json!({ "proxy_protocol_from": ["127.0.0.0/8"], "port": 443 }),
    );
    let header = "PROXY TCP4 192.0.2.1 127.0.0.1 1234 443\r\n";
    eventually("the PROXY header is read", 5, || {
        let mut client = Client::connect(address);
        client.send(header);
        client.send("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        client.try_reply(false).is_ok_and(|reply| reply.text() == "192.0.2.1 443")
    });
    ask("PATCH", "/apisix/admin/listeners/a", &json!({ "status": 0 }));
    eventually("a disabled listener is closed", 5, || is_refused(address));
    ask("PATCH", "/apisix/admin/listeners/a", &json!({ "status": 1 }));
    eventually("the listener is open again", 5, || is_open(&gateway, "a", address));
    ask("DELETE", "/apisix/admin/listeners/a", &json!(null));
    eventually("the listener is closed", 5, || is_refused(address));
    assert_eq!(state(&gateway, "a"), Value::Null);
}

#[test]
fn a_port_in_use_is_a_problem_that_heals() {
    let upstream = Upstream::text("x");
    let [taken, free] = [free_port(), free_port()];
    let holder = TcpListener::bind(taken).unwrap();
    let gateway = start(&http_document(&[http("a", taken), http("b", free)], &upstream));
    assert_eq!(get(free).text(), "x");
    let problem = &problems(&gateway)[0];
    assert_eq!((&problem["object"], &problem["path"]), (&json!("listeners/a"), &json!("address")));
    let message = problem["message"].as_str().unwrap();
    let expected = format!(
        "cannot listen on {taken}: Address already in use (os error 98); process {} (",
        std::process::id()
    );
    assert!(message.starts_with(&expected), "{message}");
    assert_eq!(state(&gateway, "a")["state"], "failed");
    gateway.assert_metric("yumen_listeners{state=\"failed\"}", 1.0);
    drop(holder);
    eventually("the listener is open", 5, || is_open(&gateway, "a", taken));
    assert_eq!(get(taken).text(), "x");
    assert_eq!(problems(&gateway), Vec::<Value>::new());
    assert!(problem["hint"].as_str().unwrap().contains("retries"));
}

#[test]
fn a_listener_whose_new_address_is_in_use_keeps_the_former_one() {
    let upstream = Upstream::text("x");
    let [taken, free] = [free_port(), free_port()];
    let holder = TcpListener::bind(taken).unwrap();
    let gateway = start(&http_document(&[http("a", free)], &upstream));
    gateway.apply(&http_document(&[http("a", taken)], &upstream));
    eventually("the listener has failed", 5, || state(&gateway, "a")["state"] == "failed");
    assert_eq!(get(free).text(), "x");
    drop(holder);
    eventually("the listener is open", 5, || is_open(&gateway, "a", taken));
    eventually("the former address is closed", 5, || is_refused(free));
}

#[test]
fn an_address_belongs_to_the_oldest_listener_and_passes_on_without_a_gap() {
    let upstream = Upstream::text("x");
    let address = free_port();
    let aged = |id: &str, created_s: u64| {
        let mut listener = http(id, address);
        listener["create_time"] = json!(created_s);
        listener
    };
    let both = http_document(&[aged("a", 2), aged("b", 1)], &upstream);
    let gateway = start(&both);
    assert!(is_open(&gateway, "b", address));
    let problem = &problems(&gateway)[0];
    let expected = format!("not opened: listeners/b has the address {address}");
    assert_eq!((&problem["object"], &problem["message"]), (&json!("listeners/a"), &json!(expected)));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Relaxed) {
                // Between the publication and the change of the accept loops, connections still belong to the former
                // listener, which has no routes any more. None is refused.
                assert!([200, 404].contains(&get(address).status));
                count += 1;
            }
            count
        });
        for _ in 0..5 {
            gateway.apply(&http_document(&[aged("a", 2)], &upstream));
            eventually("the younger one has the address", 5, || is_open(&gateway, "a", address));
            gateway.apply(&both);
            eventually("the older one has the address", 5, || is_open(&gateway, "b", address));
        }
        is_over.store(true, Relaxed);
        assert!(clients.join().expect("no failed request") > 0);
    });
    let mut of_node = http("c", gateway.http);
    of_node["create_time"] = json!(0);
    gateway.apply(&http_document(&[of_node], &upstream));
    let refused = format!("not opened: a listener of yumen.yaml has the address {}", gateway.http);
    eventually("the address of the node settings is refused", 5, || {
        problems(&gateway).first().is_some_and(|problem| problem["message"] == json!(refused))
    });
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn twenty_changes_of_one_listener_disturb_no_request_of_another() {
    let upstream = Upstream::text("x");
    let stays = free_port();
    let ports: Vec<SocketAddr> = (0..4).map(|_| free_port()).collect();
    let version = |number: usize| {
        let mut changing = http("b", ports[number % ports.len()]);
        if number.is_multiple_of(3) {
            changing["proxy_protocol_from"] = json!(["10.0.0.0/8"]);
        }
        if number % 5 == 4 {
            changing["protocol"] = json!("tcp");
        }
        http_document(&[http("a", stays), changing], &upstream)
    };
    let gateway = start(&version(0));
    let (is_over, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::connect(stays);
                while !is_over.load(Relaxed) {
                    // On one connection: a lost one fails the test.
                    assert_eq!(client.get("/").text(), "x");
                    assert_eq!(get(stays).text(), "x");
                    answers.fetch_add(2, Relaxed);
                }
            });
        }
        let changes = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for number in 1..=20 {
                gateway.apply(&version(number));
                let address = ports[number % ports.len()];
                eventually("the change is in force", 5, || is_open(&gateway, "b", address));
                let seen = answers.load(Relaxed);
                eventually("clients are answered", 20, || answers.load(Relaxed) > seen + 8);
            }
        }));
        is_over.store(true, Relaxed);
        changes.unwrap();
    });
}

#[test]
fn an_exchange_on_a_closed_listener_ends_and_the_next_request_ends_its_connection() {
    let gate = crate::harness::upstream::Gate::default();
    let upstream = Upstream::gated(&gate, "x");
    let address = free_port();
    let gateway = start(&http_document(&[http("a", address)], &upstream));
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("the request is with the endpoint", 5, || upstream.requests() == 1);
    gateway.apply(&http_document(&[], &upstream));
    eventually("the listener is closed", 5, || is_refused(address));
    gate.open();
    assert_eq!(client.reply().text(), "x");
    let reply = client.get("/");
    assert_eq!((reply.status, reply.field("connection")), (404, Some("close")));
    assert!(client.is_closed_within(Duration::from_secs(5)));
}

#[test]
fn a_connection_in_plaintext_ends_with_the_protocol_of_its_listener() {
    let upstream = Upstream::text("x");
    for protocol in ["https", "tcp"] {
        let address = free_port();
        let gateway = start(&http_document(&[http("a", address)], &upstream));
        let mut client = Client::connect(address);
        assert_eq!(client.get("/").text(), "x");
        let mut listener = http("a", address);
        listener["protocol"] = json!(protocol);
        gateway.apply(&http_document(&[listener], &upstream));
        // The client leaves the connection no pause in which it would end as an idle one.
        let mut last = client.get("/");
        eventually("the connection ends", 5, || {
            if last.field("connection") != Some("close") {
                last = client.get("/");
            }
            last.field("connection") == Some("close")
        });
        assert_eq!(last.status, 404, "{protocol}");
    }
}

#[test]
fn an_http2_connection_of_a_closed_listener_gets_goaway_with_its_next_response() {
    let upstream = Upstream::text("x");
    let address = free_port();
    let gateway = start(&http_document(&[http("a", address)], &upstream));
    http2::run(async {
        let mut client = Http2Client::connect(address).await;
        assert_eq!(client.get("/").await.body, b"x");
        gateway.apply(&http_document(&[], &upstream));
        assert_eq!(client.get("/").await.status, 404);
        // The library ends the connection without an error after a GOAWAY with NO_ERROR.
        assert!(client.connection.await.unwrap().is_ok());
    });
}

#[test]
fn a_listener_that_is_written_again_does_not_serve_connections_of_its_predecessor() {
    let upstream = Upstream::text("x");
    let address = free_port();
    let document = http_document(&[http("a", address)], &upstream);
    let gateway = start(&document);
    let mut client = Client::connect(address);
    assert_eq!(client.get("/").text(), "x");
    gateway.apply(&http_document(&[], &upstream));
    gateway.apply(&document);
    eventually("the listener is open", 5, || is_open(&gateway, "a", address));
    assert_eq!(client.get("/").status, 404);
    assert_eq!(get(address).text(), "x");
}

#[test]
fn a_thousand_listeners_open_in_about_a_second() {
    const COUNT: usize = 1000;
    let upstream = Upstream::text("x");
    let port = free_port().port();
    // One port on many loopback addresses.
    let address = |at: usize| SocketAddr::from(([127, 9, (at / 250) as u8, (at % 250 + 1) as u8], port));
    let all: Vec<Value> = (0..COUNT).map(|at| http(&format!("l{at}"), address(at))).collect();
    let gateway = start(&http_document(&[], &upstream));
    gateway.apply(&http_document(&all, &upstream));
    let open = "yumen_listeners{state=\"open\"}";
    eventually("the listeners are open", 2, || gateway.metric(open) == COUNT as f64);
    assert!([0, 1, COUNT / 2, COUNT - 1].into_iter().all(|at| get(address(at)).text() == "x"));
    gateway.apply(&http_document(&[], &upstream));
    eventually("the listeners are closed", 10, || is_refused(address(0)) && is_refused(address(COUNT - 1)));
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count();
    eventually("all descriptors are closed", 10, || descriptors() < COUNT);
}

#[test]
fn more_listeners_than_the_limit_are_problems() {
    let upstream = Upstream::text("x");
    let [one, other] = [free_port(), free_port()];
    let listeners = [http("a", one), http("b", other)];
    let options = Options { node: "limits: {listeners: 1}\n", ..Options::default() };
    let gateway = start_with(&http_document(&listeners, &upstream), &options);
    assert!(is_open(&gateway, "a", one) && is_refused(other));
    assert_eq!(problems(&gateway)[0]["message"], "not opened: more than 1 listeners");
}

#[test]
fn listeners_serve_all_protocols() {
    let upstream = Upstream::text("x");
    let authority = certs::Authority::new("test authority");
    let pair = authority.sign("a.test", &["a.test"], certs::ecdsa());
    let addresses: Vec<SocketAddr> = (0..5).map(|_| free_port()).collect();
    let listener = |at: usize, protocol: &str| json!({ "id": protocol, "address": addresses[at].to_string(), "protocol": protocol });
    let mut https = listener(1, "https");
    https["http3"] = json!(true);
    let listeners = [listener(0, "http"), https, listener(2, "tcp"), listener(3, "tls"), listener(4, "udp")];
    let mut resources = document(&listeners, &upstream.alone(), &nodes(&[echo()]));
    resources["ssls"] = json!([
        { "id": "scoped", "snis": ["a.test"], "cert": pair.cert, "key": pair.key, "scopes": ["s"] },
        { "id": "static", "snis": ["a.test"], "cert": pair.cert, "key": pair.key },
    ]);
    // The stream routes of UDP need another endpoint.
    let port = addresses[4].port();
    let udp = |id: &str| json!({ "id": id, "server_port": port, "upstream": { "nodes": { udp_echo("u").to_string(): 1 }, "scheme": "udp" } });
    let mut scoped = udp("udp-scoped");
    scoped["scopes"] = json!(["s"]);
    resources["stream_routes"].as_array_mut().unwrap().extend([udp("udp-static"), scoped]);
    let gateway = start(&resources);
    for (at, id) in ["http", "https", "tcp", "tls", "udp"].into_iter().enumerate() {
        assert!(is_open(&gateway, id, addresses[at]), "{id}: {}\n{}", state(&gateway, id), gateway.log());
    }
    assert_eq!(get(addresses[0]).text(), "x");
    let tls = trusting(&authority.cert);
    let echoes = |stream: &mut dyn ReadWrite| {
        stream.write_all(b"hello").unwrap();
        let mut room = [0; 5];
        stream.read_exact(&mut room).unwrap();
        assert_eq!(&room, b"hello");
    };
    let mut stream = over_tls(connect(addresses[1]), &tls);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    let _ = stream.read_to_string(&mut reply);
    let advertised = format!("alt-svc: h3=\":{}\"", addresses[1].port());
    assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with('x'), "{reply}");
    assert!(reply.to_ascii_lowercase().contains(&advertised), "{reply}");
    echoes(&mut connect(addresses[2]));
    echoes(&mut over_tls(connect(addresses[3]), &tls));
    assert_eq!(answer(addresses[4]), b"uhello");
    http2::run(async {
        let client = Http3Client::connect(addresses[1], "a.test", &authority.cert, None).await.unwrap();
        let request = http3::request("GET", "/");
        let stream = client.sender.clone().send_request(request).await.unwrap();
        assert_eq!(http3::exchange(stream, b"", None).await.unwrap().body, b"x");
        let mut client = Http2Client::connect(addresses[0]).await;
        assert_eq!(client.get("/").await.body, b"x");
    });
    resources["listeners"] = json!([]);
    resources["scopes"] = json!([]);
    gateway.apply(&resources);
    eventually("the TCP listeners are closed", 5, || addresses[..4].iter().all(|at| is_refused(*at)));
    eventually("the UDP addresses are free", 20, || {
        [addresses[1], addresses[4]].into_iter().all(|at| UdpSocket::bind(at).is_ok())
    });
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// The response to a datagram.
fn answer(at: SocketAddr) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.send_to(b"hello", at).unwrap();
    let mut room = [0; 64];
    let count = socket.recv(&mut room).expect("an answer");
    room[..count].to_vec()
}

#[test]
fn a_listener_changes_between_http_and_tcp_on_one_address() {
    let upstream = Upstream::text("x");
    let address = free_port();
    let version = |protocol: &str| {
        let mut listener = http("a", address);
        listener["protocol"] = json!(protocol);
        document(&[listener], &upstream.alone(), &nodes(&[crate::l4::named("named")]))
    };
    let gateway = start(&version("http"));
    for _ in 0..3 {
        assert_eq!(get(address).text(), "x");
        gateway.apply(&version("tcp"));
        // The endpoint sends first, so the gateway must accept before the client has sent anything.
        // A connection that was accepted before the change waits for a request.
        eventually("the listener passes streams on", 5, || {
            let mut stream = connect(address);
            stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let mut name = [0; 5];
            stream.read_exact(&mut name).is_ok_and(|()| &name == b"named")
        });
        gateway.apply(&version("http"));
        let is_http = || {
            let mut client = Client::connect(address);
            client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
            client.try_reply(false).is_ok_and(|reply| reply.text() == "x")
        };
        // Each worker changes on its own, and the kernel chooses the worker of a connection.
        eventually("all workers serve HTTP", 5, || (0..16).all(|_| is_http()));
    }
}

#[test]
fn a_listener_with_a_wildcard_address_replaces_one_of_a_single_address() {
    let upstream = Upstream::text("x");
    let address = free_port();
    let any = SocketAddr::from(([0, 0, 0, 0], address.port()));
    let gateway = start(&http_document(&[http("a", address)], &upstream));
    for next in [any, address] {
        gateway.apply(&http_document(&[http("a", next)], &upstream));
        eventually("the listener is open", 5, || is_open(&gateway, "a", next));
        assert_eq!(get(address).text(), "x");
    }
}
