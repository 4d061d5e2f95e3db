//! Gateways with a common store in etcd: changes reach all of them; and their behaviour while etcd is
//! unavailable.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::harness::gateway::YUMEN;
use crate::harness::{Client, Gateway, Options, Reply, Scratch, eventually, free_port, run};
use crate::upgrade::Line;

/// Longer than any step takes on a working machine.
const WAIT_S: u64 = 60;

/// An etcd with one member, which ends with the test.
struct Etcd {
    client: SocketAddr,
    peer: SocketAddr,
    scratch: Scratch,
    process: Option<Child>,
}

impl Etcd {
    fn start() -> Etcd {
        let (client, peer) = (free_port(), free_port());
        let mut etcd = Etcd { client, peer, scratch: Scratch::new(), process: None };
        etcd.launch();
        etcd
    }

    fn url(&self) -> String {
        format!("http://{}", self.client)
    }

    fn launch(&mut self) {
        let (url, peer) = (self.url(), format!("http://{}", self.peer));
        let log = std::fs::File::create(self.scratch.file("log")).unwrap();
        let started = Command::new("etcd")
            .args(["--name", "one", "--data-dir", &self.scratch.file("data").display().to_string()])
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}"), "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.process = Some(started.expect("etcd is installed: scripts/deps.sh test"));
        eventually("etcd answers", WAIT_S, || self.ctl(&["get", "any"]).is_some());
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    fn ctl(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.url()]).args(arguments);
        let output = command.output().expect("etcdctl is installed: scripts/deps.sh test");
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    fn put(&self, path: &str, value: &Value) {
        self.ctl(&["put", path, &value.to_string()]).expect("a key is put");
    }

    /// A gateway on this cluster, with the data directory `data`.
    fn gateway(&self, data: &Path) -> Gateway {
        let node = format!(
            "store:\n  kind: etcd\n  data_dir: {}\n  etcd: {{host: [\"{}\"], start_wait_ms: {}, write_ms: 2000}}\n",
            data.display(),
            self.url(),
            if self.process.is_some() { 60_000 } else { 200 },
        );
        Gateway::launch(Scratch::new(), &Options { node: &node, ..Options::default() }, &[])
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop();
    }
}

