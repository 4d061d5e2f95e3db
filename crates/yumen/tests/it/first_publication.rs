//! Listeners open after the first publication: at a start and at an upgrade, no client gets a response before
//! it, whatever is wrong with the configuration.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use serde_json::{Value, json};

use crate::harness::etcd::Etcd;
use crate::harness::{Client, Gateway, Options, Scratch, eventually, free_port};
use crate::upgrade::Line;

/// Enough routes that a client would notice if the compilation was not awaited.
const ROUTES: usize = 20_000;
/// Most operations in one etcd transaction.
const TRANSACTION_MAX: usize = 128;

fn mock(id: &str) -> Value {
    json!({"id": id, "uri": format!("/{id}"), "plugins": {"mocking": {"response_example": "x"}}})
}

/// All routes with further sections.
fn document(more: &Value) -> Value {
    let mut document = json!({"routes": (0..ROUTES).map(|at| mock(&format!("r{at}"))).collect::<Vec<_>>()});
    document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    document
}

/// The observations of a client that sends without pauses.
#[derive(Default)]
struct Seen {
    answers: AtomicUsize,
    is_over: AtomicBool,
    wrong: Mutex<BTreeMap<String, usize>>,
}

impl Seen {
    /// Requests one route, on a connection each. Connections are refused before the gateway has started.
    fn request_until_served(&self, address: SocketAddr) {
        while !self.is_over.load(Relaxed) {
            let Ok(stream) = TcpStream::connect(address) else { continue };
            let mut client = Client::of(stream);
            client.send("GET /r0 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
            let seen = match client.try_reply(false) {
                Ok(reply) if reply.status == 200 => {
                    self.answers.fetch_add(1, Relaxed);
                    continue;
                }
                Ok(reply) => reply.status.to_string(),
                Err(error) => error.to_string(),
            };
            *self.wrong.lock().unwrap().entry(seen).or_default() += 1;
        }
    }
}

/// Runs `change` while a client sends without pauses, and requires the route's response each time, then and
/// after it.
fn unnoticed<T>(what: &str, address: SocketAddr, change: impl FnOnce() -> T) -> T {
    let seen = Seen::default();
    let changed = std::thread::scope(|scope| {
        scope.spawn(|| seen.request_until_served(address));
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(change));
        let before = seen.answers.load(Relaxed);
        let waited = std::panic::catch_unwind(|| {
            eventually("the client is answered", 60, || seen.answers.load(Relaxed) > before + 100);
        });
        seen.is_over.store(true, Relaxed);
        (changed, waited)
    });
    let wrong = seen.wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{what}: {wrong:?} beside {:?} answers", seen.answers);
    changed.1.unwrap();
    changed.0.unwrap()
}

/// Starts a gateway at a known address, and upgrades it.
fn start_and_upgrade(what: &str, node: &str, launch: impl FnOnce(&Options<'_>) -> Gateway) -> Line {
    let http = free_port();
    let node = format!("listen: [{{address: '{http}'}}, {{address: '127.0.0.1:0', tls: true}}]\n{node}");
    let options = Options { node: &node, own_listeners: true, ..Options::default() };
    let mut line = unnoticed(&format!("a start with {what}"), http, || Line::of(launch(&options)));
    let problems = line.gateway.status_json("/yumen/v1/problems");
    assert_ne!(problems, json!([]), "{what}");
    unnoticed(&format!("an upgrade with {what}"), http, || line.upgrade());
    line
}

#[test]
fn an_unknown_section_of_a_file_opens_no_listener_early() {
    start_and_upgrade("an unknown section", "", |options| {
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.file("data")).unwrap();
        let routes = scratch.write("routes.yaml", document(&json!({"sectoins": []})).to_string());
        Gateway::launch(scratch, options, &["--file", &routes])
    });
}

#[test]
fn an_upgrade_is_judged_by_what_was_compiled() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("data")).unwrap();
    let routes = scratch.write("routes.yaml", document(&json!({})).to_string());
    let line = Line::of(Gateway::launch(scratch, &Options::default(), &["--file", &routes]));
    // The route is served from its last good version, which a new process does not have.
    let mut broken = document(&json!({"sectoins": []}));
    broken["routes"][0]["plugins"] = json!({"mocking": {"response_status": "none"}});
    line.gateway.edit(&broken);
    let problems = || line.gateway.status_json("/yumen/v1/problems").to_string();
    eventually("it is broken", 60, || problems().contains("\"last_good\":true"));
    let output = line.ask(&[]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr.contains("routes/r0"), "{stderr}");
    assert_eq!(line.gateway.get("/r0").status, 200);
}

/// Writes all routes, in transactions of the largest size.
fn fill(etcd: &Etcd) {
    for first in (0..ROUTES).step_by(TRANSACTION_MAX) {
        let mut command = etcd.ctl_command(&["txn"]);
        let mut etcdctl = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut steps = BufWriter::new(etcdctl.stdin.take().unwrap());
        writeln!(steps).unwrap();
        for at in first..ROUTES.min(first + TRANSACTION_MAX) {
            let route = mock(&format!("r{at}")).to_string();
            writeln!(steps, "put /apisix/routes/r{at} {route:?}").unwrap();
        }
        write!(steps, "\n\n").unwrap();
        drop(steps);
        assert!(etcdctl.wait().unwrap().success());
    }
}

/// Settings of a node on the cluster.
fn on_etcd(etcd: &Etcd, data: &Scratch) -> String {
    let hosts: Vec<String> = etcd.addresses().iter().map(|address| format!("http://{address}")).collect();
    format!(
        "store:\n  kind: etcd\n  data_dir: {}\n  etcd: {{host: {hosts:?}, start_wait_ms: 60000}}\n",
        data.path().display()
    )
}

#[test]
fn problems_of_a_cluster_open_no_listener_early() {
    let etcd = Etcd::start(1);
    fill(&etcd);
    for (what, key, value) in [
        ("a stray key", "/apisix/routes/a/b", "{}"),
        ("a value that is no JSON", "/apisix/routes/bad", "none"),
    ] {
        etcd.ctl(&["put", key, value]).unwrap();
        let data = Scratch::new();
        start_and_upgrade(what, &on_etcd(&etcd, &data), |options| {
            Gateway::launch(Scratch::new(), options, &[])
        });
        etcd.ctl(&["del", key]).unwrap();
    }
    // The node knows the last served state when most of the routes are gone.
    let data = Scratch::new();
    let node = on_etcd(&etcd, &data);
    let mut before = Gateway::launch(Scratch::new(), &Options { node: &node, ..Options::default() }, &[]);
    assert_eq!(before.get("/r0").status, 200);
    before.terminate();
    before.wait(60);
    etcd.ctl(&["del", "--prefix", "/apisix/routes/"]).unwrap();
    let line = start_and_upgrade("deletions held back", &node, |options| {
        Gateway::launch(Scratch::new(), options, &[])
    });
    line.gateway.assert_metric("yumen_store_held_deletions", ROUTES as f64);
}
