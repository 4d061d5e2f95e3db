//! Clusters of etcd on ports of their own, which end with the test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use yumen_test::TestNetwork;

use crate::etcd::{EtcdSettings, EtcdStore, OpenedEtcdStore};
use crate::test_kit::{TestDir, WAIT, until};

/// A member: its process, while it runs.
struct Member {
    /// What it is started with, and in.
    command: Vec<String>,
    url: String,
    process: Option<Child>,
}

/// A cluster.
pub(super) struct Cluster {
    members: Vec<Member>,
    /// What `etcdctl` is told, and in what it runs.
    ctl: Vec<String>,
    pub(super) dir: TestDir,
}

/// Host, port for clients, port for members.
type Address = (String, u16, u16);

/// Where members are, and how they are reached.
pub(super) struct Places {
    pub(super) members: Vec<Address>,
    /// What is put before each member's command.
    pub(super) within: Vec<Vec<String>>,
    /// Which etcd it is.
    pub(super) program: String,
    pub(super) scheme: &'static str,
    /// More arguments for every member.
    pub(super) more: Vec<String>,
    /// What runs `etcdctl`, with what it has to be told.
    pub(super) ctl: Vec<String>,
}

impl Places {
    /// So many on this machine.
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

    /// In the first places of a network. `etcdctl` asks from the last one's side, which is never cut off from itself.
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

/// Each etcd there is: Debian's, and a current one where `scripts/deps.sh` could build it.
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
    /// So many members of this etcd.
    pub(super) fn of(program: &str, count: usize) -> Cluster {
        Cluster::start_in(TestDir::new(), Places { program: program.to_owned(), ..Places::here(count) })
    }

    /// So many members.
    pub(super) fn start(count: usize) -> Cluster {
        Cluster::start_with(count, &[])
    }

    /// With more arguments for every member.
    pub(super) fn start_with(count: usize, more: &[&str]) -> Cluster {
        let more = more.iter().map(ToString::to_string).collect();
        Cluster::start_in(TestDir::new(), Places { more, ..Places::here(count) })
    }

    /// Members in these places, with what they keep in `dir`.
    pub(super) fn start_in(dir: TestDir, places: Places) -> Cluster {
        let Places { members, within, program, scheme, more, ctl } = places;
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
                // A busy machine must not have members vote all the time.
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

    /// Has every key answered for by a majority.
    pub(super) fn wait(&self) {
        until("the cluster answers", || self.ctl(&["get", "any"]).is_some());
    }

    /// Starts a member, again or for the first time.
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

    /// Stops a member without anybody's being told, or has it go on.
    pub(super) fn pause(&self, member: usize, pauses: bool) {
        let id = self.members[member].process.as_ref().unwrap().id().to_string();
        let signal = if pauses { "-STOP" } else { "-CONT" };
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    pub(super) fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.url.clone()).collect()
    }

    /// Which member this is.
    pub(super) fn index_of(&self, url: &str) -> usize {
        self.members.iter().position(|member| member.url == url).unwrap()
    }

    /// What `etcdctl` says, asked of all members that run; `None` where it fails.
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

    /// As [`Cluster::ctl`], tried until it works: a cluster may be about to choose a leader.
    pub(super) fn must(&self, arguments: &[&str]) -> String {
        let begin = Instant::now();
        loop {
            if let Some(said) = self.ctl(arguments) {
                return said;
            }
            assert!(begin.elapsed() < WAIT, "etcdctl {arguments:?} never worked");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The member that leads.
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

    /// What a node in this cluster is set to: impatient, as tests are.
    pub(super) fn settings(&self) -> EtcdSettings {
        let mut settings = EtcdSettings::new(self.urls(), "/apisix");
        settings.start_timeout = WAIT;
        settings.write_timeout = WAIT;
        settings
    }

    /// A node's store, with a directory of its own of this name.
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

/// A store and what it tells.
pub(super) struct Node {
    pub(super) opened: OpenedEtcdStore,
    pub(super) problems: Arc<std::sync::Mutex<Vec<yumen_base::Problem>>>,
}

impl Node {
    pub(super) fn open(place: PathBuf, settings: EtcdSettings) -> Result<Node, crate::StoreError> {
        let problems = Arc::new(std::sync::Mutex::default());
        let told = problems.clone();
        let opened = EtcdStore::open(
            &place,
            None,
            settings,
            Box::new(move |now| *told.lock().unwrap() = now),
            Arc::default(),
        )?;
        Ok(Node { opened, problems })
    }

    pub(super) fn store(&self) -> &EtcdStore {
        &self.opened.store
    }

    /// The problems as a reader sees them.
    pub(super) fn problems(&self) -> String {
        let problems = self.problems.lock().unwrap();
        problems.iter().map(|problem| format!("{problem}\n")).collect()
    }
}

/// A port nobody else is given: below those the system hands out by itself.
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
