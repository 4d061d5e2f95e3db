//! Plain proxying: messages pass complete and unchanged, checked with curl and NGINX where they are stricter.

use std::io::Write;
use std::time::Duration;

use serde_json::json;

use crate::harness::nginx::Nginx;
use crate::harness::upstream::{Gate, respond};
use crate::harness::{Client, Gateway, Options, Upstream, eventually, noise, run};

const MEBIBYTE: usize = 1024 * 1024;

fn through_nginx() -> (Nginx, Gateway) {
    let nginx = Nginx::start();
    let upstream = json!({ "nodes": { nginx.address.to_string(): 1 } });
    let gateway = Gateway::start(&json!({ "routes": [{ "id": "all", "uri": "/*", "upstream": upstream }] }));
    (nginx, gateway)
}

fn curl(args: &[&str]) -> String {
    let (code, out, err) = run("curl", &[&["-sS", "--max-time", "20"], args].concat());
    assert_eq!(code, 0, "curl {args:?}: {err}");
    out
}

#[test]
fn get_and_head_through_nginx_are_what_nginx_said() {
    let (nginx, gateway) = through_nginx();
    nginx.put("a.txt", b"twelve bytes");
    let direct = format!("http://{}/a.txt", nginx.address);
    assert_eq!(curl(&[&gateway.url("/a.txt")]), "twelve bytes");
    let field = |text: &str, name: &str| crate::harness::client::field(text, name).map(str::to_owned);
    let (through_gateway, through_nginx) = (curl(&["-I", &gateway.url("/a.txt")]), curl(&["-I", &direct]));
    for name in ["content-length", "etag", "last-modified", "content-type", "accept-ranges"] {
        assert_eq!(field(&through_gateway, name), field(&through_nginx, name), "{name}");
    }
    assert_eq!(field(&through_gateway, "server").as_deref(), Some("yumen"));
    assert_eq!(curl(&["-o", "/dev/null", "-w", "%{http_code}", &gateway.url("/none")]), "404");
    // A HEAD response leaves the connection usable.
    let mut client = Client::connect(gateway.http);
    for _ in 0..3 {
        let reply = client.send("HEAD /a.txt HTTP/1.1\r\nHost: x\r\n\r\n").reply_to_head();
        assert_eq!((reply.status, reply.field("content-length")), (200, Some("12")));
        assert_eq!(client.get("/a.txt").text(), "twelve bytes");
    }
}

#[test]
fn ten_megabytes_pass_unchanged_both_ways() {
    let (nginx, gateway) = through_nginx();
    let content = noise(10 * MEBIBYTE);
    let path = nginx.put("big", &content);
    let got = gateway.scratch.file("got").display().to_string();
    curl(&["-o", &got, &gateway.url("/big")]);
    assert!(std::fs::read(&got).unwrap() == content, "download differs");
    for (name, how) in [
        ("length", "Content-Type: x/y"),
        ("chunked", "Transfer-Encoding: chunked"),
        ("expect", "Expect: 100-continue"),
    ] {
        let url = gateway.url(&format!("/upload/{name}"));
        let status = curl(&["-T", &path, "-H", how, "-o", "/dev/null", "-w", "%{http_code}", &url]);
        assert_eq!(status, "201", "{name}");
        let uploaded = std::fs::read(nginx.scratch.file("files/upload").join(name)).unwrap();
        assert!(uploaded == content, "{name} upload differs");
    }
}

#[test]
fn ranges_and_conditions_pass() {
    let (nginx, gateway) = through_nginx();
    nginx.put("a.txt", b"0123456789");
    assert_eq!(curl(&["-r", "2-4", &gateway.url("/a.txt")]), "234");
    let etag = gateway.get("/a.txt").field("etag").unwrap().to_owned();
    let reply = gateway.get_with("/a.txt", &format!("If-None-Match: {etag}\r\n"));
    assert_eq!((reply.status, reply.body.len()), (304, 0));
}

#[test]
fn gzip_passes_as_it_is() {
    let (nginx, gateway) = through_nginx();
    nginx.put("a.txt", "again and again ".repeat(1000).as_bytes());
    let reply = gateway.get_with("/a.txt", "Accept-Encoding: gzip\r\n");
    assert_eq!(reply.field("content-encoding"), Some("gzip"));
    assert_eq!(reply.body[..2], [0x1f, 0x8b]);
    assert_eq!(curl(&["--compressed", &gateway.url("/a.txt")]), "again and again ".repeat(1000));
}

#[test]
fn connections_to_upstreams_are_kept() {
    let upstream = Upstream::text("x");
    let gateway =
        Gateway::with(&upstream.everything(), &crate::harness::Options { workers: 1, ..Default::default() });
    let mut client = Client::connect(gateway.http);
    for _ in 0..100 {
        assert_eq!(client.get("/").status, 200);
    }
    // Further clients share the connection to the upstream.
    for _ in 0..20 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!((upstream.requests(), upstream.connections()), (120, 1));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let upstream = Upstream::echo("a");
    let gateway = Gateway::start(&upstream.everything());
    let mut client = Client::connect(gateway.http);
    let requests: String = (0..20)
        .map(|i| format!("POST /{i} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{i:02}"))
        .collect();
    client.send(requests);
    for i in 0..20 {
        let seen = client.reply().json();
        assert_eq!((&seen["target"], &seen["body"]), (&json!(format!("/{i}")), &json!(format!("{i:02}"))));
    }
}

