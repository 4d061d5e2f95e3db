//! Request smuggling: every form is refused, or parsed in one way and forwarded in an unambiguous form. The
//! same for responses.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use crate::harness::upstream::respond;
use crate::harness::{Client, Gateway, Upstream, eventually};

type Seen = Arc<Mutex<Vec<(String, String)>>>;

/// An upstream that records request line, framing fields and body of every request.
fn recorder() -> (Upstream, Seen) {
    let seen = Seen::default();
    let recorded = seen.clone();
    let upstream = Upstream::start(move |request, stream| {
        let line = request.head.lines().next().unwrap_or_default();
        let framing = request.head.lines().filter(|line| {
            let name = line.split(':').next().unwrap_or_default().trim().to_ascii_lowercase();
            name == "content-length" || name.contains("transfer") || name == "connection"
        });
        let summary = std::iter::once(line).chain(framing).collect::<Vec<_>>().join("|");
        recorded.lock().unwrap().push((summary, String::from_utf8_lossy(&request.body).into_owned()));
        respond(stream, 200, "", request.target.as_bytes())
    });
    (upstream, seen)
}

const VICTIM: &str = "GET /victim HTTP/1.1\r\nHost: x\r\n\r\n";

/// The attack is refused with one of these statuses, the connection closes, and nothing is forwarded.
#[track_caller]
fn check_refused(gateway: &Gateway, seen: &Seen, attack: &[u8], statuses: &[u16]) {
    let text = String::from_utf8_lossy(attack).into_owned();
    let mut client = Client::connect(gateway.http);
    let reply = client.send(attack).send(VICTIM).reply();
    assert!(statuses.contains(&reply.status), "{text:?}: {reply:?}");
    assert!(client.is_closed_within(Duration::from_secs(5)), "{text:?}: still open");
    // If the fault is in the body, the head may have been forwarded, but no more.
    let passed = std::mem::take(&mut *seen.lock().unwrap());
    assert!(
        passed.iter().all(|(line, _)| !line.contains("victim") && !line.contains("smuggled")),
        "{text:?}"
    );
}

/// A request in a position where a body is expected.
const INNER: &str = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn lengths_that_contradict_or_are_no_numbers_are_refused() {
    let (upstream, seen) = recorder();
    let gateway = Gateway::start(&upstream.everything());
    for fields in [
        "Content-Length: 4\r\nContent-Length: 4",
        "Content-Length: 0\r\nContent-Length: 43",
        "Content-Length: 43\r\nContent-Length: 0",
        "Content-Length: 4,4",
        "Content-Length: 4, 4",
        "Content-Length: -1",
        "Content-Length: +1",
        "Content-Length: 1.0",
        "Content-Length: 1e1",
        "Content-Length: 0x1",
        "Content-Length: 1 1",
        "Content-Length: \"4\"",
        "Content-Length: 4;",
        "Content-Length:",
        "Content-Length: \u{0661}",
        "Content-Length: 18446744073709551617",
        "Content-Length: 4294967297000000000000",
        "Content-Length: 4\r\ncontent-length: 5",
        "Content-Length : 4",
        "Content-Length\t: 4",
        "Content-Length: 4\r\n\tContent-Length: 5",
        "Content-Length: 4\r\n , 5",
        "Content-Length\0: 4",
        "Content-Length: 4\0",
        "Content-Length: 4\rX: y",
        "Content-Length: 4\nX: y",
        " Content-Length: 4",
        ": 4\r\nContent-Length: 4",
        "Content_Length\u{a0}: 4",
    ] {
        let attack = format!("POST / HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n{INNER}");
        check_refused(&gateway, &seen, attack.as_bytes(), &[400]);
    }
    assert_eq!(upstream.requests(), 0);
}

