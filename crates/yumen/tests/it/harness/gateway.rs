//! The gateway as a process, with its files and its four listeners.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::etcd::Cable;
use super::{Client, POLL_INTERVAL, Place, Reply, Scratch, eventually};

/// Longest wait of [`Gateway::assert_metric`].
const METRIC_WAIT: Duration = Duration::from_secs(5);

/// The binary under test.
pub(crate) const YUMEN: &str = env!("CARGO_BIN_EXE_yumen");

/// Options for starting a gateway.
#[derive(Default)]
pub(crate) struct Options<'a> {
    /// Content of `yumen.yaml`.
    pub(crate) node: &'a str,
    /// Further arguments of `yumen run`.
    pub(crate) args: &'a [&'a str],
    /// Further environment variables.
    pub(crate) env: &'a [(&'a str, &'a str)],
    /// Worker threads; 0 means two.
    pub(crate) workers: u32,
    /// Whether `yumen.yaml` configures the client listeners.
    pub(crate) own_listeners: bool,
    /// Whether `yumen.yaml` configures the number of workers.
    pub(crate) own_workers: bool,
    /// The place that it runs in.
    pub(crate) place: Place,
}

/// A running gateway; terminated on drop.
pub(crate) struct Gateway {
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    pub(crate) status: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) scratch: Scratch,
    lines: Arc<Mutex<Vec<String>>>,
    child: Child,
}

impl Gateway {
    /// Starts with these resources.
    pub(crate) fn start(resources: &Value) -> Gateway {
        Gateway::with(resources, &Options::default())
    }

    pub(crate) fn with(resources: &Value, options: &Options<'_>) -> Gateway {
        let scratch = Scratch::new();
        let routes = scratch.write("routes.yaml", resources.to_string());
        Gateway::launch(scratch, options, &["--file", &routes])
    }

    /// Starts on a new embedded store; returns the gateway and its admin key.
    pub(crate) fn embedded() -> (Gateway, String) {
        let gateway = Gateway::launch(Scratch::new(), &Options::default(), &["--data-dir", "data"]);
        let key = gateway.admin_key().expect("a first start prints the admin key");
        (gateway, key)
    }

    /// The admin key, if this start created one.
    pub(crate) fn admin_key(&self) -> Option<String> {
        let lines = self.lines();
        let after = lines.iter().skip_while(|line| !line.starts_with("Keys of the admin listener"));
        let line = after.skip(1).find(|line| line.trim_start().starts_with("admin"))?;
        line.split_whitespace().nth(1).map(str::to_owned)
    }

    pub(crate) fn launch(mut scratch: Scratch, options: &Options<'_>, more: &[&str]) -> Gateway {
        // Another process may use the UDP port with the number that the system chose for TCP.
        for _ in 0..4 {
            match Gateway::try_launch(scratch, options, more) {
                Ok(gateway) => return gateway,
                Err((same, log)) if log.contains("for HTTP/3") && log.contains("already in use") => {
                    scratch = same
                }
                Err((_, log)) => panic!("yumen did not become ready:\n{log}"),
            }
        }
        panic!("no port is free for HTTP/3");
    }

    /// Returns its directory and log if it does not become ready.
    fn try_launch(
        scratch: Scratch,
        options: &Options<'_>,
        more: &[&str],
    ) -> Result<Gateway, (Scratch, String)> {
        let config = scratch.write("yumen.yaml", options.node);
        let log = std::fs::File::create(scratch.file("stderr")).expect("a log file");
        let any = SocketAddr::new(options.place.host, 0).to_string();
        // The admin listener is loopback only, because keys must not cross a network in the clear.
        let own = "127.0.0.1:0";
        let clients = ["--listen", &any, "--listen-tls", &any];
        let workers = if options.workers == 0 { 2 } else { options.workers }.to_string();
        let of_workers = ["--workers", &workers];
        let mut child = options
            .place
            .command(YUMEN)
            .current_dir(scratch.path())
            .envs(options.env.iter().copied())
            .args(["run", "--config", &config])
            .args(if options.own_workers { &[] } else { &of_workers[..] })
            .args(if options.own_listeners { &[] } else { &clients[..] })
            .args(["--admin", own, "--status", &any])
            .args(options.args)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("yumen starts");
        let lines = collect_lines(&mut child);
        let mut address = [None; 4];
        let started = Instant::now();
        while !is_announced(&lines.lock().unwrap()) {
            if started.elapsed() > Duration::from_secs(30) || child.try_wait().unwrap().is_some() {
                let log = std::fs::read_to_string(scratch.file("stderr")).unwrap_or_default();
                let _ = child.kill();
                return Err((scratch, log));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        for line in lines.lock().unwrap().iter() {
            for (slot, name) in address.iter_mut().zip(["http", "https", "status", "admin"]) {
                if line.split_whitespace().next() == Some(name) {
                    *slot = slot.or_else(|| authority(line));
                }
            }
        }
        let [http, https, status, mut admin] = address.map(|one| one.expect("every listener is announced"));
        // The admin listener is on the loopback interface of another namespace.
        if !options.place.is_here() {
            admin = Cable::from(options.place.clone(), admin).address();
        }
        Ok(Gateway { http, https, status, admin, scratch, lines, child })
    }

    /// Standard output so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// The node log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.file("stderr")).unwrap_or_default()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A GET on a new connection.
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.get_with(path, "")
    }

    /// A GET with further fields, each with CRLF.
    pub(crate) fn get_with(&self, path: &str, fields: &str) -> Reply {
        let host = if fields.starts_with("Host:") { "" } else { "Host: test\r\n" };
        self.send(format!("GET {path} HTTP/1.1\r\n{host}{fields}Connection: close\r\n\r\n"))
    }

    /// A raw request on a new connection.
    pub(crate) fn send(&self, request: impl AsRef<[u8]>) -> Reply {
        Client::connect(self.http).send(request).reply()
    }

    /// A document of the status listener.
    pub(crate) fn status_text(&self, path: &str) -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        let reply = Client::connect(self.status).send(request).reply();
        (reply.status, reply.text())
    }

