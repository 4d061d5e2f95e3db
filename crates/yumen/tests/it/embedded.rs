//! The embedded store: crashes, damage, a full disk, lost keys, backups.

use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::gateway::YUMEN;
use crate::harness::{Client, Gateway, Options, Reply, Scratch, eventually, run};

const SECRET: &str = "a-planted-secret";

fn launch(data_dir: &Path) -> Gateway {
    let data_dir = data_dir.display().to_string();
    Gateway::launch(Scratch::new(), &Options::default(), &["--data-dir", &data_dir])
}

fn ask(gateway: &Gateway, key: &str, method: &str, path: &str, body: &str) -> Reply {
    let reply = Client::connect(gateway.admin).send(request(key, method, path, body)).reply();
    assert_ne!(reply.status, 401, "{method} {path}");
    reply
}

fn request(key: &str, method: &str, path: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: admin\r\nX-API-KEY: {key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn mock(uri: &str, text: &str) -> Value {
    json!({ "uri": uri, "plugins": { "mocking": { "response_example": text, "content_type": "text/plain" } } })
}

fn put(gateway: &Gateway, key: &str, id: &str, route: &Value) -> Reply {
    ask(gateway, key, "PUT", &format!("/apisix/admin/routes/{id}?wait=applied"), &route.to_string())
}

/// Starts a gateway that must fail; returns its error output.
fn refused_start(data_dir: &Path) -> String {
    let (any, data_dir) = ("127.0.0.1:0", data_dir.display().to_string());
    let listeners = ["--listen", any, "--listen-tls", any, "--admin", any, "--status", any];
    let arguments = [&["run", "--data-dir", &data_dir][..], &listeners].concat();
    let (code, _, err) = run(YUMEN, &arguments);
    assert_eq!(code, 2, "{err}");
    err
}

/// Writes routes and records the acknowledged ones, until the gateway exits.
fn write_until_it_ends(gateway: &Gateway, key: &str, round: usize, acknowledged: &Mutex<Vec<String>>) {
    let Ok(stream) = TcpStream::connect(gateway.admin) else { return };
    let mut client = Client::of(stream);
    for number in 0.. {
        let id = format!("r{round}-{number}");
        let route = mock(&format!("/{id}"), &id).to_string();
        client.send(request(key, "PUT", &format!("/apisix/admin/routes/{id}"), &route));
        match client.try_reply(false) {
            Ok(reply) if reply.status == 201 => acknowledged.lock().unwrap().push(id),
            Ok(reply) => panic!("{}", reply.text()),
            Err(_) => return,
        }
    }
}

#[test]
fn what_was_acknowledged_is_served_after_every_end() {
    let data = Scratch::new();
    let acknowledged = Mutex::new(Vec::new());
    let mut key = String::new();
    // A number of acknowledgements, then SIGTERM or SIGKILL.
    for (round, (count, is_killed)) in
        [(1, true), (7, false), (23, true), (40, true), (2, false), (11, true)].into_iter().enumerate()
    {
        let mut gateway = launch(data.path());
        if let Some(first) = gateway.admin_key() {
            assert_eq!(round, 0, "keys are shown once");
            key = first;
        }
        let known = acknowledged.lock().unwrap().clone();
        let mut client = Client::connect(gateway.http);
        for id in &known {
            assert_eq!(client.get(&format!("/{id}")).text(), *id, "round {round}");
        }
        std::thread::scope(|scope| {
            scope.spawn(|| write_until_it_ends(&gateway, &key, round, &acknowledged));
            let enough = known.len() + count;
            eventually("writes are acknowledged", 60, || acknowledged.lock().unwrap().len() >= enough);
            match is_killed {
                true => gateway.kill(),
                false => gateway.terminate(),
            }
        });
        gateway.wait(60);
    }
    let gateway = launch(data.path());
    for id in acknowledged.lock().unwrap().iter() {
        assert_eq!(gateway.get(&format!("/{id}")).text(), *id);
    }
}

#[test]
fn history_and_rollback_survive_a_restart_and_no_file_tells_a_secret() {
    let data = Scratch::new();
    let mut gateway = launch(data.path());
    let key = gateway.admin_key().expect("a first start prints the admin key");
    put(&gateway, &key, "v", &mock("/v", "one"));
    let before = gateway.revision();
    put(&gateway, &key, "v", &mock("/v", SECRET));
    gateway.terminate();
    gateway.wait(60);
    // Every file of the directory must be encrypted.
    for entry in std::fs::read_dir(data.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let leaks = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
        assert!(!leaks, "{}", path.display());
    }
    let gateway = launch(data.path());
    assert_eq!(gateway.admin_key(), None);
    assert_eq!(gateway.get("/v").text(), SECRET);
    let list = ask(&gateway, &key, "GET", "/yumen/v1/revisions?object=routes/v", "").json();
    assert_eq!(list["revisions"].as_array().map(Vec::len), Some(2), "{list}");
    let back = format!("/yumen/v1/revisions/{before}/rollback?wait=applied");
    assert_eq!(ask(&gateway, &key, "POST", &back, "").status, 200);
    assert_eq!(gateway.get("/v").text(), "one");
}

#[test]
fn a_damaged_store_is_served_from_the_last_good_state_until_it_is_whole_again() {
    let data = Scratch::new();
    let mut gateway = launch(data.path());
    let key = gateway.admin_key().expect("a first start prints the admin key");
    put(&gateway, &key, "v", &mock("/v", "v"));
    assert_eq!(gateway.status_json("/status")["config_source"], "store");
    gateway.terminate();
    gateway.wait(60);
    let (store_path, good) = (data.file("yumen.redb"), data.file("good"));
    std::fs::rename(&store_path, &good).unwrap();
    std::fs::write(&store_path, "strange").unwrap();

    let gateway = launch(data.path());
    assert_eq!(gateway.get("/v").text(), "v");
    let status = gateway.status_json("/status");
    assert_eq!(status["config_source"], "last_good", "{status}");
    assert!(
        status["config_source_reason"].as_str().is_some_and(|why| why.contains("yumen.redb")),
        "{status}"
    );
    assert!(status["config_source_since_unix_ms"].is_u64(), "{status}");
    gateway.assert_metric("yumen_config_source{source=\"last_good\"}", 1.0);
    gateway.assert_metric("yumen_config_source{source=\"store\"}", 0.0);
    assert!(gateway.log().contains("the last good state is served"), "{}", gateway.log());
    let refused = put(&gateway, &key, "w", &mock("/w", "w"));
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("yumen.redb"), "{}", refused.text());

    std::fs::rename(&good, &store_path).unwrap();
    eventually("it heals", 60, || gateway.status_json("/status")["config_source"] == "store");
    gateway.assert_metric("yumen_config_source{source=\"store\"}", 1.0);
    assert_eq!(put(&gateway, &key, "w", &mock("/w", "w")).status, 201);
    assert_eq!(gateway.get("/w").text(), "w");
}

#[test]
fn a_last_good_state_that_is_torn_is_a_problem() {
    let data = Scratch::new();
    let mut gateway = launch(data.path());
    let key = gateway.admin_key().expect("a first start prints the admin key");
    let saved_file = data.file("last-good.json");
    eventually("what the first start made is kept", 60, || saved_file.exists());
    // Enough changes for records behind the state in the file.
    for id in 0..30 {
        put(&gateway, &key, &id.to_string(), &mock(&format!("/{id}"), "x"));
    }
    gateway.terminate();
    gateway.wait(60);
    std::fs::write(data.file("yumen.redb"), "strange").unwrap();
    let mut bytes = std::fs::read(&saved_file).unwrap();
    // The seal covers the bytes of the state before the appended changes.
    let head: Value = serde_json::from_slice(bytes.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    let end =
        bytes.iter().position(|byte| *byte == b'\n').unwrap() + head["bytes"].as_u64().unwrap() as usize;
    assert!(bytes.len() > end + 100, "changes were appended");
    bytes.truncate(end + 100);
    std::fs::write(&saved_file, bytes).unwrap();

    let gateway = launch(data.path());
    let status = gateway.status_json("/status");
    let damage = status["config_source_damage"].as_str().unwrap_or_default();
    assert!(damage.contains("last-good.json: record 0 behind the state is cut off"), "{status}");
    eventually("it is a problem", 10, || {
        let problems = gateway.status_json("/yumen/v1/problems");
        let is_warning = |problem: &Value| {
            let message = problem["message"].as_str().unwrap_or_default();
            problem["level"] == "error" && message.contains("the last good state is incomplete")
        };
        problems.as_array().unwrap().iter().any(is_warning)
    });
}

#[test]
fn what_is_lent_for_a_while_ends_in_time_though_its_store_is_gone() {
    let data = Scratch::new();
    let mut gateway = launch(data.path());
    let key = gateway.admin_key().expect("a first start prints the admin key");
    let guarded = json!({
        "uri": "/guarded",
        "plugins": { "key-auth": {}, "mocking": { "response_example": "in", "content_type": "text/plain" } },
    });
    assert_eq!(put(&gateway, &key, "guarded", &guarded).status, 201);
    let consumer = json!({ "username": "guest", "plugins": { "key-auth": { "key": "guests-key" } } });
    let write = |path: &str, body: &Value| ask(&gateway, &key, "PUT", path, &body.to_string()).status;
    assert_eq!(write("/apisix/admin/consumers/guest?ttl=6", &consumer), 201);
    assert_eq!(write("/apisix/admin/routes/short?ttl=6", &mock("/short", "short")), 201);
    assert_eq!(write("/apisix/admin/routes/long?ttl=12&wait=applied", &mock("/long", "long")), 201);
    let begin = Instant::now();
    let enter = |gateway: &Gateway| {
        let request = "GET /guarded HTTP/1.1\r\nHost: a\r\napikey: guests-key\r\n\r\n";
        Client::connect(gateway.http).send(request).reply().status
    };
    assert_eq!(enter(&gateway), 200);
    gateway.terminate();
    gateway.wait(60);
    std::fs::remove_file(data.file("yumen.redb")).unwrap();
    // The scenario: the consumer and the first route expire while the gateway is stopped.
    std::thread::sleep(Duration::from_secs(6).saturating_sub(begin.elapsed()));

    let gateway = launch(data.path());
    assert_eq!(gateway.status_json("/status")["config_source"], "last_good");
    assert_eq!((enter(&gateway), gateway.get("/short").status), (401, 404));
    assert_eq!(gateway.get("/long").text(), "long");
    eventually("what ends later ends too", 15, || gateway.get("/long").status == 404);
    assert!(begin.elapsed() >= Duration::from_secs(12), "too early");
    let problems = || gateway.status_json("/yumen/v1/problems").to_string();
    eventually("the failing store is reported", 10, || problems().contains("writes fail"));
    assert!(problems().contains("routes/long"), "{}", problems());
    gateway.assert_metric("yumen_store_writable", 0.0);
}

#[test]
fn a_directory_in_use_and_a_lost_keyring_are_told_at_the_start() {
    let data = Scratch::new();
    let mut gateway = launch(data.path());
    let output = refused_start(data.path());
    assert!(output.contains("is in use by another process"), "{output}");
    gateway.terminate();
    gateway.wait(60);
    std::fs::rename(data.file("keyring"), data.file("kept")).unwrap();
    let output = refused_start(data.path());
    assert!(output.contains("the keyring does not hold"), "{output}");
    std::fs::rename(data.file("kept"), data.file("keyring")).unwrap();
    assert_eq!(launch(data.path()).get("/hello").status, 200);
}

/// A small file system, unmounted at the end; `None` if it cannot be mounted here.
struct SmallDisk(Scratch);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let store_path = Scratch::new();
        let path = store_path.path().display().to_string();
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs", &path])
            .output();
        mount.is_ok_and(|output| output.status.success()).then_some(SmallDisk(store_path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[test]
fn a_full_disk_refuses_writes_and_traffic_goes_on() {
    let Some(disk) = SmallDisk::mount() else {
        return yumen_test::missing_prerequisite("no tmpfs can be mounted");
    };
    let mut gateway = launch(disk.0.path());
    let key = gateway.admin_key().expect("a first start prints the admin key");
    let large = "x".repeat(100_000);
    let mut written = Vec::new();
    let refused = (0..1000).find_map(|number| {
        let id = format!("r{number}");
        let reply = put(&gateway, &key, &id, &mock(&format!("/{id}"), &large));
        if reply.status == 201 {
            written.push(id);
            return None;
        }
        Some(reply)
    });
    let refused = refused.expect("eight megabytes do not hold it");
    assert_eq!(refused.status, 507, "{}", refused.text());
    assert!(!written.is_empty());
    assert_eq!(gateway.get("/hello").status, 200);
    // Acknowledged routes survive a crash on the full disk.
    gateway.kill();
    gateway.wait(60);
    let gateway = launch(disk.0.path());
    for id in &written {
        assert_eq!(gateway.get(&format!("/{id}")).body.len(), large.len(), "{id}");
    }
}

#[test]
fn what_ends_on_a_full_disk_ends_in_time_and_the_disk_is_told_of() {
    let Some(disk) = SmallDisk::mount() else {
        return yumen_test::missing_prerequisite("no tmpfs can be mounted");
    };
    let mut gateway = launch(disk.0.path());
    let key = gateway.admin_key().expect("a first start prints the admin key");
    let path = "/apisix/admin/routes/short?ttl=3&wait=applied";
    assert_eq!(ask(&gateway, &key, "PUT", path, &mock("/short", "short").to_string()).status, 201);
    let filled = std::fs::write(disk.0.file("fill"), vec![0; 8 << 20]);
    filled.expect_err("eight megabytes do not hold as much and a store");
    let refused = put(&gateway, &key, "large", &mock("/large", &"x".repeat(1_000_000)));
    assert_eq!(refused.status, 507, "{}", refused.text());
    let problems = || gateway.status_json("/yumen/v1/problems").to_string();
    eventually("the problem is reported", 10, || problems().contains("writes fail: the disk is full"));
    gateway.assert_metric("yumen_store_writable", 0.0);
    eventually("the route ends", 10, || gateway.get("/short").status == 404);
    gateway.kill();
    gateway.wait(60);
    let gateway = launch(disk.0.path());
    assert_eq!(
        (gateway.get("/short").status, gateway.get("/hello").status),
        (404, 200),
        "it starts all the same"
    );
    let problems = || gateway.status_json("/yumen/v1/problems").to_string();

    std::fs::remove_file(disk.0.file("fill")).unwrap();
    let (path, large) = ("/apisix/admin/routes/large", mock("/large", &"x".repeat(1_000_000)).to_string());
    eventually("there is room", 10, || ask(&gateway, &key, "PUT", path, &large).status == 201);
    eventually("no problem is left", 10, || problems() == "[]");
    gateway.assert_metric("yumen_store_writable", 1.0);
}

#[test]
fn a_backup_taken_while_writing_restores_elsewhere() {
    let (data, other) = (Scratch::new(), Scratch::new());
    let mut gateway = launch(data.path());
    let key = gateway.admin_key().expect("a first start prints the admin key");
    // One transaction writes both routes, so a consistent backup contains equal texts.
    let pair = |text: &str| json!({ "put": { "routes": [route("a", text), route("b", text)] } }).to_string();
    assert_eq!(ask(&gateway, &key, "POST", "/yumen/v1/apply", &pair(SECRET)).status, 200);
    let (file, at) = (other.file("yumen.backup").display().to_string(), format!("http://{}", gateway.admin));
    let is_done = Arc::new(Mutex::new(false));
    let (code, out, err) = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                let text = format!("{SECRET}-{number}");
                assert_eq!(ask(&gateway, &key, "POST", "/yumen/v1/apply", &pair(&text)).status, 200);
                if *is_done.lock().unwrap() {
                    return;
                }
            }
        });
        let done = run(YUMEN, &["backup", &file, "--admin", &at, "--key", &key]);
        *is_done.lock().unwrap() = true;
        done
    });
    assert_eq!(code, 0, "{out}{err}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let bytes = std::fs::read(&file).unwrap();
    assert!(!bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()));
    assert!(!data.file("backup.sending").exists());

    let used = data.path().display().to_string();
    let (code, _, err) = run(YUMEN, &["restore", &file, "--data-dir", &used]);
    assert!(code == 2 && err.contains("in use"), "{err}");
    let fresh = other.file("data").display().to_string();
    let (code, _, err) = run(YUMEN, &["restore", &file, "--data-dir", &fresh]);
    assert!(code == 2 && err.contains("the keyring does not hold"), "{err}");
    // A backup does not contain the keyring.
    std::fs::copy(data.file("keyring"), other.file("data").join("keyring")).unwrap();
    let (code, out, err) = run(YUMEN, &["restore", &file, "--data-dir", &fresh]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("restored: revision ") && out.contains(", 3 objects"), "{out}");
    gateway.terminate();
    gateway.wait(60);

    let restored = launch(&other.file("data"));
    assert_eq!(restored.admin_key(), None);
    let text = restored.get("/a").text();
    assert!(text.starts_with(SECRET), "{text}");
    assert_eq!(restored.get("/b").text(), text);
    let revision = restored.revision();
    assert!(out.contains(&format!("revision {revision},")), "{out} {revision}");
    let newest = ask(&restored, &key, "GET", "/yumen/v1/revisions?limit=1", "").json();
    assert_eq!(newest["revisions"][0]["revision"], revision, "{newest}");
}

fn route(id: &str, text: &str) -> Value {
    let mut route = mock(&format!("/{id}"), text);
    route["id"] = id.into();
    route
}