#[test]
fn codings_beside_lengths_and_codings_in_disguise_are_refused() {
    let (upstream, seen) = recorder();
    let gateway = Gateway::start(&upstream.everything());
    for fields in [
        // CL.TE and TE.CL.
        "Content-Length: 43\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Content-Length: 0\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: chunked\r\nContent-Length: 0",
        // TE.TE.
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: cow",
        "Transfer-Encoding: cow\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-encoding: identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunkedx",
        "Transfer-Encoding: chunk",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: chunked;foo=bar",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: 'chunked'",
        "Transfer-Encoding:",
        "Transfer-Encoding: ,",
        "Transfer-Encoding: chunked\u{b}",
        "Transfer-Encoding: \u{c}chunked",
        "Transfer-Encoding: chunked\0",
        "Transfer-Encoding: \u{a0}chunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\t: chunked",
        "Transfer-Encoding\u{b}: chunked",
        " Transfer-Encoding: chunked",
        "\tTransfer-Encoding: chunked",
        "X: y\r\n Transfer-Encoding: chunked",
        "X: y\rTransfer-Encoding: chunked",
        "X: y\nTransfer-Encoding: chunked",
        "Transfer-Encoding\r\n: chunked",
        "Transfer-Encoding:\r\n chunked",
        "Transfer-Encoding:\n chunked",
        "Foo: bar\r\n\rTransfer-Encoding: chunked",
        "Transfer\0Encoding: chunked\r\nTransfer-Encoding: chunked",
    ] {
        let attack = format!("POST / HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n0\r\n\r\n{INNER}");
        check_refused(&gateway, &seen, attack.as_bytes(), &[400, 501]);
    }
    let old = format!("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{INNER}");
    check_refused(&gateway, &seen, old.as_bytes(), &[400]);
    assert_eq!(upstream.requests(), 0);
}

#[test]
fn chunks_that_could_be_counted_differently_are_refused() {
    let (upstream, seen) = recorder();
    let gateway = Gateway::start(&upstream.everything());
    // Chunk extensions beyond the limits, one long and many in total.
    let long = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(5000));
    let many = format!("{}0\r\n\r\n", format!("1;{}\r\na\r\n", "x".repeat(4000)).repeat(20));
    for body in [
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nab\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\rabc\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabc0\r\n\r\n",
        "3 x\r\nabc\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "3_0\r\nabc\r\n0\r\n\r\n",
        "\r\n3\r\nabc\r\n0\r\n\r\n",
        "10000000000000003\r\nabc\r\n0\r\n\r\n",
        "3;a\nb\r\nabc\r\n0\r\n\r\n",
        "3;a\rb\r\nabc\r\n0\r\n\r\n",
        "3;\0\r\nabc\r\n0\r\n\r\n",
        "2;\n\r\nab\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\nbad trailer: x\r\n\r\n",
        "3\r\nabc\r\n0\r\nno colon\r\n\r\n",
        "3\r\nabc\r\n0\n\n",
        "3\r\nabc\r\n0\r\n\n",
        "3\r\nabc\r\n0\r\nX: y\n\r\n",
        "3\r\nabc\r\n0\r\nX: a\0b\r\n\r\n",
        "g\r\nabc\r\n0\r\n\r\n",
        &long,
        &many,
    ] {
        let attack = format!("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{body}{INNER}");
        check_refused(&gateway, &seen, attack.as_bytes(), &[400]);
    }
}

#[test]
fn lines_and_hosts_of_two_meanings_are_refused() {
    let (upstream, seen) = recorder();
    let gateway = Gateway::start(&upstream.everything());
    for head in [
        "GET / HTTP/1.1\nHost: x\n\n",
        "GET / HTTP/1.1\r\nHost: x\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\n",
        "GET /\tHTTP/1.1\r\nHost: x\r\n\r\n",
        "GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /  HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x, y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a@x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x:y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        "GET http://a@b/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET http:///p HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\r GET /smuggled HTTP/1.1\r\n\r\n",
        "GET /smuggled\r\n\r\n",
        "GET / HTTP/01.1\r\nHost: x\r\n\r\n",
        "GET / http/1.1\r\nHost: x\r\n\r\n",
    ] {
        check_refused(&gateway, &seen, head.as_bytes(), &[400]);
    }
    assert_eq!(upstream.requests(), 0);
}

