//! etcd clusters on their own ports, which end with the test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use yumen_test::TestNetwork;

use crate::etcd::{EtcdSettings, EtcdStore, OpenedEtcdStore};
use crate::test_kit::{TestDir, WAIT, until};

/// A member and its running process.
struct Member {
    /// Command and working directory.
    command: Vec<String>,
    url: String,
    process: Option<Child>,
}

pub(super) struct Cluster {
    members: Vec<Member>,
    /// Command prefix and arguments of `etcdctl`.
    ctl: Vec<String>,
    pub(super) dir: TestDir,
}

/// Host, client port, peer port.
type Address = (String, u16, u16);

/// Locations of the members, and access to them.
pub(super) struct Places {
    pub(super) members: Vec<Address>,
    /// Command prefix of each member.
    pub(super) within: Vec<Vec<String>>,
    /// Path of the etcd program.
    pub(super) program: String,
    pub(super) scheme: &'static str,
    /// Additional arguments of every member.
    pub(super) more: Vec<String>,
    /// Command prefix and arguments of `etcdctl`.
    pub(super) ctl: Vec<String>,
}

impl Places {
    /// `count` members on this machine.
    pub(super) fn here(count: usize) -> Places {
        Places {
            members: (0..count).map(|_| ("127.0.0.1".to_owned(), free_port(), free_port())).collect(),
            within: vec![Vec::new(); count],
            program: "etcd".into(),
            scheme: "http",
            more: Vec::new(),
            ctl: vec!["etcdctl".into()],
        }
    }

    /// Members in the first hosts of a network. `etcdctl` runs at the last host, which is never partitioned
    /// from itself.
    pub(super) fn in_net(net: &TestNetwork, count: u8) -> Places {
        let mut ctl = net.within(count - 1);
        ctl.push("etcdctl".into());
        Places {
            members: (0..count).map(|i| (net.address(i).to_string(), 2379, 2380)).collect(),
            within: (0..count).map(|i| net.within(i)).collect(),
            ctl,
            ..Places::here(0)
        }
    }
}

/// Each available etcd: Debian's, and a current one if `scripts/deps.sh` has built it.
#[allow(clippy::print_stderr, reason = "whoever runs the tests is told what was left out")]
pub(super) fn programs() -> Vec<String> {
    let mut programs = vec!["etcd".to_owned()];
    let current = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/etcd-current");
    match current.exists() {
        true => programs.push(current.display().to_string()),
        false => eprintln!("skipped: a current etcd, which Go builds, is not there: scripts/deps.sh test"),
    }
    programs
}

impl Cluster {
    /// `count` members of this etcd.
    pub(super) fn of(program: &str, count: usize) -> Cluster {
        Cluster::start_in(TestDir::new(), Places { program: program.to_owned(), ..Places::here(count) })
    }

    /// `count` members.
    pub(super) fn start(count: usize) -> Cluster {
        Cluster::start_with(count, &[])
    }

    /// Members with additional arguments.
    pub(super) fn start_with(count: usize, more: &[&str]) -> Cluster {
        let more = more.iter().map(ToString::to_string).collect();
        Cluster::start_in(TestDir::new(), Places { more, ..Places::here(count) })
    }

    /// Members in these places, with their data in `dir`.
    pub(super) fn start_in(dir: TestDir, ports: Places) -> Cluster {
        let Places { members, within, program, scheme, more, ctl } = ports;
        let peers: Vec<String> = members
            .iter()
            .enumerate()
            .map(|(i, (host, _, peer))| format!("m{i}=http://{host}:{peer}"))
            .collect();
        let member = |i: usize, (host, client, peer): &Address, mut command: Vec<String>| {
            let url = format!("{scheme}://{host}:{client}");
            let peer = format!("http://{host}:{peer}");
            command.push(program.clone());
            let arguments = [
                ("--name", format!("m{i}")),
                ("--data-dir", dir.join(&format!("m{i}")).display().to_string()),
                ("--listen-client-urls", url.clone()),
                ("--advertise-client-urls", url.clone()),
                ("--listen-peer-urls", peer.clone()),
                ("--initial-advertise-peer-urls", peer),
                ("--initial-cluster", peers.join(",")),
                ("--initial-cluster-token", dir.path().display().to_string()),
                // Avoids repeated elections on a busy machine.
                ("--heartbeat-interval", "200".into()),
                ("--election-timeout", "2000".into()),
                ("--log-level", "error".into()),
            ];
            command.extend(arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
            command.extend(more.clone());
            Member { command, url, process: None }
        };
        let members = members.iter().zip(within).enumerate();
        let members: Vec<Member> = members.map(|(i, (address, within))| member(i, address, within)).collect();
        let mut cluster = Cluster { members, ctl, dir };
        (0..cluster.members.len()).for_each(|i| cluster.launch(i));
        cluster
    }

    /// Waits until a linearizable read succeeds.
    pub(super) fn wait(&self) {
        until("the cluster answers", || self.ctl(&["get", "any"]).is_some());
    }

    /// Starts a member, for the first time or again.
    pub(super) fn launch(&mut self, member: usize) {
        let Member { command, process, .. } = &mut self.members[member];
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.join(&format!("m{member}.log")))
            .unwrap();
        let started = Command::new(&command[0]).args(&command[1..]).stdout(Stdio::null()).stderr(log).spawn();
        *process = Some(started.expect("etcd is installed: scripts/deps.sh test"));
    }

