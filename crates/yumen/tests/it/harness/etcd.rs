//! A cluster of etcd with members that can be killed and stopped, and gateways on it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::{Client, Gateway, Options, Place, Reply, Scratch, eventually, free_port};

/// Longer than any step takes on a working machine.
pub(crate) const WAIT_S: u64 = 60;
/// The admin key of every gateway here.
pub(crate) const KEY: &str = "7c1f0a9d5e3b48268f6a1d4c92e0b357";

struct Member {
    place: Place,
    client: SocketAddr,
    peer: SocketAddr,
    process: Option<Child>,
}

/// The cluster; ends with the test.
pub(crate) struct Etcd {
    members: Vec<Member>,
    scratch: Scratch,
    /// Election timeout in milliseconds, long enough for a busy machine.
    election_ms: u32,
}

impl Etcd {
    /// A cluster of `count` members that is ready.
    pub(crate) fn start(count: usize) -> Etcd {
        let member =
            |_| Member { place: Place::default(), client: free_port(), peer: free_port(), process: None };
        Etcd::of((0..count).map(member).collect(), 2000)
    }

    /// A ready cluster with a member in each of these places, with a short election timeout.
    pub(crate) fn at(places: &[Place]) -> Etcd {
        let at = |place: &Place, port| SocketAddr::new(place.host, port);
        let member = |place: &Place| Member {
            place: place.clone(),
            client: at(place, 2379),
            peer: at(place, 2380),
            process: None,
        };
        Etcd::of(places.iter().map(member).collect(), 1000)
    }

    fn of(members: Vec<Member>, election_ms: u32) -> Etcd {
        let count = members.len();
        let mut etcd = Etcd { members, scratch: Scratch::new(), election_ms };
        (0..count).for_each(|i| etcd.launch(i));
        etcd.wait();
        etcd
    }

    /// Starts a member, for the first time or again.
    pub(crate) fn launch(&mut self, i: usize) {
        let peers: Vec<String> =
            self.members.iter().enumerate().map(|(i, one)| format!("m{i}=http://{}", one.peer)).collect();
        let Member { place, client, peer, process } = &mut self.members[i];
        let (url, peer) = (format!("http://{client}"), format!("http://{peer}"));
        let log = self.scratch.file(&format!("m{i}.log"));
        let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let started = place
            .command("etcd")
            .args(["--name", &format!("m{i}")])
            .args(["--data-dir", &self.scratch.file(&format!("m{i}")).display().to_string()])
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &peers.join(","), "--log-level", "error"])
            .args(["--heartbeat-interval", &(self.election_ms / 10).to_string()])
            .args(["--election-timeout", &self.election_ms.to_string()])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        *process = Some(started.expect("etcd is installed: scripts/deps.sh test"));
    }

    /// Waits for a quorum.
    pub(crate) fn wait(&self) {
        eventually("etcd answers", WAIT_S, || self.ctl(&["get", "any"]).is_some());
    }

    /// Kills a member.
    pub(crate) fn kill(&mut self, i: usize) {
        if let Some(mut process) = self.members[i].process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// The process id of a member.
    pub(crate) fn pid(&self, i: usize) -> u32 {
        self.members[i].process.as_ref().expect("the member runs").id()
    }

    /// The output of `etcdctl`; `None` if it fails.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> Option<String> {
        let output = self.ctl_command(arguments).output();
        let output = output.expect("etcdctl is installed: scripts/deps.sh test");
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// An `etcdctl` command that uses all members.
    pub(crate) fn ctl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.urls().join(",")]).args(arguments);
        command
    }

    /// The index of the leader.
    pub(crate) fn leader(&self) -> usize {
        let mut leader = None;
        eventually("somebody leads", WAIT_S, || {
            let endpoint_status = self.ctl(&["endpoint", "status", "-w", "json"]).unwrap_or_default();
            let endpoint_status: Value = serde_json::from_str(&endpoint_status).unwrap_or_default();
            let leads = |status: &Value| {
                let status = &status["Status"];
                !status["leader"].is_null() && status["leader"] == status["header"]["member_id"]
            };
            leader = endpoint_status.as_array().and_then(|all| all.iter().position(leads));
            leader.is_some()
        });
        leader.expect("just seen")
    }

    /// The client addresses of the members.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.client).collect()
    }

    fn urls(&self) -> Vec<String> {
        self.addresses().iter().map(|address| format!("http://{address}")).collect()
    }

    /// A gateway with this name on the cluster; `more` are further settings of `store.etcd`.
    pub(crate) fn gateway(&self, name: &str, more: &str) -> Gateway {
        self.gateway_by(&self.urls(), name, more)
    }

    /// A gateway with this name on the cluster; `more` are further node settings.
    pub(crate) fn gateway_with(&self, name: &str, more: &str) -> Gateway {
        let node = self.node(&self.urls(), name, "") + more;
        Gateway::launch(Scratch::new(), &Options { node: &node, ..Options::default() }, &[])
    }

    /// A gateway that connects to the members through these URLs.
    pub(crate) fn gateway_by(&self, urls: &[String], name: &str, more: &str) -> Gateway {
        self.gateway_in(Place::default(), urls, name, more)
    }

    /// A gateway in another place.
    pub(crate) fn gateway_at(&self, place: Place, name: &str, more: &str) -> Gateway {
        self.gateway_in(place, &self.urls(), name, more)
    }

    fn gateway_in(&self, place: Place, urls: &[String], name: &str, more: &str) -> Gateway {
        let node = self.node(urls, name, more);
        Gateway::launch(Scratch::new(), &Options { node: &node, place, ..Options::default() }, &[])
    }

    fn node(&self, urls: &[String], name: &str, more: &str) -> String {
        format!(
            "admin: {{keys: [{{name: ann, key: {KEY}}}]}}\nstore:\n  kind: etcd\n  data_dir: {}\n  etcd: {{host: {:?}, start_wait_ms: 60000, node_name: {name}{more}}}\n",
            self.scratch.file(name).display(),
            urls,
        )
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|i| self.kill(i));
    }
}