/// Checks the requests at the upstream: request line and framing joined by `|`, and bodies.
#[track_caller]
fn check_passed(gateway: &Gateway, seen: &Seen, sent: &str, expected: &[(&str, &str)]) {
    let mut client = Client::connect(gateway.http);
    client.send(sent);
    for (line, _) in expected {
        let reply = client.reply();
        let target = line.split(['|', ' ']).nth(1).unwrap();
        assert_eq!((reply.status, reply.text().as_str()), (200, target), "{sent:?}");
    }
    let passed = std::mem::take(&mut *seen.lock().unwrap());
    let passed: Vec<_> = passed.iter().map(|(line, body)| (line.as_str(), body.as_str())).collect();
    assert_eq!(passed, expected, "{sent:?}");
}

#[test]
fn what_has_one_meaning_arrives_with_that_meaning_alone() {
    let (upstream, seen) = recorder();
    let gateway = Gateway::start(&upstream.everything());
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    let length = smuggled.len();
    let cl0 = format!("GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{smuggled}{VICTIM}");
    let cl0_line = format!("GET /a HTTP/1.1|Content-Length: {length}");
    let victim = ("GET /victim HTTP/1.1", "");
    let nominated = format!(
        "POST /a HTTP/1.1\r\nHost: x\r\nConnection: Content-Length, Transfer-Encoding\r\nContent-Length: 3\r\n\r\nabc{VICTIM}"
    );
    let chunked =
        |fields: &str, body: &str| format!("POST /a HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n{body}{VICTIM}");
    let line = "POST /a HTTP/1.1|Transfer-Encoding: chunked";
    check_passed(&gateway, &seen, &cl0, &[(&cl0_line, smuggled), victim]);
    check_passed(&gateway, &seen, &nominated, &[("POST /a HTTP/1.1|Content-Length: 3", "abc"), victim]);
    for (fields, body, expected) in [
        ("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n", "abc"),
        ("transfer-encoding: CHUNKED", "3\r\nabc\r\n0\r\n\r\n", "abc"),
        ("Transfer-Encoding:chunked", "0003\r\nabc\r\n000\r\n\r\n", "abc"),
        ("Transfer-Encoding: chunked", "3;a=\"b;c\"\r\nabc\r\n0;x\r\n\r\n", "abc"),
        ("Transfer-Encoding: chunked", "3 ;a\r\nabc\r\n0\r\n\r\n", "abc"),
        ("Transfer-Encoding: chunked", "5\r\n0\r\n\r\n\r\n0\r\n\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked", "1\r\na\r\n2\r\nbc\r\n0\r\nContent-Length: 99\r\n\r\n", "abc"),
        ("TransferEncoding: x\r\nTransfer_Encoding: y\r\nTransfer-Encoding: chunked", "0\r\n\r\n", ""),
    ] {
        let sent = chunked(fields, body);
        let mut client = Client::connect(gateway.http);
        client.send(&sent);
        assert_eq!((client.reply().text().as_str(), client.reply().text().as_str()), ("/a", "/victim"));
        let passed = std::mem::take(&mut *seen.lock().unwrap());
        assert_eq!(passed.len(), 2, "{sent:?}: {passed:?}");
        assert!(passed[0].0.ends_with(line.split_once('|').unwrap().1), "{sent:?}: {passed:?}");
        assert!(passed[0].0.matches("ransfer-").count() == 1, "{sent:?}: {passed:?}");
        assert_eq!((passed[0].1.as_str(), passed[1].0.as_str()), (expected, victim.0), "{sent:?}");
    }
    // The host of the target takes precedence over the field.
    let absolute = "GET http://inside.test/b HTTP/1.1\r\nHost: outside.test\r\n\r\n";
    check_passed(&gateway, &seen, absolute, &[("GET /b HTTP/1.1", "")]);
}

