//! Handover of the embedded store: acknowledged writes are present exactly once, and nothing else is.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use serde_json::{Value, json};

use super::Line;
use crate::harness::gateway::YUMEN;
use crate::harness::{Client, Gateway, Reply, eventually};

pub(super) fn ask(line: &Line, key: &str, method: &str, path: &str) -> Reply {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: admin\r\nX-API-KEY: {key}\r\n\r\n");
    Client::connect(line.gateway.admin).send(request).reply()
}

/// The results of the writes of one client.
#[derive(Default)]
struct Written {
    acknowledged: BTreeSet<String>,
    /// Responded with 503: nothing was written.
    refused: BTreeSet<String>,
    /// The connection ended without a response.
    unknown: BTreeSet<String>,
}

/// Writes routes until stopped, on one connection as long as it lasts.
fn write(line: &Line, key: &str, writer: usize, stop: &AtomicBool, count: &AtomicUsize) -> Written {
    let mut written = Written::default();
    let mut connection: Option<Client> = None;
    for number in 0.. {
        if stop.load(Relaxed) {
            break;
        }
        let id = format!("w{writer}-{number}");
        let route =
            json!({"uri": format!("/{id}"), "plugins": {"mocking": {"response_example": "x"}}}).to_string();
        let client = connection.get_or_insert_with(|| {
            Client::of(TcpStream::connect(line.gateway.admin).expect("somebody listens all the time"))
        });
        client.send(format!(
            "PUT /apisix/admin/routes/{id} HTTP/1.1\r\nHost: admin\r\nX-API-KEY: {key}\r\nContent-Length: {}\r\n\r\n{route}",
            route.len()
        ));
        match client.try_reply(false) {
            Ok(reply) if reply.status == 201 => {
                written.acknowledged.insert(id);
                count.fetch_add(1, Relaxed);
            }
            Ok(reply) if reply.status == 503 => {
                assert!(reply.field("retry-after").is_some(), "{reply:?}");
                written.refused.insert(id);
                connection = None;
            }
            Ok(reply) => panic!("{reply:?}"),
            Err(_) => {
                written.unknown.insert(id);
                connection = None;
            }
        }
    }
    written
}

fn routes(line: &Line, key: &str) -> BTreeSet<String> {
    let all = ask(line, key, "GET", "/apisix/admin/routes").json();
    let list = all["list"].as_array().expect("a list").iter();
    list.map(|one| one["value"]["id"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Writes during `change`, then compares the store with the responses.
fn check(line: &Line, key: &str, change: impl FnOnce()) {
    let (stop, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let all: Vec<Written> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (stop, count) = (&stop, &count);
                scope.spawn(move || write(line, key, writer, stop, count))
            })
            .collect();
        let wait = |more: usize| {
            let target = count.load(Relaxed) + more;
            eventually("writes are acknowledged", 60, || count.load(Relaxed) >= target);
        };
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait(20);
            change();
            wait(20);
        }));
        stop.store(true, Relaxed);
        changed.unwrap();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let routes_before = routes(line, key);
    for written in &all {
        let lost: Vec<_> = written.acknowledged.difference(&routes_before).collect();
        assert!(lost.is_empty(), "acknowledged and not there: {lost:?}");
        let both: Vec<_> = written.refused.intersection(&routes_before).collect();
        assert!(both.is_empty(), "refused and there: {both:?}");
        assert!(written.unknown.len() <= 4, "ended without an answer: {:?}", written.unknown);
    }
    let history = ask(line, key, "GET", "/yumen/v1/revisions?limit=100000").json();
    let mut seen = BTreeSet::new();
    for revision in history["revisions"].as_array().expect("revisions") {
        for change in revision["changes"].as_array().into_iter().flatten() {
            let object = change["object"].as_str().unwrap_or_default().to_owned();
            assert!(
                !object.starts_with("routes/w") || seen.insert(object.clone()),
                "written twice: {object}"
            );
        }
    }
}

pub(super) fn embedded(node: &str) -> (Line, String) {
    let options = crate::harness::Options { node, ..Default::default() };
    let gateway = Gateway::launch(crate::harness::Scratch::new(), &options, &["--data-dir", "data"]);
    let key = gateway.admin_key().expect("a first start prints the admin key");
    (Line::of(gateway), key)
}

#[test]
fn writes_go_on_across_an_upgrade() {
    let (mut line, key) = embedded("");
    let first = line.serving();
    check(&line, &key, || {
        let output = line.ask(&[]);
        assert!(output.status.success(), "{output:?}\n{}", line.gateway.log());
    });
    assert_ne!(line.serving(), first);
    line.wait_for_end_of(first);
    let source = line.gateway.status_json("/status")["config_source"].clone();
    assert_eq!(source, Value::from("store"));
}

#[test]
fn writes_go_on_where_the_new_process_fails_with_the_store_in_its_hands() {
    let (mut line, key) = embedded("");
    let scratch = &line.gateway.scratch;
    std::fs::create_dir(scratch.file("damaged")).unwrap();
    std::fs::write(scratch.file("damaged/yumen.redb"), b"nothing of a database").unwrap();
    let any = "127.0.0.1:0";
    let script = format!(
        "#!/bin/sh\nexec {YUMEN} run --config yumen.yaml --workers 2 --listen {any} --listen-tls {any} \
         --admin {any} --status {any} --data-dir damaged\n"
    );
    let script = executable(&line, "fails", &script);
    let first = line.serving();
    check(&line, &key, || {
        for _ in 0..2 {
            let output = line.ask(&["--binary", &script]);
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            assert!(stderr.contains("damaged/yumen.redb"), "{stderr}");
        }
    });
    assert_eq!(line.serving(), first);
    let source = line.gateway.status_json("/status")["config_source"].clone();
    assert_eq!(source, Value::from("store"));
    line.upgrade();
    assert!(routes(&line, &key).len() > 20);
}

/// An executable script.
pub(super) fn executable(line: &Line, name: &str, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let file = line.gateway.scratch.write(name, text);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file
}