    /// Kills a member.
    pub(super) fn kill(&mut self, member: usize) {
        let mut process = self.members[member].process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Suspends a member without closing its connections, or resumes it.
    pub(super) fn pause(&self, member: usize, pauses: bool) {
        let id = self.members[member].process.as_ref().unwrap().id().to_string();
        let signal = if pauses { "-STOP" } else { "-CONT" };
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    pub(super) fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.url.clone()).collect()
    }

    /// Index of the member with this URL.
    pub(super) fn index_of(&self, url: &str) -> usize {
        self.members.iter().position(|member| member.url == url).unwrap()
    }

    /// Output of `etcdctl` with all running members as endpoints; `None` on failure.
    pub(super) fn ctl(&self, arguments: &[&str]) -> Option<String> {
        let urls: Vec<&str> = self
            .members
            .iter()
            .filter(|member| member.process.is_some())
            .map(|member| member.url.as_str())
            .collect();
        self.ctl_at(&urls.join(","), arguments)
    }

    fn ctl_at(&self, urls: &str, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new(&self.ctl[0]);
        command.env("ETCDCTL_API", "3").args(&self.ctl[1..]).arg("--endpoints").arg(urls);
        let output = command.args(arguments).output().expect("etcdctl is installed: scripts/deps.sh test");
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// As [`Cluster::ctl`], repeated until it succeeds: an election may be in progress.
    pub(super) fn must(&self, arguments: &[&str]) -> String {
        let begin = Instant::now();
        loop {
            if let Some(output) = self.ctl(arguments) {
                return output;
            }
            assert!(begin.elapsed() < WAIT, "etcdctl {arguments:?} never worked");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Index of the leader.
    pub(super) fn leader(&self) -> usize {
        let begin = Instant::now();
        loop {
            for (i, member) in self.members.iter().enumerate() {
                let status = self.ctl_at(&member.url, &["endpoint", "status", "-w", "fields"]);
                let field = |name: &str| {
                    let line = status.as_deref()?.lines().find(|line| line.starts_with(name))?;
                    Some(line.split(" : ").nth(1)?.to_owned())
                };
                if let (Some(own), Some(leader)) = (field("\"MemberID\""), field("\"Leader\""))
                    && own == leader
                {
                    return i;
                }
            }
            assert!(begin.elapsed() < WAIT, "nobody leads");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Settings of a node in this cluster, with short timeouts.
    pub(super) fn settings(&self) -> EtcdSettings {
        let mut settings = EtcdSettings::new(self.urls(), "/apisix");
        settings.start_timeout = WAIT;
        settings.write_timeout = WAIT;
        settings
    }

    /// Opens a node's store with its own directory of this name.
    pub(super) fn node(&self, name: &str) -> Node {
        self.node_with(name, self.settings())
    }

    pub(super) fn node_with(&self, name: &str, settings: EtcdSettings) -> Node {
        Node::open(self.dir.join(name), settings).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(mut process) = member.process.take() {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }
}

/// A store with its recorded events.
pub(super) struct Node {
    pub(super) opened: OpenedEtcdStore,
    pub(super) problems: Arc<std::sync::Mutex<Vec<yumen_base::Problem>>>,
}

impl Node {
    pub(super) fn open(path: PathBuf, settings: EtcdSettings) -> Result<Node, crate::StoreError> {
        let problems = Arc::new(std::sync::Mutex::default());
        let problem_log = problems.clone();
        let opened = EtcdStore::open(
            &path,
            None,
            settings,
            Box::new(move |now| *problem_log.lock().unwrap() = now),
            Arc::default(),
        )?;
        Ok(Node { opened, problems })
    }

    pub(super) fn store(&self) -> &EtcdStore {
        &self.opened.store
    }

    /// The problems as text.
    pub(super) fn problems(&self) -> String {
        let problems = self.problems.lock().unwrap();
        problems.iter().map(|problem| format!("{problem}\n")).collect()
    }
}

/// A free port, below the range of ephemeral ports.
pub(super) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let number =
            NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add((std::process::id() as u16).wrapping_mul(31));
        let port = 12_000 + number % 18_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