#[test]
fn pipelined_answers_come_in_order_and_each_to_its_own() {
    let (upstream, seen) = recorder();
    let gateway = Gateway::start(&upstream.everything());
    let mut client = Client::connect(gateway.http);
    let mut sent = String::new();
    for i in 0..50 {
        sent += &match i % 3 {
            0 => format!("GET /{i} HTTP/1.1\r\nHost: x\r\n\r\n"),
            1 => format!(
                "POST /{i} HTTP/1.1\r\nHost: x\r\nContent-Length: 37\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n.."
            ),
            _ => format!(
                "POST /{i} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nGET \r\n0\r\n\r\n"
            ),
        };
    }
    client.send(&sent);
    for i in 0..50 {
        assert_eq!(client.reply().text(), format!("/{i}"));
    }
    assert!(seen.lock().unwrap().iter().all(|(line, _)| !line.contains("smuggled")));
}

/// An upstream sends these bytes for `/evil`; two requests of a victim follow.
#[track_caller]
fn check_answer(evil: &'static str, statuses: &[u16]) {
    let upstream = Upstream::start(move |request, stream| {
        if request.target == "/evil" {
            return stream.write_all(evil.as_bytes()).is_ok();
        }
        respond(stream, 200, "", b"own")
    });
    let route = json!({ "id": "1", "uri": "/*", "upstream": { "nodes": upstream.nodes(), "retries": 0 } });
    let gateway = Gateway::with(
        &json!({ "routes": [route] }),
        &crate::harness::Options { workers: 1, ..Default::default() },
    );
    let reply = Client::connect(gateway.http).send("GET /evil HTTP/1.1\r\nHost: x\r\n\r\n").try_reply(false);
    if let Ok(reply) = reply {
        assert!(statuses.contains(&reply.status), "{evil:?}: {reply:?}");
        assert!(!reply.text().contains("poison"), "{evil:?}");
    }
    for _ in 0..2 {
        let reply = gateway.get("/victim");
        assert_eq!((reply.status, reply.text().as_str()), (200, "own"), "{evil:?}");
    }
}

#[test]
fn an_answer_of_two_meanings_never_reaches_another_client() {
    for (evil, statuses) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
            &[200][..],
        ),
        ("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", &[204]),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\npoison", &[304]),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 60\r\n\r\nok", &[502]),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok", &[502]),
        ("HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok", &[502]),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &[502]),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", &[502]),
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", &[502]),
        ("HTTP/1.1 200 OK\r\nX: a\r\n Content-Length: 2\r\n\r\nok", &[502]),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", &[200, 502]),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
            &[200],
        ),
    ] {
        check_answer(evil, statuses);
    }
}

#[test]
fn what_an_upstream_says_unasked_is_nobodys_answer() {
    let sent = Arc::<AtomicUsize>::default();
    let counted = sent.clone();
    let upstream = Upstream::start(move |request, stream| {
        respond(stream, 200, "", b"own");
        if request.target == "/evil" {
            let (mut late, counted) = (stream.try_clone().unwrap(), counted.clone());
            std::thread::spawn(move || {
                // Scripted: the connection is idle by then.
                std::thread::sleep(Duration::from_millis(100));
                let _ = late.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison");
                counted.fetch_add(1, Ordering::AcqRel);
            });
        }
        true
    });
    let options = crate::harness::Options { workers: 1, ..Default::default() };
    let gateway = Gateway::with(&upstream.everything(), &options);
    for round in 1..=5 {
        assert_eq!(gateway.get("/evil").text(), "own");
        // On the loopback interface, sent bytes have arrived.
        eventually("the second answer is sent", 5, || sent.load(Ordering::Acquire) == round);
        assert_eq!(gateway.get("/victim").text(), "own");
    }
}
