//! Gateways without a configuration file: `yumen proxy`, `yumen demo`, and the services of `yumen echo`.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::gateway::YUMEN;
use crate::harness::{Client, Gateway, Options, Reply, Scratch, Upstream, eventually, run};

/// A running command that announces its listeners; ended on drop.
struct OneLine {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl OneLine {
    fn start(arguments: &[&str]) -> OneLine {
        let mut child = Command::new(YUMEN)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("yumen starts");
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        OneLine { child, lines, seen: Vec::new() }
    }

    /// The first line that contains a text, among those printed so far and later.
    fn line(&mut self, part: &str) -> String {
        loop {
            if let Some(found) = self.seen.iter().find(|line| line.contains(part)) {
                return found.clone();
            }
            let next = self.lines.recv_timeout(Duration::from_secs(60));
            self.seen.push(next.unwrap_or_else(|_| panic!("no line with {part:?} in {:#?}", self.seen)));
        }
    }

    /// The address of a listener.
    fn address(&mut self, name: &str) -> SocketAddr {
        let line = self.line(&format!("  {name} "));
        let (_, rest) = line.split_once("://").expect("a URL");
        rest.split(['/', ' ']).next().and_then(|address| address.parse().ok()).expect("an address")
    }

    /// The directory in an advertised command.
    fn data_dir(&mut self) -> String {
        let line = self.line("--data-dir ");
        line.split("--data-dir ").nth(1).expect("a directory").to_owned()
    }

    fn end(&mut self) -> Option<i32> {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id");
        kill_process(pid, Signal::TERM).expect("the process is there");
        self.child.wait().expect("a child of ours").code()
    }
}

impl Drop for OneLine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: SocketAddr, path: &str, fields: &str) -> Reply {
    let request = format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\n{fields}Connection: close\r\n\r\n");
    Client::connect(address).send(request).reply()
}

#[test]
fn a_proxy_needs_one_line_and_shares_requests_among_its_targets() {
    let (first, second) = (Upstream::echo("first"), Upstream::echo("second"));
    let targets = [first.address.to_string(), second.address.to_string()];
    let mut proxy =
        OneLine::start(&["proxy", "--from", "127.0.0.1:0", "--to", &targets[0], "--to", &targets[1]]);
    let address = proxy.address("http");
    assert!(proxy.line("routes").contains(&targets[1]), "the targets are announced");
    for _ in 0..4 {
        assert_eq!(get(address, "/a?b=c", "").status, 200);
    }
    assert_eq!((first.requests(), second.requests()), (2, 2));
    // A refused connection goes to the next target.
    drop(first);
    for _ in 0..4 {
        assert_eq!(get(address, "/", "").status, 200);
    }
    let directory = proxy.data_dir();
    let (code, out, err) = run(YUMEN, &["explain", "/x", "--data-dir", &directory]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("routes/proxy"), "{out}");
    assert_eq!(proxy.end(), Some(0));
    assert!(!std::path::Path::new(&directory).exists(), "the directory of sockets is removed");
}

#[test]
fn a_proxy_keeps_the_host_and_rewrites_it_on_request() {
    let echo = OneLine::start(&["echo", "127.0.0.1:0"]);
    let mut echo = echo;
    let line = echo.line("echo on http://");
    let service =
        line.trim_start_matches("echo on http://").split(": ").next().expect("an address").to_owned();
    for (options, expected) in [
        (&[][..], "shop.example"),
        (&["--host", "rewrite"], service.as_str()),
        (&["--host", "api.example.com"], "api.example.com"),
    ] {
        let base = ["proxy", "--from", "127.0.0.1:0", "--to", &service];
        let mut proxy = OneLine::start(&[&base[..], options].concat());
        let address = proxy.address("http");
        assert_eq!(get(address, "/", "").json()["headers"]["host"], expected, "{options:?}");
        // The service of trials sets its status by the path.
        assert_eq!(get(address, "/status/418", "").status, 418);
    }
}