    pub(crate) fn status_json(&self, path: &str) -> Value {
        let (status, text) = self.status_text(path);
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).expect("a JSON document")
    }

    pub(crate) fn revision(&self) -> u64 {
        self.status_json("/status")["revision"].as_u64().expect("a revision")
    }

    /// One sample of `/metrics`, by its name and labels as exported.
    pub(crate) fn metric(&self, sample: &str) -> f64 {
        let (_, text) = self.status_text("/metrics");
        let found = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {sample} in\n{text}")).parse().expect("a number")
    }

    /// Asserts the value of one sample, and waits for it at most [`METRIC_WAIT`]: a worker counts an exchange after
    /// it wrote the last byte of the response, so a client may be faster than the counter.
    #[track_caller]
    pub(crate) fn assert_metric(&self, sample: &str, wanted: f64) {
        let begun = Instant::now();
        loop {
            let found = self.metric(sample);
            if found == wanted {
                return;
            }
            assert!(begun.elapsed() < METRIC_WAIT, "{sample} is {found}, expected {wanted}");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Replaces the resource file without waiting.
    pub(crate) fn edit(&self, resources: &Value) {
        self.scratch.write("routes.yaml", resources.to_string());
    }

    /// Replaces the resource file and waits until it is applied.
    pub(crate) fn apply(&self, resources: &Value) {
        let before = self.revision();
        self.edit(resources);
        eventually("the edit is in force", 5, || self.revision() > before);
    }

    pub(crate) fn terminate(&self) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id");
        kill_process(pid, Signal::TERM).expect("the process is there");
    }

    /// Sends SIGHUP.
    pub(crate) fn hang_up(&self) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id");
        kill_process(pid, Signal::HUP).expect("the process is there");
    }

    /// Sends SIGUSR1, which reopens log files.
    pub(crate) fn ask_to_reopen_logs(&self) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id");
        kill_process(pid, Signal::USR1).expect("the process is there");
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&self) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id");
        kill_process(pid, Signal::KILL).expect("the process is there");
    }

    /// Waits for the process to exit.
    pub(crate) fn wait(&mut self, seconds: u64) -> ExitStatus {
        let mut status = None;
        eventually("the process ends", seconds, || {
            status = self.child.try_wait().expect("a child of ours");
            status.is_some()
        });
        status.expect("just seen")
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let text = std::fs::read_to_string(path).expect("the process is there");
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("resident memory");
        line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        self.terminate();
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(2) {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Standard output must be drained, or the access log of the gateway would stall.
fn collect_lines(child: &mut Child) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let (stdout, log_lines) = (child.stdout.take().expect("piped"), lines.clone());
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            log_lines.lock().unwrap().push(line);
        }
    });
    lines
}

/// The address in `name   scheme://address/...`.
fn authority(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("://")?;
    rest.split(['/', ' ']).next()?.parse().ok()
}

/// Whether the announcement is complete: its last line has a command, unless no configuration is active.
fn is_announced(lines: &[String]) -> bool {
    let has_line = |name: &str| lines.iter().any(|line| line.split_whitespace().next() == Some(name));
    lines.iter().any(|line| line.contains("curl"))
        || lines.iter().any(|line| line.contains("waits for a valid configuration"))
            && ["http", "https", "status", "admin"].into_iter().all(has_line)
}