fn ask(gateway: &Gateway, key: &str, method: &str, path: &str, body: &str) -> Reply {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: admin\r\nX-API-KEY: {key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    Client::connect(gateway.admin).send(request).reply()
}

fn mock(uri: &str, text: &str) -> Value {
    json!({ "uri": uri, "plugins": { "mocking": { "response_example": text, "content_type": "text/plain" } } })
}

#[test]
fn what_one_gateway_is_told_all_serve() {
    let (etcd, data) = (Etcd::start(), Scratch::new());
    let one = etcd.gateway(&data.path().join("one"));
    let key = one.admin_key().expect("the first of a cluster makes the keys");
    let other = etcd.gateway(&data.path().join("other"));
    assert_eq!(other.admin_key(), None, "keys are the cluster's");

    let put = ask(&one, &key, "PUT", "/apisix/admin/routes/a?wait=applied", &mock("/a", "first").to_string());
    assert_eq!(put.status, 201, "{}", put.text());
    assert_eq!(one.get("/a").text(), "first");
    eventually("the other serves it", WAIT_S, || other.get("/a").text() == "first");
    // The same key, object and revision.
    let (here, remote) = (
        ask(&one, &key, "GET", "/apisix/admin/routes/a", ""),
        ask(&other, &key, "GET", "/apisix/admin/routes/a", ""),
    );
    assert_eq!((here.status, here.text()), (remote.status, remote.text()));
    let history = ask(&other, &key, "GET", "/yumen/v1/revisions", "").text();
    assert!(history.contains("\"admin\"") && history.contains("routes/a"), "{history}");

    // Other tools may write too.
    let route = json!({ "id": "b", "uri": "/b", "plugins": mock("", "second")["plugins"], "create_time": 1, "update_time": 1 });
    etcd.put("/apisix/routes/b", &route);
    etcd.put("/apisix/routes/broken", &json!("no object"));
    for gateway in [&one, &other] {
        eventually("it is served", WAIT_S, || gateway.get("/b").text() == "second");
        eventually("what is broken is told", WAIT_S, || {
            ask(gateway, &key, "GET", "/yumen/v1/problems", "").text().contains("routes/broken")
        });
        gateway.assert_metric("yumen_store_connected", 1.0);
        let index = |key: &str| gateway.metric(&format!("apisix_etcd_modify_indexes{{key=\"{key}\"}}"));
        assert!(index("routes") > index("upstreams"));
        assert_eq!(index("max_modify_index"), index("routes"));
        assert!(index("x_etcd_index") >= index("max_modify_index"));
        let status = gateway.status_json("/status");
        assert_eq!((&status["config_source"], &status["store"]["kind"]), (&json!("store"), &json!("etcd")));
        assert_eq!(status["store"]["endpoint"], json!(etcd.url()));
    }
    let delete = || ask(&one, &key, "DELETE", "/apisix/admin/routes/broken", "");
    let deleted = delete();
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert!(!etcd.ctl(&["get", "/apisix/routes/broken"]).unwrap().contains("broken"));
    for gateway in [&one, &other] {
        eventually("it is told no more", WAIT_S, || {
            !ask(gateway, &key, "GET", "/yumen/v1/problems", "").text().contains("routes/broken")
        });
    }
    assert_eq!(delete().status, 404);
}

#[test]
fn gateways_serve_while_etcd_is_down_even_when_they_start_then() {
    let (mut etcd, data) = (Etcd::start(), Scratch::new());
    let one = etcd.gateway(&data.path().join("one"));
    let key = one.admin_key().unwrap();
    let put = ask(&one, &key, "PUT", "/apisix/admin/routes/a?wait=applied", &mock("/a", "first").to_string());
    assert_eq!(put.status, 201, "{}", put.text());
    let other = etcd.gateway(&data.path().join("other"));
    etcd.stop();
    eventually("it is noticed", WAIT_S, || one.metric("yumen_store_connected") == 0.0);
    assert_eq!(one.get("/a").text(), "first");
    let refused = ask(&one, &key, "DELETE", "/apisix/admin/routes/a", "");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("etcd"), "{}", refused.text());

    // A restarted node serves its last state, and its status contains that.
    other.terminate();
    drop(other);
    let other = etcd.gateway(&data.path().join("other"));
    assert_eq!(other.get("/a").text(), "first");
    let status = other.status_json("/status");
    assert_eq!(
        (&status["config_source"], &status["store"]["connected"]),
        (&json!("last_good"), &json!(false))
    );
    other.assert_metric("yumen_config_source{source=\"last_good\"}", 1.0);
    let stale = other.metric("yumen_store_staleness_seconds");
    eventually("it grows stale", WAIT_S, || other.metric("yumen_store_staleness_seconds") > stale);
    assert_eq!(ask(&other, &key, "GET", "/apisix/admin/routes/a", "").status, 200, "keys are kept too");
    // A node without any state does not start.
    let data_dir = data.path().join("third").display().to_string();
    let config = data.write(
        "third.yaml",
        format!(
            "store: {{kind: etcd, data_dir: \"{data_dir}\", etcd: {{host: [\"{}\"], start_wait_ms: 1}}}}",
            etcd.url()
        ),
    );
    let any = "127.0.0.1:0";
    let (code, _, err) = run(
        YUMEN,
        &["run", "--config", &config, "--listen", any, "--listen-tls", any, "--admin", any, "--status", any],
    );
    assert_eq!(code, 2, "{err}");
    assert!(err.contains(&etcd.client.to_string()) && err.contains("last good state"), "{err}");

    etcd.launch();
    etcd.put("/apisix/routes/a", &mock("/a", "second"));
    for gateway in [&one, &other] {
        eventually("it converges", WAIT_S, || gateway.get("/a").text() == "second");
        eventually("it says so", WAIT_S, || gateway.status_json("/status")["config_source"] == "store");
    }
    let put = ask(&other, &key, "PUT", "/apisix/admin/routes/c", &mock("/c", "third").to_string());
    assert_eq!(put.status, 201, "{}", put.text());
    eventually("both serve it", WAIT_S, || one.get("/c").text() == "third");
}