/// A proxy to a member that can hold the traffic in either direction, unnoticed by both sides.
pub(crate) struct Cable {
    address: SocketAddr,
    is_paused: Arc<[AtomicBool; 2]>,
}

impl Cable {
    /// A proxy to this address; ends with the test.
    pub(crate) fn to(member: SocketAddr) -> Cable {
        Cable::from(Place::default(), member)
    }

    /// A proxy to this address as seen from a place.
    pub(crate) fn from(place: Place, member: SocketAddr) -> Cable {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_paused = Arc::<[AtomicBool; 2]>::default();
        let used = is_paused.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                // A dead member appears as a closed connection.
                let Ok(far) = place.connect(member) else { continue };
                let (near_in, far_in) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let (to_member, back) = (used.clone(), used.clone());
                std::thread::spawn(move || carry(near_in, far, &to_member[0]));
                std::thread::spawn(move || carry(far_in, near, &back[1]));
            }
        });
        Cable { address, is_paused }
    }

    /// The address of the proxy.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address as a URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Holds or forwards requests and responses; held bytes arrive late.
    pub(crate) fn hold(&self, requests: bool, answers: bool) {
        self.is_paused[0].store(requests, Ordering::SeqCst);
        self.is_paused[1].store(answers, Ordering::SeqCst);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_paused: &AtomicBool) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        // The interval of looks at the switch.
        while is_paused.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// One request to the Admin API, with further fields.
pub(crate) fn ask(gateway: &Gateway, method: &str, path: &str, fields: &str, body: &str) -> Reply {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: admin\r\nX-API-KEY: {KEY}\r\n{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    Client::connect(gateway.admin).send(request).reply()
}

/// The cluster view of a node.
pub(crate) fn cluster(gateway: &Gateway) -> Value {
    ask(gateway, "GET", "/yumen/v1/cluster", "", "").json()
}

/// Sends a signal to a process, by its `kill` option.
pub(crate) fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}
