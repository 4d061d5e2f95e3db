//! A cluster of etcd whose members can be killed and stopped, and gateways on it.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{Client, Gateway, Options, Reply, Scratch, eventually};
use crate::etcd::free_port;

/// Longer than anything takes on a machine that works at all.
pub(crate) const WAIT_S: u64 = 60;
/// Of every gateway here.
pub(crate) const KEY: &str = "7c1f0a9d5e3b48268f6a1d4c92e0b357";

struct Member {
    client: SocketAddr,
    peer: SocketAddr,
    process: Option<Child>,
}

/// The cluster; ends with the test.
pub(crate) struct Etcd {
    members: Vec<Member>,
    scratch: Scratch,
}

impl Etcd {
    /// So many members, which answer.
    pub(crate) fn start(count: usize) -> Etcd {
        let member = |_| Member { client: free_port(), peer: free_port(), process: None };
        let mut etcd = Etcd { members: (0..count).map(member).collect(), scratch: Scratch::new() };
        (0..count).for_each(|i| etcd.launch(i));
        etcd.wait();
        etcd
    }

    /// Starts a member, again or for the first time.
    pub(crate) fn launch(&mut self, i: usize) {
        let peers: Vec<String> =
            self.members.iter().enumerate().map(|(i, one)| format!("m{i}=http://{}", one.peer)).collect();
        let Member { client, peer, process } = &mut self.members[i];
        let (url, peer) = (format!("http://{client}"), format!("http://{peer}"));
        let log = self.scratch.file(&format!("m{i}.log"));
        let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let started = Command::new("etcd")
            .args(["--name", &format!("m{i}")])
            .args(["--data-dir", &self.scratch.file(&format!("m{i}")).display().to_string()])
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &peers.join(","), "--log-level", "error"])
            // A busy machine must not have members vote all the time.
            .args(["--heartbeat-interval", "200", "--election-timeout", "2000"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        *process = Some(started.expect("etcd is installed: scripts/deps.sh test"));
    }

    /// Waits until a majority answers.
    pub(crate) fn wait(&self) {
        eventually("etcd answers", WAIT_S, || self.ctl(&["get", "any"]).is_some());
    }

    /// Ends a member as a crash does.
    pub(crate) fn kill(&mut self, i: usize) {
        if let Some(mut process) = self.members[i].process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// The process of a member.
    pub(crate) fn pid(&self, i: usize) -> u32 {
        self.members[i].process.as_ref().expect("the member runs").id()
    }

    /// What `etcdctl` prints; `None` where it fails.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.urls().join(",")]).args(arguments);
        let output = command.output().expect("etcdctl is installed: scripts/deps.sh test");
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("http://{}", member.client)).collect()
    }

    /// A gateway of this name on the cluster, with more settings of `store.etcd`.
    pub(crate) fn gateway(&self, name: &str, more: &str) -> Gateway {
        let node = format!(
            "admin: {{keys: [{{name: ann, key: {KEY}}}]}}\nstore:\n  kind: etcd\n  data_dir: {}\n  etcd: {{host: {:?}, start_wait_ms: 60000, node_name: {name}{more}}}\n",
            self.scratch.file(name).display(),
            self.urls(),
        );
        Gateway::launch(Scratch::new(), &Options { node: &node, ..Options::default() }, &[])
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|i| self.kill(i));
    }
}

/// One request to the Admin API, with more header lines.
pub(crate) fn ask(gateway: &Gateway, method: &str, path: &str, fields: &str, body: &str) -> Reply {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: admin\r\nX-API-KEY: {KEY}\r\n{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    Client::connect(gateway.admin).send(request).reply()
}

/// What a node tells of its cluster.
pub(crate) fn cluster(gateway: &Gateway) -> Value {
    ask(gateway, "GET", "/yumen/v1/cluster", "", "").json()
}

/// Sends a process a signal, by `kill`'s name of it.
pub(crate) fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}
