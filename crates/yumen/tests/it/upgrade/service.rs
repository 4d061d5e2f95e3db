//! A test double of a service manager: passes sockets, receives notifications, and watches the process.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::gateway::YUMEN;
use crate::harness::{Client, Scratch, eventually, run};

/// Starts like a service manager: sockets as descriptors 3 and 4, their number and names in the environment.
const AS_MANAGER: &str = r#"exec 3<&0 4<&1 </dev/null >/dev/null
export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=web:admin
exec "$@""#;

struct Managed {
    scratch: Scratch,
    notifications: UnixDatagram,
    child: Child,
    web: SocketAddr,
    admin: SocketAddr,
    /// All notifications so far.
    lines: Vec<String>,
}

impl Managed {
    fn start() -> Managed {
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.file("data")).unwrap();
        let notifications = UnixDatagram::bind(scratch.file("notify")).unwrap();
        notifications.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (web, admin) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = |listener: &TcpListener| listener.local_addr().unwrap();
        let (web_address, admin_address) = (address(&web), address(&admin));
        // The admin listener is found by its name: its address differs.
        scratch.write(
            "yumen.yaml",
            format!("listen: [{{address: '{web_address}'}}]\nadmin: {{listen: '127.0.0.1:9'}}\nstatus: {{listen: '127.0.0.1:0'}}"),
        );
        let route = json!({"id": "1", "uri": "/*", "plugins": {"mocking": {"response_example": "ok"}}});
        scratch.write("routes.yaml", json!({"routes": [route]}).to_string());
        let child = Command::new("sh")
            .current_dir(scratch.path())
            .args([
                "-c",
                AS_MANAGER,
                "manager",
                YUMEN,
                "run",
                "--config",
                "yumen.yaml",
                "--file",
                "routes.yaml",
            ])
            .args(["--workers", "2"])
            .env("NOTIFY_SOCKET", scratch.file("notify"))
            .env("WATCHDOG_USEC", "2000000")
            .stdin(Stdio::from(OwnedFd::from(web)))
            .stdout(Stdio::from(OwnedFd::from(admin)))
            .stderr(std::fs::File::create(scratch.file("stderr")).unwrap())
            .spawn()
            .unwrap();
        Managed { scratch, notifications, child, web: web_address, admin: admin_address, lines: Vec::new() }
    }

    /// Waits for this notification, and drops the earlier ones.
    fn await_line(&mut self, line: &str) {
        let started = Instant::now();
        loop {
            if let Some(at) = self.lines.iter().position(|received| received == line) {
                self.lines.drain(..=at);
                return;
            }
            let log = || std::fs::read_to_string(self.scratch.file("stderr")).unwrap_or_default();
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "not told {line}: {:?}\n{}",
                self.lines,
                log()
            );
            let mut room = [0; 4096];
            if let Ok(count) = self.notifications.recv(&mut room) {
                let text = String::from_utf8_lossy(&room[..count]).into_owned();
                self.lines.extend(text.lines().map(str::to_owned));
            }
        }
    }

    fn get(&self) -> u16 {
        Client::connect(self.web)
            .send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .reply()
            .status
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

#[test]
fn a_service_manager_passes_sockets_and_hears_who_serves() {
    let mut managed = Managed::start();
    let first = managed.child.id();
    managed.await_line(&format!("MAINPID={first}"));
    assert_eq!(managed.get(), 200);
    let admin = "GET /apisix/admin/routes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert_ne!(Client::connect(managed.admin).send(admin).reply().status, 0);
    managed.await_line("WATCHDOG=1");

    signal(first, Signal::USR2);
    managed.await_line("RELOADING=1");
    managed.await_line("STATUS=upgrading");
    let (mut second, started) = (None, Instant::now());
    while second.is_none() && started.elapsed() < Duration::from_secs(60) {
        second = main_pid(&managed.lines);
        let mut room = [0; 4096];
        if let Ok(count) = managed.notifications.recv(&mut room) {
            managed.lines.extend(String::from_utf8_lossy(&room[..count]).lines().map(str::to_owned));
        }
    }
    let second = second.expect("the new process is told of");
    assert_ne!(second, first);
    managed.await_line(&format!("MAINPID={second}"));
    // From the new process itself, and not earlier.
    managed.await_line("READY=1");
    assert_eq!(managed.get(), 200);
    eventually("the old process has ended", 60, || managed.child.try_wait().unwrap().is_some());
    managed.await_line("WATCHDOG=1");
    managed.lines.clear();
    managed.await_line("WATCHDOG=1");
    signal(second, Signal::TERM);
    managed.await_line("STOPPING=1");
    eventually("the new process has ended", 60, || !super::runs(second));
}

fn main_pid(lines: &[String]) -> Option<u32> {
    lines.iter().find_map(|line| line.strip_prefix("MAINPID=")?.parse().ok())
}

#[test]
fn an_admin_socket_others_can_reach_is_refused_without_tls_and_keys() {
    let scratch = Scratch::new();
    scratch.write("routes.yaml", json!({"routes": Value::Array(Vec::new())}).to_string());
    let (web, admin) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("0.0.0.0:0").unwrap());
    let address = admin.local_addr().unwrap().to_string();
    // Both the configuration and the rule are for loopback only.
    scratch.write(
        "yumen.yaml",
        format!(
            "listen: [{{address: '{}'}}]\nadmin: {{listen: '127.0.0.1:9', key_required: false}}\n\
             status: {{listen: '127.0.0.1:0'}}",
            web.local_addr().unwrap()
        ),
    );
    let output = Command::new("sh")
        .current_dir(scratch.path())
        .args(["-c", AS_MANAGER, "manager", YUMEN, "run", "--config", "yumen.yaml", "--file", "routes.yaml"])
        .stdin(Stdio::from(OwnedFd::from(web)))
        .stdout(Stdio::from(OwnedFd::from(admin)))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for part in [&*address, "admin.key_required", "admin.tls"] {
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn a_socket_that_nothing_listens_on_is_an_error_with_its_name() {
    let scratch = Scratch::new();
    scratch.write("routes.yaml", json!({"routes": Value::Array(Vec::new())}).to_string());
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let any = "127.0.0.1:0";
    let output = Command::new("sh")
        .current_dir(scratch.path())
        .args(["-c", AS_MANAGER, "manager", YUMEN, "run", "--file", "routes.yaml"])
        .args(["--listen", any, "--listen-tls", any, "--admin", any, "--status", any])
        .stdin(Stdio::from(OwnedFd::from(web.try_clone().unwrap())))
        .stdout(Stdio::from(OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap())))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let address = web.local_addr().unwrap().to_string();
    assert!(stderr.contains("`web`") && stderr.contains(&address), "{stderr}");
}

#[test]
fn the_units_are_in_order() {
    let units = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/systemd");
    let scratch = Scratch::new();
    let service = std::fs::read_to_string(format!("{units}/yumen.service")).unwrap();
    let service = scratch.write("yumen.service", service.replace("/usr/bin/yumen", YUMEN));
    let socket = std::fs::read_to_string(format!("{units}/yumen.socket")).unwrap();
    let socket = scratch.write("yumen.socket", socket);
    let (code, out, err) = run("systemd-analyze", &["verify", &service, &socket]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", ""));
    let (code, out, _) = run("systemd-analyze", &["security", "--offline=yes", "--threshold=20", &service]);
    assert_eq!(code, 0, "more exposed than 2.0 of 10:\n{out}");
}