#[test]
fn clients_of_http_1_0_get_a_body_ended_by_length_or_close() {
    let upstream = Upstream::start(|request, stream| match request.target.as_str() {
        "/chunked" => stream
            .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
            .is_ok(),
        _ => respond(stream, 200, "", b"abc"),
    });
    let gateway = Gateway::start(&upstream.everything());
    for path in ["/length", "/chunked"] {
        let reply = gateway.send(format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n"));
        assert_eq!(reply.text(), "abc", "{path}");
        assert_eq!(reply.field("transfer-encoding"), None);
    }
    let mut client = Client::connect(gateway.http);
    for _ in 0..2 {
        let reply = client.send("GET /length HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n").reply();
        assert_eq!(reply.field("connection"), Some("keep-alive"));
    }
}

#[test]
fn interim_answers_reach_the_client() {
    let upstream = Upstream::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
        respond(stream, 200, "", b"done")
    });
    let gateway = Gateway::start(&upstream.everything());
    let mut client = Client::connect(gateway.http);
    let early = client.get("/");
    assert_eq!((early.status, early.field("link")), (103, Some("</a.css>")));
    assert_eq!(client.reply().text(), "done");
}

#[test]
fn a_client_that_waits_for_100_continue_gets_it() {
    let upstream = Upstream::echo("a");
    let gateway = Gateway::start(&upstream.everything());
    let mut client = Client::connect(gateway.http);
    client.send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    assert_eq!(client.reply().status, 100);
    let seen = client.send("body").reply().json();
    assert_eq!(seen["body"], "body");
}

