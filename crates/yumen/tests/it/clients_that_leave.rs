//! Clients that leave before their response, or read none of it, release their resources soon.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::http2::{self, Http2Client};
use crate::harness::upstream::Gate;
use crate::harness::{Client, Gateway, Options, Upstream, eventually, eventually_async};

const QUICK: &str = "timeouts: {half_closed_ms: 200, send_ms: 500}";

/// Sends a chunk every 20 ms until the connection closes.
fn talks_on() -> Upstream {
    Upstream::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while stream.write_all(b"4\r\ntick\r\n").is_ok() {
            // Scripted.
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    })
}

/// A route for one request at a time.
fn one_at_a_time(upstream: &Upstream, plugins: &Value) -> Gateway {
    let mut alone = upstream.alone();
    alone["limits"] = json!({ "max_requests": 1, "max_pending": 0 });
    let route = json!({ "id": "1", "uri": "/*", "plugins": plugins, "upstream": alone });
    let options = Options { node: QUICK, workers: 1, ..Options::default() };
    Gateway::with(&json!({ "routes": [route] }), &options)
}

fn ask(gateway: &Gateway, head: &str) -> Client {
    let mut client = Client::connect(gateway.http);
    client.send(format!("{head}\r\nHost: x\r\n\r\n"));
    client
}

fn holds(gateway: &Gateway, count: f64) {
    let in_flight = || gateway.metric("yumen_upstream_requests{upstream=\"routes/1\"}");
    eventually("as many are under way", 10, || in_flight() == count);
}

#[test]
fn an_endpoint_that_talks_on_hides_no_client_that_left_from_a_plugin_that_collects() {
    let upstream = talks_on();
    let filters = json!([{ "regex": "x", "replace": "y" }]);
    let gateway = one_at_a_time(&upstream, &json!({ "response-rewrite": { "filters": filters } }));
    let client = ask(&gateway, "GET / HTTP/1.1");
    holds(&gateway, 1.0);
    drop(client);
    holds(&gateway, 0.0);
}

#[test]
fn an_endpoint_that_tells_its_head_bit_by_bit_hides_no_client_that_left() {
    let upstream = Upstream::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX-Long: ");
        while stream.write_all(b"x").is_ok() {
            // Scripted: a byte of the head at a time.
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    });
    let gateway = one_at_a_time(&upstream, &json!({}));
    let client = ask(&gateway, "GET / HTTP/1.1");
    holds(&gateway, 1.0);
    drop(client);
    holds(&gateway, 0.0);
}

#[test]
fn a_client_that_closed_its_half_gets_all_of_what_goes_on_reaching_it() {
    let upstream = Upstream::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..30 {
            let _ = stream.write_all(b"4\r\ntick\r\n");
            // Scripted: longer in total than the gateway waits for a client that closed its half.
            std::thread::sleep(Duration::from_millis(20));
        }
        stream.write_all(b"0\r\n\r\n").is_ok()
    });
    let gateway = one_at_a_time(&upstream, &json!({}));
    let mut client = ask(&gateway, "GET / HTTP/1.1");
    client.finish_sending();
    assert_eq!(client.reply().body.len(), 4 * 30);
}

/// An endpoint that responds to one request without end, and reads its body meanwhile.
fn answers_before_the_body_is_there() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = stream.try_clone().unwrap();
        std::thread::spawn(move || while reader.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {});
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
        while stream.write_all(&[0; 65536]).is_ok() {}
    });
    address
}

#[test]
fn a_client_that_takes_nothing_is_cut_off_though_it_goes_on_sending() {
    let eager = answers_before_the_body_is_there();
    let route = json!({ "id": "1", "uri": "/*", "upstream": { "nodes": { eager.to_string(): 1 } } });
    let options = Options { node: QUICK, workers: 1, ..Options::default() };
    let gateway = Gateway::with(&json!({ "routes": [route] }), &options);
    let mut client = TcpStream::connect(gateway.http).unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n").unwrap();
    let stalled = || gateway.metric("yumen_faults_total{fault=\"client_stalled\",side=\"client\"}");
    eventually("it is cut off", 10, || {
        let _ = client.write_all(b"u");
        stalled() == 1.0
    });
}

#[test]
fn a_client_that_leaves_while_a_plugin_waits_is_not_asked_for_upstream() {
    let (gate, upstream) = (Gate::default(), Upstream::text("x"));
    let service = Upstream::gated(&gate, "yes");
    let plugins =
        json!({ "forward-auth": { "uri": format!("http://{}", service.address), "timeout": 60_000 } });
    let gateway = one_at_a_time(&upstream, &plugins);
    let aborted = || gateway.metric("yumen_faults_total{fault=\"client_gone\",side=\"client\"}");
    let client = ask(&gateway, "GET / HTTP/1.1");
    eventually("the service is asked", 10, || service.requests() == 1);
    drop(client);
    eventually("it is noticed over HTTP/1", 10, || aborted() == 1.0);
    http2::run(async {
        let mut client = Http2Client::connect(gateway.http).await;
        let (answer, mut stream) = client.begin(http2::request("GET", "/")).await;
        eventually_async("the service is asked", 10, || service.requests() == 2).await;
        stream.send_reset(h2::Reason::CANCEL);
        assert!(answer.await.is_err());
        eventually_async("it is noticed over HTTP/2", 10, || aborted() == 2.0).await;
    });
    assert_eq!(upstream.requests(), 0);
    gate.open();
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(upstream.requests(), 1);
}
