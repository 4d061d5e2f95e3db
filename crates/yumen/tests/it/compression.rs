//! Compressed responses: streamed, negotiated, and decoded by a real client.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::harness::http2::{DATA, END_HEADERS, HEADERS, RawUpstream, frame};
use crate::harness::upstream::respond;
use crate::harness::{Client, Gateway, Upstream};

fn gateway(upstream: &Upstream, settings: &Value) -> Gateway {
    let plugins = json!({ "gzip": settings, "brotli": settings, "zstd": settings });
    let route = json!({ "id": "1", "uri": "/*", "plugins": plugins, "upstream": upstream.alone() });
    Gateway::start(&json!({ "routes": [route] }))
}

fn page() -> Upstream {
    Upstream::start(|request, stream| {
        let body = format!("<p>{}</p>\n", request.target).repeat(20_000);
        respond(stream, 200, "Content-Type: text/html\r\nETag: \"v1\"\r\n", body.as_bytes())
    })
}

/// The body that curl decodes, and the head that it received.
fn curl(gateway: &Gateway, args: &[&str]) -> (String, Vec<u8>) {
    let url = gateway.url("/page");
    let head = gateway.scratch.file("head");
    let output =
        Command::new("curl").args(["-sS", "-D", &head.display().to_string(), &url]).args(args).output();
    let output = output.expect("curl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (std::fs::read_to_string(head).unwrap().to_lowercase(), output.stdout)
}

#[test]
fn curl_reads_every_coding_it_asks_for() {
    let upstream = page();
    let gateway = gateway(&upstream, &json!({ "vary": true }));
    let plain = curl(&gateway, &[]).1;
    assert_eq!(plain.len(), "<p>/page</p>\n".len() * 20_000);
    let (_, version, _) = crate::harness::run("curl", &["--version"]);
    for (coding, feature) in [("gzip", "libz"), ("br", "brotli"), ("zstd", "zstd")] {
        // Codings that this curl lacks are covered by the unit tests of the plugins.
        if !version.contains(feature) {
            assert_ne!(coding, "gzip", "{version}");
            continue;
        }
        let (head, body) = curl(&gateway, &["--compressed", "-H", &format!("Accept-Encoding: {coding}")]);
        assert!(head.contains(&format!("content-encoding: {coding}")), "{head}");
        assert!(head.contains("vary: accept-encoding") && head.contains("etag: w/\"v1\""), "{head}");
        assert!(head.contains("transfer-encoding: chunked") && !head.contains("content-length"), "{head}");
        assert!(body == plain, "{coding}");
    }
}

#[test]
fn old_clients_and_heads_get_the_plain_answer() {
    let upstream = page();
    let gateway = gateway(&upstream, &json!({}));
    let mut client = Client::connect(gateway.http);
    client.send("HEAD /page HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
    let reply = client.reply_to_head();
    assert_eq!((reply.field("content-encoding"), reply.field("content-length")), (None, Some("260000")));
    client.send("GET /page HTTP/1.0\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.field("content-encoding"), reply.body.len()), (None, 260_000));
}

/// A `gzip -dc` process that gets its input in chunks and returns its output so far.
struct Unzip {
    child: std::process::Child,
    out: std::sync::mpsc::Receiver<String>,
}

impl Unzip {
    fn start() -> Unzip {
        let script = "import sys, zlib\nd = zlib.decompressobj(31)\nwhile True:\n  n = sys.stdin.buffer.readline()\n  if not n: break\n  print(d.decompress(bytes.fromhex(n.decode())).decode().replace('\\n', '|'), flush=True)\n";
        let mut child = Command::new("python3")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let (sender, out) = std::sync::mpsc::channel();
        let stdout = child.stdout.take().expect("piped");
        std::thread::spawn(move || {
            for line in std::io::BufRead::lines(std::io::BufReader::new(stdout)).map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Unzip { child, out }
    }

    fn feed(&mut self, bytes: &[u8]) -> String {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let stdin = self.child.stdin.as_mut().expect("piped");
        stdin.write_all(format!("{hex}\n").as_bytes()).expect("it reads");
        stdin.flush().expect("it reads");
        self.out.recv_timeout(std::time::Duration::from_secs(60)).expect("it answers")
    }
}

impl Drop for Unzip {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn events_arrive_one_by_one_though_compressed() {
    let (next, turn) = std::sync::mpsc::channel::<()>();
    let turn = Mutex::new(turn);
    let upstream = Upstream::start(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        let turn = turn.lock().unwrap();
        // Each event is sent only after the previous one was read: any buffering would stall the test.
        for i in 0..5 {
            let event = format!("data: {i}\n\n");
            let _ = stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes());
            let _ = turn.recv_timeout(std::time::Duration::from_secs(60));
        }
        stream.write_all(b"0\r\n\r\n").is_ok()
    });
    let gateway = gateway(&upstream, &json!({ "types": ["text/event-stream"] }));
    let mut client = Client::connect(gateway.http);
    client.send("GET /events HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
    assert!(client.head().unwrap().contains("Content-Encoding: gzip"));
    let mut unzip = Unzip::start();
    for i in 0..5 {
        let mut read = String::new();
        // The header of the coding may arrive separately from the first event.
        while read.is_empty() {
            let mut piece = Vec::new();
            assert!(client.chunk(&mut piece).unwrap());
            read = unzip.feed(&piece);
        }
        assert_eq!(read, format!("data: {i}||"));
        next.send(()).unwrap();
    }
    let mut end = Vec::new();
    while client.chunk(&mut end).unwrap() {}
}

#[test]
fn many_small_frames_of_an_endpoint_of_http2_that_falls_silent_arrive_all() {
    const FRAMES: usize = 500;
    let upstream = RawUpstream::start(|received| match received.kind {
        HEADERS => {
            let fields = [b"\x88\x0f\x10\x11".as_slice(), b"text/event-stream"].concat();
            let mut answer = frame(HEADERS, END_HEADERS, received.stream, &fields);
            answer.extend(frame(DATA, 0, received.stream, b"tick ").repeat(FRAMES));
            answer
        }
        _ => Vec::new(),
    });
    let gzip = json!({ "gzip": { "types": ["text/event-stream"] } });
    let route = json!({ "id": "1", "uri": "/*", "plugins": gzip, "upstream": upstream.alone() });
    let gateway = Gateway::start(&json!({ "routes": [route] }));
    let mut client = Client::connect(gateway.http);
    client.send("GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
    assert!(client.head().unwrap().contains("Content-Encoding: gzip"));
    let (mut unzip, mut read) = (Unzip::start(), String::new());
    while read.len() < FRAMES * 5 {
        let mut piece = Vec::new();
        assert!(client.chunk(&mut piece).unwrap());
        read += &unzip.feed(&piece);
    }
    assert_eq!(read, "tick ".repeat(FRAMES));
}

#[test]
fn a_body_cut_off_upstream_never_looks_whole() {
    let upstream = Upstream::start(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100000\r\n\r\n";
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&[b'x'; 5000]));
        false
    });
    let gateway = gateway(&upstream, &json!({}));
    let mut client = Client::connect(gateway.http);
    client.send("GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
    assert!(client.try_reply(false).is_err());
}

#[test]
fn large_answers_are_compressed_in_bounded_memory() {
    const PIECES: usize = 3000;
    let upstream = Upstream::start(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut piece = b"10000\r\n".to_vec();
        piece.resize(piece.len() + 0x10000, b'y');
        piece.extend_from_slice(b"\r\n");
        let mut sent = stream.write_all(head.as_bytes());
        for _ in 0..PIECES {
            sent = sent.and_then(|()| stream.write_all(&piece));
        }
        sent.and_then(|()| stream.write_all(b"0\r\n\r\n")).is_ok()
    });
    let gateway = gateway(&upstream, &json!({}));
    for coding in ["gzip", "br", "zstd"] {
        let mut client = Client::connect(gateway.http);
        client.send(format!("GET / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {coding}\r\n\r\n"));
        let reply = client.reply();
        assert_eq!(reply.field("content-encoding"), Some(coding));
        assert!(reply.body.len() < PIECES * 1000, "{} bytes", reply.body.len());
    }
    let resident = gateway.resident_kib();
    assert!(resident < 120 * 1024, "{resident} KiB");
}