#[test]
fn what_is_lent_ends_though_etcd_is_away_and_tests_broken_from_outside_are_told() {
    let (mut etcd, data) = (Etcd::start(), Scratch::new());
    let gateway = etcd.gateway(data.path());
    let key = gateway.admin_key().expect("the first gateway of a cluster makes keys");
    let problems = || gateway.status_json("/yumen/v1/problems").to_string();
    etcd.put("/apisix/routes/r", &mock("/r", "r"));
    let test = json!({ "request": { "url": "/r" }, "expect": { "route": "other" } });
    etcd.put("/apisix/tests/t", &test);
    eventually("the test is told", WAIT_S, || problems().contains("expected route other, found route r"));
    eventually("it holds nothing back", WAIT_S, || gateway.get("/r").status == 200);
    etcd.ctl(&["del", "/apisix/tests/t"]).unwrap();
    eventually("it is told no more", WAIT_S, || !problems().contains("tests/t"));

    let path = "/apisix/admin/routes/brief?ttl=5&wait=applied";
    assert_eq!(ask(&gateway, &key, "PUT", path, &mock("/brief", "brief").to_string()).status, 201);
    etcd.stop();
    assert_eq!(gateway.get("/brief").text(), "brief");
    eventually("it ends", WAIT_S, || gateway.get("/brief").status == 404);
    assert!(problems().contains("routes/brief"), "{}", problems());
    assert_eq!(gateway.get("/r").status, 200);
}

#[test]
fn what_is_lent_ends_on_connections_of_a_process_before_though_etcd_is_away() {
    let (mut etcd, data) = (Etcd::start(), Scratch::new());
    let mut line = Line::of(etcd.gateway(data.path()));
    let key = line.gateway.admin_key().expect("the first gateway of a cluster makes keys");
    etcd.put("/apisix/routes/r", &mock("/r", "r"));
    eventually("it is served", WAIT_S, || line.gateway.get("/r").status == 200);
    let mut old: Vec<Client> = (0..40).map(|_| Client::connect(line.gateway.http)).collect();
    old.iter_mut().for_each(|client| assert_eq!(client.get("/r").status, 200));
    line.upgrade();
    let path = "/apisix/admin/routes/brief?ttl=5&wait=applied";
    assert_eq!(ask(&line.gateway, &key, "PUT", path, &mock("/brief", "brief").to_string()).status, 201);
    etcd.stop();
    // A draining process responds once more on each of its connections.
    assert_eq!(old.pop().unwrap().get("/brief").text(), "brief");
    eventually("it ends", WAIT_S, || line.gateway.get("/brief").status == 404);
    // Each process uses its own clock.
    eventually("it ends before, too", WAIT_S, || {
        // Pacing: each look takes one of the connections.
        std::thread::sleep(std::time::Duration::from_millis(50));
        old.pop().expect("it does not end there").get("/brief").status == 404
    });
}

#[test]
fn a_gateway_that_starts_again_has_the_last_good_version_of_what_is_broken() {
    let (etcd, data) = (Etcd::start(), Scratch::new());
    let mut one = etcd.gateway(&data.path().join("one"));
    let good = |id: &str| mock(&format!("/{id}"), id);
    let broken = |id: &str| json!({ "uri": format!("/{id}"), "plugins": { "mocking": { "delay": "long" } } });
    for id in ["broken", "away", "anew", "mended"] {
        etcd.put(&format!("/apisix/routes/{id}"), &good(id));
    }
    eventually("all are served", WAIT_S, || one.get("/mended").text() == "mended");
    for id in ["broken", "mended"] {
        etcd.put(&format!("/apisix/routes/{id}"), &broken(id));
    }
    eventually("they are refused", WAIT_S, || one.metric("yumen_config_problems{level=\"error\"}") == 2.0);
    let versions_file = data.path().join("one/etcd/last-good-versions.json");
    eventually("their versions are kept", WAIT_S, || {
        std::fs::read_to_string(&versions_file).is_ok_and(|text| text.lines().count() == 4)
    });
    // The state is saved at most once per second.
    let state = data.path().join("one/etcd/last-good.json");
    eventually("the state is kept", WAIT_S, || {
        std::fs::read_to_string(&state).is_ok_and(|text| text.contains("routes/away"))
    });
    one.kill();
    one.wait(WAIT_S);
    etcd.put("/apisix/routes/away", &broken("away"));
    etcd.put("/apisix/routes/mended", &mock("/mended", "otherwise"));
    etcd.ctl(&["del", "/apisix/routes/anew"]).unwrap();
    etcd.put("/apisix/routes/anew", &broken("anew"));
    for _ in 0..2 {
        one = etcd.gateway(&data.path().join("one"));
        let texts = ["/broken", "/away", "/mended"].map(|path| one.get(path).text());
        assert_eq!(texts, ["broken", "away", "otherwise"]);
        assert_eq!(one.get("/anew").status, 503, "another object, of which there was no good version");
        let problems = one.status_json("/yumen/v1/problems");
        one.terminate();
        one.wait(WAIT_S);
        let is_last_good = |id: &str| problems.to_string().contains(&format!("routes/{id}"));
        assert_eq!(["broken", "away", "anew"].map(is_last_good), [true; 3], "{problems}");
    }
    for id in ["broken", "away"] {
        etcd.put(&format!("/apisix/routes/{id}"), &mock(&format!("/{id}"), "mended"));
    }
    one = etcd.gateway(&data.path().join("one"));
    eventually("nothing is kept any more", WAIT_S, || !versions_file.exists());
    assert_eq!(["/broken", "/away"].map(|path| one.get(path).text()), ["mended", "mended"]);
}