#[test]
fn trailers_pass() {
    let upstream = Upstream::start(|_, stream| {
        let answer = "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\nSet-Cookie: late\r\n\r\n";
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let gateway = Gateway::start(&upstream.everything());
    let mut client = Client::connect(gateway.http);
    client.send("GET / HTTP/1.1\r\nHost: x\r\nTE: trailers\r\n\r\n");
    client.head().unwrap();
    // The definition of `Set-Cookie` does not permit it in trailers (RFC 9110 §6.5.1).
    let end = client.bytes("3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n".len());
    assert_eq!(String::from_utf8(end).unwrap(), "3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n");
}

#[test]
fn hop_by_hop_fields_stay_and_forwarding_fields_are_added() {
    let upstream = Upstream::echo("a");
    let gateway = Gateway::start(&upstream.everything());
    let fields = "Host: shop.test\r\nConnection: X-Private\r\nX-Private: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nProxy-Connection: x\r\nX-Forwarded-For: 9.9.9.9\r\nX-Real-IP: 8.8.8.8\r\nX-Forwarded-Host: evil\r\nX_Real_IP: 7.7.7.7\r\nX-Forwarded_Proto: https\r\n";
    let reply = gateway.send(format!("GET /a?b=c HTTP/1.1\r\n{fields}\r\n"));
    let seen = reply.json();
    let field = |name: &str| seen["fields"][name].as_str().map(str::to_owned);
    for name in ["x-private", "keep-alive", "proxy-connection", "x_real_ip", "x-forwarded_proto"] {
        assert_eq!(field(name), None, "{name}");
    }
    assert_eq!(seen["target"], "/a?b=c");
    assert_eq!(field("host").as_deref(), Some("shop.test"));
    assert_eq!(field("x-real-ip").as_deref(), Some("127.0.0.1"));
    assert_eq!(field("x-forwarded-for").as_deref(), Some("9.9.9.9, 127.0.0.1"));
    assert_eq!(field("x-forwarded-host").as_deref(), Some("shop.test"));
    assert_eq!(field("x-forwarded-proto").as_deref(), Some("http"));
    assert_eq!(field("x-forwarded-port"), Some(gateway.http.port().to_string()));
}

#[test]
fn absolute_and_asterisk_forms_are_understood() {
    let upstream = Upstream::echo("a");
    let gateway = Gateway::start(&upstream.everything());
    let seen =
        gateway.send("GET http://shop.test/a?b HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n").json();
    assert_eq!((&seen["target"], &seen["fields"]["host"]), (&json!("/a?b"), &json!("shop.test")));
    let reply = gateway.send("OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!([200, 204, 404].contains(&reply.status), "{reply:?}");
    assert_eq!(gateway.send("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n").status, 405);
}

#[test]
fn an_early_answer_reaches_a_client_that_still_sends() {
    let upstream = Upstream::start(|_, _| unreachable!("the head alone is answered"));
    drop(upstream);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut head = [0; 1024];
        let _ = std::io::Read::read(&mut stream, &mut head);
        respond(&mut stream, 413, "Connection: close\r\n", b"enough");
        // Scripted: the connection stays open, but nothing more is read.
        std::thread::sleep(Duration::from_secs(5));
    });
    let route = json!({ "id": "1", "uri": "/*", "upstream": { "nodes": { address: 1 } } });
    let gateway = Gateway::start(&json!({ "routes": [route] }));
    let mut client = Client::connect(gateway.http);
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n");
    client.send(noise(64 * 1024));
    let reply = client.reply();
    assert_eq!((reply.status, reply.text().as_str()), (413, "enough"));
}

#[test]
fn a_client_may_close_its_half_after_the_request() {
    let upstream = Upstream::start(|_, stream| {
        // Scripted: the response follows after the end of the client's direction.
        std::thread::sleep(Duration::from_millis(100));
        respond(stream, 200, "", b"late")
    });
    let gateway = Gateway::start(&upstream.everything());
    let mut client = Client::connect(gateway.http);
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").finish_sending();
    assert_eq!(client.reply().text(), "late");
}

#[test]
fn disconnected_clients_release_their_resources() {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::start(move |request, stream| {
        if request.target == "/part" {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npa");
        }
        if request.target != "/free" {
            waits.pass();
        }
        respond(stream, 200, "", b"x")
    });
    let mut alone = upstream.alone();
    alone["limits"] = json!({ "max_requests": 1, "max_pending": 1, "pending_timeout": 60 });
    let options = Options { node: "timeouts: {half_closed_ms: 50}", ..Options::default() };
    let routes = json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": alone }] });
    let gateway = Gateway::with(&routes, &options);
    let leave = |path: &str, arrived: usize| {
        let mut client = Client::connect(gateway.http);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        eventually("it is at the upstream", 10, || upstream.requests() == arrived);
    };
    for (turn, path) in ["/head", "/part"].iter().enumerate() {
        leave(path, 2 * turn + 1);
        assert_eq!(gateway.get("/free").status, 200, "after {path}");
    }
    // A request that waits in the pending queue, and leaves.
    let mut holds = Client::connect(gateway.http);
    holds.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
    eventually("it is at the upstream", 10, || upstream.requests() == 5);
    let pending = || gateway.metric("yumen_upstream_pending{upstream=\"routes/1\"}");
    let mut waits = Client::connect(gateway.http);
    waits.send("GET /queued HTTP/1.1\r\nHost: x\r\n\r\n");
    eventually("it waits for its turn", 10, || pending() == 1.0);
    drop(waits);
    eventually("nobody waits", 10, || pending() == 0.0);
    gate.open();
    assert_eq!(holds.reply().status, 200);
    assert_eq!(upstream.requests(), 5);
}

#[test]
fn a_body_cut_by_the_upstream_is_seen_as_cut() {
    let upstream = Upstream::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
        false
    });
    let gateway = Gateway::start(&upstream.everything());
    let reply = Client::connect(gateway.http).send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").try_reply(false);
    assert!(reply.is_err(), "{reply:?}");
}

#[test]
fn hops_are_counted_down_and_the_last_one_answers() {
    let upstream = Upstream::echo("a");
    let gateway = Gateway::with(
        &upstream.everything(),
        &Options { node: "router: {trace_requests: true}", ..Options::default() },
    );
    let ask = |method: &str, hops: &str| {
        gateway.send(format!("{method} / HTTP/1.1\r\nHost: x\r\nMax-Forwards: {hops}\r\n\r\n"))
    };
    for (method, hops, expected) in
        [("OPTIONS", "3", "2"), ("TRACE", "1", "0"), ("GET", "0", "0"), ("OPTIONS", "x", "x")]
    {
        assert_eq!(ask(method, hops).json()["fields"]["max-forwards"], expected, "{method} {hops}");
    }
    for (method, status) in [("OPTIONS", 200), ("TRACE", 405)] {
        let reply = ask(method, "0");
        assert_eq!((reply.status, reply.text().as_str()), (status, ""), "{method}");
        assert!(reply.field("allow").is_some_and(|allowed| !allowed.contains("TRACE")), "{method}");
    }
    assert_eq!(upstream.requests(), 4);
}

#[test]
fn a_value_of_the_environment_arrives_as_written() {
    let upstream = Upstream::echo("a");
    let rewrite = json!({ "headers": { "set": { "X-Secret": "$env://PASSWORD", "X-Host": "$host" } } });
    let routes = json!({ "routes": [
        { "id": "1", "uri": "/*", "plugins": { "proxy-rewrite": rewrite }, "upstream": upstream.alone() },
    ] });
    let options = Options { env: &[("PASSWORD", "pa$host$$x")], ..Options::default() };
    let gateway = Gateway::with(&routes, &options);
    let fields = &gateway.send("GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n").json()["fields"];
    assert_eq!((&fields["x-secret"], &fields["x-host"]), (&json!("pa$host$$x"), &json!("shop.test")));
}