#[test]
fn a_proxy_upgrades_without_losing_its_listener() {
    let upstream = Upstream::echo("one");
    let target = upstream.address.to_string();
    let mut proxy = OneLine::start(&["proxy", "--from", "127.0.0.1:0", "--to", &target]);
    let address = proxy.address("http");
    let directory = proxy.data_dir();
    assert_eq!(get(address, "/", "").status, 200);
    let (code, out, err) = run(YUMEN, &["upgrade", "--data-dir", &directory]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(get(address, "/", "").status, 200);
    let successor = out.lines().rev().find_map(|line| line.strip_prefix("upgraded: process "));
    let successor = successor.and_then(|rest| rest.split(' ').next()?.parse().ok()).expect("a process id");
    kill_process(Pid::from_raw(successor).expect("a pid"), Signal::TERM).expect("it runs");
    eventually("the predecessor ends", 10, || proxy.child.try_wait().expect("a child").is_some());
}

#[test]
fn printed_resources_serve_as_a_file() {
    let upstream = Upstream::text("from the file");
    let target = upstream.address.to_string();
    let (code, document, err) = run(YUMEN, &["proxy", "--from", ":8080", "--to", &target, "--print"]);
    assert_eq!(code, 0, "{err}");
    let scratch = Scratch::new();
    let file = scratch.write("routes.yaml", document);
    let gateway = Gateway::launch(scratch, &Options::default(), &["--file", &file]);
    assert_eq!(gateway.get("/").text(), "from the file");
}

#[test]
fn a_proxy_refuses_unusable_options() {
    for (options, expected) in [
        (&["--from", "8080", "--to", ":9000"][..], "write 127.0.0.1:8080"),
        (&["--from", ":0", "--to", "9000"], "write :9000"),
        (&["--from", ":0", "--to", "http://a", "--to", "https://b"], "one scheme"),
    ] {
        let (code, _, err) = run(YUMEN, &[&["proxy"], options].concat());
        assert_eq!(code, 2, "{options:?}: {err}");
        assert!(err.contains(expected), "{err}");
    }
}

#[test]
fn a_demonstration_has_traffic_and_takes_changes() {
    let any = "127.0.0.1:0";
    let mut demo =
        OneLine::start(&["demo", "--listen", any, "--admin", any, "--status", any, "--rate", "200"]);
    let (address, status) = (demo.address("http"), demo.address("status"));
    assert!(demo.line("  ui ").ends_with("/ui/"));
    assert_eq!(get(address, "/hello", "").status, 200);
    assert_eq!(get(address, "/orders/7", "").status, 401);
    assert_eq!(get(address, "/orders/7", "apikey: alice-key\r\n").status, 200);
    assert_eq!(get(address, "/internal/x", "").status, 403);
    assert_eq!(get(address, "/payments/1", "").status, 200, "retries hide the endpoint that is down");
    let listed = |path: &str| -> Value {
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        Client::connect(status).send(request).reply().json()
    };
    eventually("every sample route has requests", 20, || {
        let top = listed("/yumen/v1/top").to_string();
        ["hello", "catalogue", "orders", "payments", "reports", "former", "internal"]
            .iter()
            .all(|route| top.contains(&format!("\"{route}\"")))
    });
    let problems = listed("/yumen/v1/problems");
    assert_eq!(problems, serde_json::json!([]), "the samples have no problems");
    let directory = demo.data_dir();
    let scratch = Scratch::new();
    let more = "routes: [{id: mine, uri: /mine, plugins: {mocking: {response_example: mine}}}]\n";
    let file = scratch.write("more.yaml", more);
    let (code, out, err) = run(YUMEN, &["import", "file", &file, "--data-dir", &directory]);
    assert_eq!(code, 0, "{out}{err}");
    eventually("the change is in force", 5, || get(address, "/mine", "").status == 200);
    assert_eq!(demo.end(), Some(0));
}