#[test]
fn a_table_that_vanishes_is_served_until_somebody_confirms() {
    let (etcd, data) = (Etcd::start(), Scratch::new());
    let one = etcd.gateway(&data.path().join("one"));
    let key = one.admin_key().unwrap();
    for i in 0..12 {
        etcd.put(&format!("/apisix/routes/{i}"), &mock(&format!("/{i}"), "here"));
    }
    eventually("all are served", WAIT_S, || one.get("/11").text() == "here");
    etcd.ctl(&["del", "--prefix", "/apisix/routes"]).unwrap();
    eventually("it is held", WAIT_S, || one.metric("yumen_store_held_deletions") == 12.0);
    assert_eq!(one.get("/11").text(), "here");
    let problems = ask(&one, &key, "GET", "/yumen/v1/problems", "").text();
    assert!(problems.contains("store/confirm"), "{problems}");
    let confirmed = ask(&one, &key, "POST", "/yumen/v1/store/confirm", "");
    assert_eq!((confirmed.status, confirmed.text().trim()), (200, "{\"confirmed\":12}"));
    eventually("it is gone", WAIT_S, || one.get("/11").status == 404);
    one.assert_metric("yumen_store_held_deletions", 0.0);
}

#[test]
fn what_is_held_is_put_back_by_an_import_of_an_export_and_by_a_rollback() {
    let (etcd, data) = (Etcd::start(), Scratch::new());
    let one = etcd.gateway(&data.path().join("one"));
    let key = one.admin_key().unwrap();
    let routes: Vec<Value> = (0..12)
        .map(|i| {
            let mut route = mock(&format!("/{i}"), "here");
            route["id"] = json!(i.to_string());
            route
        })
        .collect();
    let applied =
        ask(&one, &key, "POST", "/yumen/v1/apply", &json!({ "put": { "routes": routes } }).to_string());
    assert_eq!(applied.status, 200, "{}", applied.text());
    let revision = applied.json()["revision"].as_u64().unwrap();
    let export = ask(&one, &key, "GET", "/yumen/v1/export", "").text();
    let rollback = format!("/yumen/v1/revisions/{revision}/rollback");
    for (path, body, counted) in [("/yumen/v1/import", export.as_str(), "put"), (&rollback, "", "changed")] {
        etcd.ctl(&["del", "--prefix", "/apisix/routes"]).unwrap();
        eventually("it is held", WAIT_S, || one.metric("yumen_store_held_deletions") == 12.0);
        let reply = ask(&one, &key, "POST", path, body);
        assert_eq!(reply.json()[counted], 12, "{path}: {}", reply.text());
        assert_eq!(one.metric("yumen_store_held_deletions"), 0.0, "{path}");
        let keys = etcd.ctl(&["get", "--prefix", "--keys-only", "/apisix/routes"]).unwrap();
        assert_eq!(keys.matches("/apisix/routes/").count(), 12, "{path}: {keys}");
        let again = ask(&one, &key, "POST", path, body);
        assert_eq!(again.json()[counted], 0, "{path}: {}", again.text());
    }
}
